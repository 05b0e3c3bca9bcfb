// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {LogProof} from "../LogProof.sol";
import {LogTree} from "./base/LogTree.sol";
import {Test} from "./base/Test.sol";

contract LogProofTest is Test {
    uint256 private constant MAX = 33;

    function isIncluded(uint64 index, uint64 size, bytes32 root, bytes32 leaf, bytes32[] calldata proof)
        external
        view
        returns (bool)
    {
        return LogProof.isIncluded(index, size, root, leaf, proof);
    }

    function isConsistent(uint64 oldSize, uint64 newSize, bytes32 oldRoot, bytes32 newRoot, bytes32[] calldata proof)
        external
        view
        returns (bool)
    {
        return LogProof.isConsistent(oldSize, newSize, oldRoot, newRoot, proof);
    }

    function test_leaf_hash_is_sha256_of_prefix_subject_and_document() public view {
        bytes32 expected = sha256(abi.encodePacked(bytes1(0), bytes32("subject"), bytes32("document")));
        assertEq(LogProof.leafHash("subject", "document"), expected, "leaf hash");
    }

    function test_every_honest_inclusion_holds_and_no_other_leaf_does() public view {
        for (uint64 size = 1; size <= MAX; size++) {
            bytes32[] memory leaves = _leaves(size);
            bytes32 root = LogTree.root(leaves, 0, size);
            for (uint64 index; index < size; index++) {
                bytes32[] memory proof = LogTree.inclusion(leaves, index, 0, size);
                assertTrue(this.isIncluded(index, size, root, leaves[index], proof), "honest inclusion");
                assertTrue(!this.isIncluded(index, size, root, ~leaves[index], proof), "another leaf");
                assertTrue(!this.isIncluded(index + 1, size, root, leaves[index], proof), "another place");
                assertTrue(!this.isIncluded(size, size, root, leaves[index], proof), "past the end");
            }
        }
    }

    function test_every_honest_consistency_holds_and_no_other_root_does() public view {
        for (uint64 newSize = 2; newSize <= MAX; newSize++) {
            bytes32[] memory leaves = _leaves(newSize);
            bytes32 newRoot = LogTree.root(leaves, 0, newSize);
            for (uint64 oldSize = 1; oldSize < newSize; oldSize++) {
                bytes32 oldRoot = LogTree.root(leaves, 0, oldSize);
                bytes32[] memory proof = LogTree.consistency(leaves, oldSize, newSize);
                assertTrue(this.isConsistent(oldSize, newSize, oldRoot, newRoot, proof), "honest consistency");
                assertTrue(!this.isConsistent(oldSize, newSize, ~oldRoot, newRoot, proof), "another old root");
                assertTrue(!this.isConsistent(oldSize, newSize, oldRoot, ~newRoot, proof), "another new root");
                assertTrue(!this.isConsistent(newSize, newSize, newRoot, newRoot, proof), "nothing new");
                assertTrue(!this.isConsistent(0, newSize, oldRoot, newRoot, proof), "nothing old");
            }
        }
    }

    function testFuzz_a_changed_log_is_never_consistent(uint8 oldSeed, uint8 newSeed, uint8 changed) public view {
        uint64 newSize = uint64(bound(newSeed, 2, 100));
        uint64 oldSize = uint64(bound(oldSeed, 1, newSize - 1));
        bytes32[] memory leaves = _leaves(newSize);
        bytes32 oldRoot = LogTree.root(leaves, 0, oldSize);
        leaves[changed % oldSize] = "rewritten";
        bytes32[] memory proof = LogTree.consistency(leaves, oldSize, newSize);
        bytes32 newRoot = LogTree.root(leaves, 0, newSize);
        assertTrue(!this.isConsistent(oldSize, newSize, oldRoot, newRoot, proof), "a rewritten log");
    }

    function testFuzz_random_proofs_never_hold(uint64 oldSize, uint64 newSize, bytes32[] calldata proof) public view {
        vm.assume(proof.length < 100);
        assertTrue(!LogProof.isConsistent(oldSize, newSize, "old", "new", proof), "a random consistency proof");
        assertTrue(!LogProof.isIncluded(oldSize, newSize, "root", "leaf", proof), "a random inclusion proof");
    }

    function _leaves(uint256 size) private pure returns (bytes32[] memory leaves) {
        leaves = new bytes32[](size);
        for (uint256 i; i < size; i++) {
            leaves[i] = keccak256(abi.encode(i));
        }
    }
}
