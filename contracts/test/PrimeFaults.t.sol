// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Court} from "../Court.sol";
import {Ledger} from "../Ledger.sol";
import {LogProof} from "../LogProof.sol";
import {Inclusions} from "../Inclusions.sol";
import {Registry} from "../Registry.sol";
import {Role} from "../Types.sol";
import {Accusing} from "./base/Accusing.sol";
import {Earning} from "./base/Earning.sol";
import {Promising} from "./base/Promising.sol";

/// What was found wrong in the contracts of Prime's network, and is shown here not to be so. All of them and their
/// tests, also those that stand elsewhere: docs/security.md.
contract PrimeFaultsTest is Accusing, Earning, Promising {
    /// There, an invalidation dropped the newest keys from the feed of work.
    function test_an_upheld_case_takes_nothing_out_of_the_log() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 later = LogProof.leafHash("later", sha256(receivedDocument("later")));
        uint64 index = append("later", receivedDocument("later"));
        uint64 epoch = commitAndSeal();
        _upheld(a);
        uint64 next = commitAndSeal();
        assertTrue(ledger.verifySubmission(poolId, epoch, index, later, pathOf(index, headSize(epoch))), "still there");
        assertTrue(ledger.verifySubmission(poolId, next, index, later, pathOf(index, headSize(next))), "and goes on");
    }

    /// There, rewards were unlocked an hour before the last moment at which work could be invalidated.
    function test_what_is_accused_at_the_last_moment_is_not_paid_yet() public {
        Court.Accusation memory a = accusation(NODE, 0);
        uint64 settling = reaudit(a, true);
        earn(settling, 3 ether, 0);
        pass(40 + 15 - 3);
        court.accuse(a);
        uint256 claimableTime = ledger.earningsOf(poolId, settling).claimableTime;
        assertTrue(claimableTime > block.timestamp, "nothing was claimable before");
        vm.warp(claimableTime);
        claimFor(settling, provider);
        assertEq(credits.balanceOf(provider), 2 ether, "all but what the case holds");
    }

    /// There, one bad key cost all the credit of its day.
    function test_one_forgery_leaves_the_pay_for_everything_else() public {
        Court.Accusation memory a = accusation(NODE, 0);
        uint64 settling = reaudit(a, true);
        earn(settling, 9 ether, 0);
        _upheld(a);
        pass(80);
        claimFor(settling, provider);
        assertEq(credits.balanceOf(provider), 8 ether, "all but the most that one task can earn");
        assertEq(registry.allotment(otherNode, poolId), 300 ether, "the other node's allotment");
        assertTrue(registry.isEligible(otherNode, poolId), "which goes on");
    }

    /// There, a provider went on submitting after its stake was gone.
    function test_a_node_that_is_slashed_below_the_minimum_gets_no_lease_and_forces_nothing() public {
        vm.prank(provider);
        registry.deallot(node, poolId, 95 ether);
        assertTrue(registry.isEligible(node, poolId), "enough before");
        _upheld(accusation(NODE, 0));
        assertTrue(registry.allotment(node, poolId) < 100 ether, "slashed");
        assertTrue(!registry.isEligible(node, poolId), "not any more");
        vm.expectRevert(abi.encodeWithSelector(Inclusions.NotEligible.selector, node));
        vm.prank(node);
        ledger.forceIntake(poolId, "id");
    }

    /// There, whoever saw a work key first could use it, and again in another pool.
    function test_a_submission_is_its_nodes_and_its_pools_and_who_posts_it_first_keeps_nobody_out() public {
        bytes32 id = this.submissionDigest(promisedSubmission(0));
        vm.prank(otherNode);
        ledger.forceIntake(poolId, id);
        vm.expectRevert(abi.encodeWithSelector(Inclusions.AlreadyForced.selector, id));
        vm.prank(node);
        ledger.forceIntake(poolId, id);
        assertEq(ledger.forcedIntake(poolId, id), 2, "what was forced is forced, whoever did it");
        vm.prank(creator);
        poolId = pools.createPool(config());
        assertTrue(this.submissionDigest(promisedSubmission(0)) != id, "another pool, another submission");
        assertEq(ledger.forcedIntake(poolId, id), 0, "not forced there");
    }

    /// There, a provider could make its own purge revert.
    function test_who_has_nothing_left_cannot_stop_its_case() public {
        Court.Accusation memory first = accusation(NODE, 0);
        vm.startPrank(provider);
        registry.deallot(node, poolId, 200 ether);
        registry.withdraw(500 ether);
        registry.removeNode(node);
        vm.stopPrank();
        pass(180);
        registry.release(node, poolId);
        vm.warp(ledger.epochOf(poolId, first.inclusion.epoch).time + 1);
        bytes32 id = court.accuse(first);
        assertEq(court.caseOf(id).heldStake, 0, "nothing to hold");
        pass(15);
        court.enforce(id);
        assertEq(registry.allotmentOf(node, poolId).numUpheld, 1, "upheld all the same");
    }

    /// There, a slash left unbondings that were over where nobody could get them.
    function test_a_slash_strands_no_stake_that_has_finished_unbonding() public {
        vm.prank(provider);
        registry.deallot(node, poolId, 50 ether);
        pass(180);
        _upheld(accusation(NODE, 0));
        uint256 free = registry.freeStake(provider);
        registry.release(node, poolId);
        assertEq(registry.freeStake(provider) - free, 50 ether, "all that was unbonding");
        assertEq(registry.allotment(node, poolId), 130 ether, "the slash came out of the rest");
    }

    /// There, events of unbonding said zero.
    function test_events_of_unbonding_say_how_much() public {
        vm.expectEmit();
        emit Registry.Deallotted(provider, node, poolId, 7 ether, uint64(block.timestamp) + 60 + UNBONDING);
        vm.prank(provider);
        registry.deallot(node, poolId, 7 ether);
        pass(60 + UNBONDING);
        vm.expectEmit();
        emit Registry.Released(provider, node, poolId, 7 ether);
        registry.release(node, poolId);
    }

    /// There, who was replaced kept the role.
    function test_who_was_replaced_is_out() public {
        vm.startPrank(creator);
        pools.proposeKey(poolId, Role.Trainer, stranger);
        pools.proposeKey(poolId, Role.Coordinator, stranger);
        vm.stopPrank();
        assertEq(pools.proposedKey(poolId, Role.Trainer), stranger, "proposed");
        vm.startPrank(stranger);
        pools.acceptKey(poolId, Role.Trainer);
        pools.acceptKey(poolId, Role.Coordinator);
        ledger.publishWeights(poolId, 0, "manifest");
        ledger.commitEpoch(poolId, 0, 1, "root", new bytes32[](0));
        vm.stopPrank();
        assertEq(pools.proposedKey(poolId, Role.Trainer), address(0), "used up");
        vm.expectRevert(abi.encodeWithSelector(Ledger.NotTrainer.selector, trainer));
        vm.prank(trainer);
        ledger.publishWeights(poolId, 1, "manifest");
        vm.expectRevert(abi.encodeWithSelector(Ledger.NotCoordinator.selector, coordinator));
        vm.prank(coordinator);
        ledger.commitEpoch(poolId, 1, 2, "root", new bytes32[](0));
    }

    function _upheld(Court.Accusation memory a) private {
        bytes32 id = court.accuse(a);
        pass(15);
        court.enforce(id);
    }
}
