// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {LogTree} from "./LogTree.sol";

/// A log of any size, kept as the roots of its perfect subtrees (largest first), growing by one leaf at a time.
struct PeakLog {
    bytes32[] peaks;
    uint64 size;
}

library PeakLogs {
    /// A log of `size` leaves nobody ever saw: random peaks, one for each bit of the size.
    function start(PeakLog storage log, uint64 size) internal {
        log.size = size;
        for (uint256 bit = 64; bit > 0; bit--) {
            if (size & (1 << (bit - 1)) != 0) log.peaks.push(keccak256(abi.encode(bit)));
        }
    }

    function root(PeakLog storage log) internal view returns (bytes32 result) {
        uint256 k = log.peaks.length;
        result = log.peaks[--k];
        while (k > 0) result = LogTree.node(log.peaks[--k], result);
    }

    /// Adds a leaf. The proof of RFC 9162, 2.1.4.1 is then: the smallest old peak (unless it is the whole old tree),
    /// the leaf, and the other peaks from the smallest on.
    function grow(PeakLog storage log, bytes32 leaf) internal returns (bytes32[] memory proof) {
        uint256 num = log.peaks.length;
        proof = new bytes32[](num == 1 ? 1 : num + 1);
        uint256 next;
        if (num > 1) proof[next++] = log.peaks[num - 1];
        proof[next++] = leaf;
        for (uint256 k = num - 1; k > 0; k--) {
            proof[next++] = log.peaks[k - 1];
        }
        for (uint64 bits = log.size; bits & 1 == 1; bits >>= 1) {
            leaf = LogTree.node(log.peaks[log.peaks.length - 1], leaf);
            log.peaks.pop();
        }
        log.peaks.push(leaf);
        log.size++;
    }
}
