// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {LogProof} from "../LogProof.sol";
import {GrowingLog} from "./base/GrowingLog.sol";
import {LogTree} from "./base/LogTree.sol";
import {Test} from "./base/Test.sol";

contract LogProofTest is Test {
    uint256 private constant MAX = 33;

    GrowingLog private _log;

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

    /// The log that other tests keep is the one that the RFC defines.
    function test_a_growing_log_has_the_roots_and_proofs_of_the_definition() public {
        bytes32[] memory leaves = _leaves(MAX);
        for (uint64 size = 1; size <= MAX; size++) {
            _log.append(leaves[size - 1]);
            assertEq(_log.root(), LogTree.root(leaves, 0, size), "root");
            for (uint64 k = 1; k <= size; k++) {
                assertEq(hashOf(_log.consistency(k)), hashOf(LogTree.consistency(leaves, k, size)), "consistency");
                assertEq(hashOf(_log.inclusion(k - 1, size)), hashOf(LogTree.inclusion(leaves, k - 1, 0, size)), "path");
            }
        }
    }

    function test_a_log_of_unseen_leaves_grows_consistently_and_a_cut_one_goes_on() public {
        for (uint64 count = 1; count < MAX; count++) {
            uint64 oldSize = _log.size;
            bytes32 oldRoot = oldSize == 0 ? bytes32(0) : _log.root();
            _log.grow(count);
            if (oldSize == 0) continue;
            assertTrue(this.isConsistent(oldSize, _log.size, oldRoot, _log.root(), _log.consistency(oldSize)), "grown");
        }
        _log.cut(5);
        bytes32 cutRoot = _log.root();
        _log.append("another history");
        assertTrue(this.isConsistent(5, 6, cutRoot, _log.root(), _log.consistency(5)), "the cut log and one more");
    }

    function hashOf(bytes32[] memory proof) internal pure returns (bytes32) {
        return keccak256(abi.encode(proof));
    }

    function _leaves(uint256 size) private pure returns (bytes32[] memory leaves) {
        leaves = new bytes32[](size);
        for (uint256 i; i < size; i++) {
            leaves[i] = keccak256(abi.encode(i));
        }
    }
}
