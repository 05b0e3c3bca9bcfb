// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Bench} from "./Bench.sol";
import {Jury} from "./Jury.sol";
import {CaseTerms, SlashOrder} from "./Types.sol";

/// The Court's cases: what each holds while it is open, and who pays whom at its end.
abstract contract Cases is Bench {
    using SafeERC20 for IERC20;

    enum CaseState {
        None,
        Accused,
        Appealed, // before a jury
        Challenged, // before a jury
        Upheld,
        Overturned,
        Lapsed
    }

    /// Packed, because every accusation pays for it; the third word stays empty in round 0.
    struct Case {
        address node;
        uint96 heldStake;
        uint64 poolId;
        uint96 seats; // the accusing ones, 32 bits each, the first in the lowest; none in a challenge
        uint40 deadline; // of the appeal; a jury has its own
        CaseState state;
        uint8 reason;
        uint8 offence; // how many cases stood against the node in the pool before
        uint8 numSeats;
        uint8 round; // that accused; the jury's for a challenge
        uint128 heldEarnings;
    }

    /// What an appeal or a challenge has put in.
    struct Bond {
        address owner;
        uint128 amount;
    }

    /// A case slashes at most this many seats that accepted.
    uint256 internal constant MAX_IMPLICATED = 8;

    Jury public immutable jury;

    mapping(bytes32 submissionId => Case) internal _cases;
    mapping(bytes32 submissionId => Bond) internal _bonds;
    mapping(bytes32 submissionId => uint32[]) internal _implicated;

    event CaseUpheld(
        uint64 indexed poolId,
        bytes32 indexed submissionId,
        address provider,
        address indexed node,
        uint256 slashed,
        uint128 deducted
    );
    event CaseOverturned(
        uint64 indexed poolId, bytes32 indexed submissionId, address provider, address indexed node, uint256 fines
    );
    event CaseLapsed(
        uint64 indexed poolId, bytes32 indexed submissionId, address provider, address indexed node, uint128 bond
    );

    error WrongState(bytes32 submissionId, CaseState state);
    error AlreadyImplicated(uint32 seat);
    error ImplicatedFull();

    constructor(Jury jury_) {
        jury = jury_;
    }

    // --- views ---

    function caseOf(bytes32 submissionId) external view returns (Case memory) {
        return _cases[submissionId];
    }

    /// What stands with the Court for an open appeal or challenge.
    function bondOf(bytes32 submissionId) external view returns (Bond memory) {
        return _bonds[submissionId];
    }

    /// The accusing seats of a case, in the order of their draws.
    function accusersOf(bytes32 submissionId) external view returns (uint32[] memory) {
        return _unpackSeats(_cases[submissionId]);
    }

    /// The seats that accepted the submission and answer for it in the case.
    function implicatedOf(bytes32 submissionId) external view returns (uint32[] memory) {
        return _implicated[submissionId];
    }

    /// Who may not sit on the case's jury: provider, claimant of the bond, the validators of seats that accused or
    /// accepted.
    function partiesOf(bytes32 submissionId) external view returns (address[] memory parties) {
        Case storage entry = _cases[submissionId];
        address[] memory accusers = _validatorsOf(entry.poolId, _unpackSeats(entry));
        address[] memory implicated = _validatorsOf(entry.poolId, _implicated[submissionId]);
        parties = new address[](2 + accusers.length + implicated.length);
        (parties[0], parties[1]) = (_providerOf(entry.node), _bonds[submissionId].owner);
        for (uint256 i; i < accusers.length; i++) {
            parties[2 + i] = accusers[i];
        }
        for (uint256 i; i < implicated.length; i++) {
            parties[2 + accusers.length + i] = implicated[i];
        }
    }

    // --- while a case is open ---

    function _open(
        bytes32 submissionId,
        Case memory entry,
        address provider,
        CaseTerms memory terms,
        bool holdsEarnings
    ) internal {
        // What was never accepted never earned anything: see Court.holdPayment.
        if (holdsEarnings) entry.heldEarnings = pools.maxTaskEarnings(entry.poolId);
        (entry.heldStake, entry.offence) = registry.holdAllotment(
            entry.poolId, entry.node, submissionId, terms.firstSlashBps, terms.laterSlashBps
        );
        _cases[submissionId] = entry;
        if (entry.heldEarnings != 0) ledger.holdEarnings(entry.poolId, provider, submissionId, entry.heldEarnings);
    }

    function _summon(bytes32 submissionId, uint64 poolId, uint128 bond) internal {
        _bonds[submissionId] = Bond(msg.sender, bond);
        jury.summon(submissionId, poolId);
        IERC20(credits).safeTransferFrom(msg.sender, address(this), bond);
    }

    function _isImplicated(bytes32 submissionId, uint64 poolId, address validator) internal view returns (bool) {
        address[] memory implicated = _validatorsOf(poolId, _implicated[submissionId]);
        for (uint256 i; i < implicated.length; i++) {
            if (implicated[i] == validator) return true;
        }
        return false;
    }

    function _addImplicated(bytes32 submissionId, uint32 seat) internal {
        uint32[] storage list = _implicated[submissionId];
        if (list.length == MAX_IMPLICATED) revert ImplicatedFull();
        for (uint256 i; i < list.length; i++) {
            if (list[i] == seat) revert AlreadyImplicated(seat);
        }
        list.push(seat);
    }

    // --- the end of a case ---

    /// The held stake is slashed, the held earnings are deducted, and the seats that accepted pay. `voters` sat on the
    /// jury, if there was one.
    function _uphold(bytes32 submissionId, Case storage entry, address[] memory voters) internal {
        (uint64 poolId, bool isChallenge) = (entry.poolId, entry.state == CaseState.Challenged);
        entry.state = CaseState.Upheld;
        address provider = _providerOf(entry.node);
        uint128 deducted = entry.heldEarnings;
        if (deducted != 0) ledger.deductEarnings(poolId, provider, submissionId, deducted);
        uint256 slashed = registry.slash(_slashOrder(submissionId, entry, isChallenge));
        emit CaseUpheld(poolId, submissionId, provider, entry.node, slashed, deducted);
        _freeSeats(poolId, _unpackSeats(entry));
        uint256 fines = _slashSeats(poolId, _implicated[submissionId], submissionId);
        _burn(fines - fines / 2);
        uint256 forJurors = fines / 2;
        if (isChallenge) _returnBond(submissionId);
        else forJurors += _takeBond(submissionId);
        _share(forJurors, voters);
    }

    /// Everything held is let go. Who was wrong pays: the accusing seats, or the challenger; one half to the provider,
    /// one to the jurors.
    function _overturn(bytes32 submissionId, Case storage entry, address[] memory voters) internal {
        (uint64 poolId, bool isChallenge) = (entry.poolId, entry.state == CaseState.Challenged);
        entry.state = CaseState.Overturned;
        address provider = _providerOf(entry.node);
        _freeHolds(submissionId, entry, provider);
        uint256 fines = _slashSeats(poolId, _unpackSeats(entry), submissionId);
        _freeSeats(poolId, _implicated[submissionId]);
        emit CaseOverturned(poolId, submissionId, provider, entry.node, fines);
        if (isChallenge) fines += _takeBond(submissionId);
        else _returnBond(submissionId);
        _halve(fines, provider, voters);
    }

    function _lapse(bytes32 submissionId, Case storage entry) internal {
        entry.state = CaseState.Lapsed;
        address provider = _providerOf(entry.node);
        _freeHolds(submissionId, entry, provider);
        _freeSeats(entry.poolId, _unpackSeats(entry));
        _freeSeats(entry.poolId, _implicated[submissionId]);
        emit CaseLapsed(entry.poolId, submissionId, provider, entry.node, _bonds[submissionId].amount);
        _returnBond(submissionId);
    }

    function _freeHolds(bytes32 submissionId, Case storage entry, address provider) internal {
        registry.freeAllotment(entry.poolId, entry.node, submissionId, entry.heldStake);
        uint128 held = entry.heldEarnings;
        if (held != 0) ledger.freeEarnings(entry.poolId, provider, submissionId, held);
    }

    function _returnBond(bytes32 submissionId) internal {
        address owner = _bonds[submissionId].owner;
        _pay(owner, _takeBond(submissionId));
    }

    function _takeBond(bytes32 submissionId) internal returns (uint256 amount) {
        amount = _bonds[submissionId].amount;
        delete _bonds[submissionId];
    }

    /// The bounty goes to who found the forgery: the challenger, or the accusing validators.
    function _slashOrder(bytes32 submissionId, Case storage entry, bool isChallenge)
        internal
        view
        returns (SlashOrder memory order)
    {
        (order.poolId, order.node, order.submissionId) = (entry.poolId, entry.node, submissionId);
        (order.held, order.offence) = (entry.heldStake, entry.offence);
        if (isChallenge) {
            order.finders = new address[](1);
            order.finders[0] = _bonds[submissionId].owner;
        } else {
            order.finders = _validatorsOf(entry.poolId, _unpackSeats(entry));
        }
    }

    // --- inside: cases ---

    function _inState(bytes32 submissionId, CaseState state) internal view returns (Case storage entry) {
        entry = _cases[submissionId];
        if (entry.state != state) revert WrongState(submissionId, entry.state);
    }

    function _openCase(bytes32 submissionId) internal view returns (Case storage entry) {
        entry = _cases[submissionId];
        CaseState state = entry.state;
        if (state == CaseState.None || state > CaseState.Challenged) revert WrongState(submissionId, state);
    }

    function _packSeats(uint32[] memory seats) internal pure returns (uint96 packed) {
        for (uint256 k; k < seats.length; k++) {
            packed |= uint96(seats[k]) << uint96(32 * k);
        }
    }

    function _unpackSeats(Case storage entry) internal view returns (uint32[] memory seats) {
        (uint256 packed, uint256 numSeats) = (entry.seats, entry.numSeats);
        seats = new uint32[](numSeats);
        for (uint256 k; k < seats.length; k++) {
            seats[k] = uint32(packed >> (32 * k));
        }
    }
}
