// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Disputes} from "../Disputes.sol";
import {Jury} from "../Jury.sol";
import {Ledger} from "../Ledger.sol";
import {Juror, Role, Vote} from "../Types.sol";
import {Earning} from "./base/Earning.sol";
import {Judging} from "./base/Judging.sol";
import {World} from "./base/World.sol";

/// Disputes over earnings roots: what they hold, and who pays.
contract DisputesTest is Judging, Earning {
    function numValidators() internal pure override(World, Judging) returns (uint256) {
        return Judging.numValidators();
    }

    // --- false roots ---

    function test_a_false_root_is_revoked_and_who_stated_it_pays() public {
        uint64 first = _earned(1 ether);
        uint64 second = _earned(2 ether);
        bytes32 id = _dispute(second);
        uint32 seat = _implicate(second);
        assertEq(dutiesOf(seat), 1, "the attester is held");
        _decide(second, Vote.Uphold);
        (uint64 newest, Ledger.Earnings memory earnings) = ledger.newestEarnings(poolId);
        assertEq(newest, first, "the root before is the newest again");
        assertEq(earnings.total, 2 ether, "and its total");
        assertEq(ledger.earningsOf(poolId, second).root, bytes32(0), "the false one is gone");
        assertEq(bondAt(seat), 45 ether, "the attester's bond");
        assertEq(dutiesOf(seat), 0, "no longer held");
        assertEq(pools.bondOf(poolId, coordinator).amount, 90 ether, "the coordinator's bond");
        assertEq(credits.balanceOf(stranger), BOND + 5 ether + 2.5 ether, "bond, compensation, half of the fine");
        Juror[] memory jurors = jury.panelOf(id).jurors;
        assertEq(credits.balanceOf(jurors[0].validator), uint256(2.5 ether) / 3, "a juror's share");
        assertEq(credits.balanceOf(address(jury)), 0, "nothing stays with the jury");
        assertTrue(!jury.isDispute(id), "over");
        pass(80);
        claimFor(first, provider);
        vm.expectRevert(abi.encodeWithSelector(Ledger.NoEarnings.selector, second));
        this.claim(second);
    }

    function test_roots_after_a_false_one_go_with_it_and_true_ones_can_follow() public {
        uint64 first = _earned(1 ether);
        _earned(2 ether);
        _dispute(first);
        _decide(first, Vote.Uphold);
        (, Ledger.Earnings memory earnings) = ledger.newestEarnings(poolId);
        assertEq(earnings.root, bytes32(0), "no root is left");
        assertEq(ledger.provenTotal(poolId), 0, "nothing is proven");
        uint64 third = _earned(0.5 ether);
        assertEq(ledger.earningsOf(poolId, third).previousEpoch, third, "the first again");
        pass(95);
        claimFor(third, provider);
        assertEq(credits.balanceOf(provider), 0.5 ether, "paid");
    }

    // --- what a dispute holds ---

    function test_nothing_becomes_claimable_while_a_dispute_is_open_and_for_a_window_after() public {
        uint64 old = _earned(1 ether);
        pass(80);
        uint64 first = _earned(2 ether);
        pass(40);
        uint64 second = _earned(3 ether);
        pass(35);
        bytes32 id = _dispute(first);
        claimFor(old, provider);
        seatJury(id);
        pass(6);
        vm.expectRevert(abi.encodeWithSelector(Ledger.NotClaimableYet.selector, type(uint64).max));
        this.claim(first);
        pass(4);
        jury.resolveDispute(poolId, first);
        uint256 until = block.timestamp + 15;
        vm.warp(until - 1);
        vm.expectRevert(abi.encodeWithSelector(Ledger.NotClaimableYet.selector, until));
        this.claim(first);
        (uint64 claimable,) = ledger.claimableEarnings(poolId);
        assertEq(claimable, old, "only what was claimable before");
        vm.warp(until);
        claimFor(first, provider);
        (claimable,) = ledger.claimableEarnings(poolId);
        assertEq(claimable, first, "the first");
        uint256 ownTime = ledger.earningsOf(poolId, second).claimableTime;
        assertTrue(ownTime > until, "the second waits for its own time");
        vm.expectRevert(abi.encodeWithSelector(Ledger.NotClaimableYet.selector, ownTime));
        this.claim(second);
        vm.warp(ownTime);
        claimFor(second, provider);
    }

    function test_a_dispute_over_one_root_shields_no_other() public {
        uint64 first = _earned(1 ether);
        uint64 second = _earned(2 ether);
        _dispute(second);
        give(stranger, address(jury), BOND);
        vm.expectRevert(abi.encodeWithSelector(Disputes.DisputeOpen.selector, poolId));
        vm.prank(stranger);
        jury.disputeEarnings(poolId, first);
        pass(90);
        jury.resolveDispute(poolId, second);
        bytes32 id = _dispute(first);
        assertTrue(jury.isDispute(id), "disputed after the other");
        vm.expectRevert(abi.encodeWithSelector(Ledger.NotClaimableYet.selector, type(uint64).max));
        this.claim(second);
    }

    // --- unfounded disputes ---

    function test_an_unfounded_dispute_costs_its_bond() public {
        uint64 epoch = _earned(1 ether);
        bytes32 id = _dispute(epoch);
        uint32 seat = _implicate(epoch);
        assertEq(pools.bondOf(poolId, coordinator).held, 10 ether, "held of the coordinator's bond");
        _decide(epoch, Vote.Overturn);
        assertEq(credits.balanceOf(stranger), 0, "the disputer");
        assertEq(credits.balanceOf(coordinator), BOND / 2, "half for the coordinator");
        assertEq(credits.balanceOf(jury.panelOf(id).jurors[2].validator), BOND / 2 / 3, "the rest for the jurors");
        assertEq(pools.bondOf(poolId, coordinator).held, 0, "its bond is free");
        assertEq(pools.bondOf(poolId, coordinator).amount, 100 ether, "and whole");
        assertEq(bondAt(seat), 50 ether, "the attester's bond");
        assertEq(dutiesOf(seat), 0, "no longer held");
    }

    function test_an_undecided_dispute_costs_nobody_and_may_come_again() public {
        uint64 epoch = _earned(1 ether);
        _dispute(epoch);
        _decide(epoch, Vote.Unavailable);
        assertEq(credits.balanceOf(stranger), BOND, "the bond went back");
        _dispute(epoch);
        _decide(epoch, Vote.Uphold);
        assertEq(ledger.earningsOf(poolId, epoch).root, bytes32(0), "revoked");
    }

    function test_who_did_not_state_the_root_does_not_answer_for_it() public {
        uint64 epoch = commitAndSeal();
        pass(61);
        Statement memory s = statementOf(epoch, 1 ether, 1 ether);
        vm.prank(stranger);
        ledger.commitEarnings(poolId, s.epoch, s.root, s.total, s.drawIndexes, s.signatures);
        bytes32 id = _dispute(epoch);
        assertEq(jury.disputeOf(id).coordinator, address(0), "the coordinator was silent");
        assertEq(pools.bondOf(poolId, coordinator).held, 0, "nothing is held");
        _decide(epoch, Vote.Overturn);
        assertEq(credits.balanceOf(coordinator), 0, "nor compensated");
        assertEq(credits.balanceOf(jury.panelOf(id).jurors[0].validator), BOND / 3, "the jurors have it");
    }

    function test_a_successor_does_not_answer_for_its_predecessors_root() public {
        uint64 epoch = _earned(1 ether);
        vm.prank(creator);
        pools.proposeKey(poolId, Role.Coordinator, stranger);
        vm.prank(stranger);
        pools.acceptKey(poolId, Role.Coordinator);
        bytes32 id = _disputeBy(creator, epoch);
        assertEq(jury.disputeOf(id).coordinator, address(0), "nobody's bond");
        _decide(epoch, Vote.Uphold);
        assertEq(ledger.earningsOf(poolId, epoch).root, bytes32(0), "revoked all the same");
    }

    // --- what is refused ---

    function test_only_a_root_that_waits_can_be_disputed() public {
        uint64 epoch = _earned(1 ether);
        _refused(epoch + 1, abi.encodeWithSelector(Disputes.NoEarnings.selector, epoch + 1));
        uint256 time = ledger.earningsOf(poolId, epoch).claimableTime;
        vm.warp(time);
        _refused(epoch, abi.encodeWithSelector(Disputes.AlreadyClaimable.selector, time));
        vm.warp(time - 1);
        _dispute(epoch);
    }

    function test_a_dispute_without_its_bond_reverts() public {
        uint64 epoch = _earned(1 ether);
        vm.expectRevert();
        vm.prank(stranger);
        jury.disputeEarnings(poolId, epoch);
        assertTrue(!jury.isDispute(ledger.earningsId(poolId, epoch)), "no dispute");
    }

    function test_only_who_signed_the_root_is_implicated() public {
        uint64 epoch = commitAndSeal();
        Statement memory s = statementOf(epoch, 1 ether, 1 ether);
        send(s);
        bytes32 id = ledger.earningsId(poolId, epoch);
        vm.expectRevert(abi.encodeWithSelector(Disputes.NoDispute.selector, id));
        jury.implicateAttester(poolId, epoch, s.seats[0], s.signatures[0]);
        _dispute(epoch);
        uint32 other = s.seats[0] == 0 ? 1 : 0;
        vm.expectRevert(abi.encodeWithSelector(Disputes.NotSeatSignature.selector, other));
        jury.implicateAttester(poolId, epoch, other, s.signatures[0]);
        jury.implicateAttester(poolId, epoch, s.seats[0], s.signatures[0]);
        vm.expectRevert(abi.encodeWithSelector(Disputes.AlreadyImplicated.selector, s.seats[0]));
        jury.implicateAttester(poolId, epoch, s.seats[0], s.signatures[0]);
    }

    function test_a_dispute_implicates_eight_seats() public {
        uint64 epoch = commitAndSeal();
        Statement memory s = statementOf(epoch, 1 ether, 1 ether);
        send(s);
        _dispute(epoch);
        for (uint32 seat; seat < 9; seat++) {
            s.seats[0] = seat;
            bytes memory signature = sign(keyOf(validatorAt(seat)), digestOf(s, 0));
            if (seat == 8) vm.expectRevert(Disputes.AttestersFull.selector);
            jury.implicateAttester(poolId, epoch, seat, signature);
        }
    }

    function test_a_dispute_is_resolved_once_and_not_before_its_time() public {
        uint64 epoch = _earned(1 ether);
        bytes32 id = _dispute(epoch);
        vm.expectRevert();
        jury.resolveDispute(poolId, epoch);
        vm.expectRevert();
        court.resolve(id);
        pass(10);
        jury.resolveDispute(poolId, epoch);
        vm.expectRevert(abi.encodeWithSelector(Disputes.NoDispute.selector, id));
        jury.resolveDispute(poolId, epoch);
    }

    function test_the_contracts_take_such_orders_from_each_other_only() public {
        vm.startPrank(stranger);
        bytes memory notCourt = abi.encodeWithSelector(Jury.NotCourt.selector, stranger);
        vm.expectRevert(notCourt);
        jury.summon("case", poolId);
        vm.expectRevert(notCourt);
        jury.close("case");
        vm.expectRevert(notCourt);
        jury.dismiss("case");
        vm.expectRevert(abi.encodeWithSelector(Ledger.NotJury.selector, stranger));
        ledger.revokeEarnings(poolId, 0);
        vm.stopPrank();
    }

    function test_who_disputes_or_attested_does_not_judge() public {
        uint64 epoch = _earned(1 ether);
        address disputer = vm.addr(FIRST_VALIDATOR);
        bytes32 id = _disputeBy(disputer, epoch);
        uint32 seat = _implicate(epoch);
        seatJury(id);
        for (uint256 i; i < 3; i++) {
            address juror = jury.panelOf(id).jurors[i].validator;
            assertTrue(juror != disputer && juror != validatorAt(seat), "a party sits on the jury");
        }
    }

    /// So that a refusal can be expected of the claim alone.
    function claim(uint64 epoch) external {
        claimFor(epoch, provider);
    }

    function _earned(uint128 first) private returns (uint64 epoch) {
        epoch = commitAndSeal();
        earn(epoch, first, 1 ether);
    }

    function _dispute(uint64 epoch) private returns (bytes32) {
        return _disputeBy(stranger, epoch);
    }

    function _disputeBy(address disputer, uint64 epoch) private returns (bytes32) {
        give(disputer, address(jury), BOND);
        vm.prank(disputer);
        return jury.disputeEarnings(poolId, epoch);
    }

    /// The first drawn seat, which `earn` has had attest.
    function _implicate(uint64 epoch) private returns (uint32) {
        Statement memory s = statementOf(epoch, earned[epoch][provider], earned[epoch][payee]);
        jury.implicateAttester(poolId, epoch, s.seats[0], s.signatures[0]);
        return s.seats[0];
    }

    function _decide(uint64 epoch, Vote vote) private {
        bytes32 id = ledger.earningsId(poolId, epoch);
        seatJury(id);
        voteAll(id, vote, vote, vote);
        jury.resolveDispute(poolId, epoch);
    }

    function _refused(uint64 epoch, bytes memory why) private {
        give(stranger, address(jury), BOND);
        vm.expectRevert(why);
        vm.prank(stranger);
        jury.disputeEarnings(poolId, epoch);
    }
}
