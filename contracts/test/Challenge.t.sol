// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bench} from "../Bench.sol";
import {Cases} from "../Cases.sol";
import {Court} from "../Court.sol";
import {Ledger} from "../Ledger.sol";
import {Panels} from "../Panels.sol";
import {Evidence} from "../Evidence.sol";
import {Vote} from "../Types.sol";
import {Judging} from "./base/Judging.sol";

/// An outsider's challenge: what it must show, and who pays.
contract ChallengeTest is Judging {
    function test_a_challenge_holds_stake_and_summons_a_jury() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = challengeBy(stranger, a);
        assertEq(id, idOf(a.submission), "the case's id");
        stateIs(id, Cases.CaseState.Challenged);
        assertEq(registry.allotmentOf(node, poolId).held, 20 ether, "held stake");
        assertEq(ledger.withheld(poolId, provider), 0, "no earnings: nothing shows that it had any");
        assertEq(credits.balanceOf(address(court)), BOND, "the bond");
        assertEq(court.bondOf(id).owner, stranger, "whose bond");
        assertEq(jury.panelOf(id).deadline, block.timestamp + 10, "to be seated by");
        vm.expectRevert(abi.encodeWithSelector(Cases.WrongState.selector, id, Cases.CaseState.Challenged));
        court.enforce(id);
    }

    function test_a_forgery_that_was_accepted_costs_its_provider_and_the_seats_that_accepted() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = challengeBy(stranger, a);
        court.holdPayment(id, settled(a, true));
        uint32 seat = implicateAt(a, 0);
        uint256 supply = credits.totalSupply();
        decide(id, Vote.Uphold);
        stateIs(id, Cases.CaseState.Upheld);
        assertEq(registry.allotment(node, poolId), 180 ether, "slashed");
        assertEq(ledger.withheld(poolId, provider), 1 ether, "deducted for good");
        assertEq(bondAt(seat), 45 ether, "the seat that accepted");
        assertEq(credits.balanceOf(stranger), BOND + 2 ether, "the bond, and the bounty");
        assertEq(supply - credits.totalSupply(), 18 ether + 2.5 ether + 2.5 ether % 3, "burned");
        assertEq(credits.balanceOf(jury.panelOf(id).jurors[0].validator), uint256(2.5 ether) / 3, "a juror's share");
        assertEq(credits.balanceOf(address(court)), 0, "nothing stays with the court");
    }

    function test_a_false_challenge_costs_its_bond() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = challengeBy(stranger, a);
        court.holdPayment(id, settled(a, true));
        assertEq(ledger.withheld(poolId, provider), 1 ether, "held");
        uint32 seat = implicateAt(a, 0);
        decide(id, Vote.Overturn);
        stateIs(id, Cases.CaseState.Overturned);
        assertEq(registry.allotmentOf(node, poolId).held, 0, "stake is free");
        assertEq(ledger.withheld(poolId, provider), 0, "earnings are free");
        assertEq(bondAt(seat), 50 ether, "the seat that accepted");
        assertEq(credits.balanceOf(stranger), 0, "the challenger");
        assertEq(credits.balanceOf(provider), BOND / 2, "half for the provider");
        assertEq(credits.balanceOf(jury.panelOf(id).jurors[1].validator), BOND / 2 / 3, "the rest for the jurors");
        assertEq(credits.balanceOf(address(court)), 0, "nothing stays with the court");
    }

    function test_a_challenge_that_no_jury_decides_costs_nobody() public {
        bytes32 id = challengeBy(stranger, accusation(NODE, 0));
        uint256 deadline = jury.panelOf(id).deadline;
        vm.expectRevert(abi.encodeWithSelector(Bench.TooEarly.selector, deadline));
        court.resolve(id);
        vm.warp(deadline);
        court.resolve(id);
        stateIs(id, Cases.CaseState.Lapsed);
        assertEq(credits.balanceOf(stranger), BOND, "the bond went back");
        assertEq(ledger.withheld(poolId, provider), 0, "earnings are free");
    }

    function test_the_challenger_does_not_judge() public {
        address challenger = vm.addr(FIRST_VALIDATOR);
        for (uint64 counter; counter < 4; counter++) {
            bytes32 id = challengeBy(challenger, accusation(NODE, counter));
            seatJury(id);
            for (uint256 i; i < 3; i++) {
                assertTrue(jury.panelOf(id).jurors[i].validator != challenger, "the challenger sits");
            }
        }
    }

    // --- what it was paid ---

    function test_work_that_was_never_paid_costs_no_earnings() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = challengeBy(stranger, a);
        Court.Inclusion memory rejected = settled(a, false);
        vm.expectRevert(abi.encodeWithSelector(Court.NotPaid.selector, id));
        court.holdPayment(id, rejected);
        vm.expectRevert(Evidence.NotSettlingEvent.selector);
        court.holdPayment(id, a.inclusion);
        decide(id, Vote.Uphold);
        assertEq(registry.allotment(node, poolId), 180 ether, "slashed");
        assertEq(ledger.withheld(poolId, provider), 0, "and nothing deducted");
    }

    function test_a_payment_is_held_once_and_for_its_own_submission() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 other = challengeBy(stranger, accusation(NODE, 1));
        Court.Inclusion memory leaf = settled(a, true);
        bytes32 id = idOf(a.submission);
        vm.expectRevert(abi.encodeWithSelector(Cases.WrongState.selector, id, Cases.CaseState.None));
        court.holdPayment(id, leaf);
        vm.expectRevert(Evidence.NotInLog.selector);
        court.holdPayment(other, leaf);
        challengeBy(stranger, a);
        vm.expectEmit(0);
        emit Ledger.EarningsDeducted(poolId, provider, id, 1 ether);
        court.holdPayment(id, leaf);
        vm.expectRevert(abi.encodeWithSelector(Court.PaymentHeld.selector, id));
        court.holdPayment(id, leaf);
        assertEq(ledger.withheld(poolId, provider), 1 ether, "once");
    }

    function test_what_is_paid_after_the_jurys_finding_is_deducted_then() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = challengeBy(stranger, a);
        decide(id, Vote.Uphold);
        Court.Inclusion memory leaf = settled(a, true);
        vm.expectEmit();
        emit Ledger.EarningsDeducted(poolId, provider, id, 1 ether);
        court.holdPayment(id, leaf);
        assertEq(ledger.withheld(poolId, provider), 1 ether, "deducted for good");
        assertEq(court.caseOf(id).heldEarnings, 1 ether, "the case says so");
    }

    function test_an_acquitted_providers_payment_is_out_of_reach() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = challengeBy(stranger, a);
        decide(id, Vote.Overturn);
        Court.Inclusion memory leaf = settled(a, true);
        vm.expectRevert(abi.encodeWithSelector(Cases.WrongState.selector, id, Cases.CaseState.Overturned));
        court.holdPayment(id, leaf);
    }

    // --- what it must show ---

    function test_a_challenge_shows_the_nodes_signature_and_the_log() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes memory signature = a.nodeSignature;
        a.nodeSignature = sign(OTHER_NODE, idOf(a.submission));
        _refused(a, abi.encodeWithSelector(Evidence.NotNodeSignature.selector, node));
        a.nodeSignature = signature;
        a.inclusion.document = receivedDocument("another");
        _refused(a, abi.encodeWithSelector(Evidence.NotInLog.selector));
        a.inclusion.document = settledDocument(true);
        a.inclusion.leafIndex = append(idOf(a.submission), a.inclusion.document);
        a.inclusion.epoch = commitAndSeal();
        a.inclusion.proof = log.inclusion(a.inclusion.leafIndex, log.size);
        _refused(a, abi.encodeWithSelector(Evidence.NotReceivedEvent.selector));
    }

    function test_a_challenge_comes_inside_the_window() public {
        Court.Accusation memory a = accusation(NODE, 0);
        uint256 deadline = ledger.epochOf(poolId, 0).time + 55;
        vm.warp(deadline + 1);
        _refused(a, abi.encodeWithSelector(Evidence.AccusedTooLate.selector, deadline));
        vm.warp(deadline);
        challengeBy(stranger, a);
    }

    function test_a_challenge_names_a_reason_that_the_pool_slashes() public {
        Court.Accusation memory a = accusation(NODE, 0);
        give(stranger, address(court), BOND);
        vm.startPrank(stranger);
        vm.expectRevert(abi.encodeWithSelector(Evidence.NotSlashable.selector, 35));
        court.challenge(a.submission, a.nodeSignature, a.inclusion, 35, "evidence");
        court.challenge(a.submission, a.nodeSignature, a.inclusion, 64, "evidence");
        vm.stopPrank();
    }

    function test_a_challenge_without_its_bond_reverts() public {
        Court.Accusation memory a = accusation(NODE, 0);
        vm.expectRevert();
        vm.prank(stranger);
        court.challenge(a.submission, a.nodeSignature, a.inclusion, TOPLOC_MISMATCH, "evidence");
        stateIs(idOf(a.submission), Cases.CaseState.None);
    }

    function test_a_submission_has_one_case() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = court.accuse(a);
        _refused(a, abi.encodeWithSelector(Court.CaseExists.selector, id));
        a = accusation(NODE, 1);
        id = challengeBy(stranger, a);
        _refused(a, abi.encodeWithSelector(Court.CaseExists.selector, id));
    }

    // --- an accusation by the quorum ---

    function test_who_challenges_first_does_not_keep_the_quorum_out() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = challengeBy(stranger, a);
        uint32 accepting = implicateAt(a, 2);
        seatJury(id);
        uint32 juror = jury.panelOf(id).jurors[0].seat;
        court.accuse(a);
        stateIs(id, Cases.CaseState.Accused);
        assertEq(credits.balanceOf(stranger), BOND, "the challenger's bond went back");
        assertEq(registry.allotmentOf(node, poolId).held, 20 ether, "held once");
        assertEq(ledger.withheld(poolId, provider), 0, "round 0 never paid it");
        assertEq(dutiesOf(accepting), 0, "nobody is implicated in the new case");
        assertEq(court.implicatedOf(id).length, 0, "implicated");
        assertEq(jury.panelOf(id).jurors.length, 0, "the jury is dismissed");
        assertEq(bondAt(juror), 50 ether, "without a fine");
        appealBy(provider, id);
        decide(id, Vote.Overturn);
        stateIs(id, Cases.CaseState.Overturned);
    }

    function test_a_dismissed_jury_is_seated_no_more() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = challengeBy(stranger, a);
        mine(3);
        uint32[] memory indexes = juryIndexes(id, 3);
        court.accuse(a);
        vm.expectRevert(abi.encodeWithSelector(Panels.NoJury.selector, id));
        jury.callJury(id, indexes);
    }

    function test_a_challenge_that_lapsed_does_not_keep_the_quorum_out() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = challengeBy(stranger, a);
        implicateAt(a, 0);
        decide(id, Vote.Unavailable);
        stateIs(id, Cases.CaseState.Lapsed);
        court.accuse(a);
        assertEq(court.implicatedOf(id).length, 0, "implicated");
        pass(15);
        court.enforce(id);
        assertEq(registry.allotment(node, poolId), 180 ether, "slashed");
        assertEq(registry.allotmentOf(node, poolId).numOpen, 0, "no case is open");
    }

    function test_what_a_jury_decided_is_decided() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = challengeBy(stranger, a);
        decide(id, Vote.Overturn);
        vm.expectRevert(abi.encodeWithSelector(Court.CaseExists.selector, id));
        court.accuse(a);
        a = accusation(NODE, 1);
        id = court.accuse(a);
        appealBy(provider, id);
        decide(id, Vote.Unavailable);
        vm.expectRevert(abi.encodeWithSelector(Court.CaseExists.selector, id));
        court.accuse(a);
    }

    function _refused(Court.Accusation memory a, bytes memory why) private {
        give(stranger, address(court), BOND);
        vm.expectRevert(why);
        vm.prank(stranger);
        court.challenge(a.submission, a.nodeSignature, a.inclusion, TOPLOC_MISMATCH, "evidence");
    }
}
