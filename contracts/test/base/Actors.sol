// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Cases} from "../../Cases.sol";
import {Court} from "../../Court.sol";
import {Inclusions} from "../../Inclusions.sol";
import {Receipt, Submission, Verdict} from "../../Messages.sol";
import {Ledger} from "../../Ledger.sol";
import {Panel, Vote} from "../../Types.sol";
import {Dealings} from "./Dealings.sol";

/// Everything that the parties of one pool can do, in any order, as often as they like; what can't succeed now is left
/// out. Counts what came in, so that the invariants can compare.
contract Actors is Dealings {
    function setUp() public override {
        super.setUp();
        minted = credits.totalSupply();
        funded = pools.budget(poolId);
        (stakeOfProvider, stakeOfValidators) = (providersStake(), validatorsStake());
    }

    /// Cases may take from stakes here, and nothing else anywhere: never more of the provider's than all cases hold.
    modifier maySlash() {
        uint256 held = _heldStake();
        (uint256 ofProvider, uint256 ofValidators) = (providersStake(), validatorsStake());
        _;
        uint256 slashed = ofProvider - providersStake();
        assertTrue(slashed <= held, "slashed beyond what was held");
        stakeOfProvider -= slashed;
        stakeOfValidators -= ofValidators - validatorsStake();
    }

    function selectors() external pure returns (bytes4[] memory list) {
        list = new bytes4[](23);
        (list[0], list[1], list[2]) = (this.doStake.selector, this.doWithdraw.selector, this.doAllot.selector);
        (list[3], list[4], list[5]) = (this.doDeallot.selector, this.doRelease.selector, this.doBond.selector);
        (list[6], list[7], list[8]) = (this.doLeave.selector, this.doWait.selector, this.doFund.selector);
        (list[9], list[10], list[11]) = (this.doAccuse.selector, this.doDecide.selector, this.doEarn.selector);
        (list[12], list[13]) = (this.doClaim.selector, this.doDemand.selector);
        (list[14], list[15]) = (this.doAnswer.selector, this.doTopUp.selector);
        (list[16], list[17], list[18]) = (this.doChallenge.selector, this.doImplicate.selector, this.doJury.selector);
        (list[19], list[20], list[21]) = (this.doDispute.selector, this.doSettle.selector, this.doMeddle.selector);
        list[22] = this.doSettleWork.selector;
    }

    // --- what can be done ---

    function doStake(uint256 amount) external {
        amount = bound(amount, 1, MAX);
        stake(provider, amount);
        (minted, stakeOfProvider) = (minted + amount, stakeOfProvider + amount);
    }

    function doWithdraw(uint256 amount) external {
        uint256 free = registry.freeStake(provider);
        if (free == 0) return;
        amount = bound(amount, 1, free);
        stakeOfProvider -= amount;
        vm.prank(provider);
        registry.withdraw(amount);
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
        if (registry.numSeats(poolId) == MAX_SEATS) return;
        bondSeat(FIRST_VALIDATOR + which % numValidators());
        (minted, stakeOfValidators) = (minted + 50 ether, stakeOfValidators + 50 ether);
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

    /// Who owns nothing tries to move what others have staked.
    function doMeddle(uint256 which, uint256 amount) external {
        uint32 seat = uint32(which % registry.numSeats(poolId));
        amount = bound(amount, 1, MAX);
        bytes[6] memory calls = [
            abi.encodeCall(registry.withdraw, (amount)),
            abi.encodeCall(registry.allot, (node, poolId, uint128(amount))),
            abi.encodeCall(registry.deallot, (node, poolId, uint128(amount))),
            abi.encodeCall(registry.removeNode, (node)),
            abi.encodeCall(registry.releaseSeat, (poolId, seat)),
            abi.encodeCall(registry.withdrawSeat, (poolId, seat))
        ];
        vm.prank(stranger);
        (bool done,) = address(registry).call(calls[which % 6]);
        assertTrue(!done, "somebody else moved a stake");
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

    /// The log settles a submission that has a case, and somebody shows that: where it was accepted, its payment is
    /// held once, while the case is open or was upheld.
    function doSettleWork(uint256 which, bool accepted) external {
        if (_caseIds.length == 0) return;
        bytes32 id = _caseIds[which % _caseIds.length];
        Cases.Case memory entry = court.caseOf(id);
        bool isHeld = accepted && entry.heldEarnings == 0
            && (_isOpen(entry) || entry.state == Cases.CaseState.Upheld);
        try court.holdPayment(id, settledLeaf(id, accepted)) {
            assertTrue(isHeld, "a payment held that wasn't to be");
        } catch {
            assertTrue(!isHeld, "a payment not held");
        }
    }

    /// Appeals, enforces or resolves whatever is due.
    function doDecide(uint256 which, bool appeals) external maySlash {
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
    function doSettle(uint8[3] calldata votes, bool isSeated) external maySlash {
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

    // --- the end ---

    /// Every case is decided, the pool is drained, its claims expire, and everybody takes out what is theirs.
    function drain() external {
        pass(1 days);
        _endCases();
        vm.prank(creator);
        pools.close(poolId);
        for (uint32 seat; seat < registry.numSeats(poolId); seat++) {
            (address validator,,,, uint64 releaseTime,,) = registry.seatOf(poolId, seat);
            if (releaseTime != 0) continue;
            vm.prank(validator);
            registry.releaseSeat(poolId, seat);
        }
        _deallotAll(node);
        _deallotAll(otherNode);
        pass(181 days);
        if (pools.funds(poolId) != 0) pools.refund(poolId);
        if (pools.bondOf(poolId, coordinator).amount != 0) {
            vm.prank(coordinator);
            pools.unbondCoordinator(poolId);
        }
        _takeOut();
    }

    function _endCases() private {
        for (uint256 i; i < _caseIds.length; i++) {
            Cases.Case memory entry = court.caseOf(_caseIds[i]);
            if (entry.state == Cases.CaseState.Accused) court.enforce(_caseIds[i]);
            else if (_isBeforeJury(entry)) court.resolve(_caseIds[i]);
        }
        if (_isDisputed) jury.resolveDispute(poolId, _disputedEpoch);
        for (uint256 i; i < _doubts.length; i++) {
            bytes32 id = _doubts[i].demandId;
            if (ledger.demandOf(id).state == Inclusions.DemandState.Open) ledger.enforceInclusion(id);
        }
    }

    function _deallotAll(address from) private {
        uint128 amount = registry.allotment(from, poolId);
        if (amount == 0) return;
        vm.prank(provider);
        registry.deallot(from, poolId, amount);
    }

    function _takeOut() private {
        if (registry.allotmentOf(node, poolId).unbonding != 0) registry.release(node, poolId);
        if (registry.allotmentOf(otherNode, poolId).unbonding != 0) registry.release(otherNode, poolId);
        for (uint32 seat; seat < registry.numSeats(poolId); seat++) {
            if (bondAt(seat) == 0) continue;
            vm.prank(validatorAt(seat));
            registry.withdrawSeat(poolId, seat);
        }
        _withdrawAll(provider);
        for (uint256 i; i < numValidators(); i++) {
            _withdrawAll(validators[i]);
        }
    }

    function _withdrawAll(address owner) private {
        uint256 free = registry.freeStake(owner);
        if (free == 0) return;
        vm.prank(owner);
        registry.withdraw(free);
    }

    // --- inside ---

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

    function _heldStake() private view returns (uint256) {
        return uint256(registry.allotmentOf(node, poolId).held) + registry.allotmentOf(otherNode, poolId).held;
    }
}
