// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {Bonds} from "./Bonds.sol";
import {Ledger} from "./Ledger.sol";
import {PoolRules} from "./PoolRules.sol";
import {Registry} from "./Registry.sol";
import {CaseTerms, JuryTerms, PoolConfig, Role} from "./Types.sol";

/// One record a pool: what is trained, by which rules and prices, with whose keys, and its funds.
///
/// Anybody creates and funds a pool. Its creator can pause new leases, announce terms, replace keys and close it,
/// and gets back only what is neither proven to be earned nor may still be. The coordinator's bond is kept beside the
/// funds, and is no part of them.
contract Pools is Bonds {
    using SafeCast for uint256;
    using SafeERC20 for IERC20;

    enum State {
        None,
        Open,
        Closing
    }

    /// Announced price and rules; they apply to leases from `effectiveTime` on.
    struct Terms {
        uint128 price;
        uint128 verifyPrice;
        bytes32 rulesHash;
        uint40 effectiveTime;
    }

    struct Pool {
        PoolConfig config;
        Terms next;
        address creator;
        State state;
        bool paused;
        uint40 closingTime;
        uint128 funds; // what the pool still holds
        uint128 paid; // what it has paid out as earnings
        mapping(Role => address) proposed;
    }

    /// How long earnings that are proven stay claimable after a pool closed.
    uint256 public constant CLAIM_EXPIRY = 180 days;
    uint256 private constant BPS = 10_000;

    address public immutable credits;
    Registry public immutable registry;
    Ledger public immutable ledger;

    uint64 public numPools;
    mapping(uint64 poolId => Pool) private _pools;

    event PoolCreated(uint64 indexed poolId, address indexed creator, PoolConfig config);
    event Funded(uint64 indexed poolId, address indexed from, uint256 amount, uint256 total);
    event Paused(uint64 indexed poolId, bool paused);
    event TermsAnnounced(
        uint64 indexed poolId, uint128 price, uint128 verifyPrice, bytes32 rulesHash, uint64 effectiveTime
    );
    event KeyProposed(uint64 indexed poolId, Role indexed role, address key);
    event KeyChanged(uint64 indexed poolId, Role indexed role, address key);
    event PoolClosing(uint64 indexed poolId, uint64 refundTime);
    event PoolRefunded(uint64 indexed poolId, address indexed to, uint256 amount);

    error NoSuchPool(uint64 poolId);
    error NotCreator(address caller);
    error NotLedger(address caller);
    error NotProposed(address caller);
    error CreatorIrrevocable();
    error PoolNotOpen(uint64 poolId);
    error PoolNotClosing(uint64 poolId);
    error AmountZero();
    error AlreadyPaused(bool paused);
    error KeyHoldsSeats(address key);
    error RoleMayNotJudge(address validator);
    error TermsPending(uint64 readyTime);
    error RefundNotYet(uint64 readyTime);
    error NothingToRefund();
    error ClaimsExceedProven(uint256 wanted, uint256 left);
    error FundsExhausted(uint256 wanted, uint256 funds);

    constructor(address credits_, Registry registry_, Ledger ledger_) {
        credits = credits_;
        registry = registry_;
        ledger = ledger_;
    }

    modifier onlyCreator(uint64 poolId) {
        if (msg.sender != _existing(poolId).creator) revert NotCreator(msg.sender);
        _;
    }

    modifier onlyLedger() {
        if (msg.sender != address(ledger)) revert NotLedger(msg.sender);
        _;
    }

    // --- life of a pool ---

    function createPool(PoolConfig calldata config) external returns (uint64 poolId) {
        PoolRules.check(config, registry.unbonding());
        poolId = ++numPools;
        Pool storage pool = _pools[poolId];
        pool.config = config;
        if (config.token == address(0)) pool.config.token = credits;
        pool.creator = msg.sender;
        pool.state = State.Open;
        emit PoolCreated(poolId, msg.sender, pool.config);
        _beginTerm(poolId, config.coordinator, 0);
        ledger.openPool(poolId, config.coordinator, PoolRules.settlingPeriod(config));
    }

    /// Adds to a pool's funds what really arrives: a token may keep a fee.
    function fund(uint64 poolId, uint256 amount) external nonReentrant {
        Pool storage pool = _open(poolId);
        IERC20 token = IERC20(pool.config.token);
        uint256 before = token.balanceOf(address(this));
        token.safeTransferFrom(msg.sender, address(this), amount);
        uint256 received = token.balanceOf(address(this)) - before;
        if (received == 0) revert AmountZero();
        uint128 total = pool.funds += received.toUint128();
        emit Funded(poolId, msg.sender, received, total);
    }

    /// Stops new leases at once; work that is leased, claims and appeals go on.
    function setPaused(uint64 poolId, bool paused) external onlyCreator(poolId) {
        if (_pools[poolId].paused == paused) revert AlreadyPaused(paused);
        _pools[poolId].paused = paused;
        emit Paused(poolId, paused);
    }

    /// New price and rules for leases from a notice period on; the period covers every lease at the old ones.
    function announceTerms(uint64 poolId, uint128 price, uint128 verifyPrice, bytes32 rulesHash)
        external
        onlyCreator(poolId)
    {
        Pool storage pool = _open(poolId);
        PoolRules.checkTerms(price, pool.config.maxUnits, rulesHash);
        uint256 notice = PoolRules.noticePeriod(pool.config);
        Terms storage next = pool.next;
        if (next.effectiveTime != 0) {
            // Leases at the terms before these may still be judged until then.
            if (block.timestamp < next.effectiveTime + notice) {
                revert TermsPending(uint64(next.effectiveTime + notice));
            }
            (pool.config.price, pool.config.verifyPrice) = (next.price, next.verifyPrice);
            pool.config.rulesHash = next.rulesHash;
        }
        uint40 effectiveTime = (block.timestamp + notice).toUint40();
        pool.next = Terms(price, verifyPrice, rulesHash, effectiveTime);
        emit TermsAnnounced(poolId, price, verifyPrice, rulesHash, effectiveTime);
    }

    // --- keys ---

    /// The first of two steps; proposing zero takes a proposal back.
    function proposeKey(uint64 poolId, Role role, address key) external onlyCreator(poolId) {
        _pools[poolId].proposed[role] = key;
        emit KeyProposed(poolId, role, key);
    }

    function acceptKey(uint64 poolId, Role role) external {
        Pool storage pool = _existing(poolId);
        if (msg.sender != pool.proposed[role]) revert NotProposed(msg.sender);
        if (registry.numSeatsOf(poolId, msg.sender) != 0) revert KeyHoldsSeats(msg.sender);
        _setKey(poolId, role, msg.sender);
    }

    /// Coordinator or trainer, at once.
    function revokeKey(uint64 poolId, Role role) external onlyCreator(poolId) {
        if (role == Role.Creator) revert CreatorIrrevocable();
        _setKey(poolId, role, address(0));
    }

    // --- the end of a pool ---

    /// No more leases. Epochs, accusations, earnings and claims go on; the rest is refunded after `refundTime`.
    function close(uint64 poolId) external onlyCreator(poolId) {
        Pool storage pool = _open(poolId);
        pool.state = State.Closing;
        pool.closingTime = block.timestamp.toUint40();
        emit PoolClosing(poolId, uint64(_refundTime(pool)));
    }

    /// Anybody may send the creator what nobody can have earned; after CLAIM_EXPIRY also what nobody claimed.
    function refund(uint64 poolId) external nonReentrant {
        Pool storage pool = _existing(poolId);
        if (pool.state != State.Closing) revert PoolNotClosing(poolId);
        uint256 readyTime = _refundTime(pool);
        if (block.timestamp < readyTime) revert RefundNotYet(uint64(readyTime));
        uint256 reserved = block.timestamp < readyTime + CLAIM_EXPIRY ? _unclaimed(poolId, pool) : 0;
        uint256 amount = pool.funds - Math.min(reserved, pool.funds);
        if (amount == 0) revert NothingToRefund();
        pool.funds -= uint128(amount);
        emit PoolRefunded(poolId, pool.creator, amount);
        IERC20(pool.config.token).safeTransfer(pool.creator, amount);
    }

    /// Pays earnings; `proven` is the total of the earnings root behind the claim.
    function pay(uint64 poolId, address to, uint128 amount, uint256 proven) external onlyLedger nonReentrant {
        Pool storage pool = _pools[poolId];
        if (pool.paid + uint256(amount) > proven) revert ClaimsExceedProven(amount, proven - Math.min(pool.paid, proven));
        if (amount > pool.funds) revert FundsExhausted(amount, pool.funds);
        pool.funds -= amount;
        pool.paid += amount;
        IERC20(pool.config.token).safeTransfer(to, amount);
    }

    // --- views ---

    /// The record as it was created, with present keys, and the terms in force before the announced ones.
    function configOf(uint64 poolId) external view returns (PoolConfig memory) {
        return _existing(poolId).config;
    }

    function poolOf(uint64 poolId)
        external
        view
        returns (address creator, State state, bool paused, uint64 closingTime, uint128 poolFunds, uint128 paid)
    {
        Pool storage pool = _existing(poolId);
        return (pool.creator, pool.state, pool.paused, pool.closingTime, pool.funds, pool.paid);
    }

    /// Price and rules of a lease made now.
    function termsOf(uint64 poolId) external view returns (uint128 price, uint128 verifyPrice, bytes32 rulesHash) {
        Pool storage pool = _existing(poolId);
        if (_nextIsEffective(pool)) return (pool.next.price, pool.next.verifyPrice, pool.next.rulesHash);
        return (pool.config.price, pool.config.verifyPrice, pool.config.rulesHash);
    }

    /// Terms that were announced last; `effectiveTime` is zero if none ever were.
    function announcedTerms(uint64 poolId) external view returns (Terms memory) {
        return _existing(poolId).next;
    }

    function proposedKey(uint64 poolId, Role role) external view returns (address) {
        return _existing(poolId).proposed[role];
    }

    /// What was funded less what was paid out or refunded.
    function funds(uint64 poolId) external view returns (uint128) {
        return _existing(poolId).funds;
    }

    /// What earnings may add up to: funds left and earnings paid.
    function budget(uint64 poolId) external view returns (uint256) {
        Pool storage pool = _existing(poolId);
        return uint256(pool.funds) + pool.paid;
    }

    function isOpen(uint64 poolId) external view returns (bool) {
        return _pools[poolId].state == State.Open;
    }

    /// Open, not paused, and with its coordinator's bond whole.
    function isLeasing(uint64 poolId) external view returns (bool) {
        Pool storage pool = _pools[poolId];
        return pool.state == State.Open && !pool.paused
            && _bondedAmount(poolId, pool.config.coordinator) >= pool.config.coordinatorBond;
    }

    function minAllotmentOf(uint64 poolId) external view returns (uint128) {
        return _existing(poolId).config.minAllotment;
    }

    function coordinatorTimeoutOf(uint64 poolId) external view returns (uint32) {
        return _pools[poolId].config.coordinatorTimeout;
    }

    function coordinatorOf(uint64 poolId) external view returns (address) {
        return _pools[poolId].config.coordinator;
    }

    function trainerOf(uint64 poolId) external view returns (address) {
        return _pools[poolId].config.trainer;
    }

    /// The bond of a seat that `validator` may hold: the pool's own keys may not judge its work.
    function seatBondFor(uint64 poolId, address validator) external view returns (uint128) {
        Pool storage pool = _open(poolId);
        if (validator == pool.config.coordinator || validator == pool.config.trainer || validator == pool.creator) {
            revert RoleMayNotJudge(validator);
        }
        return pool.config.seatBond;
    }

    function acceptQuorumOf(uint64 poolId) external view returns (uint8 quorum, uint8 drawLimit) {
        PoolConfig storage config = _pools[poolId].config;
        return (config.acceptQuorum, config.drawLimit);
    }

    /// Three words of storage, because every accusation pays for it. Zero for a pool that doesn't exist.
    function caseTerms(uint64 poolId) external view returns (CaseTerms memory terms) {
        PoolConfig storage config = _pools[poolId].config;
        terms.accusePeriod = config.judgePeriod + config.challengeWindow;
        terms.appealPeriod = config.appealPeriod;
        terms.slashQuorum = config.slashQuorum;
        terms.drawLimit = config.drawLimit;
        terms.reauditBps = config.reauditBps;
        terms.firstSlashBps = config.firstSlashBps;
        terms.laterSlashBps = config.laterSlashBps;
        terms.bountyBps = config.bountyBps;
        terms.bountyCap = config.bountyCap;
        terms.slashableMask = config.slashableMask;
    }

    function juryTerms(uint64 poolId) external view returns (JuryTerms memory terms) {
        PoolConfig storage config = _pools[poolId].config;
        (terms.appealBond, terms.challengeBond) = (config.appealBond, config.challengeBond);
        terms.seatBond = uint96(config.seatBond);
        (terms.juryPeriod, terms.challengeWindow) = (config.juryPeriod, config.challengeWindow);
        terms.jurySize = config.jurySize;
        terms.firstSlashBps = config.firstSlashBps;
    }

    /// The most that one submission can have earned, at whichever price it may have been leased.
    function maxTaskEarnings(uint64 poolId) external view returns (uint128) {
        Pool storage pool = _existing(poolId);
        uint128 price = uint128(Math.max(pool.config.price, _nextIsEffective(pool) ? pool.next.price : 0));
        return price * pool.config.maxUnits;
    }

    // --- inside ---

    function _existing(uint64 poolId) private view returns (Pool storage pool) {
        pool = _pools[poolId];
        if (pool.state == State.None) revert NoSuchPool(poolId);
    }

    function _open(uint64 poolId) private view returns (Pool storage pool) {
        pool = _existing(poolId);
        if (pool.state != State.Open) revert PoolNotOpen(poolId);
    }

    function _nextIsEffective(Pool storage pool) private view returns (bool) {
        return pool.next.effectiveTime != 0 && pool.next.effectiveTime <= block.timestamp;
    }

    function _setKey(uint64 poolId, Role role, address key) private {
        Pool storage pool = _pools[poolId];
        pool.proposed[role] = address(0);
        if (role == Role.Coordinator) _setCoordinator(poolId, pool, key);
        else if (role == Role.Trainer) pool.config.trainer = key;
        else pool.creator = key;
        emit KeyChanged(poolId, role, key);
    }

    function _setCoordinator(uint64 poolId, Pool storage pool, address key) private {
        uint64 epoch = ledger.epochCount(poolId);
        address old = pool.config.coordinator;
        if (old != address(0)) _endTerm(poolId, old, epoch);
        if (key != address(0)) _beginTerm(poolId, key, epoch);
        pool.config.coordinator = key;
        ledger.setCoordinator(poolId, key);
    }

    function _credits() internal view override returns (IERC20) {
        return IERC20(credits);
    }

    function _isJudge(address caller) internal view override returns (bool) {
        return caller == address(ledger) || caller == registry.jury();
    }

    function _unbonding() internal view override returns (uint256) {
        return registry.unbonding();
    }

    function _endTime(uint64 poolId) internal view override returns (uint256) {
        Pool storage pool = _existing(poolId);
        return pool.state == State.Closing ? _refundTime(pool) : type(uint256).max;
    }

    function _caseTerms(uint64 poolId) internal view override returns (uint256, uint128, uint32) {
        PoolConfig storage config = _pools[poolId].config;
        uint256 share = uint256(config.coordinatorBond) * config.firstSlashBps / BPS;
        return (share, config.challengeBond, config.challengeWindow);
    }

    /// When every lease has ended, its epoch is committed (even by others), and all windows are over.
    function _refundTime(Pool storage pool) private view returns (uint256) {
        PoolConfig storage config = pool.config;
        return uint256(pool.closingTime) + config.leaseMax + config.epochMax + config.coordinatorTimeout
            + 2 * PoolRules.settlingPeriod(config);
    }

    function _unclaimed(uint64 poolId, Pool storage pool) private view returns (uint256) {
        uint256 proven = ledger.provenTotal(poolId);
        return proven - Math.min(pool.paid, proven);
    }
}
