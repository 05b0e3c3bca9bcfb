// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Beacon} from "./Beacon.sol";
import {Bench} from "./Bench.sol";
import {Draw, JURY_ROUND, Juror, JuryTerms, Panel, Vote} from "./Types.sol";

/// Round 2 of any case: jurors are drawn, commit to their votes, and reveal them.
///
/// The beacon is armed here, by nobody's choice, so that a coordinator that stops or stalls starves no appeal. All clocks
/// run from the seating, so that nobody can call the jurors too late to vote; a jury that isn't seated in time, or
/// isn't of one mind by more than half of its size, finds nothing.
abstract contract Panels is Bench {

    mapping(bytes32 caseId => Panel) private _panels;

    event JurySummoned(
        uint64 indexed poolId, bytes32 indexed caseId, uint64 epoch, uint64 beaconBlock, uint64 seatingDeadline
    );
    event JuryRearmed(uint64 indexed poolId, bytes32 indexed caseId, uint64 beaconBlock);
    event JurySeated(
        uint64 indexed poolId, bytes32 indexed caseId, uint32[] seats, uint64 commitDeadline, uint64 revealDeadline
    );
    event VoteCommitted(uint64 indexed poolId, bytes32 indexed caseId, uint32 indexed seat, bytes32 commitment);
    event VoteRevealed(uint64 indexed poolId, bytes32 indexed caseId, uint32 indexed seat, Vote vote);

    error NoJury(bytes32 caseId);
    error AlreadySeated(bytes32 caseId);
    error NotSeated(bytes32 caseId);
    error BeaconPending(uint64 beaconBlock);
    error JuryNotExact(uint256 given, uint256 size);
    error NoSuchJuror(uint256 position);
    error NotJuror(address caller);
    error AlreadyCommitted(uint32 seat);
    error AlreadyRevealed(uint32 seat);
    error NotCommitted(uint32 seat);
    error VoteMissing();

    /// Seats the jury: the first `jurySize` seats that the beacon draws in round 2, at ascending raw draws
    /// `drawIndexes`, passing over whoever is part of the case. Anybody may. A beacon that is out of reach is armed
    /// again, to a block that nobody chooses, and the call is to be repeated after it.
    function callJury(bytes32 caseId, uint32[] calldata drawIndexes) external {
        Panel storage panel = _panels[caseId];
        if (panel.deadline == 0) revert NoJury(caseId);
        if (panel.commitDeadline != 0) revert AlreadySeated(caseId);
        if (block.timestamp >= panel.deadline) revert TooLate(panel.deadline);
        (Beacon.Status status, bytes32 beacon) = Beacon.read(panel.beaconBlock);
        if (status == Beacon.Status.Pending) revert BeaconPending(panel.beaconBlock);
        if (status == Beacon.Status.Missed) {
            panel.beaconBlock = Beacon.arm();
            emit JuryRearmed(panel.poolId, caseId, panel.beaconBlock);
            return;
        }
        _seat(caseId, panel, beacon, drawIndexes);
    }

    /// A juror binds itself: keccak256(abi.encode(caseId, seat, vote, salt)), of a vote and a salt that nobody knows.
    function commitVote(bytes32 caseId, uint256 position, bytes32 commitment) external {
        (Panel storage panel, Juror storage juror) = _jurorAt(caseId, position);
        if (msg.sender != juror.validator) revert NotJuror(msg.sender);
        if (block.timestamp >= panel.commitDeadline) revert TooLate(panel.commitDeadline);
        if (juror.commitment != 0) revert AlreadyCommitted(juror.seat);
        if (commitment == 0) revert VoteMissing();
        juror.commitment = commitment;
        panel.numCommitted++;
        emit VoteCommitted(panel.poolId, caseId, juror.seat, commitment);
    }

    /// Opens a commitment, once all jurors have committed or the time for it is over. Whoever knows the salt may.
    function revealVote(bytes32 caseId, uint256 position, Vote vote, bytes32 salt) external {
        (Panel storage panel, Juror storage juror) = _jurorAt(caseId, position);
        if (panel.numCommitted < panel.jurors.length && block.timestamp < panel.commitDeadline) {
            revert TooEarly(panel.commitDeadline);
        }
        if (block.timestamp >= panel.deadline) revert TooLate(panel.deadline);
        if (vote == Vote.None) revert VoteMissing();
        if (juror.vote != Vote.None) revert AlreadyRevealed(juror.seat);
        if (keccak256(abi.encode(caseId, juror.seat, vote, salt)) != juror.commitment) {
            revert NotCommitted(juror.seat);
        }
        juror.vote = vote;
        panel.numRevealed++;
        emit VoteRevealed(panel.poolId, caseId, juror.seat, vote);
    }

    function panelOf(bytes32 caseId) external view returns (Panel memory) {
        return _panels[caseId];
    }

    // --- inside ---

    /// Whose seats may not sit on the jury: everybody with a stake in the case, repetitions included.
    function _partiesOf(bytes32 caseId) internal view virtual returns (address[] memory);

    /// A jury of before over the same case is forgotten.
    function _summonJury(bytes32 caseId, uint64 poolId, uint32 juryPeriod) internal {
        delete _panels[caseId];
        Panel storage panel = _panels[caseId];
        uint40 deadline = uint40(block.timestamp) + juryPeriod;
        (panel.poolId, panel.epoch) = (poolId, ledger.epochCount(poolId));
        (panel.beaconBlock, panel.deadline) = (Beacon.arm(), deadline);
        emit JurySummoned(poolId, caseId, panel.epoch, panel.beaconBlock, deadline);
    }

    /// What the jury found, Vote.None where it found nothing, and the validators who voted. Fines those who didn't.
    function _closeJury(bytes32 caseId) internal returns (Vote finding, address[] memory voters) {
        Panel storage panel = _panels[caseId];
        uint256 size = panel.jurors.length;
        bool isComplete = size != 0 && panel.numRevealed == size;
        if (!isComplete && block.timestamp < panel.deadline) revert TooEarly(panel.deadline);
        voters = new address[](panel.numRevealed);
        bool[] memory absent = new bool[](size);
        uint256[4] memory votes;
        uint256 k;
        for (uint256 i; i < size; i++) {
            Juror storage juror = panel.jurors[i];
            votes[uint256(juror.vote)]++;
            if (juror.vote == Vote.None) absent[i] = true;
            else voters[k++] = juror.validator;
        }
        _freeJurors(caseId, panel, absent);
        if (2 * votes[uint256(Vote.Uphold)] > size) finding = Vote.Uphold;
        else if (2 * votes[uint256(Vote.Overturn)] > size) finding = Vote.Overturn;
    }

    /// Another procedure takes the jury's place, and nobody is to blame.
    function _dismissJury(bytes32 caseId) internal {
        Panel storage panel = _panels[caseId];
        _freeJurors(caseId, panel, new bool[](panel.jurors.length));
        delete _panels[caseId];
    }

    function _seat(bytes32 caseId, Panel storage panel, bytes32 beacon, uint32[] calldata drawIndexes) private {
        uint64 poolId = panel.poolId;
        JuryTerms memory terms = _juryTerms(poolId);
        if (drawIndexes.length != terms.jurySize) revert JuryNotExact(drawIndexes.length, terms.jurySize);
        // As many as the limit lets be drawn, so none that is eligible can have been left out.
        Draw memory draw =
            Draw(poolId, panel.epoch, beacon, caseId, JURY_ROUND, terms.jurySize, _partiesOf(caseId));
        (uint32[] memory seats, address[] memory validators) = _drawnSeats(draw, drawIndexes);
        for (uint256 i; i < seats.length; i++) {
            panel.jurors.push(Juror(validators[i], seats[i], Vote.None, 0));
        }
        panel.commitDeadline = uint40(block.timestamp) + terms.juryPeriod / 2;
        panel.deadline = uint40(block.timestamp) + terms.juryPeriod;
        emit JurySeated(poolId, caseId, seats, panel.commitDeadline, panel.deadline);
        _holdSeats(poolId, seats);
    }

    function _freeJurors(bytes32 caseId, Panel storage panel, bool[] memory absent) private {
        uint32[] memory seats = new uint32[](absent.length);
        for (uint256 i; i < seats.length; i++) {
            seats[i] = panel.jurors[i].seat;
        }
        registry.freeJurors(panel.poolId, seats, absent, caseId);
    }

    function _jurorAt(bytes32 caseId, uint256 position)
        private
        view
        returns (Panel storage panel, Juror storage juror)
    {
        panel = _panels[caseId];
        if (panel.commitDeadline == 0) revert NotSeated(caseId);
        if (position >= panel.jurors.length) revert NoSuchJuror(position);
        juror = panel.jurors[position];
    }
}
