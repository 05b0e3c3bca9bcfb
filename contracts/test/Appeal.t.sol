// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bench} from "../Bench.sol";
import {Cases} from "../Cases.sol";
import {Court} from "../Court.sol";
import {Evidence} from "../Evidence.sol";
import {Verdict} from "../Messages.sol";
import {SeatBook} from "../SeatBook.sol";
import {Juror, Vote} from "../Types.sol";
import {Judging} from "./base/Judging.sol";

/// Who pays whom after an appeal, and seats that accepted what is condemned.
contract AppealTest is Judging {
    // --- appeals ---

    function test_an_overturned_accusation_costs_the_accusing_seats() public {
        bytes32 id = accusedAndAppealed();
        uint32[] memory accusers = court.accusersOf(id);
        uint256 supply = credits.totalSupply();
        decide(id, Vote.Overturn);
        stateIs(id, Cases.CaseState.Overturned);
        assertEq(registry.allotment(node, poolId), 200 ether, "nothing was slashed");
        assertEq(registry.allotmentOf(node, poolId).held, 0, "nothing stays held");
        assertEq(credits.balanceOf(provider), BOND + 5 ether, "the bond, and half of what the seats paid");
        for (uint256 i; i < 2; i++) {
            (,,, uint128 bond, uint64 releaseTime, uint16 numOpen,) = registry.seatOf(poolId, accusers[i]);
            assertEq(bond, 45 ether, "a tenth of the bond");
            assertTrue(releaseTime != 0, "retired");
            assertEq(numOpen, 0, "no longer held");
        }
        _jurorsGot(id, uint256(5 ether) / 3);
        assertEq(supply - credits.totalSupply(), 5 ether % 3, "what doesn't divide is burned");
        assertEq(credits.balanceOf(address(court)), 0, "nothing stays with the court");
    }

    function test_an_upheld_appeal_costs_its_bond() public {
        bytes32 id = accusedAndAppealed();
        uint32[] memory accusers = court.accusersOf(id);
        decide(id, Vote.Uphold);
        stateIs(id, Cases.CaseState.Upheld);
        assertEq(registry.allotment(node, poolId), 180 ether, "slashed");
        assertEq(credits.balanceOf(provider), 0, "the bond is gone");
        _jurorsGot(id, BOND / 3);
        for (uint256 i; i < 2; i++) {
            assertEq(credits.balanceOf(validatorAt(accusers[i])), 1 ether, "bounty");
            assertEq(bondAt(accusers[i]), 50 ether, "bond");
            assertEq(dutiesOf(accusers[i]), 0, "no longer held");
        }
        assertEq(credits.balanceOf(address(court)), 0, "nothing stays with the court");
    }

    function test_without_evidence_the_accusation_fails_and_costs_nobody() public {
        bytes32 id = accusedAndAppealed();
        uint32[] memory accusers = court.accusersOf(id);
        uint256 supply = credits.totalSupply();
        decide(id, Vote.Unavailable);
        stateIs(id, Cases.CaseState.Lapsed);
        assertEq(credits.balanceOf(provider), BOND, "the bond went back");
        assertEq(bondAt(accusers[0]), 50 ether, "the accuser's bond");
        assertEq(dutiesOf(accusers[0]), 0, "no longer held");
        assertEq(credits.totalSupply(), supply, "nothing is burned");
    }

    function test_an_accusing_seat_cannot_leave_before_the_case_is_over() public {
        bytes32 id = court.accuse(accusation(NODE, 0));
        uint32 seat = court.accusersOf(id)[0];
        vm.startPrank(validatorAt(seat));
        registry.releaseSeat(poolId, seat);
        pass(10 + UNBONDING + 80);
        vm.expectRevert(abi.encodeWithSelector(SeatBook.SeatHeld.selector, 1));
        registry.withdrawSeat(poolId, seat);
        court.enforce(id);
        registry.withdrawSeat(poolId, seat);
        vm.stopPrank();
    }

    // --- implicated seats ---

    function test_a_seat_that_accepted_pays_when_the_case_is_upheld() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = court.accuse(a);
        uint32 seat = implicateAt(a, 2);
        assertEq(court.implicatedOf(id)[0], seat, "implicated");
        assertEq(dutiesOf(seat), 1, "held");
        appealBy(provider, id);
        uint256 supply = credits.totalSupply();
        decide(id, Vote.Uphold);
        assertEq(bondAt(seat), 45 ether, "a tenth of the bond");
        assertEq(dutiesOf(seat), 0, "no longer held");
        _jurorsGot(id, (BOND + 2.5 ether) / 3);
        assertEq(supply - credits.totalSupply(), 18 ether + 2.5 ether + (BOND + 2.5 ether) % 3, "burned");
    }

    function test_a_seat_that_accepted_is_free_when_the_case_is_overturned_or_lapses() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = court.accuse(a);
        uint32 seat = implicateAt(a, 2);
        appealBy(provider, id);
        decide(id, Vote.Overturn);
        assertEq(bondAt(seat), 50 ether, "bond");
        assertEq(dutiesOf(seat), 0, "no longer held");
        a = accusation(OTHER_NODE, 0);
        id = court.accuse(a);
        seat = implicateAt(a, 2);
        uint128 bond = bondAt(seat);
        appealBy(provider, id);
        decide(id, Vote.Unavailable);
        assertEq(bondAt(seat), bond, "bond after a lapse");
        assertEq(dutiesOf(seat), 0, "no longer held after a lapse");
    }

    function test_without_an_appeal_an_implicated_seats_fine_is_burned() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = court.accuse(a);
        uint32 seat = implicateAt(a, 2);
        uint256 supply = credits.totalSupply();
        pass(15);
        court.enforce(id);
        assertEq(bondAt(seat), 45 ether, "bond");
        assertEq(supply - credits.totalSupply(), 18 ether + 5 ether, "burned");
    }

    function test_an_implicated_seat_gets_an_appeal_period_and_may_appeal() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = court.accuse(a);
        address validator = validatorAt(court.accusersOf(id)[0]);
        pass(14);
        uint32 seat = implicateAt(a, 2);
        assertEq(court.caseOf(id).deadline, block.timestamp + 15, "a new appeal period");
        vm.expectRevert(abi.encodeWithSelector(Court.NotAccused.selector, validator));
        vm.prank(validator);
        court.appeal(id);
        appealBy(validatorAt(seat), id);
        decide(id, Vote.Overturn);
        assertEq(credits.balanceOf(validatorAt(seat)), BOND, "its bond went back");
        assertEq(credits.balanceOf(provider), 5 ether, "the provider is compensated all the same");
    }

    function test_only_a_signed_acceptance_of_this_submission_implicates() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = court.accuse(a);
        (Verdict memory verdict, bytes memory signature) = acceptance(a, 2);
        bytes memory why = abi.encodeWithSelector(Court.NotAcceptance.selector, id, verdict.seat);
        verdict.outcome = 1;
        _refused(id, verdict, signature, why);
        verdict.outcome = 0;
        verdict.submissionId = "another";
        _refused(id, verdict, signature, why);
        verdict.submissionId = id;
        verdict.poolId++;
        _refused(id, verdict, signature, why);
        verdict.poolId--;
        verdict.round = JURY_ROUND;
        _refused(id, verdict, signature, why);
        verdict.round = 1;
        _refused(id, verdict, signature, abi.encodeWithSelector(Evidence.NotSeatSignature.selector, verdict.seat));
        verdict.round = 0;
        court.implicate(id, verdict, signature);
        _refused(id, verdict, signature, abi.encodeWithSelector(Cases.AlreadyImplicated.selector, verdict.seat));
    }

    function test_a_case_that_is_over_or_past_its_appeals_implicates_nobody() public {
        Court.Accusation memory a = accusation(NODE, 0);
        (Verdict memory verdict, bytes memory signature) = acceptance(a, 2);
        bytes32 id = idOf(a.submission);
        _refused(id, verdict, signature, abi.encodeWithSelector(Cases.WrongState.selector, id, Cases.CaseState.None));
        court.accuse(a);
        pass(15);
        _refused(id, verdict, signature, abi.encodeWithSelector(Bench.TooLate.selector, block.timestamp));
        court.enforce(id);
        _refused(id, verdict, signature, abi.encodeWithSelector(Cases.WrongState.selector, id, Cases.CaseState.Upheld));
    }

    function test_a_case_implicates_eight_seats_that_have_a_bond() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = court.accuse(a);
        for (uint256 i; i < 8; i++) {
            implicateAt(a, i);
        }
        (Verdict memory verdict, bytes memory signature) = acceptance(a, 8);
        _refused(id, verdict, signature, abi.encodeWithSelector(Cases.ImplicatedFull.selector));
    }

    function test_a_seat_without_a_bond_takes_no_place() public {
        Court.Accusation memory a = accusation(NODE, 0);
        (Verdict memory verdict, bytes memory signature) = acceptance(a, 2);
        uint32[] memory seats = new uint32[](1);
        seats[0] = verdict.seat;
        vm.startPrank(address(court));
        for (uint256 i; i < 10; i++) {
            registry.holdSeats(poolId, seats);
            registry.slashSeats(poolId, seats, "another case");
        }
        vm.stopPrank();
        bytes32 id = court.accuse(a);
        _refused(id, verdict, signature, abi.encodeWithSelector(SeatBook.SeatWithoutBond.selector, verdict.seat));
    }

    function _jurorsGot(bytes32 id, uint256 amount) private view {
        Juror[] memory jurors = jury.panelOf(id).jurors;
        for (uint256 i; i < jurors.length; i++) {
            assertEq(credits.balanceOf(jurors[i].validator), amount, "a juror's share");
            assertEq(bondAt(jurors[i].seat), 50 ether, "a juror's bond");
            assertEq(dutiesOf(jurors[i].seat), 0, "a juror is free");
        }
    }

    function _refused(bytes32 id, Verdict memory verdict, bytes memory signature, bytes memory why) private {
        vm.expectRevert(why);
        court.implicate(id, verdict, signature);
    }
}
