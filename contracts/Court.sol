// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Ledger} from "./Ledger.sol";
import {LogProof} from "./LogProof.sol";
import {Messages, Submission, Verdict} from "./Messages.sol";
import {Pools} from "./Pools.sol";
import {Registry} from "./Registry.sol";
import {CaseTerms, Draw, SlashOrder} from "./Types.sol";

/// Accusations of forged submissions: from drawn seats' signed verdicts to a slash, with an appeal in between.
///
/// A submission can be accused once. Nobody slashes alone, the accuser chooses neither the penalty nor the judges,
/// and every deadline can be enforced by anybody.
contract Court is ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    enum CaseState {
        None,
        Accused,
        Appealed,
        Upheld,
        Overturned,
        Lapsed
    }

    /// That the log received the submission in `epoch`: the event's canonical JSON and its RFC 9162 path.
    struct Inclusion {
        uint64 epoch;
        uint64 leafIndex;
        bytes document;
        bytes32[] proof;
    }

    /// What opens a case: the submission as its node signed it, that the log received it, and the verdicts of the
    /// slash quorum's seats, each with its signature and raw draw, in ascending order of the draws.
    struct Accusation {
        Submission submission;
        bytes nodeSignature;
        Inclusion inclusion;
        Verdict[] verdicts;
        bytes[] signatures;
        uint32[] drawIndexes;
    }

    /// Packed, because every accusation pays for it; the third word stays empty in round 0.
    struct Case {
        address node;
        uint96 heldStake;
        uint64 poolId;
        uint96 seats; // the accusing ones, 32 bits each, the first in the lowest
        uint40 deadline; // of the appeal, then of the jury
        CaseState state;
        uint8 reason;
        uint8 offence; // how many cases stood against the node in the pool before
        uint8 numSeats;
        uint8 round;
        uint128 heldEarnings;
    }

    struct Appeal {
        address appellant;
        uint64 juryEpoch; // whose beacon draws the jury: open when the appeal came, so nobody knew it
        uint128 bond;
        uint8 numUphold;
        uint8 numOverturn;
    }

    uint8 private constant OUTCOME_SLASH = 2;
    uint32 private constant REAUDIT_ROUND = 1;
    uint256 private constant BPS = 10_000;
    /// How the canonical document of the event that received a submission ends: keys are sorted, so `type` is last.
    bytes private constant RECEIVED_SUFFIX = ',"type":"submission.received"}';

    IERC20 public immutable credits;
    Registry public immutable registry;
    Pools public immutable pools;
    Ledger public immutable ledger;

    mapping(bytes32 submissionId => Case) private _cases;
    mapping(bytes32 submissionId => Appeal) private _appeals;

    event Accused(
        uint64 indexed poolId,
        bytes32 indexed submissionId,
        address provider,
        address indexed node,
        uint8 reason,
        uint32 round,
        uint32[] seats,
        bytes32[] evidenceHashes,
        uint128 heldStake,
        uint128 heldEarnings,
        uint8 offence,
        uint64 appealDeadline
    );
    event Appealed(
        uint64 indexed poolId,
        bytes32 indexed submissionId,
        address indexed appellant,
        uint128 bond,
        uint64 juryEpoch,
        uint64 juryDeadline
    );
    event CaseUpheld(
        uint64 indexed poolId,
        bytes32 indexed submissionId,
        address provider,
        address indexed node,
        uint256 slashed,
        uint128 deducted
    );
    event CaseLapsed(
        uint64 indexed poolId, bytes32 indexed submissionId, address provider, address indexed node, uint128 bond
    );

    error CaseExists(bytes32 submissionId);
    error WrongState(bytes32 submissionId, CaseState state);
    error UnknownNode(address node);
    error NotNodeSignature(address node);
    error NotReceivedEvent();
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
    error NotAccusedProvider(address caller);
    error TooLate(uint64 deadline);
    error TooEarly(uint64 deadline);

    constructor(IERC20 credits_, Registry registry_, Pools pools_, Ledger ledger_) {
        credits = credits_;
        registry = registry_;
        pools = pools_;
        ledger = ledger_;
    }

    /// Opens a case, whose id is the submission's: as many verdicts as the slash quorum, by seats drawn in one round,
    /// all for the same slashable reason. Anybody may send it. Holds what the case may cost, of the node's allotment
    /// and of the provider's earnings.
    function accuse(Accusation calldata accusation) external nonReentrant returns (bytes32 submissionId) {
        bytes32 domain = ledger.domainSeparator();
        Submission calldata submission = accusation.submission;
        submissionId = Messages.submission(domain, submission);
        if (_cases[submissionId].state != CaseState.None) revert CaseExists(submissionId);
        if (ECDSA.recoverCalldata(submissionId, accusation.nodeSignature) != submission.node) {
            revert NotNodeSignature(submission.node);
        }
        address provider = registry.ownerOf(submission.node);
        if (provider == address(0)) revert UnknownNode(submission.node);
        CaseTerms memory terms = pools.caseTerms(submission.poolId);
        _checkLengths(accusation, terms.slashQuorum);
        Draw memory draw = _drawOf(accusation, submissionId, terms);
        draw.excluded = provider;
        uint32[] memory seats = _checkVerdicts(domain, draw, accusation, terms.slashableMask);
        _open(accusation, provider, draw, seats, terms);
    }

    /// The accused provider calls a jury, with a bond, inside the appeal period.
    function appeal(bytes32 submissionId) external nonReentrant {
        Case storage entry = _inState(submissionId, CaseState.Accused);
        if (msg.sender != registry.ownerOf(entry.node)) revert NotAccusedProvider(msg.sender);
        if (block.timestamp >= entry.deadline) revert TooLate(entry.deadline);
        uint64 poolId = entry.poolId;
        (uint128 bond, uint32 juryPeriod) = pools.appealTerms(poolId);
        uint64 juryEpoch = ledger.epochCount(poolId);
        uint40 juryDeadline = uint40(block.timestamp) + juryPeriod;
        entry.state = CaseState.Appealed;
        entry.deadline = juryDeadline;
        _appeals[submissionId] = Appeal(msg.sender, juryEpoch, bond, 0, 0);
        emit Appealed(poolId, submissionId, msg.sender, bond, juryEpoch, juryDeadline);
        credits.safeTransferFrom(msg.sender, address(this), bond);
    }

    /// Without an appeal in time the accusation stands: the held stake is slashed, the held earnings are deducted.
    function enforce(bytes32 submissionId) external nonReentrant {
        Case storage entry = _inState(submissionId, CaseState.Accused);
        if (block.timestamp < entry.deadline) revert TooEarly(entry.deadline);
        entry.state = CaseState.Upheld;
        (uint64 poolId, address node) = (entry.poolId, entry.node);
        address provider = registry.ownerOf(node);
        uint128 deducted = entry.heldEarnings;
        if (deducted != 0) ledger.deductEarnings(poolId, provider, submissionId, deducted);
        uint256 slashed = registry.slash(_slashOrder(submissionId, entry));
        emit CaseUpheld(poolId, submissionId, provider, node, slashed, deducted);
    }

    /// An appealed case that no jury decided in time falls: holds are let go, the bond goes back.
    function lapse(bytes32 submissionId) external nonReentrant {
        Case storage entry = _inState(submissionId, CaseState.Appealed);
        if (block.timestamp < entry.deadline) revert TooEarly(entry.deadline);
        entry.state = CaseState.Lapsed;
        (uint64 poolId, address node) = (entry.poolId, entry.node);
        address provider = registry.ownerOf(node);
        Appeal storage appeal_ = _appeals[submissionId];
        uint128 bond = appeal_.bond;
        emit CaseLapsed(poolId, submissionId, provider, node, bond);
        registry.freeAllotment(poolId, node, submissionId, entry.heldStake);
        if (entry.heldEarnings != 0) ledger.freeEarnings(poolId, provider, submissionId, entry.heldEarnings);
        credits.safeTransfer(appeal_.appellant, bond);
    }

    // --- views ---

    function caseOf(bytes32 submissionId) external view returns (Case memory) {
        return _cases[submissionId];
    }

    function appealOf(bytes32 submissionId) external view returns (Appeal memory) {
        return _appeals[submissionId];
    }

    /// The accusing seats of a case, in the order of their draws.
    function accusersOf(bytes32 submissionId) external view returns (uint32[] memory) {
        return _unpackSeats(_cases[submissionId]);
    }

    /// Whether the beacon of the epoch after the one that received a submission picks it for a re-audit.
    function isReaudited(bytes32 beacon, bytes32 submissionId, uint16 reauditBps) public pure returns (bool) {
        return uint256(keccak256(abi.encode(beacon, submissionId, REAUDIT_ROUND, type(uint32).max))) % BPS < reauditBps;
    }

    // --- inside ---

    function _checkLengths(Accusation calldata accusation, uint256 quorum) private pure {
        uint256 length = accusation.verdicts.length;
        if (length != quorum) revert QuorumNotExact(length, quorum);
        if (accusation.signatures.length != length || accusation.drawIndexes.length != length) revert LengthsDiffer();
    }

    /// Round 0 is drawn by the receiving epoch's beacon; the re-audit, where there is one, by the next epoch's.
    function _drawOf(Accusation calldata accusation, bytes32 submissionId, CaseTerms memory terms)
        private
        view
        returns (Draw memory)
    {
        uint64 poolId = accusation.submission.poolId;
        uint64 epoch = accusation.inclusion.epoch;
        bytes32 beacon = _checkInclusion(poolId, submissionId, accusation.inclusion, terms.accusePeriod);
        uint32 round = accusation.verdicts[0].round;
        if (round > REAUDIT_ROUND) revert RoundUnknown(round);
        if (round == REAUDIT_ROUND) {
            epoch++;
            beacon = ledger.epochBeacon(poolId, epoch);
        }
        if (beacon == 0) revert BeaconMissing(epoch);
        if (round == REAUDIT_ROUND && !isReaudited(beacon, submissionId, terms.reauditBps)) {
            revert NotReaudited(submissionId);
        }
        return Draw(poolId, epoch, beacon, submissionId, round, terms.drawLimit, address(0));
    }

    /// The beacon of the epoch that received the submission. The leaf's place between two heads, and the type of its
    /// event, leave no choice of another epoch, and so of another beacon.
    function _checkInclusion(uint64 poolId, bytes32 submissionId, Inclusion calldata inclusion, uint32 accusePeriod)
        private
        view
        returns (bytes32 beacon)
    {
        Ledger.Epoch memory epoch = ledger.epochOf(poolId, inclusion.epoch);
        uint64 deadline = epoch.time + accusePeriod;
        if (block.timestamp > deadline) revert AccusedTooLate(deadline);
        if (inclusion.leafIndex < epoch.previousSize || inclusion.leafIndex >= epoch.size) {
            revert NotInEpoch(inclusion.epoch, inclusion.leafIndex);
        }
        if (!_endsAsReceived(inclusion.document)) revert NotReceivedEvent();
        bytes32 leaf = LogProof.leafHash(submissionId, sha256(inclusion.document));
        if (!LogProof.isIncluded(inclusion.leafIndex, epoch.size, epoch.root, leaf, inclusion.proof)) {
            revert NotInLog();
        }
        return epoch.beacon;
    }

    function _endsAsReceived(bytes calldata document) private pure returns (bool) {
        uint256 length = RECEIVED_SUFFIX.length;
        if (document.length < length) return false;
        return keccak256(document[document.length - length:]) == keccak256(RECEIVED_SUFFIX);
    }

    function _checkVerdicts(bytes32 domain, Draw memory draw, Accusation calldata accusation, uint256 slashableMask)
        private
        view
        returns (uint32[] memory)
    {
        uint8 reason = accusation.verdicts[0].reason;
        if (slashableMask & (1 << reason) == 0) revert NotSlashable(reason);
        (uint32[] memory seats, address[] memory validators) = registry.drawnSeats(draw, accusation.drawIndexes);
        for (uint256 k; k < seats.length; k++) {
            Verdict calldata verdict = accusation.verdicts[k];
            bool fits = _isOfDraw(verdict, draw) && verdict.seat == seats[k] && verdict.outcome == OUTCOME_SLASH
                && verdict.reason == reason && verdict.rulesHash == accusation.submission.rulesHash;
            if (!fits) revert VerdictMismatch(k);
            if (ECDSA.recoverCalldata(Messages.verdict(domain, verdict), accusation.signatures[k]) != validators[k]) {
                revert NotSeatSignature(seats[k]);
            }
        }
        return seats;
    }

    function _isOfDraw(Verdict calldata verdict, Draw memory draw) private pure returns (bool) {
        return verdict.submissionId == draw.id && verdict.poolId == draw.poolId && verdict.epoch == draw.epoch
            && verdict.round == draw.round;
    }

    function _open(
        Accusation calldata accusation,
        address provider,
        Draw memory draw,
        uint32[] memory seats,
        CaseTerms memory terms
    ) private {
        Case memory entry;
        (entry.node, entry.poolId, entry.state) = (accusation.submission.node, draw.poolId, CaseState.Accused);
        (entry.reason, entry.round) = (accusation.verdicts[0].reason, uint8(draw.round));
        (entry.seats, entry.numSeats) = (_packSeats(seats), uint8(seats.length));
        entry.deadline = uint40(block.timestamp) + terms.appealPeriod;
        // A submission that round 0 condemns was never accepted, so it never earned anything.
        if (draw.round != 0) entry.heldEarnings = pools.maxTaskEarnings(draw.poolId);
        (entry.heldStake, entry.offence) =
            registry.holdAllotment(draw.poolId, entry.node, draw.id, terms.firstSlashBps, terms.laterSlashBps);
        _cases[draw.id] = entry;
        if (entry.heldEarnings != 0) ledger.holdEarnings(draw.poolId, provider, draw.id, entry.heldEarnings);
        _emitAccused(draw, provider, entry, seats, accusation.verdicts);
    }

    function _emitAccused(
        Draw memory draw,
        address provider,
        Case memory entry,
        uint32[] memory seats,
        Verdict[] calldata verdicts
    ) private {
        emit Accused(
            draw.poolId,
            draw.id,
            provider,
            entry.node,
            entry.reason,
            draw.round,
            seats,
            _evidenceHashes(verdicts),
            entry.heldStake,
            entry.heldEarnings,
            entry.offence,
            entry.deadline
        );
    }

    function _evidenceHashes(Verdict[] calldata verdicts) private pure returns (bytes32[] memory hashes) {
        hashes = new bytes32[](verdicts.length);
        for (uint256 k; k < verdicts.length; k++) {
            hashes[k] = verdicts[k].evidenceHash;
        }
    }

    function _slashOrder(bytes32 submissionId, Case storage entry) private view returns (SlashOrder memory order) {
        CaseTerms memory terms = pools.caseTerms(entry.poolId);
        return SlashOrder({
            poolId: entry.poolId,
            node: entry.node,
            submissionId: submissionId,
            held: entry.heldStake,
            offence: entry.offence,
            firstSlashBps: terms.firstSlashBps,
            laterSlashBps: terms.laterSlashBps,
            bountyBps: terms.bountyBps,
            bountyCap: terms.bountyCap,
            seats: _unpackSeats(entry)
        });
    }

    function _inState(bytes32 submissionId, CaseState state) private view returns (Case storage entry) {
        entry = _cases[submissionId];
        if (entry.state != state) revert WrongState(submissionId, entry.state);
    }

    function _packSeats(uint32[] memory seats) private pure returns (uint96 packed) {
        for (uint256 k; k < seats.length; k++) {
            packed |= uint96(seats[k]) << uint96(32 * k);
        }
    }

    function _unpackSeats(Case memory entry) private pure returns (uint32[] memory seats) {
        seats = new uint32[](entry.numSeats);
        for (uint256 k; k < seats.length; k++) {
            seats[k] = uint32(entry.seats >> uint96(32 * k));
        }
    }
}
