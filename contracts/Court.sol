// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Bench} from "./Bench.sol";
import {Cases} from "./Cases.sol";
import {Credits} from "./Credits.sol";
import {Evidence} from "./Evidence.sol";
import {Jury} from "./Jury.sol";
import {Ledger} from "./Ledger.sol";
import {Submission, Verdict} from "./Messages.sol";
import {Pools} from "./Pools.sol";
import {Registry} from "./Registry.sol";
import {CaseTerms, Draw, JURY_ROUND, JuryTerms, Vote} from "./Types.sol";

/// Cases about forged submissions: from drawn seats' signed verdicts, or anybody's challenge, to a slash or none.
///
/// A submission has one case. Nobody slashes alone, the accuser chooses neither the penalty nor the judges, seats
/// answer for their verdicts with their bonds, and every deadline can be enforced by anybody.
contract Court is Evidence, Cases {
    using SafeERC20 for IERC20;

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
    event Appealed(uint64 indexed poolId, bytes32 indexed submissionId, address indexed appellant, uint128 bond);
    event Challenged(
        uint64 indexed poolId,
        bytes32 indexed submissionId,
        address provider,
        address indexed node,
        address challenger,
        uint8 reason,
        bytes32 evidenceHash,
        uint128 heldStake,
        uint128 heldEarnings,
        uint8 offence,
        uint128 bond
    );
    event Implicated(
        uint64 indexed poolId, bytes32 indexed submissionId, uint32 indexed seat, uint32 round, uint64 appealDeadline
    );

    error CaseExists(bytes32 submissionId);
    error NotAccused(address caller);
    error NotAcceptance(bytes32 submissionId, uint32 seat);
    error NotPaid(bytes32 submissionId);
    error PaymentHeld(bytes32 submissionId);

    constructor(Credits credits_, Registry registry_, Pools pools_, Ledger ledger_, Jury jury_)
        Bench(credits_, registry_, pools_, ledger_)
        Cases(jury_)
    {}

    // --- opening a case ---

    /// Opens a case, whose id is the submission's: as many verdicts as the slash quorum, by seats drawn in one round,
    /// all for the same slashable reason. Anybody may send it. Holds what the case may cost, of the node's allotment
    /// and of the provider's earnings, and the accusing seats' bonds.
    function accuse(Accusation calldata accusation) external nonReentrant returns (bytes32 submissionId) {
        address provider;
        (submissionId, provider) = _checkSubmission(accusation.submission, accusation.nodeSignature);
        _makeRoom(submissionId);
        CaseTerms memory terms = _caseTerms(accusation.submission.poolId);
        _checkLengths(accusation, terms.slashQuorum);
        (Draw memory draw, bool wasPaid) = _drawOf(accusation, submissionId, provider, terms);
        uint32[] memory seats = _checkVerdicts(draw, accusation, terms.slashableMask);
        Case memory entry;
        (entry.node, entry.poolId, entry.state) = (accusation.submission.node, draw.poolId, CaseState.Accused);
        (entry.reason, entry.round) = (accusation.verdicts[0].reason, uint8(draw.round));
        (entry.seats, entry.numSeats) = (_packSeats(seats), uint8(seats.length));
        entry.deadline = uint40(block.timestamp) + terms.appealPeriod;
        _open(submissionId, entry, provider, terms, wasPaid);
        _holdSeats(draw.poolId, seats);
        _emitAccused(submissionId, provider, entry, seats, accusation.verdicts);
    }

    /// Anybody calls a jury over a submission that nobody has accused, with a bond and inside the same window as an
    /// accusation. The jury judges the submission, not the stated reason. What it was paid is held by `holdPayment`.
    function challenge(
        Submission calldata submission,
        bytes calldata nodeSignature,
        Inclusion calldata inclusion,
        uint8 reason,
        bytes32 evidenceHash
    ) external nonReentrant returns (bytes32 submissionId) {
        address provider;
        (submissionId, provider) = _checkSubmission(submission, nodeSignature);
        if (_cases[submissionId].state != CaseState.None) revert CaseExists(submissionId);
        CaseTerms memory terms = _caseTerms(submission.poolId);
        _checkSlashable(reason, terms.slashableMask);
        _checkWindow(_checkReceived(submission.poolId, submissionId, inclusion), terms.accusePeriod);
        Case memory entry;
        (entry.node, entry.poolId, entry.state) = (submission.node, submission.poolId, CaseState.Challenged);
        (entry.reason, entry.round) = (reason, uint8(JURY_ROUND));
        _open(submissionId, entry, provider, terms, false);
        JuryTerms memory juryTerms = _juryTerms(entry.poolId);
        _emitChallenged(submissionId, provider, entry, evidenceHash, juryTerms.challengeBond);
        _summon(submissionId, entry.poolId, juryTerms.challengeBond);
    }

    // --- while it is open ---

    /// The accused provider, or the validator of an implicated seat, calls a jury with a bond, in the appeal period.
    function appeal(bytes32 submissionId) external nonReentrant {
        Case storage entry = _inState(submissionId, CaseState.Accused);
        uint64 poolId = entry.poolId;
        if (msg.sender != _providerOf(entry.node) && !_isImplicated(submissionId, poolId, msg.sender)) {
            revert NotAccused(msg.sender);
        }
        if (block.timestamp >= entry.deadline) revert TooLate(entry.deadline);
        JuryTerms memory terms = _juryTerms(poolId);
        entry.state = CaseState.Appealed;
        emit Appealed(poolId, submissionId, msg.sender, terms.appealBond);
        _summon(submissionId, poolId, terms.appealBond);
    }

    /// A seat that signed that it accepts the submission answers for that in the open case. Anybody may show it.
    /// Which epoch and draw it names doesn't matter: nobody may sign this of a forgery. Before an appeal the seat gets
    /// its own appeal period.
    function implicate(bytes32 submissionId, Verdict calldata verdict, bytes calldata signature) external {
        Case storage entry = _openCase(submissionId);
        uint64 poolId = entry.poolId;
        if (
            verdict.submissionId != submissionId || verdict.poolId != poolId || verdict.round > REAUDIT_ROUND
                || verdict.outcome != OUTCOME_ACCEPT
        ) revert NotAcceptance(submissionId, verdict.seat);
        address validator = registry.holdBondedSeat(poolId, verdict.seat);
        _checkSignature(_domain(), verdict, signature, validator);
        if (entry.state == CaseState.Accused) {
            if (block.timestamp >= entry.deadline) revert TooLate(entry.deadline);
            entry.deadline = uint40(block.timestamp) + _caseTerms(poolId).appealPeriod;
        }
        _addImplicated(submissionId, verdict.seat);
        emit Implicated(poolId, submissionId, verdict.seat, verdict.round, entry.deadline);
    }

    /// Holds what the submission may have been paid, where the case doesn't yet: by whoever shows that the log accepted
    /// it, while the case is open. After it was upheld that is deducted at once.
    function holdPayment(bytes32 submissionId, Inclusion calldata settling) external nonReentrant {
        Case storage entry = _cases[submissionId];
        CaseState state = entry.state;
        if (state == CaseState.None || state > CaseState.Upheld) revert WrongState(submissionId, state);
        if (entry.heldEarnings != 0) revert PaymentHeld(submissionId);
        uint64 poolId = entry.poolId;
        (, bool wasPaid) = _checkSettled(poolId, submissionId, settling);
        if (!wasPaid) revert NotPaid(submissionId);
        (address provider, uint128 amount) = (_providerOf(entry.node), pools.maxTaskEarnings(poolId));
        entry.heldEarnings = amount;
        ledger.holdEarnings(poolId, provider, submissionId, amount);
        if (state == CaseState.Upheld) ledger.deductEarnings(poolId, provider, submissionId, amount);
    }

    // --- the end of a case ---

    /// Without an appeal in time the accusation stands.
    function enforce(bytes32 submissionId) external nonReentrant {
        Case storage entry = _inState(submissionId, CaseState.Accused);
        if (block.timestamp < entry.deadline) revert TooEarly(entry.deadline);
        _uphold(submissionId, entry, new address[](0));
    }

    /// Carries out what the jury found, once all its votes are revealed or its time is over. Where it found nothing
    /// (too few jurors, no evidence), the accusation fails, and costs nobody anything.
    function resolve(bytes32 submissionId) external nonReentrant {
        Case storage entry = _cases[submissionId];
        if (entry.state != CaseState.Appealed && entry.state != CaseState.Challenged) {
            revert WrongState(submissionId, entry.state);
        }
        (Vote finding, address[] memory voters) = jury.close(submissionId);
        if (finding == Vote.Uphold) _uphold(submissionId, entry, voters);
        else if (finding == Vote.Overturn) _overturn(submissionId, entry, voters);
        else _lapse(submissionId, entry);
    }

    // --- inside: opening ---

    /// An accusation takes the place of a challenge that no jury has decided: who challenges first, and badly, must not
    /// keep the quorum out.
    function _makeRoom(bytes32 submissionId) private {
        Case storage entry = _cases[submissionId];
        CaseState state = entry.state;
        if (state == CaseState.None) return;
        bool isUndecided = state == CaseState.Challenged || state == CaseState.Lapsed;
        if (entry.round != JURY_ROUND || !isUndecided) revert CaseExists(submissionId);
        if (state == CaseState.Challenged) {
            jury.dismiss(submissionId);
            _lapse(submissionId, entry);
        }
        delete _implicated[submissionId];
    }

    function _emitAccused(
        bytes32 submissionId,
        address provider,
        Case memory entry,
        uint32[] memory seats,
        Verdict[] calldata verdicts
    ) private {
        emit Accused(
            entry.poolId,
            submissionId,
            provider,
            entry.node,
            entry.reason,
            entry.round,
            seats,
            _evidenceHashes(verdicts),
            entry.heldStake,
            entry.heldEarnings,
            entry.offence,
            entry.deadline
        );
    }

    function _emitChallenged(
        bytes32 submissionId,
        address provider,
        Case memory entry,
        bytes32 evidenceHash,
        uint128 bond
    ) private {
        emit Challenged(
            entry.poolId,
            submissionId,
            provider,
            entry.node,
            msg.sender,
            entry.reason,
            evidenceHash,
            entry.heldStake,
            entry.heldEarnings,
            entry.offence,
            bond
        );
    }

    function _evidenceHashes(Verdict[] calldata verdicts) private pure returns (bytes32[] memory hashes) {
        hashes = new bytes32[](verdicts.length);
        for (uint256 k; k < verdicts.length; k++) {
            hashes[k] = verdicts[k].evidenceHash;
        }
    }
}
