// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {LogTree} from "./LogTree.sol";

using GrowingLogs for GrowingLog global;

/// An RFC 9162 log that only grows, with the roots of its perfect subtrees, which never change then: proofs take as many
/// hashes as the tree is high, however many leaves there are. Same roots and proofs as LogTree (LogProof.t.sol).
struct GrowingLog {
    uint64 size;
    mapping(uint256 from => mapping(uint256 to => bytes32)) perfect;
}

library GrowingLogs {
    function append(GrowingLog storage log, bytes32 leaf) internal returns (uint64 index) {
        index = log.size;
        _complete(log, index, index + 1, leaf);
    }

    /// Adds `count` leaves that nobody ever sees: each perfect subtree of them has a random root.
    function grow(GrowingLog storage log, uint64 count) internal {
        uint64 end = log.size + count;
        while (log.size < end) {
            uint64 length = 1;
            while (log.size % (2 * length) == 0 && log.size + 2 * length <= end) length *= 2;
            _complete(log, log.size, log.size + length, keccak256(abi.encode(log.size, length)));
        }
    }

    /// Back to the first `size` leaves.
    function cut(GrowingLog storage log, uint64 size) internal {
        log.size = size;
    }

    function root(GrowingLog storage log) internal view returns (bytes32) {
        return _root(log, 0, log.size);
    }

    /// The path from a leaf to the head over the first `size` leaves.
    function inclusion(GrowingLog storage log, uint256 index, uint256 size) internal view returns (bytes32[] memory) {
        return _path(log, index, 0, size);
    }

    /// That the log begins with its first `oldSize` leaves.
    function consistency(GrowingLog storage log, uint256 oldSize) internal view returns (bytes32[] memory) {
        return _subProof(log, oldSize, 0, log.size, true);
    }

    function _complete(GrowingLog storage log, uint256 from, uint256 to, bytes32 node) private {
        log.size = uint64(to);
        log.perfect[from][to] = node;
        for (uint256 length = to - from; from & length != 0; length *= 2) {
            node = LogTree.node(log.perfect[from - length][from], node);
            from -= length;
            log.perfect[from][to] = node;
        }
    }

    function _root(GrowingLog storage log, uint256 from, uint256 to) private view returns (bytes32) {
        uint256 length = to - from;
        if (length & (length - 1) == 0) return log.perfect[from][to];
        uint256 k = from + LogTree.split(length);
        return LogTree.node(_root(log, from, k), _root(log, k, to));
    }

    function _path(GrowingLog storage log, uint256 index, uint256 from, uint256 to)
        private
        view
        returns (bytes32[] memory)
    {
        if (to - from == 1) return new bytes32[](0);
        uint256 k = from + LogTree.split(to - from);
        if (index < k) return LogTree.append(_path(log, index, from, k), _root(log, k, to));
        return LogTree.append(_path(log, index, k, to), _root(log, from, k));
    }

    function _subProof(GrowingLog storage log, uint256 oldTo, uint256 from, uint256 to, bool complete)
        private
        view
        returns (bytes32[] memory)
    {
        if (oldTo == to && complete) return new bytes32[](0);
        if (oldTo == to) return LogTree.append(new bytes32[](0), _root(log, from, to));
        uint256 k = from + LogTree.split(to - from);
        if (oldTo <= k) return LogTree.append(_subProof(log, oldTo, from, k, complete), _root(log, k, to));
        return LogTree.append(_subProof(log, oldTo, k, to, false), _root(log, from, k));
    }
}
