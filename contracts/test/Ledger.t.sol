// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Ledger} from "../Ledger.sol";
import {LogProof} from "../LogProof.sol";
import {Role} from "../Types.sol";
import {World} from "./base/World.sol";

contract LedgerTest is World {
    // --- epochs ---

    function test_a_commit_moves_the_head_and_stores_the_last_beacon() public {
        commit();
        uint64 beaconBlock = ledger.epochOf(poolId, 0).beaconBlock;
        assertEq(beaconBlock, block.number + 2, "two blocks later");
        assertEq(ledger.epochBeacon(poolId, 0), 0, "not stored yet");
        mine(5);
        append("id", receivedDocument("id"));
        commit();
        assertEq(ledger.epochBeacon(poolId, 0), keccak256(abi.encode("block", beaconBlock)), "beacon");
        (uint64 count, uint64 size, bytes32 root, uint64 time) = ledger.head(poolId);
        assertEq(count, 2, "count");
        assertEq(size, 3, "size");
        assertEq(root, log.root(), "root");
        assertEq(time, block.timestamp, "time");
        assertEq(ledger.epochOf(poolId, 1).previousSize, 1, "previous size");
    }

    function test_only_the_coordinator_commits_and_a_revoked_one_stops_at_once() public {
        vm.expectRevert(abi.encodeWithSelector(Ledger.NotCoordinator.selector, stranger));
        vm.prank(stranger);
        ledger.commitEpoch(poolId, 0, 1, "root", new bytes32[](0));
        vm.prank(creator);
        pools.revokeKey(poolId, Role.Coordinator);
        vm.expectRevert(abi.encodeWithSelector(Ledger.NotCoordinator.selector, coordinator));
        vm.prank(coordinator);
        ledger.commitEpoch(poolId, 0, 1, "root", new bytes32[](0));
    }

    function test_epochs_come_in_order_grow_and_never_rewrite() public {
        commit();
        commit();
        log.append("more");
        bytes32[] memory proof = log.consistency(2);
        bytes32 root = log.root();
        vm.startPrank(coordinator);
        vm.expectRevert(abi.encodeWithSelector(Ledger.EpochOutOfOrder.selector, 3, 2));
        ledger.commitEpoch(poolId, 3, 3, root, proof);
        vm.expectRevert(abi.encodeWithSelector(Ledger.LogMustGrow.selector, 2, 2));
        ledger.commitEpoch(poolId, 2, 2, root, proof);
        vm.expectRevert(Ledger.LogInconsistent.selector);
        ledger.commitEpoch(poolId, 2, 3, "rewritten", proof);
        vm.expectRevert(Ledger.HashZero.selector);
        ledger.commitEpoch(poolId, 2, 3, 0, proof);
        ledger.commitEpoch(poolId, 2, 3, root, proof);
        vm.stopPrank();
    }

    function test_the_first_epoch_is_not_empty() public {
        vm.expectRevert(abi.encodeWithSelector(Ledger.LogMustGrow.selector, 0, 0));
        vm.prank(coordinator);
        ledger.commitEpoch(poolId, 0, 0, "root", new bytes32[](0));
    }

    function test_a_commit_before_the_beacon_block_leaves_sealing_to_anybody() public {
        commit();
        commit();
        assertEq(ledger.epochBeacon(poolId, 0), 0, "not stored");
        uint64 beaconBlock = ledger.epochOf(poolId, 0).beaconBlock;
        vm.expectRevert(abi.encodeWithSelector(Ledger.BeaconPending.selector, beaconBlock));
        ledger.sealEpoch(poolId, 0);
        mine(3);
        vm.prank(stranger);
        ledger.sealEpoch(poolId, 0);
        assertEq(ledger.epochBeacon(poolId, 0), keccak256(abi.encode("block", beaconBlock)), "beacon");
        vm.expectRevert(Ledger.AlreadySealed.selector);
        ledger.sealEpoch(poolId, 0);
    }

    function test_a_missed_beacon_is_armed_again_not_chosen() public {
        commit();
        mine(2 + 257);
        ledger.sealEpoch(poolId, 0);
        assertEq(ledger.epochBeacon(poolId, 0), 0, "not stored");
        assertEq(ledger.epochOf(poolId, 0).beaconBlock, block.number + 2, "armed again");
        mine(3);
        ledger.sealEpoch(poolId, 0);
        assertTrue(ledger.epochBeacon(poolId, 0) != 0, "stored");
    }

    function test_the_last_block_in_reach_still_counts() public {
        commit();
        mine(2 + 256);
        ledger.sealEpoch(poolId, 0);
        assertTrue(ledger.epochBeacon(poolId, 0) != 0, "stored");
    }

    function test_an_epoch_that_does_not_exist_reverts() public {
        vm.expectRevert(abi.encodeWithSelector(Ledger.NoSuchEpoch.selector, 0));
        ledger.sealEpoch(poolId, 0);
        vm.expectRevert(abi.encodeWithSelector(Ledger.NoSuchEpoch.selector, 0));
        ledger.epochBeacon(poolId, 0);
    }

    function test_an_epoch_settles_when_its_last_deadline_is_over() public {
        assertTrue(!ledger.isSettled(poolId, 0), "not committed");
        commit();
        pass(79);
        assertTrue(!ledger.isSettled(poolId, 0), "still open");
        pass(1);
        assertTrue(ledger.isSettled(poolId, 0), "settled");
    }

    function test_logged_submissions_are_verified_and_others_are_not() public {
        uint64 index = append("id", receivedDocument("id"));
        commit();
        bytes32 leaf = LogProof.leafHash("id", sha256(receivedDocument("id")));
        bytes32[] memory proof = log.inclusion(index, log.size);
        assertTrue(ledger.verifySubmission(poolId, 0, index, leaf, proof), "logged");
        assertTrue(!ledger.verifySubmission(poolId, 0, index, ~leaf, proof), "not logged");
    }

    function test_only_pools_opens_logs_and_changes_their_keys() public {
        bytes memory why = abi.encodeWithSelector(Ledger.NotPools.selector, creator);
        vm.startPrank(creator);
        vm.expectRevert(why);
        ledger.openPool(poolId + 1, creator, 1);
        vm.expectRevert(why);
        ledger.setCoordinator(poolId, creator);
        vm.stopPrank();
    }

    function test_the_domain_names_this_contract_and_chain() public {
        (bytes1 fields, string memory name, string memory version, uint256 chainId, address where, bytes32 salt,) =
            ledger.eip712Domain();
        assertEq(bytes32(fields), bytes32(hex"1f"), "all five fields");
        bytes32 typeHash =
            keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract,bytes32 salt)");
        bytes32 nameHash = keccak256(bytes(name));
        bytes32 versionHash = keccak256(bytes(version));
        bytes32 separator = ledger.domainSeparator();
        assertEq(separator, keccak256(abi.encode(typeHash, nameHash, versionHash, chainId, where, salt)), "separator");
        assertEq(where, address(ledger), "contract");
        assertTrue(registry.domainSeparator() != separator, "another contract, another domain");
        vm.chainId(1);
        assertEq(
            ledger.domainSeparator(), keccak256(abi.encode(typeHash, nameHash, versionHash, 1, where, salt)), "after a fork"
        );
    }

    // --- policy versions ---

    function test_versions_are_published_once_in_order_by_the_trainer() public {
        vm.startPrank(trainer);
        ledger.publishWeights(poolId, 0, "base");
        vm.expectRevert(abi.encodeWithSelector(Ledger.VersionOutOfOrder.selector, 0, 1));
        ledger.publishWeights(poolId, 0, "again");
        vm.expectRevert(abi.encodeWithSelector(Ledger.VersionOutOfOrder.selector, 2, 1));
        ledger.publishWeights(poolId, 2, "skipping");
        vm.expectRevert(Ledger.HashZero.selector);
        ledger.publishWeights(poolId, 1, 0);
        vm.stopPrank();
        vm.expectRevert(abi.encodeWithSelector(Ledger.NotTrainer.selector, coordinator));
        vm.prank(coordinator);
        ledger.publishWeights(poolId, 1, "not mine");
        assertEq(ledger.numVersions(poolId), 1, "versions");
    }

    function test_a_versions_beacon_is_stored_by_anybody_and_armed_again_when_missed() public {
        vm.prank(trainer);
        ledger.publishWeights(poolId, 0, "base");
        uint64 beaconBlock = uint64(block.number) + 2;
        vm.expectRevert(abi.encodeWithSelector(Ledger.BeaconPending.selector, beaconBlock));
        ledger.sealVersion(poolId, 0);
        mine(2 + 257);
        ledger.sealVersion(poolId, 0);
        (, uint64 rearmed, bytes32 beacon,) = ledger.versionOf(poolId, 0);
        assertEq(rearmed, block.number + 2, "armed again");
        assertEq(beacon, 0, "not stored");
        mine(3);
        vm.prank(stranger);
        ledger.sealVersion(poolId, 0);
        (,, beacon,) = ledger.versionOf(poolId, 0);
        assertEq(beacon, keccak256(abi.encode("block", rearmed)), "beacon");
        vm.expectRevert(Ledger.AlreadySealed.selector);
        ledger.sealVersion(poolId, 0);
        vm.expectRevert(abi.encodeWithSelector(Ledger.NoSuchVersion.selector, 1));
        ledger.sealVersion(poolId, 1);
    }

    // --- the ring ---

    function test_the_ring_never_drops_an_epoch_that_may_still_be_judged() public {
        uint64 ring = ledger.RING();
        for (uint64 k; k < ring; k++) {
            commit();
        }
        mine(3);
        ledger.sealEpoch(poolId, 0);
        uint256 readyTime = ledger.epochOf(poolId, 0).time + 80;
        (uint64 epoch, bytes32 root, bytes32[] memory proof) = closeEpoch();
        vm.expectRevert(abi.encodeWithSelector(Ledger.RingFull.selector, readyTime));
        vm.prank(coordinator);
        ledger.commitEpoch(poolId, epoch, log.size, root, proof);
        vm.warp(readyTime);
        vm.prank(coordinator);
        ledger.commitEpoch(poolId, epoch, log.size, root, proof);
        vm.expectRevert(abi.encodeWithSelector(Ledger.NoSuchEpoch.selector, 0));
        ledger.epochOf(poolId, 0);
        assertEq(ledger.epochBeacon(poolId, ring), 0, "no beacon of an older epoch");
        assertTrue(ledger.isSettled(poolId, 0), "gone means settled");
    }
}
