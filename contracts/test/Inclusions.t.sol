// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bonds} from "../Bonds.sol";
import {Inclusions} from "../Inclusions.sol";
import {Ledger} from "../Ledger.sol";
import {Receipt, Submission} from "../Messages.sol";
import {Pools} from "../Pools.sol";
import {Role} from "../Types.sol";
import {Promising} from "./base/Promising.sol";

contract InclusionsTest is Promising {
    uint256 private constant SUCCESSOR = 6;

    // --- receipts ---

    function test_a_kept_promise_costs_whoever_doubted_it_the_bond() public {
        (bytes32 demandId, bytes32 id) = _demandLogged();
        assertEq(pools.bondOf(poolId, coordinator).held, 10 ether, "held");
        vm.prank(stranger);
        ledger.answerInclusion(demandId, 1, receivedDocument(id), pathOf(1, headSize(0)));
        assertEq(credits.balanceOf(coordinator), 5 ether, "the demander's bond");
        assertEq(pools.bondOf(poolId, coordinator).held, 0, "held");
        assertEq(pools.bondOf(poolId, coordinator).amount, 100 ether, "bond");
        assertEq(credits.balanceOf(address(pools)), 1_100 ether, "pools");
        vm.expectRevert(abi.encodeWithSelector(Inclusions.DemandNotOpen.selector, demandId));
        ledger.answerInclusion(demandId, 1, receivedDocument(id), pathOf(1, 3));
        pass(15);
        vm.expectRevert(abi.encodeWithSelector(Inclusions.DemandNotOpen.selector, demandId));
        ledger.enforceInclusion(demandId);
    }

    function test_a_broken_promise_costs_the_coordinator_its_share_and_stops_leasing() public {
        uint256 supply = credits.totalSupply() + 5 ether;
        bytes32 demandId = _demandBroken();
        uint256 deadline = block.timestamp + 15;
        vm.warp(deadline - 1);
        vm.expectRevert(abi.encodeWithSelector(Inclusions.DemandTooEarly.selector, deadline));
        ledger.enforceInclusion(demandId);
        assertTrue(pools.isLeasing(poolId), "a doubt alone stops nothing");
        vm.warp(deadline);
        vm.prank(stranger);
        ledger.enforceInclusion(demandId);
        assertEq(credits.balanceOf(provider), 10 ether, "its bond and as much again");
        assertEq(credits.totalSupply(), supply - 5 ether, "the rest is burned");
        assertEq(pools.bondOf(poolId, coordinator).amount, 90 ether, "bond");
        assertTrue(!pools.isLeasing(poolId), "the bond isn't whole");
        bondCoordinator(coordinator, 10 ether);
        assertTrue(pools.isLeasing(poolId), "whole again");
    }

    function test_an_answer_comes_before_the_deadline() public {
        (bytes32 demandId, bytes32 id) = _demandLogged();
        uint64 deadline = uint64(block.timestamp + 15);
        bytes32[] memory path = pathOf(1, headSize(0));
        vm.warp(deadline);
        vm.expectRevert(abi.encodeWithSelector(Inclusions.DemandTooLate.selector, deadline));
        ledger.answerInclusion(demandId, 1, receivedDocument(id), path);
        vm.warp(deadline - 1);
        ledger.answerInclusion(demandId, 1, receivedDocument(id), path);
    }

    function test_a_leaf_after_the_promised_epoch_is_no_answer() public {
        Submission memory submission = promisedSubmission(0);
        Receipt memory receipt = receiptFor(submission, 0);
        commit();
        append(receipt.submissionId, receivedDocument(receipt.submissionId));
        commit();
        bytes32 demandId = _demand(submission, receipt, COORDINATOR);
        bytes32[] memory path = pathOf(1, headSize(1));
        vm.expectRevert(abi.encodeWithSelector(Inclusions.NotPromisedInclusion.selector, 1));
        ledger.answerInclusion(demandId, 1, receivedDocument(receipt.submissionId), path);
    }

    function test_other_events_and_other_submissions_are_no_answer() public {
        (bytes32 demandId, bytes32 id) = _demandLogged();
        bytes32[] memory path = pathOf(2, headSize(0));
        vm.expectRevert(Inclusions.NotTheEvent.selector);
        ledger.answerInclusion(demandId, 2, "verdict.revealed", path);
        vm.expectRevert(Inclusions.NotTheEvent.selector);
        ledger.answerInclusion(demandId, 2, "short", path);
        path = pathOf(0, headSize(0));
        vm.expectRevert(abi.encodeWithSelector(Inclusions.NotPromisedInclusion.selector, 0));
        ledger.answerInclusion(demandId, 0, receivedDocument("another"), path);
        path = pathOf(1, headSize(0));
        vm.expectRevert(abi.encodeWithSelector(Inclusions.NotPromisedInclusion.selector, 0));
        ledger.answerInclusion(demandId, 0, receivedDocument(id), path);
    }

    function test_a_refusal_does_not_keep_the_promise_of_a_receipt() public {
        Submission memory submission = promisedSubmission(0);
        Receipt memory receipt = receiptFor(submission, 0);
        append(receipt.submissionId, refusedDocument(receipt.submissionId));
        commit();
        bytes32 demandId = _demand(submission, receipt, COORDINATOR);
        bytes32[] memory path = pathOf(0, headSize(0));
        vm.expectRevert(Inclusions.NotTheEvent.selector);
        ledger.answerInclusion(demandId, 0, refusedDocument(receipt.submissionId), path);
    }

    function test_nobody_is_bound_by_what_it_did_not_sign() public {
        Submission memory submission = promisedSubmission(0);
        Receipt memory receipt = receiptFor(submission, 0);
        commit();
        bytes memory forged = signReceipt(PROVIDER, receipt);
        bytes memory expected = abi.encodeWithSelector(Bonds.NotAnswerable.selector, provider, 0);
        _prepare(provider);
        vm.expectRevert(expected);
        vm.prank(provider);
        ledger.demandInclusion(submission, receipt, forged);
        bytes memory signature = signReceipt(COORDINATOR, receipt);
        submission.counter = 1;
        bytes32 other = this.submissionDigest(submission);
        vm.expectRevert(abi.encodeWithSelector(Inclusions.NotReceiptOf.selector, other));
        vm.prank(provider);
        ledger.demandInclusion(submission, receipt, signature);
    }

    function test_a_receipt_of_one_pool_binds_nobody_in_another() public {
        Submission memory submission = promisedSubmission(0);
        Receipt memory receipt = receiptFor(submission, 0);
        bytes memory signature = signReceipt(COORDINATOR, receipt);
        pools.createPool(config());
        submission.poolId = poolId + 1;
        bytes32 other = this.submissionDigest(submission);
        vm.expectRevert(abi.encodeWithSelector(Inclusions.NotReceiptOf.selector, other));
        ledger.demandInclusion(submission, receipt, signature);
    }

    function test_a_promise_is_demanded_once_after_its_epoch_and_before_that_settles() public {
        Submission memory submission = promisedSubmission(0);
        Receipt memory receipt = receiptFor(submission, 0);
        bytes memory signature = signReceipt(COORDINATOR, receipt);
        _prepare(provider);
        vm.startPrank(provider);
        vm.expectRevert(abi.encodeWithSelector(Ledger.NoSuchEpoch.selector, 0));
        ledger.demandInclusion(submission, receipt, signature);
        vm.stopPrank();
        commit();
        uint64 settledTime = uint64(block.timestamp + 80);
        vm.startPrank(provider);
        vm.warp(settledTime);
        vm.expectRevert(abi.encodeWithSelector(Inclusions.DemandTooLate.selector, settledTime));
        ledger.demandInclusion(submission, receipt, signature);
        vm.warp(settledTime - 1);
        bytes32 demandId = ledger.demandInclusion(submission, receipt, signature);
        vm.expectRevert(abi.encodeWithSelector(Inclusions.DemandExists.selector, demandId));
        ledger.demandInclusion(submission, receipt, signature);
        vm.stopPrank();
    }

    function test_a_replaced_coordinator_still_answers_for_its_own_epochs_only() public {
        Submission memory kept = promisedSubmission(0);
        Receipt memory receipt = receiptFor(kept, 0);
        Receipt memory late = receiptFor(promisedSubmission(1), 1);
        commit();
        _handOver();
        _demand(kept, receipt, COORDINATOR);
        (uint64 epoch, bytes32 root, bytes32[] memory path) = closeEpoch();
        vm.prank(vm.addr(SUCCESSOR));
        ledger.commitEpoch(poolId, epoch, log.size, root, path);
        bytes memory signature = signReceipt(COORDINATOR, late);
        Submission memory unkept = promisedSubmission(1);
        vm.expectRevert(abi.encodeWithSelector(Bonds.NotAnswerable.selector, coordinator, 1));
        ledger.demandInclusion(unkept, late, signature);
    }

    // --- forced intake ---

    function test_an_eligible_node_forces_its_submission_in_once() public {
        commit();
        vm.prank(node);
        ledger.forceIntake(poolId, "id");
        assertEq(ledger.forcedIntake(poolId, "id"), 3, "by epoch 2");
        vm.expectRevert(abi.encodeWithSelector(Inclusions.AlreadyForced.selector, bytes32("id")));
        vm.prank(otherNode);
        ledger.forceIntake(poolId, "id");
        vm.expectRevert(abi.encodeWithSelector(Inclusions.NotEligible.selector, stranger));
        vm.prank(stranger);
        ledger.forceIntake(poolId, "another");
        vm.expectRevert(Inclusions.IdZero.selector);
        vm.prank(node);
        ledger.forceIntake(poolId, 0);
        vm.expectRevert(abi.encodeWithSelector(Pools.NoSuchPool.selector, poolId + 1));
        vm.prank(node);
        ledger.forceIntake(poolId + 1, "id");
    }

    function test_a_removed_or_underallotted_node_forces_nothing() public {
        vm.prank(provider);
        registry.deallot(node, poolId, 100 ether + 1);
        vm.expectRevert(abi.encodeWithSelector(Inclusions.NotEligible.selector, node));
        vm.prank(node);
        ledger.forceIntake(poolId, "id");
        vm.prank(otherNode);
        registry.removeNode(otherNode);
        vm.expectRevert(abi.encodeWithSelector(Inclusions.NotEligible.selector, otherNode));
        vm.prank(otherNode);
        ledger.forceIntake(poolId, "id");
    }

    function test_pausing_the_pool_does_not_help_against_a_forced_intake() public {
        vm.prank(creator);
        pools.setPaused(poolId, true);
        vm.prank(node);
        ledger.forceIntake(poolId, "id");
        assertEq(ledger.forcedIntake(poolId, "id"), 2, "by epoch 1");
    }

    function test_a_forced_submission_is_received_or_refused_with_a_reason() public {
        vm.startPrank(node);
        ledger.forceIntake(poolId, "id");
        ledger.forceIntake(poolId, "bad");
        vm.stopPrank();
        append("id", receivedDocument("id"));
        append("bad", refusedDocument("bad"));
        commit();
        commit();
        bytes32 first = _demandForced("id");
        bytes32 second = _demandForced("bad");
        ledger.answerInclusion(first, 0, receivedDocument("id"), pathOf(0, headSize(1)));
        ledger.answerInclusion(second, 1, refusedDocument("bad"), pathOf(1, headSize(1)));
        assertEq(credits.balanceOf(coordinator), 10 ether, "two bonds");
    }

    function test_a_forced_submission_that_the_log_passes_over_costs_the_coordinator() public {
        vm.prank(node);
        ledger.forceIntake(poolId, "id");
        commit();
        give(provider, address(pools), 5 ether);
        vm.expectRevert(abi.encodeWithSelector(Ledger.NoSuchEpoch.selector, 1));
        vm.prank(provider);
        ledger.demandForced(poolId, "id", coordinator);
        commit();
        bytes32 demandId = _demandForced("id");
        pass(15);
        ledger.enforceInclusion(demandId);
        assertEq(pools.bondOf(poolId, coordinator).amount, 90 ether, "bond");
    }

    function test_a_forced_intakes_demand_is_known_beforehand() public {
        vm.prank(node);
        ledger.forceIntake(poolId, "id");
        commit();
        commit();
        give(stranger, address(pools), 5 ether);
        vm.prank(stranger);
        bytes32 demandId = ledger.demandForced(poolId, "id", coordinator);
        assertEq(demandId, ledger.forcedDemandId(poolId, "id", coordinator), "the demand's id");
        assertEq(ledger.demandOf(demandId).submissionId, "id", "whose it is");
        assertTrue(ledger.demandOf(demandId).isForced, "forced");
    }

    function test_what_nobody_forced_is_not_demanded_nor_from_whom_it_was_not_up_to() public {
        vm.expectRevert(abi.encodeWithSelector(Inclusions.NotForced.selector, bytes32("id")));
        ledger.demandForced(poolId, "id", coordinator);
        vm.prank(node);
        ledger.forceIntake(poolId, "id");
        commit();
        commit();
        _handOver();
        vm.expectRevert(abi.encodeWithSelector(Bonds.NotAnswerable.selector, vm.addr(SUCCESSOR), 1));
        ledger.demandForced(poolId, "id", vm.addr(SUCCESSOR));
        _demandForced("id");
    }

    // --- both ---

    function testFuzz_only_the_promised_leaf_answers(uint8 numLeaves, uint8 place, uint8 shown, bool known) public {
        uint64 size = uint64(bound(numLeaves, 1, 40));
        uint64 index = uint64(bound(place, 0, size - 1));
        Submission memory submission = promisedSubmission(place);
        Receipt memory receipt = receiptFor(submission, 0);
        bytes32 id = receipt.submissionId;
        for (uint64 i; i < size; i++) {
            bytes32 subject = i == index ? id : bytes32(uint256(i + 1));
            append(subject, receivedDocument(subject));
        }
        commit();
        bytes32 demandId = _demand(submission, receipt, COORDINATOR);
        uint64 shownIndex = known ? index : uint64(bound(shown, 0, size - 1));
        bytes32[] memory path = pathOf(shownIndex, headSize(0));
        if (shownIndex != index) vm.expectRevert();
        ledger.answerInclusion(demandId, shownIndex, receivedDocument(id), path);
        bool isKept = ledger.demandOf(demandId).state == Inclusions.DemandState.Answered;
        assertTrue(isKept == (shownIndex == index), "answered");
    }

    // --- inside ---

    /// A demand for the second of four leaves.
    function _demandLogged() private returns (bytes32 demandId, bytes32 id) {
        Submission memory submission = promisedSubmission(0);
        Receipt memory receipt = receiptFor(submission, 0);
        id = receipt.submissionId;
        append("another", receivedDocument("another"));
        append(id, receivedDocument(id));
        append(id, "verdict.revealed");
        commit();
        demandId = _demand(submission, receipt, COORDINATOR);
    }

    function _demandBroken() private returns (bytes32) {
        Submission memory submission = promisedSubmission(0);
        Receipt memory receipt = receiptFor(submission, 0);
        commit();
        return _demand(submission, receipt, COORDINATOR);
    }

    function _demand(Submission memory submission, Receipt memory receipt, uint256 key) private returns (bytes32) {
        bytes memory signature = signReceipt(key, receipt);
        _prepare(provider);
        vm.prank(provider);
        return ledger.demandInclusion(submission, receipt, signature);
    }

    function _demandForced(bytes32 id) private returns (bytes32) {
        _prepare(provider);
        vm.prank(provider);
        return ledger.demandForced(poolId, id, coordinator);
    }

    function _prepare(address demander) private {
        give(demander, address(pools), 5 ether);
    }

    function _handOver() private {
        vm.prank(creator);
        pools.proposeKey(poolId, Role.Coordinator, vm.addr(SUCCESSOR));
        vm.prank(vm.addr(SUCCESSOR));
        pools.acceptKey(poolId, Role.Coordinator);
    }
}
