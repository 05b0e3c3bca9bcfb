// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bonds} from "../../Bonds.sol";
import {Cases} from "../../Cases.sol";
import {Court} from "../../Court.sol";
import {Inclusions} from "../../Inclusions.sol";
import {Receipt, Submission, Verdict} from "../../Messages.sol";
import {Ledger} from "../../Ledger.sol";
import {Registry} from "../../Registry.sol";
import {Juror, Panel, Vote} from "../../Types.sol";
import {Earning} from "./Earning.sol";
import {Judging} from "./Judging.sol";
import {Promising} from "./Promising.sol";
import {World} from "./World.sol";

/// Everything that the parties of one pool can do, in any order, as often as they like; what can't succeed now is left
/// out. Counts what came in, so that the invariants can compare.
contract Actors is Judging, Earning, Promising {
    /// A demand, and the leaf that answers it; no `size` where there is none.
    struct Doubt {
        bytes32 demandId;
        bytes32 submissionId;
        uint64 index;
        uint64 size;
    }

    /// What it takes to accuse or challenge a submission again.
    struct Filed {
        uint256 nodeKey;
        uint64 counter;
        uint64 epoch;
        uint64 leafIndex;
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
    Filed[] private _filed; // for each case
    bool private _isDisputed;
    uint64 private _disputedEpoch;

    function numValidators() internal pure override(World, Judging) returns (uint256) {
        return Judging.numValidators();
    }

    function setUp() public override {
        super.setUp();
        minted = credits.totalSupply();
        funded = pools.budget(poolId);
    }

    function selectors() external pure returns (bytes4[] memory list) {
        list = new bytes4[](21);
        (list[0], list[1], list[2]) = (this.doStake.selector, this.doWithdraw.selector, this.doAllot.selector);
        (list[3], list[4], list[5]) = (this.doDeallot.selector, this.doRelease.selector, this.doBond.selector);
        (list[6], list[7], list[8]) = (this.doLeave.selector, this.doWait.selector, this.doFund.selector);
        (list[9], list[10], list[11]) = (this.doAccuse.selector, this.doDecide.selector, this.doEarn.selector);
        (list[12], list[13]) = (this.doClaim.selector, this.doDemand.selector);
        (list[14], list[15]) = (this.doAnswer.selector, this.doTopUp.selector);
        (list[16], list[17], list[18]) = (this.doChallenge.selector, this.doImplicate.selector, this.doJury.selector);
        (list[19], list[20]) = (this.doDispute.selector, this.doSettle.selector);
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
        bondSeat(FIRST_VALIDATOR + which % numValidators());
        minted += 50 ether;
    }

    function doLeave(uint256 which) external {
        uint32 seat = uint32(which % registry.numSeats(poolId));
        (address validator,,,, uint64 releaseTime,,) = registry.seatOf(poolId, seat);
        vm.startPrank(validator);
        if (releaseTime != 0) try registry.withdrawSeat(poolId, seat) {} catch {}
        // The first ones stay until the Court retires them, so that there is mostly somebody to judge.
        else if (seat >= numValidators()) registry.releaseSeat(poolId, seat);
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
        if (_numJudges(ledger.epochCount(poolId)) < 2) return;
        uint256 nodeKey = other ? OTHER_NODE : NODE;
        Court.Accusation memory a = accusation(nodeKey, _counter++);
        if (_counter % 3 == 0) {
            if (_numJudges(ledger.epochCount(poolId)) < 2) return;
            reaudit(a, _counter % 2 == 0);
        }
        _file(nodeKey, a);
        court.accuse(a);
    }

    function doChallenge(bool other) external {
        if (_numJudges(ledger.epochCount(poolId)) < 2) return;
        uint256 nodeKey = other ? OTHER_NODE : NODE;
        Court.Accusation memory a = accusation(nodeKey, _counter++);
        _file(nodeKey, a);
        minted += BOND;
        challengeBy(stranger, a);
    }

    /// A seat that accepted is named, or the quorum takes a challenge over.
    function doImplicate(uint256 which, uint256 position, bool takesOver) external {
        if (_caseIds.length == 0) return;
        which %= _caseIds.length;
        bytes32 id = _caseIds[which];
        uint64 epoch = _filed[which].epoch;
        uint256 numJudges = _numJudges(epoch);
        if (numJudges < 2) return;
        if (takesOver) {
            try court.accuse(_accusationOf(_filed[which])) {} catch {}
            return;
        }
        (Verdict memory verdict, bytes memory signature) = acceptanceOf(id, epoch, position % numJudges);
        try court.implicate(id, verdict, signature) {} catch {}
    }

    /// Appeals, enforces or resolves whatever is due.
    function doDecide(uint256 which, bool appeals) external {
        if (_caseIds.length == 0) return;
        bytes32 id = _caseIds[which % _caseIds.length];
        Cases.Case memory entry = court.caseOf(id);
        bool isDue = block.timestamp >= entry.deadline;
        if (entry.state == Cases.CaseState.Accused && isDue) court.enforce(id);
        if (_isBeforeJury(entry)) try court.resolve(id) {} catch {}
        if (entry.state == Cases.CaseState.Accused && !isDue && appeals) {
            uint32[] memory implicated = court.implicatedOf(id);
            minted += BOND;
            appealBy(implicated.length == 0 ? provider : validatorAt(implicated[0]), id);
        }
    }

    /// Seats a jury; its members vote as they like, or don't.
    function doJury(uint256 which, uint8[3] calldata votes) external {
        if (_caseIds.length == 0) return;
        bytes32 id = _caseIds[which % _caseIds.length];
        if (_isBeforeJury(court.caseOf(id))) this.seatAndVote(id, votes);
    }

    function seatAndVote(bytes32 id, uint8[3] calldata votes) external {
        if (jury.panelOf(id).commitDeadline != 0) return;
        mine(3);
        Panel memory panel = jury.panelOf(id);
        if (block.timestamp >= panel.deadline || _numJurors(id, panel.epoch) < 3) return;
        if (block.number > panel.beaconBlock + 256) return jury.callJury(id, new uint32[](0));
        try jury.callJury(id, juryIndexes(id, 3)) {}
        catch {
            return;
        }
        voteAll(id, Vote(votes[0] % 4), Vote(votes[1] % 4), Vote(votes[2] % 4));
    }

    /// A root that isn't claimable yet, false or not, comes before a jury, with the seat that attested it.
    function doDispute(uint256 which, bool implicates) external {
        if (_earningEpochs.length == 0 || _isDisputed) return;
        uint64 epoch = _earningEpochs[which % _earningEpochs.length];
        Ledger.Earnings memory earnings = ledger.earningsOf(poolId, epoch);
        uint64 time = jury.claimableTime(poolId, earnings.claimableTime);
        if (earnings.root == 0 || block.timestamp >= time) return;
        give(stranger, address(jury), BOND);
        minted += BOND;
        vm.prank(stranger);
        jury.disputeEarnings(poolId, epoch);
        (_isDisputed, _disputedEpoch) = (true, epoch);
        Statement memory s = statementOf(epoch, earned[epoch][provider], earned[epoch][payee]);
        if (implicates) try jury.implicateAttester(poolId, epoch, s.seats[0], s.signatures[0]) {} catch {}
    }

    /// The jury votes, or isn't seated, and the dispute ends.
    function doSettle(uint8[3] calldata votes, bool isSeated) external {
        if (!_isDisputed) return;
        bytes32 id = ledger.earningsId(poolId, _disputedEpoch);
        if (isSeated) this.seatAndVote(id, votes);
        if (block.timestamp < jury.panelOf(id).deadline) vm.warp(jury.panelOf(id).deadline);
        jury.resolveDispute(poolId, _disputedEpoch);
        _isDisputed = false;
    }

    function doEarn(uint256 first, uint256 second) external {
        if (_numJudges(ledger.epochCount(poolId)) == 0) return;
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
        for (uint256 i; i < numValidators(); i++) {
            sum += registry.freeStake(validators[i]);
        }
        for (uint32 seat; seat < registry.numSeats(poolId); seat++) {
            (,,, uint128 bond,,,) = registry.seatOf(poolId, seat);
            sum += bond;
        }
    }

    /// Bonds of open appeals and challenges, what open cases hold of each node, and what cases withhold of earnings.
    function courtOwes() external view returns (uint256 bonds, uint256 held, uint256 otherHeld, uint256 withheld) {
        for (uint256 i; i < _caseIds.length; i++) {
            Cases.Case memory entry = court.caseOf(_caseIds[i]);
            if (_isBeforeJury(entry)) bonds += BOND;
            if (_isOpen(entry) && entry.node == node) held += entry.heldStake;
            if (_isOpen(entry) && entry.node == otherNode) otherHeld += entry.heldStake;
            if (_isOpen(entry) || entry.state == Cases.CaseState.Upheld) withheld += entry.heldEarnings;
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

    /// Of the open dispute: its bond, and what it holds of the coordinator's.
    function disputeOwes() external view returns (uint256 bond, uint256 held) {
        if (!_isDisputed) return (0, 0);
        return (BOND, pools.holdOf(ledger.earningsId(poolId, _disputedEpoch)).amount);
    }

    /// In how many open cases and disputes a seat accused, accepted, attested or sits on the jury.
    function dutiesInCases(uint32 seat) external view returns (uint256 count) {
        if (_isDisputed) {
            bytes32 id = ledger.earningsId(poolId, _disputedEpoch);
            count += _times(jury.disputeOf(id).attesters, seat) + _timesJuror(id, seat);
        }
        for (uint256 i; i < _caseIds.length; i++) {
            bytes32 id = _caseIds[i];
            if (!_isOpen(court.caseOf(id))) continue;
            count += _times(court.accusersOf(id), seat) + _times(court.implicatedOf(id), seat);
            count += _timesJuror(id, seat);
        }
    }

    function dutiesInBook(uint32 seat) external view returns (uint256) {
        return dutiesOf(seat);
    }

    /// All that anybody has outside the contracts.
    function wallets() external view returns (uint256 sum) {
        sum = credits.balanceOf(provider) + credits.balanceOf(payee) + credits.balanceOf(stranger);
        sum += credits.balanceOf(creator) + credits.balanceOf(coordinator);
        for (uint256 i; i < numValidators(); i++) {
            sum += credits.balanceOf(validators[i]);
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

    function _file(uint256 nodeKey, Court.Accusation memory a) private {
        _caseIds.push(idOf(a.submission));
        _filed.push(Filed(nodeKey, a.submission.counter, a.inclusion.epoch, a.inclusion.leafIndex));
    }

    function _accusationOf(Filed memory filed) private view returns (Court.Accusation memory a) {
        a.submission = submissionOf(vm.addr(filed.nodeKey), filed.counter);
        bytes32 id = idOf(a.submission);
        (a.inclusion.epoch, a.inclusion.leafIndex) = (filed.epoch, filed.leafIndex);
        a.inclusion.document = receivedDocument(id);
        a.inclusion.proof = log.inclusion(filed.leafIndex, ledger.epochOf(poolId, filed.epoch).size);
        a.nodeSignature = sign(filed.nodeKey, id);
        judge(a, filed.epoch, 0, 2);
    }

    /// Validators with a seat that can be drawn for the epoch.
    function _numJudges(uint64 epoch) private view returns (uint256) {
        return _numEligible(epoch, new address[](0));
    }

    function _numJurors(bytes32 id, uint64 epoch) private view returns (uint256) {
        return _numEligible(epoch, partiesOf(id));
    }

    function _numEligible(uint64 epoch, address[] memory excluded) private view returns (uint256 count) {
        address[] memory seen = new address[](numValidators());
        for (uint32 seat; seat < registry.numSeatsAt(poolId, epoch); seat++) {
            address validator = validatorAt(seat);
            bool isPassedOver = contains(excluded, validator) || contains(seen, validator);
            if (registry.seatIsActive(poolId, seat, epoch) && !isPassedOver) seen[count++] = validator;
        }
    }

    function _isBeforeJury(Cases.Case memory entry) private pure returns (bool) {
        return entry.state == Cases.CaseState.Appealed || entry.state == Cases.CaseState.Challenged;
    }

    function _isOpen(Cases.Case memory entry) private pure returns (bool) {
        return entry.state == Cases.CaseState.Accused || _isBeforeJury(entry);
    }

    function _timesJuror(bytes32 id, uint32 seat) private view returns (uint256 count) {
        Juror[] memory jurors = jury.panelOf(id).jurors;
        for (uint256 k; k < jurors.length; k++) {
            if (jurors[k].seat == seat) count++;
        }
    }

    function _times(uint32[] memory list, uint32 wanted) private pure returns (uint256 count) {
        for (uint256 i; i < list.length; i++) {
            if (list[i] == wanted) count++;
        }
    }
}
