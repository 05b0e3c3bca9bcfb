// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Credits} from "./Credits.sol";
import {Ledger} from "./Ledger.sol";
import {Pools} from "./Pools.sol";
import {Seat, Seats} from "./Seats.sol";
import {Draw, JuryTerms} from "./Types.sol";

/// The Registry's book of validators' seats, and the free stake that they are bonded from.
///
/// A seat answers for its verdicts with its bond: while a case is open in which it accused, accepted or sits as a juror,
/// the bond can't leave, and the Court may take from it. Which seats these are is in the Court's events.
abstract contract SeatBook is ReentrancyGuardTransient {
    using SafeCast for uint256;
    using SafeERC20 for IERC20;
    using Seats for Seat;
    using Seats for Seat[];

    /// A pool's seats are counted in 32 bits everywhere.
    uint256 private constant MAX_SEATS = type(uint32).max;
    uint256 private constant BPS = 10_000;
    /// What a juror that doesn't vote loses, as a share of the pool's seat bond.
    uint256 private constant NO_SHOW_BPS = 100;
    /// A seat that lets this many juries down is retired.
    uint256 private constant MAX_NO_SHOWS = 3;

    Credits public immutable credits;
    Pools public immutable pools;
    Ledger public immutable ledger;
    address public immutable court;
    address public immutable jury;
    /// Seconds from the end of a duty until its stake is free.
    uint64 public immutable unbonding;

    mapping(address provider => uint128) public freeStake;
    /// How many seats with a bond a validator has in a pool.
    mapping(uint64 poolId => mapping(address validator => uint256)) public numSeatsOf;
    mapping(uint64 poolId => Seat[]) private _seats;

    event SeatBonded(
        address indexed validator, uint64 indexed poolId, uint32 indexed seat, uint64 activeFromEpoch, uint128 bond
    );
    event SeatReleased(
        address indexed validator,
        uint64 indexed poolId,
        uint32 indexed seat,
        uint64 activeUntilEpoch,
        uint64 releaseTime
    );
    event SeatWithdrawn(
        address indexed validator, uint64 indexed poolId, uint32 indexed seat, uint64 activeUntilEpoch, uint128 bond
    );
    event SeatSlashed(
        address indexed validator, uint64 indexed poolId, uint32 indexed seat, bytes32 caseId, uint96 amount
    );
    event NoShowFined(
        address indexed validator,
        uint64 indexed poolId,
        uint32 indexed seat,
        bytes32 caseId,
        uint96 amount,
        uint8 numNoShows
    );

    error InsufficientStake(uint256 wanted, uint256 available);
    error NotCourt(address caller);
    error NotYet(uint64 readyTime);
    error NothingToRelease();
    error NoSuchSeat(uint64 poolId, uint32 seat);
    error NotSeatOwner(address caller);
    error SeatAlreadyReleased();
    error SeatNotReleased();
    error SeatHeld(uint16 numOpen);
    error SeatWithoutBond(uint32 seat);
    error EpochUnsettled(uint64 epoch);
    error SeatsExhausted();

    constructor(Credits credits_, Pools pools_, Ledger ledger_, address court_, address jury_, uint64 unbonding_) {
        credits = credits_;
        pools = pools_;
        ledger = ledger_;
        (court, jury) = (court_, jury_);
        unbonding = unbonding_;
    }

    modifier onlyCourt() {
        if (msg.sender != court) revert NotCourt(msg.sender);
        _;
    }

    /// Seats answer to the Court for their verdicts, and to the Jury for attestations and as jurors.
    modifier onlyJudges() {
        if (msg.sender != court && msg.sender != jury) revert NotCourt(msg.sender);
        _;
    }

    // --- for validators ---

    /// Bonds one more seat in a pool; its index is never used again. Active two epochs after the open one, so that no
    /// beacon that could draw it is known; at once where the pool has committed no epoch yet.
    function bondSeat(uint64 poolId) external returns (uint32 seat) {
        uint128 bond = pools.seatBondFor(poolId, msg.sender);
        _takeFree(msg.sender, bond);
        uint64 count = ledger.epochCount(poolId);
        uint64 activeFrom = count == 0 ? 0 : count + 2;
        Seat[] storage list = _seats[poolId];
        if (list.length == MAX_SEATS) revert SeatsExhausted();
        seat = uint32(list.length);
        list.push(Seat(msg.sender, uint48(activeFrom), Seats.FOREVER, uint96(bond), 0, 0, 0));
        numSeatsOf[poolId][msg.sender]++;
        emit SeatBonded(msg.sender, poolId, seat, activeFrom, bond);
    }

    /// The seat is drawn for two more epochs, and its bond is due after these and the unbonding.
    function releaseSeat(uint64 poolId, uint32 seat) external {
        Seat storage entry = _ownSeat(poolId, seat);
        if (entry.releaseTime != 0) revert SeatAlreadyReleased();
        _retire(poolId, seat, entry);
    }

    /// Frees the bond once everything that the seat can have judged is settled. A coordinator that stopped can't keep
    /// it: epochs that were never committed don't count, and the seat isn't drawn for them any more.
    function withdrawSeat(uint64 poolId, uint32 seat) external {
        Seat storage entry = _ownSeat(poolId, seat);
        if (entry.releaseTime == 0) revert SeatNotReleased();
        if (block.timestamp < entry.releaseTime) revert NotYet(entry.releaseTime);
        if (entry.numOpen != 0) revert SeatHeld(entry.numOpen);
        uint64 activeUntil = uint64(Math.min(entry.activeUntil, ledger.epochCount(poolId)));
        if (activeUntil != 0 && !ledger.isSettled(poolId, activeUntil - 1)) revert EpochUnsettled(activeUntil - 1);
        uint96 bond = entry.bond;
        if (bond == 0) revert NothingToRelease();
        entry.activeUntil = uint48(activeUntil);
        entry.bond = 0;
        numSeatsOf[poolId][msg.sender]--;
        freeStake[msg.sender] += bond;
        emit SeatWithdrawn(msg.sender, poolId, seat, activeUntil, bond);
    }

    // --- cases, for Court and Jury only ---

    /// The seats answer in one more open case.
    function holdSeats(uint64 poolId, uint32[] calldata seats) external onlyJudges {
        for (uint256 i; i < seats.length; i++) {
            _seats[poolId][seats[i]].numOpen++;
        }
    }

    /// The same for one seat that must have something to lose. Says whose it is.
    function holdBondedSeat(uint64 poolId, uint32 seat) external onlyJudges returns (address validator) {
        Seat storage entry = _seatAt(poolId, seat);
        if (entry.bond == 0) revert SeatWithoutBond(seat);
        entry.numOpen++;
        return entry.validator;
    }

    function freeSeats(uint64 poolId, uint32[] calldata seats) external onlyJudges {
        for (uint256 i; i < seats.length; i++) {
            _seats[poolId][seats[i]].numOpen--;
        }
    }

    /// Of seats that were held and gave a wrong verdict: takes a share of each one's bond, for the caller to share out,
    /// retires them, and ends their holds.
    function slashSeats(uint64 poolId, uint32[] calldata seats, bytes32 caseId)
        external
        onlyJudges
        nonReentrant
        returns (uint256 total)
    {
        if (seats.length == 0) return 0;
        JuryTerms memory terms = pools.juryTerms(poolId);
        uint96 price = uint96(uint256(terms.seatBond) * terms.firstSlashBps / BPS);
        for (uint256 i; i < seats.length; i++) {
            Seat storage entry = _seats[poolId][seats[i]];
            entry.numOpen--;
            uint96 taken = _takeBond(poolId, entry, price);
            total += taken;
            emit SeatSlashed(entry.validator, poolId, seats[i], caseId, taken);
            if (entry.releaseTime == 0) _retire(poolId, seats[i], entry);
        }
        IERC20(credits).safeTransfer(msg.sender, total);
    }

    /// Jurors' seats that were held are let go. The absent ones, which didn't vote, lose a share of their bond, which
    /// is burned; at the third time a seat is retired.
    function freeJurors(uint64 poolId, uint32[] calldata seats, bool[] calldata absent, bytes32 caseId)
        external
        onlyJudges
        nonReentrant
    {
        uint96 fee = uint96(uint256(pools.juryTerms(poolId).seatBond) * NO_SHOW_BPS / BPS);
        uint256 fees;
        for (uint256 i; i < seats.length; i++) {
            Seat storage entry = _seats[poolId][seats[i]];
            entry.numOpen--;
            if (!absent[i]) continue;
            uint96 taken = _takeBond(poolId, entry, fee);
            fees += taken;
            if (entry.numNoShows < type(uint8).max) entry.numNoShows++;
            emit NoShowFined(entry.validator, poolId, seats[i], caseId, taken, entry.numNoShows);
            if (entry.numNoShows >= MAX_NO_SHOWS && entry.releaseTime == 0) _retire(poolId, seats[i], entry);
        }
        if (fees != 0) credits.burn(fees);
    }

    // --- views ---

    /// `activeUntil` is 2^64 - 1 and `releaseTime` 0 while the seat isn't being released.
    function seatOf(uint64 poolId, uint32 seat)
        external
        view
        returns (
            address validator,
            uint64 activeFrom,
            uint64 activeUntil,
            uint128 bond,
            uint64 releaseTime,
            uint16 numOpen,
            uint8 numNoShows
        )
    {
        Seat storage entry = _seatAt(poolId, seat);
        activeUntil = entry.activeUntil == Seats.FOREVER ? type(uint64).max : entry.activeUntil;
        (validator, activeFrom) = (entry.validator, entry.activeFrom);
        (bond, releaseTime, numOpen, numNoShows) =
            (entry.bond, entry.releaseTime, entry.numOpen, entry.numNoShows);
    }

    function validatorsOf(uint64 poolId, uint32[] calldata seats) external view returns (address[] memory validators) {
        validators = new address[](seats.length);
        for (uint256 i; i < seats.length; i++) {
            validators[i] = _seatAt(poolId, seats[i]).validator;
        }
    }

    /// All seats ever bonded, released ones too.
    function numSeats(uint64 poolId) external view returns (uint256) {
        return _seats[poolId].length;
    }

    /// The seats among which a draw for `epoch` falls: those with activeFrom <= epoch.
    function numSeatsAt(uint64 poolId, uint64 epoch) external view returns (uint256) {
        return _seats[poolId].countAt(epoch);
    }

    function seatIsActive(uint64 poolId, uint32 seat, uint64 epoch) external view returns (bool) {
        return seat < _seats[poolId].length && _seats[poolId][seat].isActive(epoch);
    }

    /// Raw draw `i`: keccak256(abi.encode(beacon, id, round, i)) mod numSeatsAt(poolId, epoch).
    function drawSeat(uint64 poolId, bytes32 beacon, bytes32 id, uint32 round, uint32 i, uint64 epoch)
        external
        view
        returns (uint32)
    {
        uint256 count = _seats[poolId].countAt(epoch);
        if (count == 0) revert Seats.NoSeats(epoch);
        return Seats.rawDraw(beacon, id, round, i, count);
    }

    /// The seats and validators at the given raw draws; reverts unless the round really draws each of them.
    function drawnSeats(Draw calldata draw, uint32[] calldata indexes)
        external
        view
        returns (uint32[] memory, address[] memory)
    {
        return _seats[draw.poolId].drawn(draw, indexes);
    }

    // --- inside ---

    function _takeFree(address owner, uint128 amount) internal returns (uint128 left) {
        uint128 available = freeStake[owner];
        if (amount > available) revert InsufficientStake(amount, available);
        left = available - amount;
        freeStake[owner] = left;
    }

    function _retire(uint64 poolId, uint32 seat, Seat storage entry) private {
        uint64 activeUntil = ledger.epochCount(poolId) + 2;
        uint256 releaseTime = block.timestamp + 2 * uint256(pools.configOf(poolId).epochMax) + unbonding;
        entry.activeUntil = uint48(activeUntil);
        entry.releaseTime = releaseTime.toUint40();
        emit SeatReleased(entry.validator, poolId, seat, activeUntil, uint64(releaseTime));
    }

    function _takeBond(uint64 poolId, Seat storage entry, uint96 amount) private returns (uint96 taken) {
        uint96 bond = entry.bond;
        taken = uint96(Math.min(amount, bond));
        entry.bond = bond - taken;
        if (bond != 0 && taken == bond) numSeatsOf[poolId][entry.validator]--;
    }

    function _seatAt(uint64 poolId, uint32 seat) private view returns (Seat storage) {
        if (seat >= _seats[poolId].length) revert NoSuchSeat(poolId, seat);
        return _seats[poolId][seat];
    }

    function _ownSeat(uint64 poolId, uint32 seat) private view returns (Seat storage entry) {
        entry = _seatAt(poolId, seat);
        if (entry.validator != msg.sender) revert NotSeatOwner(msg.sender);
    }
}
