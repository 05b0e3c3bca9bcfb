// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// Proofs over an append-only Merkle log in the sense of RFC 9162 (SHA-256). Same arithmetic: protocol/merkle.
/// `fn` and `sn` are the RFC's: the place, on the level that was reached, of the node in question and of the last one;
/// levels on which the last node has no sibling add nothing to a proof and are skipped.
library LogProof {
    /// A leaf names its subject, so that a contract can tie it to a submission: sha256(0x00 ‖ subject ‖ sha256(document)).
    function leafHash(bytes32 subject, bytes32 documentHash) internal view returns (bytes32) {
        return _hash(0x00, subject, documentHash);
    }

    /// Whether `leaf` stands at `index` under the head (`size`, `root`); RFC 9162, 2.1.3.2.
    function isIncluded(uint64 index, uint64 size, bytes32 root, bytes32 leaf, bytes32[] calldata proof)
        internal
        view
        returns (bool)
    {
        if (index >= size) return false;
        uint256 fn = index;
        uint256 sn = size - 1;
        bytes32 node = leaf;
        for (uint256 k; k < proof.length; k++) {
            if (sn == 0) return false;
            if (fn & 1 == 1 || fn == sn) {
                node = _hash(0x01, proof[k], node);
                while (fn & 1 == 0 && fn != 0) {
                    fn >>= 1;
                    sn >>= 1;
                }
            } else {
                node = _hash(0x01, node, proof[k]);
            }
            fn >>= 1;
            sn >>= 1;
        }
        return sn == 0 && node == root;
    }

    /// Whether the log of `newSize` leaves begins with the log of `oldSize` leaves; RFC 9162, 2.1.4.2.
    /// Requires 0 < oldSize < newSize.
    function isConsistent(uint64 oldSize, uint64 newSize, bytes32 oldRoot, bytes32 newRoot, bytes32[] calldata proof)
        internal
        view
        returns (bool)
    {
        if (oldSize == 0 || oldSize >= newSize || proof.length == 0) return false;
        uint256 fn = oldSize - 1;
        uint256 sn = newSize - 1;
        while (fn & 1 == 1) {
            fn >>= 1;
            sn >>= 1;
        }
        // A full old tree is a node of the new one, so the proof leaves it out.
        uint256 k = oldSize & (oldSize - 1) == 0 ? 0 : 1;
        bytes32 oldNode = k == 0 ? oldRoot : proof[0];
        bytes32 newNode = oldNode;
        for (; k < proof.length; k++) {
            if (sn == 0) return false;
            bytes32 sibling = proof[k];
            if (fn & 1 == 1 || fn == sn) {
                (oldNode, newNode) = _hashBoth(sibling, oldNode, newNode);
                while (fn & 1 == 0 && fn != 0) {
                    fn >>= 1;
                    sn >>= 1;
                }
            } else {
                newNode = _hash(0x01, newNode, sibling);
            }
            fn >>= 1;
            sn >>= 1;
        }
        return sn == 0 && oldNode == oldRoot && newNode == newRoot;
    }

    /// The parents of two nodes with the same left sibling. A commit can need this 26 times.
    function _hashBoth(bytes32 left, bytes32 first, bytes32 second)
        private
        view
        returns (bytes32 firstParent, bytes32 secondParent)
    {
        assembly ("memory-safe") {
            let scratch := mload(0x40)
            mstore8(scratch, 1)
            mstore(add(scratch, 1), left)
            mstore(add(scratch, 33), first)
            let done := staticcall(gas(), 2, scratch, 65, 0, 32)
            mstore(add(scratch, 33), second)
            if iszero(and(staticcall(gas(), 2, scratch, 65, 32, 32), done)) { revert(0, 0) }
            firstParent := mload(0)
            secondParent := mload(32)
        }
    }

    /// sha256(prefix ‖ left ‖ right), in assembly because a commit hashes up to 56 nodes.
    function _hash(uint8 prefix, bytes32 left, bytes32 right) private view returns (bytes32 result) {
        assembly ("memory-safe") {
            let scratch := mload(0x40)
            mstore8(scratch, prefix)
            mstore(add(scratch, 1), left)
            mstore(add(scratch, 33), right)
            // The precompile can fail only for want of gas, and then everything must.
            if iszero(staticcall(gas(), 2, scratch, 65, 0, 32)) { revert(0, 0) }
            result := mload(0)
        }
    }
}
