// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bonds} from "../../Bonds.sol";
import {Court} from "../../Court.sol";
import {Inclusions} from "../../Inclusions.sol";
import {Receipt, Submission} from "../../Messages.sol";
import {Registry} from "../../Registry.sol";
import {Accusing} from "./Accusing.sol";
import {Earning} from "./Earning.sol";
import {Promising} from "./Promising.sol";

/// Everything that the parties of one pool can do, in any order, as often as they like; what can't succeed now is left
/// out. Counts what came in, so that the invariants can compare.
contract Actors is Accusing, Earning, Promising {
    /// A demand, and the leaf that answers it; no `size` where there is none.
    struct Doubt {
        bytes32 demandId;
        bytes32 submissionId;
        uint64 index;
        uint64 size;
    }

    uint256 private constant MAX = 50 ether;

    uint256 public minted;
    uint256 public funded;
    uint64 private _counter;
    uint128 private _firstEarned;
    uint128 private _secondEarned;
    uint64[] private _earningEpochs;
    bytes32[] private _caseIds;
    Doubt[] private _doubts;

    function setUp() public override {
        super.setUp();
        minted = credits.totalSupply();
        funded = pools.budget(poolId);
    }

    function selectors() external pure returns (bytes4[] memory list) {
        list = new bytes4[](16);
        (list[0], list[1], list[2]) = (this.doStake.selector, this.doWithdraw.selector, this.doAllot.selector);
        (list[3], list[4], list[5]) = (this.doDeallot.selector, this.doRelease.selector, this.doBond.selector);
        (list[6], list[7], list[8]) = (this.doLeave.selector, this.doWait.selector, this.doFund.selector);
        (list[9], list[10], list[11]) = (this.doAccuse.selector, this.doDecide.selector, this.doEarn.selector);
        (list[12], list[13]) = (this.doClaim.selector, this.doDemand.selector);
        (list[14], list[15]) = (this.doAnswer.selector, this.doTopUp.selector);
    }

    // --- what can be done ---

    function doStake(uint256 amount) external {
        amount = bound(amount, 1, MAX);
        stake(provider, amount);
        minted += amount;
    }

    function doWithdraw(uint256 amount) external {
        uint256 free = registry.freeStake(provider);
        if (free == 0) return;
        vm.prank(provider);
        registry.withdraw(bound(amount, 1, free));
    }

    function doAllot(uint256 amount, bool other) external {
        uint256 free = registry.freeStake(provider);
        if (free == 0) return;
        vm.prank(provider);
        registry.allot(other ? otherNode : node, poolId, uint128(bound(amount, 1, free)));
    }

    function doDeallot(uint256 amount, bool other) external {
        address from = other ? otherNode : node;
        uint256 allotted = registry.allotment(from, poolId);
        if (allotted == 0) return;
        vm.prank(provider);
        registry.deallot(from, poolId, uint128(bound(amount, 1, allotted)));
    }

    function doRelease(bool other) external {
        address from = other ? otherNode : node;
        try registry.release(from, poolId) {} catch {}
    }

    function doBond(uint256 which) external {
        bondSeat(FIRST_VALIDATOR + which % NUM_VALIDATORS);
        minted += 50 ether;
    }

    function doLeave(uint256 which) external {
        uint32 seat = uint32(which % registry.numSeats(poolId));
        (address validator,,,, uint64 releaseTime) = registry.seatOf(poolId, seat);
        vm.startPrank(validator);
        if (releaseTime != 0) try registry.withdrawSeat(poolId, seat) {} catch {}
        // The first three stay, so that there is always somebody to judge.
        else if (seat >= NUM_VALIDATORS) registry.releaseSeat(poolId, seat);
        vm.stopPrank();
    }

    function doWait(uint256 time) external {
        pass(bound(time, 1, 200));
    }

    function doFund(uint256 amount) external {
        amount = bound(amount, 1, MAX);
        give(stranger, address(pools), amount);
        vm.prank(stranger);
        pools.fund(poolId, amount);
        (minted, funded) = (minted + amount, funded + amount);
    }

    function doAccuse(bool other) external {
        Court.Accusation memory a = accusation(other ? OTHER_NODE : NODE, _counter++);
        if (_counter % 3 == 0) judge(a, commitAndSeal(), 1, 2);
        _caseIds.push(court.accuse(a));
    }

    /// Appeals, enforces or lets lapse whatever is due.
    function doDecide(uint256 which, bool appeals) external {
        if (_caseIds.length == 0) return;
        bytes32 id = _caseIds[which % _caseIds.length];
        Court.Case memory entry = court.caseOf(id);
        bool isDue = block.timestamp >= entry.deadline;
        if (entry.state == Court.CaseState.Accused && isDue) court.enforce(id);
        if (entry.state == Court.CaseState.Appealed && isDue) court.lapse(id);
        if (entry.state == Court.CaseState.Accused && !isDue && appeals) {
            give(provider, address(court), 5 ether);
            minted += 5 ether;
            vm.prank(provider);
            court.appeal(id);
        }
    }

    function doEarn(uint256 first, uint256 second) external {
        uint256 room = pools.budget(poolId) - _firstEarned - _secondEarned;
        _firstEarned += uint128(bound(first, 0, room / 4));
        _secondEarned += uint128(bound(second, 0, room / 4));
        uint64 epoch = commitAndSeal();
        earn(epoch, _firstEarned, _secondEarned);
        _earningEpochs.push(epoch);
    }

    function doClaim(uint256 which, bool second) external {
        if (_earningEpochs.length == 0) return;
        uint64 epoch = _earningEpochs[which % _earningEpochs.length];
        address account = second ? payee : provider;
        (uint128 cumulative, bytes32[] memory proof) = (earned[epoch][account], proofOf(epoch, account));
        try ledger.claim(poolId, epoch, account, cumulative, proof) {} catch {}
    }

    /// Promises the intake of a submission, by a receipt or because a node forces it, keeps that or not, and is asked.
    function doDemand(bool isKept, bool isForced) external {
        if (isForced && registry.allotment(node, poolId) < 100 ether) return;
        Doubt memory doubt;
        Submission memory submission = promisedSubmission(2 ** 32 + _counter++);
        Receipt memory receipt = receiptFor(submission, ledger.epochCount(poolId));
        doubt.submissionId = receipt.submissionId;
        if (isForced) {
            vm.prank(node);
            ledger.forceIntake(poolId, doubt.submissionId);
        }
        if (isKept) doubt.index = append(doubt.submissionId, receivedDocument(doubt.submissionId));
        uint64 epoch = commitAndSeal();
        if (isForced) epoch = commitAndSeal();
        if (isKept) doubt.size = headSize(epoch);
        bytes memory signature = signReceipt(COORDINATOR, receipt);
        give(stranger, address(pools), 5 ether);
        minted += 5 ether;
        vm.prank(stranger);
        doubt.demandId = isForced
            ? ledger.demandForced(poolId, doubt.submissionId, coordinator)
            : ledger.demandInclusion(submission, receipt, signature);
        _doubts.push(doubt);
    }

    /// Answers what can be answered in time, enforces what is due.
    function doAnswer(uint256 which) external {
        if (_doubts.length == 0) return;
        Doubt memory doubt = _doubts[which % _doubts.length];
        Inclusions.Demand memory demand = ledger.demandOf(doubt.demandId);
        if (demand.state != Inclusions.DemandState.Open) return;
        if (block.timestamp >= demand.deadline) {
            ledger.enforceInclusion(doubt.demandId);
        } else if (doubt.size != 0) {
            bytes memory document = receivedDocument(doubt.submissionId);
            ledger.answerInclusion(doubt.demandId, doubt.index, document, pathOf(doubt.index, doubt.size));
        }
    }

    function doTopUp(uint256 amount) external {
        amount = bound(amount, 1, MAX);
        bondCoordinator(coordinator, uint128(amount));
        minted += amount;
    }

    // --- what the contracts owe ---

    function registryOwes() external view returns (uint256 sum) {
        sum = registry.freeStake(provider) + _allotted(node) + _allotted(otherNode);
        for (uint256 i; i < NUM_VALIDATORS; i++) {
            sum += registry.freeStake(vm.addr(FIRST_VALIDATOR + i));
        }
        for (uint32 seat; seat < registry.numSeats(poolId); seat++) {
            (,,, uint128 bond,) = registry.seatOf(poolId, seat);
            sum += bond;
        }
    }

    /// Bonds of open appeals, what open cases hold of each node, and what cases withhold of earnings.
    function courtOwes() external view returns (uint256 bonds, uint256 held, uint256 otherHeld, uint256 withheld) {
        for (uint256 i; i < _caseIds.length; i++) {
            Court.Case memory entry = court.caseOf(_caseIds[i]);
            bool isOpen = entry.state == Court.CaseState.Accused || entry.state == Court.CaseState.Appealed;
            if (entry.state == Court.CaseState.Appealed) bonds += court.appealOf(_caseIds[i]).bond;
            if (isOpen && entry.node == node) held += entry.heldStake;
            if (isOpen && entry.node == otherNode) otherHeld += entry.heldStake;
            if (entry.state != Court.CaseState.Lapsed) withheld += entry.heldEarnings;
        }
    }

    /// Of open demands: what their demanders bonded, and what they hold of the coordinator's bond.
    function demandsOwe() external view returns (uint256 bonds, uint256 held) {
        for (uint256 i; i < _doubts.length; i++) {
            Inclusions.Demand memory demand = ledger.demandOf(_doubts[i].demandId);
            if (demand.state != Inclusions.DemandState.Open) continue;
            Bonds.Hold memory hold = pools.holdOf(_doubts[i].demandId);
            (bonds, held) = (bonds + hold.deposit, held + hold.amount);
        }
    }

    function coordinatorBond() external view returns (uint256 amount, uint256 held) {
        return (pools.bondOf(poolId, coordinator).amount, pools.bondOf(poolId, coordinator).held);
    }

    /// All that anybody has outside the contracts.
    function wallets() external view returns (uint256 sum) {
        sum = credits.balanceOf(provider) + credits.balanceOf(payee) + credits.balanceOf(stranger);
        sum += credits.balanceOf(creator) + credits.balanceOf(coordinator);
        for (uint256 i; i < NUM_VALIDATORS; i++) {
            sum += credits.balanceOf(vm.addr(FIRST_VALIDATOR + i));
        }
    }

    function world() external view returns (address[4] memory, uint64) {
        return ([address(credits), address(registry), address(pools), address(court)], poolId);
    }

    function nodes() external view returns (address, address) {
        return (node, otherNode);
    }

    function people() external view returns (address, address, address) {
        return (provider, payee, address(ledger));
    }

    function _allotted(address of_) private view returns (uint256) {
        Registry.Allotment memory entry = registry.allotmentOf(of_, poolId);
        return uint256(entry.amount) + entry.unbonding;
    }
}
