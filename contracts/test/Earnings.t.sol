// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Ledger} from "../Ledger.sol";
import {Pools} from "../Pools.sol";
import {Seats} from "../Seats.sol";
import {Earning} from "./base/Earning.sol";

contract EarningsTest is Earning {
    // --- commit ---

    function test_attested_earnings_are_claimable_after_all_windows() public {
        uint64 epoch = commitAndSeal();
        earn(epoch, 7 ether, 3 ether);
        uint256 claimableTime = block.timestamp + 80;
        (uint64 found,) = ledger.claimableEarnings(poolId);
        assertEq(ledger.earningsOf(poolId, epoch).claimableTime, claimableTime, "claimable time");
        vm.warp(claimableTime - 1);
        vm.expectRevert(abi.encodeWithSelector(Ledger.NotClaimableYet.selector, claimableTime));
        claimFor(epoch, provider);
        vm.warp(claimableTime);
        vm.prank(stranger);
        claimFor(epoch, provider);
        assertEq(credits.balanceOf(provider), 7 ether, "paid");
        assertEq(ledger.claimed(poolId, provider), 7 ether, "claimed");
        assertEq(pools.funds(poolId), 993 ether, "funds");
        assertEq(pools.budget(poolId), 1_000 ether, "budget");
        (found,) = ledger.claimableEarnings(poolId);
        assertEq(found, epoch, "newest claimable");
    }

    function test_a_seat_that_was_not_drawn_attests_nothing() public {
        uint64 epoch = commitAndSeal();
        Statement memory s = statementOf(epoch, 7 ether, 3 ether);
        s.signatures[0] = sign(NODE, digestOf(s, 0));
        refused(s, abi.encodeWithSelector(Ledger.NotSeatSignature.selector, s.seats[0]));
    }

    function test_without_a_quorum_or_before_the_beacon_nothing_is_committed() public {
        uint64 epoch = commitAndSeal();
        Statement memory s = statementOf(epoch, 7 ether, 3 ether);
        (s.drawIndexes, s.signatures) = (new uint32[](0), new bytes[](0));
        refused(s, abi.encodeWithSelector(Ledger.QuorumMissing.selector, 0, 1));
        s = statementOf(epoch, 7 ether, 3 ether);
        s.signatures = new bytes[](2);
        refused(s, abi.encodeWithSelector(Ledger.LengthsDiffer.selector));
        s = statementOf(epoch, 7 ether, 3 ether);
        s.epoch = commit();
        refused(s, abi.encodeWithSelector(Ledger.BeaconMissing.selector, s.epoch));
        s.epoch = 99;
        refused(s, abi.encodeWithSelector(Ledger.NoSuchEpoch.selector, 99));
    }

    function test_only_the_coordinator_commits_earnings_until_it_is_silent_for_too_long() public {
        uint256 silentTime = block.timestamp + 60;
        Statement memory s = statementOf(commitAndSeal(), 7 ether, 3 ether);
        assertEq(ledger.silentTime(poolId), silentTime, "silent");
        vm.warp(silentTime - 1);
        vm.expectRevert(abi.encodeWithSelector(Ledger.CoordinatorNotSilent.selector, silentTime));
        vm.prank(stranger);
        ledger.commitEarnings(poolId, s.epoch, s.root, s.total, s.drawIndexes, s.signatures);
        vm.warp(silentTime);
        vm.prank(stranger);
        ledger.commitEarnings(poolId, s.epoch, s.root, s.total, s.drawIndexes, s.signatures);
        pass(80);
        claimFor(s.epoch, provider);
        assertEq(credits.balanceOf(provider), 7 ether, "paid");
    }

    function test_a_silent_coordinator_makes_no_false_earnings_true() public {
        Statement memory s = statementOf(commitAndSeal(), 7 ether, 3 ether);
        pass(60);
        s.total = 11 ether;
        vm.expectRevert(abi.encodeWithSelector(Ledger.NotSeatSignature.selector, s.seats[0]));
        vm.prank(stranger);
        ledger.commitEarnings(poolId, s.epoch, s.root, s.total, s.drawIndexes, s.signatures);
    }

    function test_a_root_of_nothing_is_no_root() public {
        Statement memory s = statementOf(commitAndSeal(), 1 ether, 0);
        bytes32 root = s.root;
        s.root = 0;
        attest(s);
        refused(s, abi.encodeWithSelector(Ledger.HashZero.selector));
        s.root = root;
        attest(s);
        send(s);
    }

    function test_totals_never_fall_and_epochs_only_rise() public {
        uint64 first = commitAndSeal();
        uint64 second = commitAndSeal();
        earn(second, 7 ether, 3 ether);
        refused(statementOf(first, 8 ether, 3 ether), abi.encodeWithSelector(Ledger.EarningsOutOfOrder.selector, first, second));
        refused(
            statementOf(second, 8 ether, 3 ether), abi.encodeWithSelector(Ledger.EarningsOutOfOrder.selector, second, second)
        );
        uint64 third = commitAndSeal();
        refused(
            statementOf(third, 6 ether, 3 ether),
            abi.encodeWithSelector(Ledger.EarningsFall.selector, uint128(9 ether), uint128(10 ether))
        );
        earn(third, 7 ether, 3 ether);
    }

    function test_totals_never_exceed_the_pools_funds() public {
        uint64 epoch = commitAndSeal();
        refused(
            statementOf(epoch, 1_000 ether, 1),
            abi.encodeWithSelector(Ledger.EarningsExceedFunds.selector, 1_000 ether + 1, 1_000 ether)
        );
        earn(epoch, 1_000 ether - 1, 1);
    }

    // --- claim ---

    function test_claims_are_cumulative_so_a_missed_root_costs_nothing() public {
        uint64 first = commitAndSeal();
        earn(first, 2 ether, 1 ether);
        uint64 second = commitAndSeal();
        earn(second, 5 ether, 1 ether);
        pass(80);
        claimFor(second, provider);
        assertEq(credits.balanceOf(provider), 5 ether, "paid");
        vm.expectRevert(Ledger.NothingToClaim.selector);
        claimFor(second, provider);
        vm.expectRevert(Ledger.NothingToClaim.selector);
        claimFor(first, provider);
    }

    function test_an_older_root_is_claimable_while_newer_ones_wait() public {
        uint64 first = commitAndSeal();
        earn(first, 2 ether, 1 ether);
        pass(50);
        uint64 second = commitAndSeal();
        earn(second, 5 ether, 1 ether);
        (, Ledger.Earnings memory newest) = ledger.newestEarnings(poolId);
        assertEq(newest.previousEpoch, first, "linked");
        pass(40);
        (uint64 found, Ledger.Earnings memory claimable) = ledger.claimableEarnings(poolId);
        assertEq(found, first, "newest claimable");
        assertEq(claimable.total, 3 ether, "its total");
        claimFor(first, provider);
        assertEq(credits.balanceOf(provider), 2 ether, "paid");
    }

    function test_what_is_not_in_the_root_is_not_paid() public {
        uint64 epoch = commitAndSeal();
        earn(epoch, 7 ether, 3 ether);
        pass(80);
        bytes32[] memory proof = proofOf(epoch, provider);
        vm.expectRevert(abi.encodeWithSelector(Ledger.NotInEarnings.selector, provider, uint128(8 ether)));
        ledger.claim(poolId, epoch, provider, 8 ether, proof);
        vm.expectRevert(abi.encodeWithSelector(Ledger.NotInEarnings.selector, stranger, uint128(7 ether)));
        ledger.claim(poolId, epoch, stranger, 7 ether, proof);
        vm.expectRevert(abi.encodeWithSelector(Ledger.NoEarnings.selector, 9));
        ledger.claim(poolId, 9, provider, 7 ether, proof);
    }

    function test_leaves_that_add_up_to_more_than_the_total_are_not_paid_beyond_it() public {
        uint64 epoch = commitAndSeal();
        Statement memory s = statementOf(epoch, 7 ether, 3 ether);
        s.total = 9 ether;
        attest(s);
        send(s);
        pass(80);
        claimFor(epoch, provider);
        vm.expectRevert(
            abi.encodeWithSelector(Pools.ClaimsExceedProven.selector, uint256(3 ether), uint256(2 ether))
        );
        claimFor(epoch, payee);
    }

    function test_what_cases_withhold_is_not_paid_until_it_is_freed() public {
        uint64 epoch = commitAndSeal();
        earn(epoch, 7 ether, 3 ether);
        pass(80);
        vm.prank(address(court));
        ledger.holdEarnings(poolId, provider, "id", 6 ether);
        claimFor(epoch, provider);
        assertEq(credits.balanceOf(provider), 1 ether, "paid");
        vm.prank(address(court));
        ledger.freeEarnings(poolId, provider, "id", 6 ether);
        claimFor(epoch, provider);
        assertEq(credits.balanceOf(provider), 7 ether, "paid");
    }

    function test_what_is_deducted_makes_no_room_for_others() public {
        earn(commitAndSeal(), 999 ether, 1 ether);
        vm.startPrank(address(court));
        ledger.holdEarnings(poolId, provider, "id", 1 ether);
        ledger.deductEarnings(poolId, provider, "id", 1 ether);
        vm.stopPrank();
        assertEq(ledger.provenTotal(poolId), 1_000 ether, "proven");
        Statement memory s = statementOf(commitAndSeal(), 1_000 ether, 1 ether);
        attest(s);
        vm.expectRevert(
            abi.encodeWithSelector(Ledger.EarningsExceedFunds.selector, uint256(1_001 ether), uint256(1_000 ether))
        );
        send(s);
    }

    function test_only_the_court_withholds() public {
        bytes memory expected = abi.encodeWithSelector(Ledger.NotCourt.selector, coordinator);
        vm.startPrank(coordinator);
        vm.expectRevert(expected);
        ledger.holdEarnings(poolId, provider, "id", 1);
        vm.expectRevert(expected);
        ledger.freeEarnings(poolId, provider, "id", 1);
        vm.expectRevert(expected);
        ledger.deductEarnings(poolId, provider, "id", 1);
        vm.stopPrank();
    }

    function test_claims_go_on_while_the_pool_is_paused_and_closing() public {
        uint64 epoch = commitAndSeal();
        earn(epoch, 7 ether, 3 ether);
        vm.startPrank(creator);
        pools.setPaused(poolId, true);
        pools.close(poolId);
        vm.stopPrank();
        pass(80);
        claimFor(epoch, provider);
        assertEq(credits.balanceOf(provider), 7 ether, "paid");
    }

    function test_draws_need_seats() public {
        vm.prank(creator);
        poolId = pools.createPool(config());
        log.cut(0);
        uint64 epoch = commitAndSeal();
        vm.expectRevert(abi.encodeWithSelector(Seats.NoSeats.selector, epoch));
        registry.drawSeat(poolId, "beacon", "id", 0, 0, epoch);
        vm.expectRevert(abi.encodeWithSelector(Seats.NoSeats.selector, epoch));
        vm.prank(coordinator);
        ledger.commitEarnings(poolId, epoch, "root", 0, new uint32[](1), new bytes[](1));
    }
}
