// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Court} from "../Court.sol";
import {Credits} from "../Credits.sol";
import {Receipt, Submission} from "../Messages.sol";
import {Vote} from "../Types.sol";
import {CallingCredits} from "./base/CallingCredits.sol";
import {Earning} from "./base/Earning.sol";
import {Judging} from "./base/Judging.sol";
import {Promising} from "./base/Promising.sol";
import {World} from "./base/World.sol";

/// While a contract moves tokens, nobody gets into it: a token that calls back is turned away, whatever it calls for.
contract GuardsTest is Judging, Earning, Promising {
    function numValidators() internal pure override(World, Judging) returns (uint256) {
        return Judging.numValidators();
    }

    function newCredits() internal override returns (Credits) {
        return new CallingCredits(creator);
    }

    /// What the calls of these tests are answered with where nothing is moving: they get in, and fail for their own
    /// reasons.
    function test_without_a_transfer_the_same_calls_get_in() public {
        address[5] memory all = _contracts();
        for (uint256 i; i < all.length; i++) {
            (, bytes memory said) = all[i].call(_callInto(all[i]));
            assertTrue(bytes4(said) != _turnedAway(), "not turned away");
            assertTrue(said.length >= 4, "refused for a reason of its own");
        }
    }

    // --- Registry ---

    function test_nobody_gets_into_the_registry_while_stake_moves() public {
        give(stranger, address(registry), 3);
        vm.startPrank(stranger);
        _arm(address(registry));
        registry.stake(1);
        _wasTurnedAway("stake");
        _arm(address(registry));
        registry.stakeWithPermit(1, 0, 0, 0, 0);
        _wasTurnedAway("stakeWithPermit");
        _arm(address(registry));
        registry.withdraw(1);
        _wasTurnedAway("withdraw");
        vm.stopPrank();
    }

    function test_nobody_gets_into_registry_or_court_while_a_slash_is_paid_out() public {
        address[2] memory guarded = [address(registry), address(court)];
        for (uint64 i; i < 2; i++) {
            bytes32 id = court.accuse(accusation(NODE, i));
            pass(15);
            _arm(guarded[i]);
            court.enforce(id);
            _wasTurnedAway("enforce");
        }
    }

    function test_nobody_gets_into_registry_or_court_while_seats_pay() public {
        address[2] memory guarded = [address(registry), address(court)];
        for (uint64 i; i < 2; i++) {
            bytes32 id = court.accuse(accusation(NODE, i));
            appealBy(provider, id);
            seatJury(id);
            voteAll(id, Vote.Overturn, Vote.Overturn, Vote.Overturn);
            _arm(guarded[i]);
            court.resolve(id);
            _wasTurnedAway("resolve");
        }
    }

    function test_nobody_gets_into_the_registry_while_absent_jurors_are_fined() public {
        bytes32 id = accusedAndAppealed();
        seatJury(id);
        voteAll(id, Vote.Overturn, Vote.Overturn, Vote.None);
        vm.warp(jury.panelOf(id).deadline);
        _arm(address(registry));
        court.resolve(id);
        _wasTurnedAway("resolve");
    }

    // --- Court and Jury ---

    function test_nobody_gets_into_the_court_while_bonds_come_in_or_go_back() public {
        Court.Accusation memory a = accusation(NODE, 0);
        give(stranger, address(court), BOND);
        _arm(address(court));
        vm.prank(stranger);
        bytes32 id = court.challenge(a.submission, a.nodeSignature, a.inclusion, TOPLOC_MISMATCH, "evidence");
        _wasTurnedAway("challenge");
        _arm(address(court));
        court.accuse(a);
        _wasTurnedAway("accuse, in a challenge's place");
        give(provider, address(court), BOND);
        _arm(address(court));
        vm.prank(provider);
        court.appeal(id);
        _wasTurnedAway("appeal");
    }

    function test_no_payment_is_held_while_an_appeals_bond_comes_in() public {
        Court.Accusation memory a = accusation(NODE, 0);
        Court.Inclusion memory leaf = settled(a, true);
        bytes32 id = court.accuse(a);
        give(provider, address(court), BOND);
        CallingCredits(address(credits)).arm(address(court), abi.encodeCall(court.holdPayment, (id, leaf)));
        vm.prank(provider);
        court.appeal(id);
        _wasTurnedAway("holdPayment");
        court.holdPayment(id, leaf);
        assertEq(ledger.withheld(poolId, provider), 1 ether, "held after that");
    }

    function test_nobody_gets_into_the_jury_while_a_disputes_bond_moves() public {
        uint64 epoch = _earned();
        give(stranger, address(jury), BOND);
        _arm(address(jury));
        vm.prank(stranger);
        jury.disputeEarnings(poolId, epoch);
        _wasTurnedAway("disputeEarnings");
        vm.warp(jury.panelOf(ledger.earningsId(poolId, epoch)).deadline);
        _arm(address(jury));
        jury.resolveDispute(poolId, epoch);
        _wasTurnedAway("resolveDispute");
    }

    // --- Pools and Ledger ---

    function test_nobody_gets_into_pools_or_ledger_while_earnings_are_paid() public {
        uint64 epoch = _earned();
        pass(80);
        _arm(address(pools));
        claimFor(epoch, provider);
        _wasTurnedAway("claim, into Pools");
        _arm(address(ledger));
        claimFor(epoch, payee);
        _wasTurnedAway("claim, into the Ledger");
    }

    function test_nobody_gets_into_pools_or_ledger_while_promises_are_demanded_and_settled() public {
        address[2] memory guarded = [address(pools), address(ledger)];
        for (uint64 i; i < 2; i++) {
            (bytes32 kept, uint64 index) = _demanded(2 * i, guarded[i], true);
            bytes memory document = receivedDocument(ledger.demandOf(kept).submissionId);
            bytes32[] memory path = pathOf(index, ledger.demandOf(kept).size);
            _arm(guarded[i]);
            ledger.answerInclusion(kept, index, document, path);
            _wasTurnedAway("answerInclusion");
            (bytes32 broken,) = _demanded(2 * i + 1, guarded[i], false);
            pass(15);
            _arm(guarded[i]);
            ledger.enforceInclusion(broken);
            _wasTurnedAway("enforceInclusion");
        }
    }

    function test_nobody_gets_into_the_ledger_while_a_forced_intake_is_demanded() public {
        vm.prank(node);
        ledger.forceIntake(poolId, "forced");
        commit();
        commit();
        give(stranger, address(pools), BOND);
        _arm(address(ledger));
        vm.prank(stranger);
        ledger.demandForced(poolId, "forced", coordinator);
        _wasTurnedAway("demandForced");
    }

    function test_nobody_gets_into_pools_while_funds_and_bonds_move() public {
        give(stranger, address(pools), 1);
        _arm(address(pools));
        vm.prank(stranger);
        pools.fund(poolId, 1);
        _wasTurnedAway("fund");
        give(coordinator, address(pools), 1);
        _arm(address(pools));
        vm.prank(coordinator);
        pools.bondCoordinator(poolId, 1);
        _wasTurnedAway("bondCoordinator");
        vm.prank(creator);
        pools.close(poolId);
        pass(60 + 5 + 60 + 2 * 80);
        _arm(address(pools));
        pools.refund(poolId);
        _wasTurnedAway("refund");
        _arm(address(pools));
        vm.prank(coordinator);
        pools.unbondCoordinator(poolId);
        _wasTurnedAway("unbondCoordinator");
    }

    // --- inside ---

    function _contracts() private view returns (address[5] memory) {
        return [address(registry), address(pools), address(ledger), address(court), address(jury)];
    }

    /// A guarded call that needs nothing.
    function _callInto(address target) private view returns (bytes memory) {
        if (target == address(registry)) return abi.encodeCall(registry.withdraw, (0));
        if (target == address(pools)) return abi.encodeCall(pools.fund, (0, 0));
        if (target == address(ledger)) return abi.encodeCall(ledger.enforceInclusion, (0));
        if (target == address(court)) return abi.encodeCall(court.enforce, (0));
        return abi.encodeCall(jury.resolveDispute, (0, 0));
    }

    function _turnedAway() private pure returns (bytes4) {
        return ReentrancyGuardTransient.ReentrancyGuardReentrantCall.selector;
    }

    function _arm(address target) private {
        CallingCredits(address(credits)).arm(target, _callInto(target));
    }

    function _wasTurnedAway(string memory what) private {
        assertEq(CallingCredits(address(credits)).answer(), _turnedAway(), what);
        CallingCredits(address(credits)).arm(address(0), "");
    }

    function _earned() private returns (uint64 epoch) {
        epoch = commitAndSeal();
        earn(epoch, 1 ether, 1 ether);
    }

    /// A demand whose deposit is taken while `guarded` is called; with the leaf that answers it, or without.
    function _demanded(uint64 counter, address guarded, bool isKept) private returns (bytes32 demandId, uint64 index) {
        Submission memory submission = promisedSubmission(counter);
        Receipt memory receipt = receiptFor(submission, ledger.epochCount(poolId));
        if (isKept) index = append(receipt.submissionId, receivedDocument(receipt.submissionId));
        commit();
        bytes memory signature = signReceipt(COORDINATOR, receipt);
        give(stranger, address(pools), BOND);
        _arm(guarded);
        vm.prank(stranger);
        demandId = ledger.demandInclusion(submission, receipt, signature);
        _wasTurnedAway("demandInclusion");
    }
}
