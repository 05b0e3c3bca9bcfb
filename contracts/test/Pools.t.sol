// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {Ledger} from "../Ledger.sol";
import {Pools} from "../Pools.sol";
import {PoolRules} from "../PoolRules.sol";
import {PoolConfig, Role} from "../Types.sol";
import {Earning} from "./base/Earning.sol";

/// Keeps a tenth of each transfer.
contract FeeToken is ERC20("fee", "FEE") {
    constructor() {
        _mint(msg.sender, 1_000);
    }

    function _update(address from, address to, uint256 amount) internal override {
        super._update(from, to, from == address(0) ? amount : amount - amount / 10);
        if (from != address(0)) super._update(from, address(0xfee), amount / 10);
    }
}

/// Funds the pool again while it is being funded.
contract ReenteringToken is ERC20("again", "AGAIN") {
    Pools private immutable _pools;

    constructor(Pools pools_) {
        _pools = pools_;
    }

    function transferFrom(address, address, uint256) public override returns (bool) {
        _pools.fund(_pools.numPools(), 1);
        return true;
    }
}

contract PoolsTest is Earning {
    // --- creation ---

    function test_a_pool_is_created_by_anybody_and_pays_in_credits_by_default() public {
        vm.prank(stranger);
        uint64 id = pools.createPool(config());
        (address owner, Pools.State state,,,,) = pools.poolOf(id);
        assertEq(owner, stranger, "creator");
        assertTrue(state == Pools.State.Open, "open");
        assertEq(pools.configOf(id).token, address(credits), "token");
        assertEq(id, poolId + 1, "ids count up");
    }

    function test_nobody_can_leave_before_what_they_did_is_judged() public {
        PoolConfig memory c = config();
        c.challengeWindow = uint32(UNBONDING);
        uint256 needed = 5 + 40 + UNBONDING + 15 + 10 + UNBONDING / 16;
        _refused(c, abi.encodeWithSelector(PoolRules.UnbondingTooShort.selector, needed, UNBONDING));
        c = config();
        c.retention = 89;
        _refused(c, abi.encodeWithSelector(PoolRules.RetentionTooShort.selector, 90, 89));
        c.retention = 90;
        pools.createPool(c);
    }

    function test_one_seat_slashes_on_test_chains_only() public {
        PoolConfig memory c = config();
        c.slashQuorum = 1;
        pools.createPool(c);
        vm.chainId(1);
        _refused(c, abi.encodeWithSelector(PoolRules.OutOfRange.selector, "slashQuorum", 1));
        c.slashQuorum = 2;
        pools.createPool(c);
    }

    function test_reasons_that_never_cost_stake_cannot_be_made_slashable() public {
        PoolConfig memory c = config();
        c.slashableMask |= 1 << 35;
        _refused(c, abi.encodeWithSelector(PoolRules.OutOfRange.selector, "slashableMask", c.slashableMask));
    }

    function test_the_bounty_is_bounded() public {
        PoolConfig memory c = config();
        c.bountyBps = 1_001;
        _refused(c, abi.encodeWithSelector(PoolRules.OutOfRange.selector, "bountyBps", 1_001));
    }

    function test_units_are_bounded_so_that_no_amount_overflows() public {
        PoolConfig memory c = config();
        c.price = type(uint128).max / 1_000 + 1;
        _refused(c, abi.encodeWithSelector(PoolRules.OutOfRange.selector, "price", c.price));
    }

    function test_quorums_fit_the_draw() public {
        PoolConfig memory c = config();
        c.drawLimit = 1;
        _refused(c, abi.encodeWithSelector(PoolRules.OutOfRange.selector, "drawLimit", 1));
        c = config();
        c.jurySize = 4;
        _refused(c, abi.encodeWithSelector(PoolRules.OutOfRange.selector, "jurySize", 4));
    }

    // --- funds ---

    function test_what_arrives_is_what_counts() public {
        FeeToken token = new FeeToken();
        PoolConfig memory c = config();
        c.token = address(token);
        uint64 id = pools.createPool(c);
        token.approve(address(pools), 1_000);
        pools.fund(id, 1_000);
        assertEq(pools.funds(id), 900, "funds");
        vm.expectRevert(Pools.AmountZero.selector);
        pools.fund(id, 0);
    }

    function test_a_token_cannot_fund_twice_at_once() public {
        PoolConfig memory c = config();
        c.token = address(new ReenteringToken(pools));
        uint64 id = pools.createPool(c);
        vm.expectRevert();
        pools.fund(id, 1);
    }

    function test_a_pool_is_paused_once_and_goes_on_once() public {
        vm.startPrank(creator);
        vm.expectRevert(abi.encodeWithSelector(Pools.AlreadyPaused.selector, false));
        pools.setPaused(poolId, false);
        pools.setPaused(poolId, true);
        assertTrue(!pools.isLeasing(poolId), "paused");
        vm.expectRevert(abi.encodeWithSelector(Pools.AlreadyPaused.selector, true));
        pools.setPaused(poolId, true);
        pools.setPaused(poolId, false);
        assertTrue(pools.isLeasing(poolId), "goes on");
        vm.stopPrank();
    }

    function test_only_the_ledger_pays_out() public {
        vm.expectRevert(abi.encodeWithSelector(Pools.NotLedger.selector, creator));
        vm.prank(creator);
        pools.pay(poolId, creator, 1, 1);
    }

    // --- keys ---

    function test_a_key_is_handed_over_in_two_steps() public {
        vm.prank(creator);
        pools.proposeKey(poolId, Role.Coordinator, stranger);
        assertEq(pools.coordinatorOf(poolId), coordinator, "before");
        vm.expectRevert(abi.encodeWithSelector(Pools.NotProposed.selector, trainer));
        vm.prank(trainer);
        pools.acceptKey(poolId, Role.Coordinator);
        vm.prank(stranger);
        pools.acceptKey(poolId, Role.Coordinator);
        assertEq(pools.coordinatorOf(poolId), stranger, "after");
        vm.prank(stranger);
        ledger.commitEpoch(poolId, 0, 1, "root", new bytes32[](0));
        vm.expectRevert(abi.encodeWithSelector(Pools.NotProposed.selector, stranger));
        vm.prank(stranger);
        pools.acceptKey(poolId, Role.Coordinator);
    }

    function test_the_creator_hands_over_in_two_steps_and_the_old_one_is_out() public {
        vm.prank(creator);
        pools.proposeKey(poolId, Role.Creator, stranger);
        vm.prank(stranger);
        pools.acceptKey(poolId, Role.Creator);
        vm.expectRevert(abi.encodeWithSelector(Pools.NotCreator.selector, creator));
        vm.prank(creator);
        pools.close(poolId);
        vm.expectRevert(Pools.CreatorIrrevocable.selector);
        vm.prank(stranger);
        pools.revokeKey(poolId, Role.Creator);
    }

    function test_a_validator_of_the_pool_cannot_become_its_trainer() public {
        address validator = vm.addr(FIRST_VALIDATOR);
        vm.prank(creator);
        pools.proposeKey(poolId, Role.Trainer, validator);
        vm.expectRevert(abi.encodeWithSelector(Pools.KeyHoldsSeats.selector, validator));
        vm.prank(validator);
        pools.acceptKey(poolId, Role.Trainer);
    }

    function test_nobody_but_the_creator_changes_a_pool() public {
        bytes memory expected = abi.encodeWithSelector(Pools.NotCreator.selector, coordinator);
        vm.startPrank(coordinator);
        vm.expectRevert(expected);
        pools.setPaused(poolId, true);
        vm.expectRevert(expected);
        pools.announceTerms(poolId, 1, 1, RULES);
        vm.expectRevert(expected);
        pools.proposeKey(poolId, Role.Trainer, coordinator);
        vm.expectRevert(expected);
        pools.revokeKey(poolId, Role.Trainer);
        vm.expectRevert(expected);
        pools.close(poolId);
        vm.stopPrank();
    }

    // --- terms ---

    function test_announced_terms_take_effect_after_the_notice_and_cases_use_the_higher_price() public {
        vm.prank(creator);
        pools.announceTerms(poolId, 0.0005 ether, 1, "new rules");
        uint256 notice = 60 + 5 + 40 + 15;
        assertEq(pools.announcedTerms(poolId).effectiveTime, block.timestamp + notice, "effective");
        (uint128 price,, bytes32 rulesHash) = pools.termsOf(poolId);
        assertEq(price, 0.001 ether, "old price");
        pass(notice);
        (price,, rulesHash) = pools.termsOf(poolId);
        assertEq(price, 0.0005 ether, "new price");
        assertEq(rulesHash, "new rules", "new rules");
        assertEq(pools.maxTaskEarnings(poolId), 1 ether, "of the higher price");
        vm.startPrank(creator);
        vm.expectRevert(abi.encodeWithSelector(Pools.TermsPending.selector, block.timestamp + notice));
        pools.announceTerms(poolId, 0.002 ether, 1, RULES);
        pass(notice);
        pools.announceTerms(poolId, 0.002 ether, 1, RULES);
        vm.stopPrank();
        assertEq(pools.configOf(poolId).price, 0.0005 ether, "folded in");
    }

    // --- the end ---

    function test_a_closed_pool_refunds_what_nobody_can_have_earned() public {
        uint64 epoch = commitAndSeal();
        earn(epoch, 7 ether, 3 ether);
        vm.prank(creator);
        pools.close(poolId);
        uint256 readyTime = block.timestamp + 60 + 5 + 60 + 2 * 80;
        vm.expectRevert(abi.encodeWithSelector(Pools.RefundNotYet.selector, readyTime));
        pools.refund(poolId);
        vm.warp(readyTime);
        claimFor(epoch, payee);
        vm.prank(stranger);
        pools.refund(poolId);
        assertEq(credits.balanceOf(creator), 990 ether, "refund");
        claimFor(epoch, provider);
        assertEq(credits.balanceOf(provider), 7 ether, "claims go on");
        vm.expectRevert(Pools.NothingToRefund.selector);
        pools.refund(poolId);
    }

    function test_what_a_case_deducts_from_one_account_is_not_refunded_at_anothers_cost() public {
        uint64 epoch = commitAndSeal();
        earn(epoch, 7 ether, 3 ether);
        vm.startPrank(address(court));
        ledger.holdEarnings(poolId, provider, "id", 9 ether);
        ledger.deductEarnings(poolId, provider, "id", 9 ether);
        vm.stopPrank();
        vm.prank(creator);
        pools.close(poolId);
        pass(60 + 5 + 60 + 2 * 80);
        pools.refund(poolId);
        claimFor(epoch, payee);
        assertEq(credits.balanceOf(payee), 3 ether, "paid");
        vm.expectRevert(Ledger.NothingToClaim.selector);
        claimFor(epoch, provider);
        pass(180 days);
        pools.refund(poolId);
        assertEq(credits.balanceOf(creator), 997 ether, "what nobody may claim goes back in the end");
        assertEq(pools.funds(poolId), 0, "nothing is left");
    }

    function test_unclaimed_earnings_go_back_after_the_claim_expiry() public {
        earn(commitAndSeal(), 7 ether, 3 ether);
        vm.prank(creator);
        pools.close(poolId);
        pass(60 + 5 + 60 + 2 * 80 + 180 days);
        pools.refund(poolId);
        assertEq(credits.balanceOf(creator), 1_000 ether, "refund");
        assertEq(pools.funds(poolId), 0, "nothing is left");
        vm.expectRevert(abi.encodeWithSelector(Pools.FundsExhausted.selector, 7 ether, 0));
        this.claimFirst();
    }

    function claimFirst() external {
        claimFor(0, provider);
    }

    function test_an_open_pool_refunds_nothing_and_a_closing_one_takes_nothing() public {
        vm.expectRevert(abi.encodeWithSelector(Pools.PoolNotClosing.selector, poolId));
        pools.refund(poolId);
        vm.prank(creator);
        pools.close(poolId);
        vm.expectRevert(abi.encodeWithSelector(Pools.PoolNotOpen.selector, poolId));
        pools.fund(poolId, 1);
        vm.expectRevert(abi.encodeWithSelector(Pools.NoSuchPool.selector, poolId + 1));
        pools.refund(poolId + 1);
    }

    function _refused(PoolConfig memory c, bytes memory why) private {
        vm.expectRevert(why);
        pools.createPool(c);
    }
}
