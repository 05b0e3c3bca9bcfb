// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Nonces} from "@openzeppelin/contracts/utils/Nonces.sol";
import {Registry} from "../Registry.sol";
import {SeatBook} from "../SeatBook.sol";
import {PoolConfig, SlashOrder} from "../Types.sol";
import {World} from "./base/World.sol";

contract RegistryTest is World {
    uint256 private constant NEW_NODE = 299;

    // --- stake ---

    function test_free_stake_is_withdrawn_and_no_more_than_that() public {
        assertEq(registry.freeStake(provider), 500 ether, "free");
        vm.expectRevert(
            abi.encodeWithSelector(SeatBook.InsufficientStake.selector, uint256(501 ether), uint256(500 ether))
        );
        vm.prank(provider);
        registry.withdraw(501 ether);
        vm.prank(provider);
        registry.withdraw(500 ether);
        assertEq(credits.balanceOf(provider), 500 ether, "wallet");
    }

    function test_nothing_is_no_amount() public {
        vm.startPrank(provider);
        vm.expectRevert(Registry.AmountZero.selector);
        registry.withdraw(0);
        vm.expectRevert(Registry.AmountZero.selector);
        registry.allot(node, poolId, 0);
        vm.expectRevert(Registry.AmountZero.selector);
        registry.deallot(node, poolId, 0);
        vm.stopPrank();
    }

    function test_stake_with_permit_survives_a_permit_that_was_sent_before() public {
        give(provider, stranger, 10 ether);
        bytes32 digest = _permitDigest(10 ether, 0);
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(PROVIDER, digest);
        vm.prank(stranger);
        credits.permit(provider, address(registry), 10 ether, type(uint256).max, v, r, s);
        vm.prank(provider);
        registry.stakeWithPermit(10 ether, type(uint256).max, v, r, s);
        assertEq(registry.freeStake(provider), 510 ether, "free");
    }

    function test_a_stake_without_allowance_reverts() public {
        vm.expectRevert();
        vm.prank(stranger);
        registry.stakeWithPermit(1 ether, 0, 27, "r", "s");
        vm.expectRevert(Registry.AmountZero.selector);
        registry.stake(0);
    }

    // --- nodes ---

    function test_a_node_is_added_with_its_own_signature() public {
        addNode(provider, NEW_NODE);
        assertEq(registry.providerOf(vm.addr(NEW_NODE)), provider, "provider");
    }

    function test_a_signature_for_another_provider_nonce_or_chain_is_refused() public {
        address added = vm.addr(NEW_NODE);
        uint64 deadline = uint64(block.timestamp);
        bytes memory signature = signAuthorization(NEW_NODE, provider, 0, deadline);
        vm.startPrank(stranger);
        vm.expectRevert(abi.encodeWithSelector(Registry.NotAuthorized.selector, added));
        registry.addNode(added, 0, deadline, signature);
        vm.stopPrank();
        vm.startPrank(provider);
        vm.expectRevert(abi.encodeWithSelector(Registry.NotAuthorized.selector, added));
        registry.addNode(added, 1, deadline, signature);
        vm.chainId(5);
        vm.expectRevert(abi.encodeWithSelector(Registry.NotAuthorized.selector, added));
        registry.addNode(added, 0, deadline, signature);
        vm.chainId(31337);
        vm.warp(deadline + 1);
        vm.expectRevert(abi.encodeWithSelector(Registry.AuthorizationExpired.selector, deadline));
        registry.addNode(added, 0, deadline, signature);
        vm.stopPrank();
    }

    function test_an_authorization_counts_once() public {
        uint64 deadline = uint64(block.timestamp);
        bytes memory signature = signAuthorization(NEW_NODE, provider, 0, deadline);
        vm.startPrank(provider);
        registry.addNode(vm.addr(NEW_NODE), 0, deadline, signature);
        registry.removeNode(vm.addr(NEW_NODE));
        vm.expectRevert(abi.encodeWithSelector(Nonces.InvalidAccountNonce.selector, vm.addr(NEW_NODE), 1));
        registry.addNode(vm.addr(NEW_NODE), 0, deadline, signature);
        vm.stopPrank();
        addNode(provider, NEW_NODE);
        assertEq(registry.providerOf(vm.addr(NEW_NODE)), provider, "added again");
    }

    function test_a_node_never_moves_to_another_provider() public {
        vm.prank(node);
        registry.removeNode(node);
        assertEq(registry.providerOf(node), address(0), "removed");
        assertEq(registry.ownerOf(node), provider, "still answers");
        bytes memory signature = signAuthorization(NODE, stranger, 1, uint64(block.timestamp));
        vm.expectRevert(abi.encodeWithSelector(Registry.NodeTaken.selector, node, provider));
        vm.prank(stranger);
        registry.addNode(node, 1, uint64(block.timestamp), signature);
    }

    function test_only_provider_and_node_remove_it() public {
        vm.expectRevert(abi.encodeWithSelector(Registry.NotNodeOwner.selector, stranger, node));
        vm.prank(stranger);
        registry.removeNode(node);
    }

    // --- allotments ---

    function test_one_stake_cannot_back_two_nodes() public {
        vm.startPrank(provider);
        registry.allot(node, poolId, 500 ether);
        vm.expectRevert(abi.encodeWithSelector(SeatBook.InsufficientStake.selector, uint256(1), uint256(0)));
        registry.allot(otherNode, poolId, 1);
        vm.stopPrank();
    }

    function test_only_own_active_nodes_are_allotted_to_and_only_in_open_pools() public {
        vm.expectRevert(abi.encodeWithSelector(Registry.NotNodeOwner.selector, stranger, node));
        vm.prank(stranger);
        registry.allot(node, poolId, 1);
        vm.expectRevert(abi.encodeWithSelector(Registry.PoolNotOpen.selector, poolId + 1));
        vm.prank(provider);
        registry.allot(node, poolId + 1, 1);
        vm.startPrank(provider);
        registry.removeNode(node);
        vm.expectRevert(abi.encodeWithSelector(Registry.NodeInactive.selector, node));
        registry.allot(node, poolId, 1);
        vm.stopPrank();
    }

    function test_eligible_is_who_is_active_and_allotted_enough_in_a_pool_that_leases() public {
        assertTrue(registry.isEligible(node, poolId), "enough");
        vm.prank(provider);
        registry.deallot(node, poolId, 100 ether + 1);
        assertTrue(!registry.isEligible(node, poolId), "too little");
        assertTrue(registry.isEligible(otherNode, poolId), "the other node");
        vm.prank(creator);
        pools.setPaused(poolId, true);
        assertTrue(!registry.isEligible(otherNode, poolId), "paused");
    }

    function test_unbonding_lasts_from_the_last_possible_lease() public {
        vm.prank(provider);
        registry.deallot(node, poolId, 50 ether);
        uint64 releaseTime = uint64(block.timestamp) + 60 + UNBONDING;
        vm.warp(releaseTime - 1);
        vm.expectRevert(abi.encodeWithSelector(SeatBook.NotYet.selector, releaseTime));
        registry.release(node, poolId);
        vm.warp(releaseTime);
        vm.prank(stranger);
        registry.release(node, poolId);
        assertEq(registry.freeStake(provider), 550 ether, "free");
        assertEq(registry.allotment(node, poolId), 150 ether, "allotment");
        vm.expectRevert(SeatBook.NothingToRelease.selector);
        registry.release(node, poolId);
    }

    function test_what_is_due_is_let_go_before_more_starts_unbonding() public {
        vm.startPrank(provider);
        registry.deallot(node, poolId, 50 ether);
        pass(60 + UNBONDING);
        registry.deallot(node, poolId, 10 ether);
        vm.stopPrank();
        assertEq(registry.freeStake(provider), 550 ether, "free");
        assertEq(registry.allotmentOf(node, poolId).unbonding, 10 ether, "unbonding");
    }

    function test_what_is_unbonding_waits_along_with_what_comes_after() public {
        vm.startPrank(provider);
        registry.deallot(node, poolId, 10 ether);
        pass(60 + UNBONDING - 1);
        registry.deallot(node, poolId, 5 ether);
        vm.stopPrank();
        assertEq(registry.allotmentOf(node, poolId).unbonding, 15 ether, "both");
        uint64 readyTime = uint64(block.timestamp) + 60 + UNBONDING;
        vm.expectRevert(abi.encodeWithSelector(SeatBook.NotYet.selector, readyTime));
        registry.release(node, poolId);
        vm.warp(readyTime);
        registry.release(node, poolId);
        assertEq(registry.freeStake(provider), 515 ether, "free");
    }

    function test_a_node_is_removed_once() public {
        vm.startPrank(provider);
        registry.removeNode(node);
        vm.expectRevert(abi.encodeWithSelector(Registry.NodeInactive.selector, node));
        registry.removeNode(node);
        vm.stopPrank();
    }

    function test_no_more_than_the_allotment_is_deallotted() public {
        vm.expectRevert(
            abi.encodeWithSelector(Registry.InsufficientAllotment.selector, uint256(201 ether), uint256(200 ether))
        );
        vm.prank(provider);
        registry.deallot(node, poolId, 201 ether);
    }

    // --- the Court's entries ---

    function test_nobody_but_the_court_holds_or_slashes() public {
        vm.startPrank(creator);
        bytes memory expected = abi.encodeWithSelector(SeatBook.NotCourt.selector, creator);
        vm.expectRevert(expected);
        registry.holdAllotment(poolId, node, "id", 1_000, 10_000);
        vm.expectRevert(expected);
        registry.freeAllotment(poolId, node, "id", 0);
        vm.expectRevert(expected);
        registry.slash(_order(1 ether, 0));
        vm.stopPrank();
    }

    function test_held_stake_is_not_released_until_the_case_is_over() public {
        vm.prank(address(court));
        (uint128 held,) = registry.holdAllotment(poolId, node, "id", 1_000, 10_000);
        assertEq(held, 20 ether, "held");
        vm.prank(provider);
        registry.deallot(node, poolId, 200 ether);
        pass(60 + UNBONDING);
        registry.release(node, poolId);
        assertEq(registry.freeStake(provider), 680 ether, "all but the hold");
        vm.prank(address(court));
        registry.freeAllotment(poolId, node, "id", held);
        registry.release(node, poolId);
        assertEq(registry.freeStake(provider), 700 ether, "everything");
    }

    /// Mirrors of the chain follow holds by this event alone. An earlier case fell, so the later one takes a first share.
    function test_the_event_of_a_slash_says_what_was_burned_paid_and_freed() public {
        _moveToPoolWithShares(1_000, 5_000);
        vm.startPrank(address(court));
        (uint128 fallen,) = registry.holdAllotment(poolId, node, "fallen", 1_000, 5_000);
        (uint128 held, uint8 offence) = registry.holdAllotment(poolId, node, "standing", 1_000, 5_000);
        registry.freeAllotment(poolId, node, "fallen", fallen);
        assertEq(held, 100 ether, "held as the second");
        SlashOrder memory order = _order(held, offence);
        order.submissionId = "standing";
        vm.expectEmit();
        emit Registry.Slashed(poolId, provider, node, "standing", 20 ether, 18 ether, 2 ether, 80 ether);
        registry.slash(order);
        vm.stopPrank();
        assertEq(registry.allotmentOf(node, poolId).held, 0, "nothing stays held");
    }

    /// Whatever is held, freed, slashed and moved between: a case takes at most its hold, all holds together at most
    /// the allotment, and the other node keeps everything.
    function testFuzz_slash_is_bounded_by_hold_and_allotment(
        uint16 first,
        uint16 later,
        uint128 leaving,
        uint8 num,
        uint8 fallen
    ) public {
        first = uint16(bound(first, 1, 10_000));
        later = later % 2 == 0 ? 0 : uint16(bound(later, first, 10_000));
        _moveToPoolWithShares(first, later);
        uint256 numCases = bound(num, 1, 5);
        uint128[] memory held = new uint128[](numCases);
        uint8[] memory offences = new uint8[](numCases);
        uint256 sum;
        for (uint256 i; i < numCases; i++) {
            vm.prank(address(court));
            (held[i], offences[i]) = registry.holdAllotment(poolId, node, bytes32(i), first, later);
            sum += held[i];
        }
        assertTrue(sum <= 200 ether, "holds exceed the allotment");
        vm.prank(provider);
        registry.deallot(node, poolId, uint128(bound(leaving, 1, 200 ether)));
        uint256 supply = credits.totalSupply();
        for (uint256 i; i < numCases; i++) {
            vm.startPrank(address(court));
            if (fallen & (1 << i) != 0) {
                registry.freeAllotment(poolId, node, bytes32(i), held[i]);
            } else {
                assertTrue(registry.slash(_order(held[i], offences[i])) <= held[i], "a slash exceeds its hold");
            }
            vm.stopPrank();
        }
        Registry.Allotment memory left = registry.allotmentOf(node, poolId);
        assertEq(left.held, 0, "nothing stays held");
        assertTrue(supply - credits.totalSupply() <= 200 ether - left.amount - left.unbonding, "burned at most that");
        assertEq(registry.allotment(otherNode, poolId), 300 ether, "the other node");
        assertEq(registry.freeStake(provider), 500 ether, "free stake");
    }

    // --- seats ---

    function test_seats_bonded_before_the_first_epoch_are_active_at_once_and_later_ones_after_two() public {
        assertTrue(registry.seatIsActive(poolId, 0, 0), "the first");
        commit();
        uint32 seat = bondSeat(FIRST_VALIDATOR);
        (, uint64 activeFrom, uint64 activeUntil,, uint64 releaseTime,,) = registry.seatOf(poolId, seat);
        assertEq(activeFrom, 3, "active from");
        assertEq(activeUntil, type(uint64).max, "active until");
        assertEq(releaseTime, 0, "release time");
        assertTrue(!registry.seatIsActive(poolId, seat, 2), "too early");
        assertEq(registry.numSeatsAt(poolId, 2), 3, "seats at 2");
        assertEq(registry.numSeatsAt(poolId, 3), 4, "seats at 3");
    }

    function test_keys_of_the_pool_cannot_judge_it() public {
        address[3] memory keys = [creator, coordinator, trainer];
        for (uint256 i; i < keys.length; i++) {
            stake(keys[i], 50 ether);
            vm.expectRevert();
            vm.prank(keys[i]);
            registry.bondSeat(poolId);
        }
    }

    function test_a_released_seat_judges_two_more_epochs_and_its_bond_waits_for_them() public {
        address validator = vm.addr(FIRST_VALIDATOR);
        commit();
        vm.startPrank(validator);
        registry.releaseSeat(poolId, 0);
        vm.expectRevert(SeatBook.SeatAlreadyReleased.selector);
        registry.releaseSeat(poolId, 0);
        vm.stopPrank();
        assertTrue(registry.seatIsActive(poolId, 0, 2), "still drawn");
        assertTrue(!registry.seatIsActive(poolId, 0, 3), "no longer drawn");
        mine(5);
        commit();
        pass(UNBONDING);
        commit();
        vm.prank(validator);
        vm.expectRevert();
        registry.withdrawSeat(poolId, 0);
        pass(10);
        vm.expectRevert(abi.encodeWithSelector(SeatBook.EpochUnsettled.selector, 2));
        vm.prank(validator);
        registry.withdrawSeat(poolId, 0);
        pass(80);
        vm.startPrank(validator);
        registry.withdrawSeat(poolId, 0);
        assertEq(registry.freeStake(validator), 50 ether, "the bond is free");
        vm.expectRevert(SeatBook.NothingToRelease.selector);
        registry.withdrawSeat(poolId, 0);
        vm.stopPrank();
    }

    function test_a_coordinator_that_stops_cannot_keep_a_bond() public {
        commit();
        vm.prank(vm.addr(FIRST_VALIDATOR));
        registry.releaseSeat(poolId, 0);
        pass(10 + UNBONDING);
        vm.prank(vm.addr(FIRST_VALIDATOR));
        registry.withdrawSeat(poolId, 0);
        assertTrue(registry.seatIsActive(poolId, 0, 0), "draws of the past stay as they were");
        assertTrue(!registry.seatIsActive(poolId, 0, 1), "no draw without a bond");
    }

    function test_only_the_owner_releases_a_seat() public {
        vm.startPrank(stranger);
        vm.expectRevert(abi.encodeWithSelector(SeatBook.NotSeatOwner.selector, stranger));
        registry.releaseSeat(poolId, 0);
        vm.expectRevert(abi.encodeWithSelector(SeatBook.NoSuchSeat.selector, poolId, 9));
        registry.releaseSeat(poolId, 9);
        vm.stopPrank();
    }

    /// From here on the tests' pool is one with these shares, with the same allotments as the first.
    function _moveToPoolWithShares(uint16 first, uint16 later) private {
        PoolConfig memory c = config();
        (c.firstSlashBps, c.laterSlashBps) = (first, later);
        poolId = pools.createPool(c);
        stake(provider, 500 ether);
        vm.startPrank(provider);
        registry.allot(node, poolId, 200 ether);
        registry.allot(otherNode, poolId, 300 ether);
        vm.stopPrank();
    }

    function _order(uint128 held, uint8 offence) private view returns (SlashOrder memory order) {
        (order.poolId, order.node, order.held, order.offence) = (poolId, node, held, offence);
        order.finders = new address[](2);
        (order.finders[0], order.finders[1]) = (vm.addr(FIRST_VALIDATOR), vm.addr(FIRST_VALIDATOR + 1));
    }

    function _permitDigest(uint256 value, uint256 nonce) private view returns (bytes32) {
        bytes32 typeHash =
            keccak256("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)");
        bytes32 structHash =
            keccak256(abi.encode(typeHash, provider, address(registry), value, nonce, type(uint256).max));
        return keccak256(abi.encodePacked(hex"1901", credits.DOMAIN_SEPARATOR(), structHash));
    }
}
