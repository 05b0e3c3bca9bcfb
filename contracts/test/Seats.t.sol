// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {SeatBook} from "../SeatBook.sol";
import {World} from "./base/World.sol";

/// What the Court does to seats: holding, letting go, slashing, fining. Bonding and leaving: Registry.t.sol.
contract SeatsTest is World {
    bytes32 private constant CASE = "case";

    function test_nobody_but_the_court_touches_a_seat() public {
        uint32[] memory seats = _seats(0);
        bytes memory why = abi.encodeWithSelector(SeatBook.NotCourt.selector, stranger);
        vm.startPrank(stranger);
        vm.expectRevert(why);
        registry.holdSeats(poolId, seats);
        vm.expectRevert(why);
        registry.freeSeats(poolId, seats);
        vm.expectRevert(why);
        registry.slashSeats(poolId, seats, CASE);
        vm.expectRevert(why);
        registry.freeJurors(poolId, seats, new bool[](1), CASE);
        vm.expectRevert(why);
        registry.holdBondedSeat(poolId, 0);
        vm.stopPrank();
    }

    function test_a_held_seats_bond_stays_until_the_last_case_is_over() public {
        address validator = vm.addr(FIRST_VALIDATOR);
        _hold(0);
        _hold(0);
        vm.prank(validator);
        registry.releaseSeat(poolId, 0);
        pass(10 + UNBONDING);
        _free(0);
        vm.expectRevert(abi.encodeWithSelector(SeatBook.SeatHeld.selector, 1));
        vm.prank(validator);
        registry.withdrawSeat(poolId, 0);
        _free(0);
        vm.prank(validator);
        registry.withdrawSeat(poolId, 0);
        assertEq(registry.freeStake(validator), 50 ether, "the bond is free");
    }

    function test_a_seat_is_released_before_its_bond_is_withdrawn() public {
        vm.expectRevert(SeatBook.SeatNotReleased.selector);
        vm.prank(vm.addr(FIRST_VALIDATOR));
        registry.withdrawSeat(poolId, 0);
        assertEq(registry.numSeats(poolId), 3, "seats");
    }

    function test_a_slash_takes_its_share_and_retires_the_seat() public {
        address validator = vm.addr(FIRST_VALIDATOR);
        commit();
        assertEq(_slash(0), 5 ether, "taken");
        assertEq(credits.balanceOf(address(court)), 5 ether, "the court has it");
        (,, uint64 activeUntil, uint128 bond, uint64 releaseTime, uint16 numOpen,) = registry.seatOf(poolId, 0);
        assertEq(bond, 45 ether, "bond");
        assertEq(activeUntil, 3, "it is drawn for two more epochs");
        assertEq(releaseTime, block.timestamp + 10 + UNBONDING, "the rest unbonds");
        assertEq(numOpen, 0, "no longer held");
        assertEq(bondAt(1), 50 ether, "the next seat");
        pass(10 + UNBONDING);
        vm.prank(validator);
        registry.withdrawSeat(poolId, 0);
        assertEq(registry.freeStake(validator), 45 ether, "what is left is free");
    }

    function test_a_slash_of_a_released_seat_does_not_delay_it() public {
        vm.prank(vm.addr(FIRST_VALIDATOR));
        registry.releaseSeat(poolId, 0);
        (,,,, uint64 before,,) = registry.seatOf(poolId, 0);
        pass(5);
        _slash(0);
        (,,,, uint64 releaseTime,,) = registry.seatOf(poolId, 0);
        assertEq(releaseTime, before, "release time");
    }

    function test_slashes_take_no_more_than_the_bond() public {
        address validator = vm.addr(FIRST_VALIDATOR);
        assertEq(registry.numSeatsOf(poolId, validator), 1, "seats before");
        for (uint256 i; i < 10; i++) {
            _slash(0);
        }
        assertEq(bondAt(0), 0, "bond");
        assertEq(_slash(0), 0, "nothing is left");
        assertEq(credits.balanceOf(address(court)), 50 ether, "taken");
        assertEq(registry.numSeatsOf(poolId, validator), 0, "seats with a bond");
        vm.expectRevert(abi.encodeWithSelector(SeatBook.SeatWithoutBond.selector, 0));
        vm.prank(address(court));
        registry.holdBondedSeat(poolId, 0);
        pass(10 + UNBONDING);
        vm.expectRevert(SeatBook.NothingToRelease.selector);
        vm.prank(validator);
        registry.withdrawSeat(poolId, 0);
    }

    function test_a_seat_with_a_bond_is_held_and_known() public {
        vm.prank(address(court));
        assertEq(registry.holdBondedSeat(poolId, 1), vm.addr(FIRST_VALIDATOR + 1), "validator");
        assertEq(dutiesOf(1), 1, "held");
        vm.expectRevert(abi.encodeWithSelector(SeatBook.NoSuchSeat.selector, poolId, 3));
        vm.prank(address(court));
        registry.holdBondedSeat(poolId, 3);
    }

    function test_a_fine_is_burned_and_the_third_no_show_retires_the_seat() public {
        uint256 supply = credits.totalSupply();
        _sit(0, true);
        _sit(0, true);
        _sit(0, false);
        (,,, uint128 bond, uint64 releaseTime, uint16 numOpen, uint8 numNoShows) = registry.seatOf(poolId, 0);
        assertEq(bond, 49 ether, "bond");
        assertEq(numNoShows, 2, "no-shows");
        assertEq(releaseTime, 0, "still there");
        assertEq(numOpen, 0, "no longer held");
        assertEq(supply - credits.totalSupply(), 1 ether, "burned");
        _sit(0, true);
        pass(5);
        _sit(0, true);
        (,,,, releaseTime,, numNoShows) = registry.seatOf(poolId, 0);
        assertEq(numNoShows, 4, "no-shows");
        assertEq(releaseTime, block.timestamp - 5 + 10 + UNBONDING, "retired once");
    }

    function testFuzz_slashes_and_fines_never_exceed_the_bond(uint16 acts, uint16 kinds) public {
        uint256 supply = credits.totalSupply();
        uint256 taken;
        for (uint256 i; i < 16; i++) {
            if (acts & (1 << i) != 0) taken += _slash(0);
            else _sit(0, kinds & (1 << i) != 0);
        }
        uint256 burned = supply - credits.totalSupply();
        assertEq(taken + burned + bondAt(0), 50 ether, "each token of the bond is in one place");
        assertEq(credits.balanceOf(address(court)), taken, "the court's");
        assertEq(registry.numSeatsOf(poolId, vm.addr(FIRST_VALIDATOR)), bondAt(0) == 0 ? 0 : 1, "seats");
        assertEq(bondAt(1), 50 ether, "the next seat");
        assertEq(dutiesOf(0), 0, "duties");
    }

    function test_validators_are_listed_by_seat() public {
        address[] memory validators = registry.validatorsOf(poolId, _seats(2));
        assertEq(validators[0], vm.addr(FIRST_VALIDATOR + 2), "the third");
        vm.expectRevert(abi.encodeWithSelector(SeatBook.NoSuchSeat.selector, poolId, 3));
        registry.validatorsOf(poolId, _seats(3));
    }

    function _seats(uint32 seat) private pure returns (uint32[] memory seats) {
        seats = new uint32[](1);
        seats[0] = seat;
    }

    function _hold(uint32 seat) private {
        vm.prank(address(court));
        registry.holdSeats(poolId, _seats(seat));
    }

    function _free(uint32 seat) private {
        vm.prank(address(court));
        registry.freeSeats(poolId, _seats(seat));
    }

    function _slash(uint32 seat) private returns (uint256) {
        _hold(seat);
        vm.prank(address(court));
        return registry.slashSeats(poolId, _seats(seat), CASE);
    }

    /// On a jury, and votes or stays away.
    function _sit(uint32 seat, bool isAbsent) private {
        _hold(seat);
        bool[] memory absent = new bool[](1);
        absent[0] = isAbsent;
        vm.prank(address(court));
        registry.freeJurors(poolId, _seats(seat), absent, CASE);
    }
}
