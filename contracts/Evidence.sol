// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {Bench} from "./Bench.sol";
import {Ledger} from "./Ledger.sol";
import {LogProof} from "./LogProof.sol";
import {Messages, Submission, Verdict} from "./Messages.sol";
import {CaseTerms, Draw} from "./Types.sol";

/// What an accusation or a challenge must show: whose submission it is, that the log received it, who judged it.
abstract contract Evidence is Bench {
    /// That the log has an event about the submission in `epoch`: the event's canonical JSON and its RFC 9162 path.
    struct Inclusion {
        uint64 epoch;
        uint64 leafIndex;
        bytes document;
        bytes32[] proof;
    }

    /// What opens a case: the submission as its node signed it, that the log received it, and the verdicts of the
    /// slash quorum's seats, each with its signature and raw draw, in ascending order of the draws. In round 1 also
    /// that the log settled it, because the beacon of that epoch picks and draws; in round 0 `settling` is empty.
    struct Accusation {
        Submission submission;
        bytes nodeSignature;
        Inclusion inclusion;
        Inclusion settling;
        Verdict[] verdicts;
        bytes[] signatures;
        uint32[] drawIndexes;
    }

    uint256 private constant BPS = 10_000;
    uint8 internal constant OUTCOME_ACCEPT = 0;
    uint8 private constant OUTCOME_SLASH = 2;
    uint32 internal constant REAUDIT_ROUND = 1;
    /// How canonical documents of events end: keys are sorted, so `type` is last.
    bytes32 private constant RECEIVED = keccak256(',"type":"submission.received"}');
    bytes32 private constant ACCEPTED = keccak256(',"type":"submission.accepted"}');
    bytes32 private constant REJECTED = keccak256(',"type":"submission.rejected"}');
    /// All three are as long.
    uint256 private constant SUFFIX_BYTES = 30;

    error UnknownNode(address node);
    error NotNodeSignature(address node);
    error NotReceivedEvent();
    error NotSettlingEvent();
    error NotInEpoch(uint64 epoch, uint64 leafIndex);
    error NotInLog();
    error AccusedTooLate(uint64 deadline);
    error BeaconMissing(uint64 epoch);
    error QuorumNotExact(uint256 verdicts, uint256 quorum);
    error LengthsDiffer();
    error VerdictMismatch(uint256 position);
    error NotSeatSignature(uint32 seat);
    error NotSlashable(uint8 reason);
    error RoundUnknown(uint32 round);
    error NotReaudited(bytes32 submissionId);

    /// Whether the beacon of the epoch that settled a submission picks it for a re-audit.
    function isReaudited(bytes32 beacon, bytes32 submissionId, uint16 reauditBps) public pure returns (bool) {
        return uint256(keccak256(abi.encode(beacon, submissionId, REAUDIT_ROUND, type(uint32).max))) % BPS < reauditBps;
    }

    /// The submission's id and the provider that answers for it.
    function _checkSubmission(Submission calldata submission, bytes calldata nodeSignature)
        internal
        view
        returns (bytes32 submissionId, address provider)
    {
        submissionId = Messages.submission(_domain(), submission);
        if (ECDSA.recoverCalldata(submissionId, nodeSignature) != submission.node) {
            revert NotNodeSignature(submission.node);
        }
        provider = _providerOf(submission.node);
        if (provider == address(0)) revert UnknownNode(submission.node);
    }

    function _checkLengths(Accusation calldata accusation, uint256 quorum) internal pure {
        uint256 length = accusation.verdicts.length;
        if (length != quorum) revert QuorumNotExact(length, quorum);
        if (accusation.signatures.length != length || accusation.drawIndexes.length != length) revert LengthsDiffer();
    }

    /// Round 0 is drawn by the beacon of the epoch that received the submission, the re-audit by that of the epoch that
    /// settled it; the window counts from the same epoch. `wasPaid`: round 0 accepted it.
    function _drawOf(Accusation calldata accusation, bytes32 submissionId, address provider, CaseTerms memory terms)
        internal
        view
        returns (Draw memory draw, bool wasPaid)
    {
        draw.poolId = accusation.submission.poolId;
        (draw.id, draw.round, draw.limit) = (submissionId, accusation.verdicts[0].round, terms.drawLimit);
        draw.excluded = new address[](1);
        draw.excluded[0] = provider;
        if (draw.round > REAUDIT_ROUND) revert RoundUnknown(draw.round);
        Ledger.Epoch memory epoch = _checkReceived(draw.poolId, submissionId, accusation.inclusion);
        draw.epoch = accusation.inclusion.epoch;
        if (draw.round == REAUDIT_ROUND) {
            (epoch, wasPaid) = _checkSettled(draw.poolId, submissionId, accusation.settling);
            draw.epoch = accusation.settling.epoch;
        }
        _checkWindow(epoch, terms.accusePeriod);
        draw.beacon = epoch.beacon;
        if (draw.beacon == 0) revert BeaconMissing(draw.epoch);
        if (draw.round == REAUDIT_ROUND && !isReaudited(draw.beacon, submissionId, terms.reauditBps)) {
            revert NotReaudited(submissionId);
        }
    }

    /// The leaf's place between two heads, and the type of its event, leave no choice of another epoch, and so of
    /// another beacon.
    function _checkReceived(uint64 poolId, bytes32 submissionId, Inclusion calldata inclusion)
        internal
        view
        returns (Ledger.Epoch memory epoch)
    {
        if (_suffixOf(inclusion.document) != RECEIVED) revert NotReceivedEvent();
        return _checkInclusion(poolId, submissionId, inclusion);
    }

    function _checkWindow(Ledger.Epoch memory epoch, uint32 accusePeriod) internal view {
        uint64 deadline = epoch.time + accusePeriod;
        if (block.timestamp > deadline) revert AccusedTooLate(deadline);
    }

    function _checkVerdicts(Draw memory draw, Accusation calldata accusation, uint256 slashableMask)
        internal
        view
        returns (uint32[] memory)
    {
        uint8 reason = accusation.verdicts[0].reason;
        _checkSlashable(reason, slashableMask);
        bytes32 domain = _domain();
        (uint32[] memory seats, address[] memory validators) = _drawnSeats(draw, accusation.drawIndexes);
        for (uint256 k; k < seats.length; k++) {
            Verdict calldata verdict = accusation.verdicts[k];
            bool fits = _isOfDraw(verdict, draw) && verdict.seat == seats[k] && verdict.outcome == OUTCOME_SLASH
                && verdict.reason == reason && verdict.rulesHash == accusation.submission.rulesHash;
            if (!fits) revert VerdictMismatch(k);
            _checkSignature(domain, verdict, accusation.signatures[k], validators[k]);
        }
        return seats;
    }

    function _checkSlashable(uint8 reason, uint256 slashableMask) internal pure {
        if (slashableMask & (1 << reason) == 0) revert NotSlashable(reason);
    }

    function _checkSignature(bytes32 domain, Verdict calldata verdict, bytes calldata signature, address validator)
        internal
        pure
    {
        if (ECDSA.recoverCalldata(Messages.verdict(domain, verdict), signature) != validator) {
            revert NotSeatSignature(verdict.seat);
        }
    }

    function _checkSettled(uint64 poolId, bytes32 submissionId, Inclusion calldata inclusion)
        internal
        view
        returns (Ledger.Epoch memory epoch, bool wasAccepted)
    {
        bytes32 suffix = _suffixOf(inclusion.document);
        wasAccepted = suffix == ACCEPTED;
        if (!wasAccepted && suffix != REJECTED) revert NotSettlingEvent();
        epoch = _checkInclusion(poolId, submissionId, inclusion);
    }

    function _checkInclusion(uint64 poolId, bytes32 submissionId, Inclusion calldata inclusion)
        private
        view
        returns (Ledger.Epoch memory epoch)
    {
        epoch = ledger.epochOf(poolId, inclusion.epoch);
        if (inclusion.leafIndex < epoch.previousSize || inclusion.leafIndex >= epoch.size) {
            revert NotInEpoch(inclusion.epoch, inclusion.leafIndex);
        }
        bytes32 leaf = LogProof.leafHash(submissionId, sha256(inclusion.document));
        if (!LogProof.isIncluded(inclusion.leafIndex, epoch.size, epoch.root, leaf, inclusion.proof)) {
            revert NotInLog();
        }
    }

    /// Zero for a document that is too short to be an event.
    function _suffixOf(bytes calldata document) private pure returns (bytes32) {
        uint256 length = document.length;
        return length < SUFFIX_BYTES ? bytes32(0) : keccak256(document[length - SUFFIX_BYTES:]);
    }

    function _isOfDraw(Verdict calldata verdict, Draw memory draw) private pure returns (bool) {
        return verdict.submissionId == draw.id && verdict.poolId == draw.poolId && verdict.epoch == draw.epoch
            && verdict.round == draw.round;
    }
}
