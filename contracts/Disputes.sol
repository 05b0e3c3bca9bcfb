// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {Ledger} from "./Ledger.sol";
import {EarningsAttestation, Messages} from "./Messages.sol";
import {Panels} from "./Panels.sol";
import {JuryTerms, Vote} from "./Types.sol";

/// Disputes over earnings roots: a jury recomputes one from the log, which takes no GPU.
///
/// While one is open, no root of the pool becomes claimable; where it was unfounded, the roots that it kept waiting
/// wait for another window, so that no dispute over one root shields another.
abstract contract Disputes is Panels {
    using SafeERC20 for IERC20;

    struct Dispute {
        address disputer; // zero when none is open
        uint64 poolId;
        uint128 bond;
        uint64 epoch;
        address coordinator; // whose bond answers too; zero where none does
        uint32[] attesters; // seats that signed the root, and answer for it
    }

    /// A dispute slashes at most this many seats.
    uint256 private constant MAX_ATTESTERS = 8;

    /// Of a pool's roots that weren't claimable at `since`: they aren't before `until`.
    struct Freeze {
        uint64 since;
        uint64 until;
    }

    uint64 private constant FOREVER = type(uint64).max;

    mapping(bytes32 caseId => Dispute) private _disputes;
    mapping(uint64 poolId => Freeze) private _freezes;

    event EarningsDisputed(
        uint64 indexed poolId,
        uint64 indexed epoch,
        bytes32 indexed caseId,
        address disputer,
        bytes32 root,
        uint128 bond,
        address coordinator
    );
    event AttesterImplicated(uint64 indexed poolId, bytes32 indexed caseId, uint32 indexed seat);
    event DisputeUpheld(uint64 indexed poolId, uint64 indexed epoch, bytes32 indexed caseId, uint256 fines);
    event DisputeOverturned(uint64 indexed poolId, uint64 indexed epoch, bytes32 indexed caseId);
    event DisputeLapsed(uint64 indexed poolId, uint64 indexed epoch, bytes32 indexed caseId);

    error NoDispute(bytes32 caseId);
    error NoEarnings(uint64 epoch);
    error DisputeOpen(uint64 poolId);
    error AlreadyClaimable(uint64 claimableTime);
    error NotSeatSignature(uint32 seat);
    error AlreadyImplicated(uint32 seat);
    error AttestersFull();

    /// Anybody calls a jury over an earnings root that isn't claimable yet, with a bond. A pool has one dispute at a
    /// time, which holds every root that is still waiting. Its id, and so the jury's, is Ledger.earningsId.
    function disputeEarnings(uint64 poolId, uint64 epoch) external nonReentrant returns (bytes32 caseId) {
        caseId = ledger.earningsId(poolId, epoch);
        Ledger.Earnings memory earnings = ledger.earningsOf(poolId, epoch);
        if (earnings.root == 0) revert NoEarnings(epoch);
        _freeze(poolId, earnings.claimableTime);
        JuryTerms memory terms = _juryTerms(poolId);
        Dispute storage dispute = _disputes[caseId];
        (dispute.disputer, dispute.poolId) = (msg.sender, poolId);
        (dispute.bond, dispute.epoch) = (terms.challengeBond, epoch);
        address coordinator = earnings.isByCoordinator ? pools.coordinatorOf(poolId) : address(0);
        if (coordinator != address(0) && pools.answersFor(poolId, coordinator, epoch)) {
            dispute.coordinator = coordinator;
            pools.holdBond(poolId, coordinator, epoch, caseId, msg.sender, false);
        }
        emit EarningsDisputed(poolId, epoch, caseId, msg.sender, earnings.root, terms.challengeBond, dispute.coordinator);
        _summonJury(caseId, poolId, terms.juryPeriod);
        IERC20(credits).safeTransferFrom(msg.sender, address(this), terms.challengeBond);
    }

    /// A seat that attested the disputed root answers for that. Anybody may show its signature.
    function implicateAttester(uint64 poolId, uint64 epoch, uint32 seat, bytes calldata signature) external {
        bytes32 caseId = ledger.earningsId(poolId, epoch);
        if (!isDispute(caseId)) revert NoDispute(caseId);
        Ledger.Earnings memory earnings = ledger.earningsOf(poolId, epoch);
        bytes32 digest = Messages.earningsAttestation(
            _domain(), EarningsAttestation(poolId, epoch, earnings.root, earnings.total, seat)
        );
        address validator = registry.holdBondedSeat(poolId, seat);
        if (ECDSA.recoverCalldata(digest, signature) != validator) revert NotSeatSignature(seat);
        uint32[] storage list = _disputes[caseId].attesters;
        if (list.length == MAX_ATTESTERS) revert AttestersFull();
        for (uint256 i; i < list.length; i++) {
            if (list[i] == seat) revert AlreadyImplicated(seat);
        }
        list.push(seat);
        emit AttesterImplicated(poolId, caseId, seat);
    }

    /// Carries out what the jury found of a dispute, once all its votes are revealed or its time is over.
    function resolveDispute(uint64 poolId, uint64 epoch) external nonReentrant {
        bytes32 caseId = ledger.earningsId(poolId, epoch);
        if (!isDispute(caseId)) revert NoDispute(caseId);
        (Vote finding, address[] memory voters) = _closeJury(caseId);
        Dispute memory dispute = _disputes[caseId];
        delete _disputes[caseId];
        // What it held can be disputed for another window before it is claimable.
        _freezes[poolId].until = uint64(block.timestamp) + _juryTerms(poolId).challengeWindow;
        if (dispute.coordinator != address(0)) pools.settleBond(caseId, finding == Vote.Uphold);
        if (finding == Vote.Uphold) {
            _revoke(caseId, dispute, voters);
            return;
        }
        _freeSeats(poolId, dispute.attesters);
        if (finding == Vote.Overturn) {
            emit DisputeOverturned(poolId, epoch, caseId);
            // Where no coordinator is there to be compensated, the jurors have it all.
            if (dispute.coordinator == address(0)) _share(dispute.bond, voters);
            else _halve(dispute.bond, dispute.coordinator, voters);
        } else {
            emit DisputeLapsed(poolId, epoch, caseId);
            _pay(dispute.disputer, dispute.bond);
        }
    }

    /// When a root of the pool becomes claimable that would be at `time`, were there no disputes.
    function claimableTime(uint64 poolId, uint64 time) public view returns (uint64) {
        Freeze storage freeze = _freezes[poolId];
        return time > freeze.since && time < freeze.until ? freeze.until : time;
    }

    function isDispute(bytes32 caseId) public view returns (bool) {
        return _disputes[caseId].disputer != address(0);
    }

    function disputeOf(bytes32 caseId) external view returns (Dispute memory) {
        return _disputes[caseId];
    }

    /// Who may not sit on a dispute's jury: who disputes, the coordinator, the validators of seats that attested.
    function partiesOf(bytes32 caseId) public view returns (address[] memory parties) {
        Dispute storage dispute = _disputes[caseId];
        address[] memory attesters = _validatorsOf(dispute.poolId, dispute.attesters);
        parties = new address[](2 + attesters.length);
        (parties[0], parties[1]) = (dispute.disputer, pools.coordinatorOf(dispute.poolId));
        for (uint256 i; i < attesters.length; i++) {
            parties[2 + i] = attesters[i];
        }
    }

    function _freeze(uint64 poolId, uint64 time) private {
        Freeze storage freeze = _freezes[poolId];
        if (freeze.until == FOREVER) revert DisputeOpen(poolId);
        time = claimableTime(poolId, time);
        if (block.timestamp >= time) revert AlreadyClaimable(time);
        // What the last dispute held, and still holds, stays held.
        if (block.timestamp >= freeze.until) freeze.since = uint64(block.timestamp);
        freeze.until = FOREVER;
    }

    /// The root was false: it goes, and the seats that attested it pay. The disputer has the bond back and half of what
    /// they pay, beside what the coordinator's bond compensates; the jurors have the other half.
    function _revoke(bytes32 caseId, Dispute memory dispute, address[] memory voters) private {
        ledger.revokeEarnings(dispute.poolId, dispute.epoch);
        uint256 fines = _slashSeats(dispute.poolId, dispute.attesters, caseId);
        emit DisputeUpheld(dispute.poolId, dispute.epoch, caseId, fines);
        _pay(dispute.disputer, dispute.bond);
        _halve(fines, dispute.disputer, voters);
    }
}
