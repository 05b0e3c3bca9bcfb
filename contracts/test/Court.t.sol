// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bench} from "../Bench.sol";
import {Cases} from "../Cases.sol";
import {Court} from "../Court.sol";
import {Registry} from "../Registry.sol";
import {Accusing} from "./base/Accusing.sol";

/// From an accusation to its end. What an accusation must contain: Accusation.t.sol.
contract CourtTest is Accusing {
    function test_an_accusation_holds_a_share_of_the_allotment_and_nothing_else() public {
        Court.Accusation memory a = accusation(NODE, 0);
        vm.prank(stranger);
        bytes32 id = court.accuse(a);
        Cases.Case memory entry = court.caseOf(id);
        assertTrue(entry.state == Cases.CaseState.Accused, "state");
        assertEq(entry.heldStake, 20 ether, "a tenth of 200");
        assertEq(entry.heldEarnings, 0, "round 0 was never accepted");
        assertEq(entry.deadline, block.timestamp + 15, "appeal deadline");
        assertEq(court.accusersOf(id).length, 2, "accusers");
        assertEq(court.accusersOf(id)[1], a.verdicts[1].seat, "the second accuser");
        assertEq(registry.allotmentOf(node, poolId).held, 20 ether, "held");
        assertEq(registry.allotmentOf(otherNode, poolId).held, 0, "the other node");
        assertEq(registry.allotment(node, poolId), 200 ether, "not slashed yet");
    }

    function test_an_accusation_without_appeal_is_enforced_by_anybody_after_the_appeal_period() public {
        bytes32 id = court.accuse(accusation(NODE, 0));
        uint256 deadline = court.caseOf(id).deadline;
        vm.warp(deadline - 1);
        vm.expectRevert(abi.encodeWithSelector(Bench.TooEarly.selector, deadline));
        court.enforce(id);
        vm.warp(deadline);
        uint256 supply = credits.totalSupply();
        vm.prank(stranger);
        court.enforce(id);
        assertTrue(court.caseOf(id).state == Cases.CaseState.Upheld, "state");
        assertEq(registry.allotment(node, poolId), 180 ether, "allotment");
        assertEq(registry.allotment(otherNode, poolId), 300 ether, "the other node");
        assertEq(registry.freeStake(provider), 500 ether, "free stake");
        assertEq(supply - credits.totalSupply(), 18 ether, "burned");
        assertEq(registry.allotmentOf(node, poolId).held, 0, "nothing stays held");
    }

    function test_the_bounty_is_a_tenth_shared_by_the_accusing_validators() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = court.accuse(a);
        pass(15);
        court.enforce(id);
        for (uint256 k; k < 2; k++) {
            (address validator,,,,,,) = registry.seatOf(poolId, a.verdicts[k].seat);
            assertEq(credits.balanceOf(validator), 1 ether, "bounty");
        }
    }

    function test_a_case_is_enforced_once() public {
        bytes32 id = court.accuse(accusation(NODE, 0));
        pass(15);
        court.enforce(id);
        vm.expectRevert(abi.encodeWithSelector(Cases.WrongState.selector, id, Cases.CaseState.Upheld));
        court.enforce(id);
    }

    function test_later_offences_cost_everything_that_is_left() public {
        bytes32 first = court.accuse(accusation(NODE, 0));
        pass(15);
        court.enforce(first);
        bytes32 second = court.accuse(accusation(NODE, 1));
        assertEq(court.caseOf(second).offence, 1, "offence");
        pass(15);
        court.enforce(second);
        assertEq(registry.allotment(node, poolId), 0, "allotment");
        assertEq(registry.allotment(otherNode, poolId), 300 ether, "the other node");
    }

    function test_an_offence_counts_as_later_only_while_the_earlier_one_stands() public {
        bytes32 first = court.accuse(accusation(NODE, 0));
        bytes32 second = court.accuse(accusation(NODE, 1));
        assertEq(court.caseOf(second).heldStake, 180 ether, "all that the first hold leaves");
        _appeal(first);
        pass(15);
        court.resolve(first);
        court.enforce(second);
        assertEq(registry.allotment(node, poolId), 182 ether, "a tenth of what it held");
        assertEq(registry.allotmentOf(node, poolId).held, 0, "nothing stays held");
    }

    function test_stake_that_leaves_before_the_accusation_is_still_reached() public {
        Court.Accusation memory a = accusation(NODE, 0);
        vm.prank(provider);
        registry.deallot(node, poolId, 195 ether);
        bytes32 id = court.accuse(a);
        pass(15);
        court.enforce(id);
        assertEq(registry.allotment(node, poolId), 0, "active part first");
        assertEq(registry.allotmentOf(node, poolId).unbonding, 180 ether, "the rest from unbonding");
        pass(60 + UNBONDING);
        registry.release(node, poolId);
        assertEq(registry.freeStake(provider), 680 ether, "what is left is let go");
    }

    function test_removing_the_node_does_not_help() public {
        Court.Accusation memory a = accusation(NODE, 0);
        vm.prank(provider);
        registry.removeNode(node);
        bytes32 id = court.accuse(a);
        pass(15);
        court.enforce(id);
        assertEq(registry.allotment(node, poolId), 180 ether, "allotment");
    }

    // --- appeals ---

    function test_an_appealed_case_cannot_be_enforced_and_lapses_when_no_jury_decides() public {
        bytes32 id = court.accuse(accusation(NODE, 0));
        _appeal(id);
        assertEq(credits.balanceOf(address(court)), 5 ether, "the bond");
        pass(9);
        vm.expectRevert(abi.encodeWithSelector(Cases.WrongState.selector, id, Cases.CaseState.Appealed));
        court.enforce(id);
        vm.expectRevert(abi.encodeWithSelector(Bench.TooEarly.selector, jury.panelOf(id).deadline));
        court.resolve(id);
        pass(1);
        vm.prank(stranger);
        court.resolve(id);
        assertTrue(court.caseOf(id).state == Cases.CaseState.Lapsed, "state");
        assertEq(credits.balanceOf(provider), 5 ether, "the bond went back");
        assertEq(registry.allotmentOf(node, poolId).held, 0, "the hold is gone");
        assertEq(registry.allotment(node, poolId), 200 ether, "nothing was slashed");
        vm.expectRevert(abi.encodeWithSelector(Cases.WrongState.selector, id, Cases.CaseState.Lapsed));
        court.resolve(id);
    }

    function test_only_the_accused_provider_appeals_and_only_in_time() public {
        bytes32 id = court.accuse(accusation(NODE, 0));
        uint256 deadline = court.caseOf(id).deadline;
        vm.expectRevert(abi.encodeWithSelector(Court.NotAccused.selector, stranger));
        vm.prank(stranger);
        court.appeal(id);
        vm.warp(deadline);
        vm.expectRevert(abi.encodeWithSelector(Bench.TooLate.selector, deadline));
        vm.prank(provider);
        court.appeal(id);
    }

    function test_an_appeal_without_its_bond_reverts() public {
        bytes32 id = court.accuse(accusation(NODE, 0));
        vm.expectRevert();
        vm.prank(provider);
        court.appeal(id);
        assertTrue(court.caseOf(id).state == Cases.CaseState.Accused, "state");
    }

    function test_a_case_without_an_appeal_does_not_lapse() public {
        bytes32 id = court.accuse(accusation(NODE, 0));
        pass(1_000);
        vm.expectRevert(abi.encodeWithSelector(Cases.WrongState.selector, id, Cases.CaseState.Accused));
        court.resolve(id);
    }

    // --- re-audits ---

    function test_a_re_audit_holds_earnings_and_an_upheld_one_deducts_them_for_good() public {
        bytes32 id = court.accuse(_reaudit());
        assertEq(court.caseOf(id).heldEarnings, 1 ether, "price times max units");
        assertEq(ledger.withheld(poolId, provider), 1 ether, "held");
        pass(15);
        court.enforce(id);
        assertEq(ledger.withheld(poolId, provider), 1 ether, "deducted");
    }

    function test_a_lapsed_re_audit_frees_the_earnings() public {
        bytes32 id = court.accuse(_reaudit());
        _appeal(id);
        pass(10);
        court.resolve(id);
        assertEq(ledger.withheld(poolId, provider), 0, "withheld");
    }

    function test_a_re_audit_of_rejected_work_holds_no_earnings() public {
        Court.Accusation memory a = accusation(NODE, 0);
        reaudit(a, false);
        bytes32 id = court.accuse(a);
        assertEq(court.caseOf(id).heldEarnings, 0, "it was never paid");
        assertEq(court.caseOf(id).round, 1, "round");
    }

    function _reaudit() private returns (Court.Accusation memory a) {
        a = accusation(NODE, 0);
        reaudit(a, true);
    }

    function _appeal(bytes32 id) private {
        give(provider, address(court), 5 ether);
        vm.prank(provider);
        court.appeal(id);
    }
}
