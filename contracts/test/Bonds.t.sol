// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bonds} from "../Bonds.sol";
import {PoolRules} from "../PoolRules.sol";
import {PoolConfig, Role} from "../Types.sol";
import {World} from "./base/World.sol";

contract BondsTest is World {
    uint256 private constant SUCCESSOR = 6;

    // --- leasing ---

    function test_nothing_is_leased_before_the_coordinators_bond_is_whole() public {
        assertTrue(pools.isLeasing(poolId), "bonded in the set-up");
        poolId = pools.createPool(config());
        assertTrue(!pools.isLeasing(poolId), "no bond");
        bondCoordinator(coordinator, 100 ether - 1);
        assertTrue(!pools.isLeasing(poolId), "a wei short");
        assertTrue(!registry.isEligible(node, poolId), "no leases");
        bondCoordinator(coordinator, 1);
        assertTrue(pools.isLeasing(poolId), "whole");
    }

    function test_a_bond_is_a_must_except_on_test_chains() public {
        PoolConfig memory c = config();
        c.coordinatorBond = 0;
        uint64 id = pools.createPool(c);
        assertTrue(pools.isLeasing(id), "none wanted");
        vm.chainId(1);
        vm.expectRevert(abi.encodeWithSelector(PoolRules.MissingValue.selector, "coordinatorBond"));
        pools.createPool(c);
        c.coordinatorBond = 1;
        pools.createPool(c);
    }

    function test_only_the_pools_coordinator_bonds() public {
        give(stranger, address(pools), 1 ether);
        vm.expectRevert(abi.encodeWithSelector(Bonds.NotTheCoordinator.selector, stranger));
        vm.prank(stranger);
        pools.bondCoordinator(poolId, 1 ether);
        vm.expectRevert(Bonds.BondZero.selector);
        vm.prank(coordinator);
        pools.bondCoordinator(poolId, 0);
    }

    function test_a_successor_bonds_for_itself() public {
        _handOver();
        assertTrue(!pools.isLeasing(poolId), "the old bond isn't the successor's");
        bondCoordinator(vm.addr(SUCCESSOR), 100 ether);
        assertTrue(pools.isLeasing(poolId), "bonded");
        vm.prank(creator);
        pools.revokeKey(poolId, Role.Coordinator);
        assertTrue(!pools.isLeasing(poolId), "nobody");
    }

    // --- the way out ---

    function test_a_coordinator_keeps_its_bond_in_until_it_is_replaced_and_unbonded() public {
        vm.expectRevert(abi.encodeWithSelector(Bonds.BondBusy.selector, type(uint256).max));
        _unbond(coordinator);
        uint256 readyTime = block.timestamp + UNBONDING;
        _handOver();
        vm.warp(readyTime - 1);
        vm.expectRevert(abi.encodeWithSelector(Bonds.BondBusy.selector, readyTime));
        _unbond(coordinator);
        vm.warp(readyTime);
        _unbond(coordinator);
        assertEq(credits.balanceOf(coordinator), 100 ether, "back");
        assertEq(pools.bondOf(poolId, coordinator).amount, 0, "bond");
        vm.expectRevert(Bonds.BondZero.selector);
        _unbond(coordinator);
    }

    function test_when_a_pool_is_over_its_coordinator_gets_the_bond_back() public {
        vm.prank(creator);
        pools.close(poolId);
        uint256 readyTime = block.timestamp + 60 + 5 + 60 + 2 * 80;
        vm.expectRevert(abi.encodeWithSelector(Bonds.BondBusy.selector, readyTime));
        _unbond(coordinator);
        vm.warp(readyTime);
        pools.refund(poolId);
        _unbond(coordinator);
        assertEq(credits.balanceOf(coordinator), 100 ether, "back");
        assertEq(credits.balanceOf(address(pools)), 0, "nothing is left");
    }

    function test_whoever_never_bonded_takes_nothing() public {
        vm.expectRevert(Bonds.BondZero.selector);
        _unbond(stranger);
    }

    function test_what_a_case_holds_stays() public {
        _hold("case", false);
        assertEq(pools.bondOf(poolId, coordinator).held, 10 ether, "a tenth");
        _handOver();
        pass(UNBONDING);
        _unbond(coordinator);
        assertEq(credits.balanceOf(coordinator), 90 ether, "what isn't held");
        vm.prank(address(jury));
        pools.settleBond("case", false);
        _unbond(coordinator);
        assertEq(credits.balanceOf(coordinator), 100 ether, "let go");
    }

    // --- cases ---

    function test_an_upheld_case_gives_the_challenger_a_bond_more_and_burns_the_rest() public {
        give(stranger, address(pools), 5 ether);
        uint256 supply = credits.totalSupply();
        _hold("case", true);
        assertEq(credits.balanceOf(stranger), 0, "deposited");
        vm.prank(address(ledger));
        pools.settleBond("case", true);
        assertEq(credits.balanceOf(stranger), 10 ether, "deposit and compensation");
        assertEq(credits.totalSupply(), supply - 5 ether, "the rest is burned");
        assertEq(pools.bondOf(poolId, coordinator).amount, 90 ether, "bond");
        assertEq(pools.bondOf(poolId, coordinator).held, 0, "held");
        assertTrue(!pools.isLeasing(poolId), "broken");
        bondCoordinator(coordinator, 10 ether);
        assertTrue(pools.isLeasing(poolId), "whole again");
    }

    function test_whoever_judges_may_keep_the_deposit_itself() public {
        _hold("case", false);
        assertEq(pools.holdOf("case").deposit, 0, "none here");
        vm.prank(address(jury));
        pools.settleBond("case", true);
        assertEq(credits.balanceOf(stranger), 5 ether, "compensation");
    }

    function test_a_case_is_opened_and_closed_once() public {
        _hold("case", false);
        vm.startPrank(address(jury));
        vm.expectRevert(abi.encodeWithSelector(Bonds.HoldExists.selector, bytes32("case")));
        pools.holdBond(poolId, coordinator, 0, "case", stranger, false);
        pools.settleBond("case", false);
        vm.expectRevert(abi.encodeWithSelector(Bonds.NoSuchHold.selector, bytes32("case")));
        pools.settleBond("case", true);
        vm.stopPrank();
    }

    function test_without_a_deposit_nothing_is_held() public {
        vm.expectRevert();
        vm.prank(address(ledger));
        pools.holdBond(poolId, coordinator, 0, "case", stranger, true);
        assertEq(pools.bondOf(poolId, coordinator).held, 0, "held");
    }

    function testFuzz_cases_never_take_more_than_the_bond(uint8 numCases, uint16 upheld) public {
        uint256 taken;
        uint256 count = 1 + numCases % 16;
        for (uint256 i; i < count; i++) {
            _hold(bytes32(i + 1), false);
        }
        assertTrue(pools.bondOf(poolId, coordinator).held <= 100 ether, "held");
        for (uint256 i; i < count; i++) {
            bool isUpheld = (upheld >> i) & 1 == 1;
            if (isUpheld) taken += pools.holdOf(bytes32(i + 1)).amount;
            vm.prank(address(ledger));
            pools.settleBond(bytes32(i + 1), isUpheld);
        }
        assertEq(pools.bondOf(poolId, coordinator).amount, 100 ether - taken, "bond");
        assertEq(pools.bondOf(poolId, coordinator).held, 0, "held");
        assertTrue(credits.balanceOf(stranger) <= taken, "compensation");
        assertEq(credits.balanceOf(address(pools)), 1_000 ether + 100 ether - taken, "kept");
    }

    function test_only_ledger_and_jury_touch_a_bond() public {
        bytes memory expected = abi.encodeWithSelector(Bonds.NotJudge.selector, creator);
        vm.startPrank(creator);
        vm.expectRevert(expected);
        pools.holdBond(poolId, coordinator, 0, "case", creator, false);
        vm.expectRevert(expected);
        pools.settleBond("case", true);
        vm.stopPrank();
    }

    // --- who answers ---

    function test_each_coordinator_answers_for_the_epochs_of_its_time() public {
        commit();
        commit();
        _handOver();
        address successor = vm.addr(SUCCESSOR);
        assertTrue(pools.answersFor(poolId, coordinator, 1), "its own");
        assertTrue(!pools.answersFor(poolId, coordinator, 2), "no longer");
        assertTrue(!pools.answersFor(poolId, successor, 1), "not yet");
        assertTrue(pools.answersFor(poolId, successor, 2), "the open one");
        assertTrue(!pools.answersFor(poolId, stranger, 0), "never");
    }

    function test_nobody_sheds_its_promises_by_giving_the_key_back_and_forth() public {
        commit();
        commit();
        vm.startPrank(creator);
        pools.revokeKey(poolId, Role.Coordinator);
        assertTrue(!pools.answersFor(poolId, coordinator, 2), "while it is out");
        pools.proposeKey(poolId, Role.Coordinator, coordinator);
        vm.stopPrank();
        vm.prank(coordinator);
        pools.acceptKey(poolId, Role.Coordinator);
        assertTrue(pools.answersFor(poolId, coordinator, 0), "still");
        assertTrue(pools.answersFor(poolId, coordinator, 9), "again");
        vm.expectRevert(abi.encodeWithSelector(Bonds.BondBusy.selector, type(uint256).max));
        _unbond(coordinator);
    }

    function _hold(bytes32 id, bool takesDeposit) private {
        vm.prank(takesDeposit ? address(ledger) : address(jury));
        pools.holdBond(poolId, coordinator, 0, id, stranger, takesDeposit);
    }

    function _handOver() private {
        vm.prank(creator);
        pools.proposeKey(poolId, Role.Coordinator, vm.addr(SUCCESSOR));
        vm.prank(vm.addr(SUCCESSOR));
        pools.acceptKey(poolId, Role.Coordinator);
    }

    function _unbond(address key) private {
        vm.prank(key);
        pools.unbondCoordinator(poolId);
    }
}
