// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// An RFC 9162 log that makes roots and proofs, written as the RFC defines them (2.1.1 to 2.1.4), recursively, and so
/// unlike the code under test.
library LogTree {
    function root(bytes32[] memory leaves, uint256 from, uint256 to) internal pure returns (bytes32) {
        if (to - from == 1) return leaves[from];
        uint256 k = from + split(to - from);
        return node(root(leaves, from, k), root(leaves, k, to));
    }

    function inclusion(bytes32[] memory leaves, uint256 index, uint256 from, uint256 to)
        internal
        pure
        returns (bytes32[] memory)
    {
        if (to - from == 1) return new bytes32[](0);
        uint256 k = from + split(to - from);
        if (index < k) return append(inclusion(leaves, index, from, k), root(leaves, k, to));
        return append(inclusion(leaves, index, k, to), root(leaves, from, k));
    }

    function consistency(bytes32[] memory leaves, uint256 oldSize, uint256 newSize)
        internal
        pure
        returns (bytes32[] memory)
    {
        return _subProof(leaves, oldSize, 0, newSize, true);
    }

    function split(uint256 size) internal pure returns (uint256 k) {
        k = 1;
        while (k * 2 < size) k *= 2;
    }

    function node(bytes32 left, bytes32 right) internal pure returns (bytes32) {
        return sha256(abi.encodePacked(bytes1(0x01), left, right));
    }

    function append(bytes32[] memory path, bytes32 last) internal pure returns (bytes32[] memory longer) {
        longer = new bytes32[](path.length + 1);
        for (uint256 i; i < path.length; i++) {
            longer[i] = path[i];
        }
        longer[path.length] = last;
    }

    function _subProof(bytes32[] memory leaves, uint256 oldTo, uint256 from, uint256 to, bool complete)
        private
        pure
        returns (bytes32[] memory)
    {
        if (oldTo == to) return complete ? new bytes32[](0) : append(new bytes32[](0), root(leaves, from, to));
        uint256 k = from + split(to - from);
        if (oldTo <= k) return append(_subProof(leaves, oldTo, from, k, complete), root(leaves, k, to));
        return append(_subProof(leaves, oldTo, k, to, false), root(leaves, from, k));
    }
}
