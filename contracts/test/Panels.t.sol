// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Panels} from "../Panels.sol";
import {Bench} from "../Bench.sol";
import {Cases} from "../Cases.sol";
import {Court} from "../Court.sol";
import {Seats} from "../Seats.sol";
import {Juror, Panel, Vote} from "../Types.sol";
import {Judging} from "./base/Judging.sol";

/// How a jury is seated and votes. What follows from its vote: Appeal.t.sol and Challenge.t.sol.
contract PanelsTest is Judging {
    Vote private constant UPHOLD = Vote.Uphold;
    Vote private constant OVERTURN = Vote.Overturn;

    // --- seating ---

    function test_the_jury_is_the_first_eligible_draws_and_nobody_of_the_case() public {
        bytes32 id = accusedAndAppealed();
        Panel memory panel = jury.panelOf(id);
        assertEq(panel.epoch, 1, "the open epoch");
        assertEq(panel.beaconBlock, block.number + 2, "the Jury arms the beacon itself");
        seatJury(id);
        panel = jury.panelOf(id);
        assertEq(panel.jurors.length, 3, "jurors");
        address[] memory parties = partiesOf(id);
        for (uint256 i; i < 3; i++) {
            assertTrue(!contains(parties, panel.jurors[i].validator), "a party sits on the jury");
            assertEq(dutiesOf(panel.jurors[i].seat), 1, "the juror's seat is held");
            assertEq(panel.jurors[i].validator, validatorAt(panel.jurors[i].seat), "validator");
        }
        assertEq(panel.commitDeadline, block.timestamp + 5, "commit deadline");
        assertEq(panel.deadline, block.timestamp + 10, "reveal deadline");
    }

    function test_no_eligible_draw_is_left_out() public {
        bytes32 id = accusedAndAppealed();
        mine(3);
        uint32[] memory four = juryIndexes(id, 4);
        uint32[] memory chosen = juryIndexes(id, 3);
        for (uint256 left; left < 3; left++) {
            for (uint256 i; i < 3; i++) {
                chosen[i] = four[i < left ? i : i + 1];
            }
            vm.expectRevert(abi.encodeWithSelector(Seats.TooManyDrawn.selector, 3));
            jury.callJury(id, chosen);
        }
        vm.expectRevert(abi.encodeWithSelector(Panels.JuryNotExact.selector, 4, 3));
        jury.callJury(id, four);
        uint32[] memory two = juryIndexes(id, 2);
        vm.expectRevert(abi.encodeWithSelector(Panels.JuryNotExact.selector, 2, 3));
        jury.callJury(id, two);
    }

    function test_a_seat_bonded_after_the_appeal_is_not_drawn() public {
        bytes32 id = accusedAndAppealed();
        uint32 late = bondSeat(FIRST_VALIDATOR + 20);
        seatJury(id);
        for (uint256 i; i < 3; i++) {
            assertTrue(jury.panelOf(id).jurors[i].seat != late, "a late seat sits");
        }
    }

    function test_a_jury_needs_its_beacon_and_a_missed_one_is_armed_again() public {
        bytes32 id = accusedAndAppealed();
        uint64 beaconBlock = jury.panelOf(id).beaconBlock;
        vm.expectRevert(abi.encodeWithSelector(Panels.BeaconPending.selector, beaconBlock));
        jury.callJury(id, new uint32[](3));
        vm.roll(beaconBlock + 257);
        jury.callJury(id, new uint32[](0));
        assertEq(jury.panelOf(id).jurors.length, 0, "nobody sits yet");
        assertEq(jury.panelOf(id).beaconBlock, block.number + 2, "armed again");
        seatJury(id);
        assertEq(jury.panelOf(id).jurors.length, 3, "jurors");
    }

    function test_a_jury_is_seated_once_in_time_and_for_a_case() public {
        vm.expectRevert(abi.encodeWithSelector(Panels.NoJury.selector, bytes32("none")));
        jury.callJury("none", new uint32[](3));
        bytes32 id = accusedAndAppealed();
        mine(3);
        uint32[] memory indexes = juryIndexes(id, 3);
        uint256 deadline = jury.panelOf(id).deadline;
        vm.warp(deadline);
        vm.expectRevert(abi.encodeWithSelector(Bench.TooLate.selector, deadline));
        jury.callJury(id, indexes);
        vm.warp(deadline - 1);
        jury.callJury(id, indexes);
        vm.expectRevert(abi.encodeWithSelector(Panels.AlreadySeated.selector, id));
        jury.callJury(id, indexes);
    }

    // --- voting ---

    function test_only_a_juror_commits_and_once() public {
        bytes32 id = accusedAndAppealed();
        vm.expectRevert(abi.encodeWithSelector(Panels.NotSeated.selector, id));
        jury.commitVote(id, 0, "vote");
        seatJury(id);
        Juror memory juror = jury.panelOf(id).jurors[1];
        vm.expectRevert(abi.encodeWithSelector(Panels.NotJuror.selector, juror.validator));
        vm.prank(juror.validator);
        jury.commitVote(id, 0, "vote");
        vm.startPrank(juror.validator);
        vm.expectRevert(abi.encodeWithSelector(Panels.NoSuchJuror.selector, 3));
        jury.commitVote(id, 3, "vote");
        vm.expectRevert(Panels.VoteMissing.selector);
        jury.commitVote(id, 1, 0);
        jury.commitVote(id, 1, "vote");
        vm.expectRevert(abi.encodeWithSelector(Panels.AlreadyCommitted.selector, juror.seat));
        jury.commitVote(id, 1, "another");
        vm.stopPrank();
        assertEq(jury.panelOf(id).numCommitted, 1, "committed");
    }

    function test_after_the_middle_of_the_period_nobody_commits() public {
        bytes32 id = accusedAndAppealed();
        seatJury(id);
        Panel memory panel = jury.panelOf(id);
        vm.warp(panel.commitDeadline);
        vm.expectRevert(abi.encodeWithSelector(Bench.TooLate.selector, panel.commitDeadline));
        vm.prank(panel.jurors[0].validator);
        jury.commitVote(id, 0, "vote");
        vm.warp(panel.commitDeadline - 1);
        commitTo(id, 0, UPHOLD);
    }

    function test_votes_are_revealed_when_all_are_committed_or_the_middle_has_passed() public {
        bytes32 id = accusedAndAppealed();
        seatJury(id);
        Panel memory panel = jury.panelOf(id);
        commitTo(id, 0, UPHOLD);
        commitTo(id, 1, OVERTURN);
        vm.expectRevert(abi.encodeWithSelector(Bench.TooEarly.selector, panel.commitDeadline));
        jury.revealVote(id, 0, UPHOLD, SALT_OF_VOTES);
        vm.warp(panel.commitDeadline);
        jury.revealVote(id, 0, UPHOLD, SALT_OF_VOTES);
        vm.warp(panel.deadline);
        vm.expectRevert(abi.encodeWithSelector(Bench.TooLate.selector, panel.deadline));
        jury.revealVote(id, 1, OVERTURN, SALT_OF_VOTES);
        vm.warp(panel.deadline - 1);
        jury.revealVote(id, 1, OVERTURN, SALT_OF_VOTES);
    }

    function test_a_vote_is_what_was_committed_to() public {
        bytes32 id = accusedAndAppealed();
        seatJury(id);
        Juror[] memory jurors = jury.panelOf(id).jurors;
        for (uint256 i; i < 3; i++) {
            commitTo(id, i, UPHOLD);
        }
        bytes memory why = abi.encodeWithSelector(Panels.NotCommitted.selector, jurors[0].seat);
        vm.expectRevert(why);
        jury.revealVote(id, 0, OVERTURN, SALT_OF_VOTES);
        vm.expectRevert(why);
        jury.revealVote(id, 0, UPHOLD, "other salt");
        vm.expectRevert(Panels.VoteMissing.selector);
        jury.revealVote(id, 0, Vote.None, SALT_OF_VOTES);
        jury.revealVote(id, 0, UPHOLD, SALT_OF_VOTES);
        vm.expectRevert(abi.encodeWithSelector(Panels.AlreadyRevealed.selector, jurors[0].seat));
        jury.revealVote(id, 0, UPHOLD, SALT_OF_VOTES);
    }

    function test_a_colleagues_commitment_is_no_use() public {
        bytes32 id = accusedAndAppealed();
        seatJury(id);
        Juror[] memory jurors = jury.panelOf(id).jurors;
        commitTo(id, 0, UPHOLD);
        bytes32 copied = jury.panelOf(id).jurors[0].commitment;
        vm.prank(jurors[1].validator);
        jury.commitVote(id, 1, copied);
        commitTo(id, 2, UPHOLD);
        vm.expectRevert(abi.encodeWithSelector(Panels.NotCommitted.selector, jurors[1].seat));
        jury.revealVote(id, 1, UPHOLD, SALT_OF_VOTES);
    }

    // --- the end ---

    function test_a_case_is_resolved_when_all_have_revealed_or_the_time_is_over() public {
        bytes32 id = accusedAndAppealed();
        seatJury(id);
        for (uint256 i; i < 3; i++) {
            commitTo(id, i, UPHOLD);
        }
        jury.revealVote(id, 0, UPHOLD, SALT_OF_VOTES);
        jury.revealVote(id, 1, UPHOLD, SALT_OF_VOTES);
        uint256 deadline = jury.panelOf(id).deadline;
        vm.expectRevert(abi.encodeWithSelector(Bench.TooEarly.selector, deadline));
        court.resolve(id);
        jury.revealVote(id, 2, UPHOLD, SALT_OF_VOTES);
        vm.prank(stranger);
        court.resolve(id);
        stateIs(id, Cases.CaseState.Upheld);
        vm.expectRevert(abi.encodeWithSelector(Cases.WrongState.selector, id, Cases.CaseState.Upheld));
        court.resolve(id);
    }

    function test_jurors_who_do_not_vote_pay_one_percent_whatever_the_others_find() public {
        bytes32 id = accusedAndAppealed();
        seatJury(id);
        voteAll(id, OVERTURN, OVERTURN, Vote.None);
        Juror[] memory jurors = jury.panelOf(id).jurors;
        pass(10);
        court.resolve(id);
        stateIs(id, Cases.CaseState.Overturned);
        assertEq(bondAt(jurors[2].seat), 49.5 ether, "the one who stayed away");
        for (uint256 i; i < 2; i++) {
            assertEq(bondAt(jurors[i].seat), 50 ether, "who voted");
            assertEq(dutiesOf(jurors[i].seat), 0, "no longer held");
        }
        assertEq(credits.balanceOf(jurors[2].validator), 0, "no share without a vote");
    }

    function test_a_jury_that_does_not_show_up_lets_the_case_lapse() public {
        bytes32 id = accusedAndAppealed();
        seatJury(id);
        Juror[] memory jurors = jury.panelOf(id).jurors;
        pass(10);
        court.resolve(id);
        stateIs(id, Cases.CaseState.Lapsed);
        assertEq(credits.balanceOf(provider), BOND, "the bond went back");
        for (uint256 i; i < 3; i++) {
            assertEq(bondAt(jurors[i].seat), 49.5 ether, "bond");
            assertEq(dutiesOf(jurors[i].seat), 0, "duties");
        }
    }

    function testFuzz_only_more_than_half_of_all_jurors_decides(uint8 first, uint8 second, uint8 third) public {
        bytes32 id = accusedAndAppealed();
        seatJury(id);
        uint8[3] memory votes = [first % 4, second % 4, third % 4];
        uint256[4] memory counts;
        for (uint256 i; i < 3; i++) {
            counts[votes[i]]++;
        }
        voteAll(id, Vote(votes[0]), Vote(votes[1]), Vote(votes[2]));
        pass(10);
        court.resolve(id);
        Cases.CaseState expected = Cases.CaseState.Lapsed;
        if (counts[uint256(UPHOLD)] >= 2) expected = Cases.CaseState.Upheld;
        if (counts[uint256(OVERTURN)] >= 2) expected = Cases.CaseState.Overturned;
        stateIs(id, expected);
        assertEq(credits.balanceOf(address(court)), 0, "nothing stays with the court");
    }
}
