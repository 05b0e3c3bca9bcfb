// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {Nonces} from "@openzeppelin/contracts/utils/Nonces.sol";
import {Credits} from "./Credits.sol";
import {Ledger} from "./Ledger.sol";
import {Messages} from "./Messages.sol";
import {Pools} from "./Pools.sol";
import {SeatBook} from "./SeatBook.sol";
import {SigningDomain} from "./SigningDomain.sol";
import {CaseTerms, SlashOrder} from "./Types.sol";

/// Who takes part, and with what at stake: providers, their nodes and allotments, validators and their seats.
///
/// Every staked token is in exactly one place: free, allotted to a node in a pool, unbonding from there, or bonding
/// a seat (SeatBook.sol). A slash reaches one node's allotment in one pool and nothing else.
contract Registry is SeatBook, SigningDomain, Nonces {
    using SafeCast for uint256;
    using SafeERC20 for IERC20;

    struct Node {
        address provider; // for good: a key never moves to another provider
        bool active;
    }

    struct Allotment {
        uint128 amount; // what leases are given out against
        uint128 unbonding; // on the way out; slashing still reaches it
        uint128 held; // frozen by open cases, a part of the two
        uint40 releaseTime;
        uint32 numUpheld;
        uint32 numOpen;
    }

    uint256 private constant BPS = 10_000;

    mapping(address node => Node) private _nodes;
    mapping(address node => mapping(uint64 poolId => Allotment)) private _allotments;

    event Staked(address indexed provider, uint256 amount, uint256 total);
    event Withdrawn(address indexed provider, uint256 amount, uint256 total);
    event NodeAdded(address indexed provider, address indexed node);
    event NodeRemoved(address indexed provider, address indexed node);
    event Allotted(
        address indexed provider, address indexed node, uint64 indexed poolId, uint128 amount, uint128 total
    );
    event Deallotted(
        address indexed provider, address indexed node, uint64 indexed poolId, uint128 amount, uint64 releaseTime
    );
    event Released(address indexed provider, address indexed node, uint64 indexed poolId, uint128 amount);
    event AllotmentHeld(uint64 indexed poolId, address indexed node, bytes32 indexed submissionId, uint128 amount);
    event AllotmentFreed(uint64 indexed poolId, address indexed node, bytes32 indexed submissionId, uint128 amount);
    /// `freed` is what the case had held beyond the slash.
    event Slashed(
        uint64 indexed poolId,
        address provider,
        address indexed node,
        bytes32 indexed submissionId,
        uint256 amount,
        uint256 burned,
        uint256 bounty,
        uint256 freed
    );

    error AmountZero();
    error NotNodeOwner(address caller, address node);
    error NodeInactive(address node);
    error NodeTaken(address node, address provider);
    error NotAuthorized(address node);
    error AuthorizationExpired(uint64 deadline);
    error PoolNotOpen(uint64 poolId);
    error InsufficientAllotment(uint256 wanted, uint256 available);

    constructor(
        Credits credits_,
        Pools pools_,
        Ledger ledger_,
        address court_,
        address jury_,
        uint64 unbonding_,
        bytes32 salt
    ) SeatBook(credits_, pools_, ledger_, court_, jury_, unbonding_) SigningDomain(salt) {}

    // --- stake ---

    function stake(uint256 amount) external nonReentrant {
        _stake(amount);
    }

    /// Stake in one transaction. A permit that somebody else already sent must not stop the stake.
    function stakeWithPermit(uint256 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external nonReentrant {
        try credits.permit(msg.sender, address(this), amount, deadline, v, r, s) {} catch {}
        _stake(amount);
    }

    function withdraw(uint256 amount) external nonReentrant {
        if (amount == 0) revert AmountZero();
        uint128 left = _takeFree(msg.sender, amount.toUint128());
        emit Withdrawn(msg.sender, amount, left);
        IERC20(credits).safeTransfer(msg.sender, amount);
    }

    // --- nodes ---

    /// The caller's node `node` may submit from now on; the node itself signed that it agrees.
    function addNode(address node, uint256 nonce, uint64 deadline, bytes calldata signature) external {
        if (block.timestamp > deadline) revert AuthorizationExpired(deadline);
        Node storage entry = _nodes[node];
        if (entry.active || (entry.provider != address(0) && entry.provider != msg.sender)) {
            revert NodeTaken(node, entry.provider);
        }
        bytes32 digest = Messages.nodeAuthorization(domainSeparator(), msg.sender, node, nonce, deadline);
        if (ECDSA.recoverCalldata(digest, signature) != node) revert NotAuthorized(node);
        _useCheckedNonce(node, nonce);
        entry.provider = msg.sender;
        entry.active = true;
        emit NodeAdded(msg.sender, node);
    }

    /// At once, by the provider or by the node itself. Its allotments stay, and stay slashable, until released.
    function removeNode(address node) external {
        Node storage entry = _nodes[node];
        if (msg.sender != entry.provider && msg.sender != node) revert NotNodeOwner(msg.sender, node);
        if (!entry.active) revert NodeInactive(node);
        entry.active = false;
        emit NodeRemoved(entry.provider, node);
    }

    // --- allotments ---

    function allot(address node, uint64 poolId, uint128 amount) external {
        if (amount == 0) revert AmountZero();
        _checkOwner(node);
        if (!_nodes[node].active) revert NodeInactive(node);
        if (!pools.isOpen(poolId)) revert PoolNotOpen(poolId);
        _takeFree(msg.sender, amount);
        uint128 total = _allotments[node][poolId].amount += amount;
        emit Allotted(msg.sender, node, poolId, amount, total);
    }

    /// Starts unbonding, which ends `unbonding` seconds after the last lease that the node may still have.
    /// What is unbonding already is let go first if it is due, and waits along otherwise.
    function deallot(address node, uint64 poolId, uint128 amount) external {
        if (amount == 0) revert AmountZero();
        _checkOwner(node);
        Allotment storage entry = _allotments[node][poolId];
        if (amount > entry.amount) revert InsufficientAllotment(amount, entry.amount);
        if (_releasable(entry) != 0) _release(node, poolId, entry);
        uint256 releaseTime = block.timestamp + pools.configOf(poolId).leaseMax + unbonding;
        entry.amount -= amount;
        entry.unbonding += amount;
        entry.releaseTime = releaseTime.toUint40();
        emit Deallotted(msg.sender, node, poolId, amount, uint64(releaseTime));
    }

    /// Anybody may let go what has finished unbonding and no open case holds; it becomes the provider's free stake.
    function release(address node, uint64 poolId) external {
        Allotment storage entry = _allotments[node][poolId];
        if (block.timestamp < entry.releaseTime) revert NotYet(entry.releaseTime);
        if (_releasable(entry) == 0) revert NothingToRelease();
        _release(node, poolId, entry);
    }

    // --- cases, for the Court only ---

    /// Freezes what the case may cost: a share of the node's whole allotment in the pool that grows with the cases
    /// already standing against it, and never more than other open cases leave.
    function holdAllotment(
        uint64 poolId,
        address node,
        bytes32 submissionId,
        uint16 firstSlashBps,
        uint16 laterSlashBps
    ) external onlyCourt returns (uint96 amount, uint8 offence) {
        Allotment storage entry = _allotments[node][poolId];
        offence = uint8(Math.min(uint256(entry.numUpheld) + entry.numOpen, type(uint8).max));
        uint256 total = uint256(entry.amount) + entry.unbonding;
        uint256 share = total * _slashBps(offence, firstSlashBps, laterSlashBps) / BPS;
        amount = uint96(Math.min(Math.min(share, total - entry.held), type(uint96).max));
        entry.held += amount;
        entry.numOpen++;
        emit AllotmentHeld(poolId, node, submissionId, amount);
    }

    function freeAllotment(uint64 poolId, address node, bytes32 submissionId, uint128 amount) external onlyCourt {
        Allotment storage entry = _allotments[node][poolId];
        entry.held -= amount;
        entry.numOpen--;
        emit AllotmentFreed(poolId, node, submissionId, amount);
    }

    /// Takes at most what the case held: burned, but for a bounded bounty to those who found the forgery.
    /// Where earlier cases fell since, the share is that of the offences that stand.
    function slash(SlashOrder calldata order) external onlyCourt nonReentrant returns (uint256 amount) {
        Allotment storage entry = _allotments[order.node][order.poolId];
        CaseTerms memory terms = pools.caseTerms(order.poolId);
        uint256 standing = Math.min(entry.numUpheld, order.offence);
        amount = uint256(order.held) * _slashBps(standing, terms.firstSlashBps, terms.laterSlashBps)
            / _slashBps(order.offence, terms.firstSlashBps, terms.laterSlashBps);
        _takeAllotment(entry, uint128(amount), order.held);
        uint256 share = Math.min(amount * terms.bountyBps / BPS, terms.bountyCap) / order.finders.length;
        uint256 bounty = share * order.finders.length;
        emit Slashed(
            order.poolId,
            _nodes[order.node].provider,
            order.node,
            order.submissionId,
            amount,
            amount - bounty,
            bounty,
            order.held - amount
        );
        credits.burn(amount - bounty);
        for (uint256 i; i < order.finders.length && share != 0; i++) {
            IERC20(credits).safeTransfer(order.finders[i], share);
        }
    }

    // --- views ---

    /// The provider that the node may submit for, or zero.
    function providerOf(address node) external view returns (address) {
        return _nodes[node].active ? _nodes[node].provider : address(0);
    }

    /// The provider that answers for the node, whether it was removed or not.
    function ownerOf(address node) external view returns (address) {
        return _nodes[node].provider;
    }

    function allotment(address node, uint64 poolId) external view returns (uint128) {
        return _allotments[node][poolId].amount;
    }

    function allotmentOf(address node, uint64 poolId) external view returns (Allotment memory) {
        return _allotments[node][poolId];
    }

    /// Whether the node may be given a lease in the pool now.
    function isEligible(address node, uint64 poolId) external view returns (bool) {
        return _nodes[node].active && pools.isLeasing(poolId)
            && _allotments[node][poolId].amount >= pools.configOf(poolId).minAllotment;
    }

    // --- inside ---

    function _stake(uint256 amount) private {
        if (amount == 0) revert AmountZero();
        uint128 total = freeStake[msg.sender] += amount.toUint128();
        emit Staked(msg.sender, amount, total);
        IERC20(credits).safeTransferFrom(msg.sender, address(this), amount);
    }

    function _checkOwner(address node) private view {
        if (_nodes[node].provider != msg.sender) revert NotNodeOwner(msg.sender, node);
    }

    function _releasable(Allotment storage entry) private view returns (uint128) {
        if (block.timestamp < entry.releaseTime) return 0;
        uint256 unheld = uint256(entry.amount) + entry.unbonding - entry.held;
        return uint128(Math.min(entry.unbonding, unheld));
    }

    function _release(address node, uint64 poolId, Allotment storage entry) private {
        uint128 amount = _releasable(entry);
        address provider = _nodes[node].provider;
        entry.unbonding -= amount;
        freeStake[provider] += amount;
        emit Released(provider, node, poolId, amount);
    }

    function _takeAllotment(Allotment storage entry, uint128 amount, uint128 held) private {
        uint128 fromActive = uint128(Math.min(amount, entry.amount));
        entry.amount -= fromActive;
        entry.unbonding -= amount - fromActive;
        entry.held -= held;
        entry.numOpen--;
        entry.numUpheld++;
    }

    /// The share of the allotment that offence number `offence` (from 0) costs.
    function _slashBps(uint256 offence, uint256 first, uint256 later) private pure returns (uint256) {
        if (offence == 0) return first;
        if (later != 0) return later;
        return offence > 13 ? BPS : Math.min(BPS, first << offence);
    }
}
