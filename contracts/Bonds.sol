// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Credits} from "./Credits.sol";

/// What a pool's coordinator answers with, in credits, for promises that it breaks and earnings that it states falsely.
///
/// A bond belongs to one key in one pool. It stays where it is while the key is the pool's coordinator, and for the
/// unbonding time after; what an open case holds stays longer.
abstract contract Bonds is ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    struct Bond {
        uint128 amount;
        uint128 held; // frozen by open cases, a part of the amount
        uint40 sinceEpoch; // the first that was open while the key was the coordinator
        uint40 untilEpoch; // the one that was open when it stopped; FOREVER before, zero for a key that never was
        uint40 leftTime; // when it stopped; zero before
    }

    /// What an open case has frozen of a bond, and whom it compensates where it is upheld.
    struct Hold {
        address challenger;
        uint64 poolId;
        address coordinator;
        uint128 amount;
        uint128 deposit; // of the challenger's, kept here; zero where whoever judges keeps it
    }

    uint40 private constant FOREVER = type(uint40).max;

    mapping(uint64 poolId => mapping(address coordinator => Bond)) private _bonds;
    mapping(bytes32 caseId => Hold) private _holds;

    event CoordinatorBonded(uint64 indexed poolId, address indexed coordinator, uint128 amount, uint128 total);
    event CoordinatorUnbonded(uint64 indexed poolId, address indexed coordinator, uint128 amount);
    event BondHeld(
        uint64 indexed poolId,
        address indexed coordinator,
        bytes32 indexed id,
        uint128 amount,
        address challenger,
        uint128 deposit
    );
    event BondFreed(uint64 indexed poolId, address indexed coordinator, bytes32 indexed id, uint128 amount);
    event CoordinatorSlashed(
        uint64 indexed poolId, address indexed coordinator, bytes32 indexed id, uint128 amount, uint128 compensation
    );

    error NotJudge(address caller);
    error NotTheCoordinator(address caller);
    error BondZero();
    error BondBusy(uint256 readyTime);
    error NotAnswerable(address coordinator, uint64 epoch);
    error HoldExists(bytes32 id);
    error NoSuchHold(bytes32 id);

    /// The Ledger for broken promises, the Jury for false earnings.
    modifier onlyJudges() {
        if (!_isJudge(msg.sender)) revert NotJudge(msg.sender);
        _;
    }

    /// Adds to the bond of the pool's coordinator, which is the caller.
    function bondCoordinator(uint64 poolId, uint128 amount) external nonReentrant {
        Bond storage bond = _bonds[poolId][msg.sender];
        if (bond.untilEpoch != FOREVER) revert NotTheCoordinator(msg.sender);
        if (amount == 0) revert BondZero();
        uint128 total = bond.amount += amount;
        emit CoordinatorBonded(poolId, msg.sender, amount, total);
        _credits().safeTransferFrom(msg.sender, address(this), amount);
    }

    /// Gives the caller back what no open case holds, once nothing that it did can be brought up any more.
    function unbondCoordinator(uint64 poolId) external nonReentrant {
        Bond storage bond = _bonds[poolId][msg.sender];
        uint256 readyTime = bond.untilEpoch == FOREVER ? _endTime(poolId) : bond.leftTime + _unbonding();
        if (block.timestamp < readyTime) revert BondBusy(readyTime);
        uint128 amount = bond.amount - bond.held;
        if (amount == 0) revert BondZero();
        bond.amount = bond.held;
        emit CoordinatorUnbonded(poolId, msg.sender, amount);
        _credits().safeTransfer(msg.sender, amount);
    }

    // --- cases ---

    /// Freezes what one case about `epoch` may cost: a share of the pool's full bond, and never more than other cases
    /// leave. Takes the pool's challenge bond from the challenger, unless whoever judges keeps that.
    function holdBond(
        uint64 poolId,
        address coordinator,
        uint64 epoch,
        bytes32 id,
        address challenger,
        bool takesDeposit
    ) external onlyJudges nonReentrant returns (uint32 answerWindow) {
        if (!answersFor(poolId, coordinator, epoch)) revert NotAnswerable(coordinator, epoch);
        Hold storage hold = _holds[id];
        if (hold.poolId != 0) revert HoldExists(id);
        Bond storage bond = _bonds[poolId][coordinator];
        (uint256 share, uint128 deposit, uint32 window) = _caseTerms(poolId);
        uint128 amount = uint128(Math.min(share, bond.amount - bond.held));
        if (!takesDeposit) deposit = 0;
        bond.held += amount;
        (hold.challenger, hold.poolId, hold.coordinator) = (challenger, poolId, coordinator);
        (hold.amount, hold.deposit) = (amount, deposit);
        emit BondHeld(poolId, coordinator, id, amount, challenger, deposit);
        if (deposit != 0) _credits().safeTransferFrom(challenger, address(this), deposit);
        return window;
    }

    /// Closes a case. Unfounded: the coordinator has the deposit. Upheld: the challenger has it back, and at most a
    /// challenge bond of what was held; the rest of that is burned.
    function settleBond(bytes32 id, bool isUpheld) external onlyJudges nonReentrant {
        Hold memory hold = _holds[id];
        if (hold.poolId == 0) revert NoSuchHold(id);
        delete _holds[id];
        Bond storage bond = _bonds[hold.poolId][hold.coordinator];
        bond.held -= hold.amount;
        if (!isUpheld) {
            emit BondFreed(hold.poolId, hold.coordinator, id, hold.amount);
            _credits().safeTransfer(hold.coordinator, hold.deposit);
            return;
        }
        bond.amount -= hold.amount;
        (, uint128 challengeBond,) = _caseTerms(hold.poolId);
        uint128 compensation = uint128(Math.min(challengeBond, hold.amount));
        emit CoordinatorSlashed(hold.poolId, hold.coordinator, id, hold.amount, compensation);
        Credits(address(_credits())).burn(hold.amount - compensation);
        _credits().safeTransfer(hold.challenger, hold.deposit + compensation);
    }

    // --- views ---

    function bondOf(uint64 poolId, address coordinator) external view returns (Bond memory) {
        return _bonds[poolId][coordinator];
    }

    function holdOf(bytes32 id) external view returns (Hold memory) {
        return _holds[id];
    }

    /// Whether `epoch` was the key's to commit. Whoever takes the key back answers for the epochs in between.
    function answersFor(uint64 poolId, address coordinator, uint64 epoch) public view returns (bool) {
        Bond storage bond = _bonds[poolId][coordinator];
        return bond.sinceEpoch <= epoch && epoch < bond.untilEpoch;
    }

    // --- inside ---

    function _bondedAmount(uint64 poolId, address coordinator) internal view returns (uint128) {
        return _bonds[poolId][coordinator].amount;
    }

    /// The key may commit epochs from now on, `epoch` first.
    function _beginTerm(uint64 poolId, address coordinator, uint64 epoch) internal {
        Bond storage bond = _bonds[poolId][coordinator];
        if (bond.untilEpoch == 0) bond.sinceEpoch = uint40(epoch);
        (bond.untilEpoch, bond.leftTime) = (FOREVER, 0);
    }

    function _endTerm(uint64 poolId, address coordinator, uint64 epoch) internal {
        Bond storage bond = _bonds[poolId][coordinator];
        (bond.untilEpoch, bond.leftTime) = (uint40(epoch), uint40(block.timestamp));
    }

    function _credits() internal view virtual returns (IERC20);

    function _isJudge(address caller) internal view virtual returns (bool);

    function _unbonding() internal view virtual returns (uint256);

    /// When the pool is over for its coordinator; never for a pool that is open.
    function _endTime(uint64 poolId) internal view virtual returns (uint256);

    /// What one case may cost, what its challenger bonds, and how long an answer may take.
    function _caseTerms(uint64 poolId)
        internal
        view
        virtual
        returns (uint256 share, uint128 challengeBond, uint32 answerWindow);
}
