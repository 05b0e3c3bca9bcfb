// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {Beacon} from "./Beacon.sol";
import {EpochQuorum} from "./EpochQuorum.sol";
import {Inclusions} from "./Inclusions.sol";
import {LogProof} from "./LogProof.sol";
import {EarningsAttestation, EpochAttestation, Messages} from "./Messages.sol";
import {Pools} from "./Pools.sol";
import {Registry} from "./Registry.sol";
import {SigningDomain} from "./SigningDomain.sol";
import {Draw} from "./Types.sol";

/// What is asked of the Jury.
interface ClaimGate {
    /// When a root of the pool becomes claimable that would be at `time`, were there no disputes.
    function claimableTime(uint64 poolId, uint64 time) external view returns (uint64);
}

/// What happened, per pool: heads of the audit log and their beacons, policy versions and theirs, earnings.
///
/// Heads only grow, each proven to extend the last. Earnings roots are gross and cumulative; what a case takes is
/// withheld here. All messages but NodeAuthorization are signed for this contract's domain. Where the coordinator is
/// silent for too long, drawn seats commit epochs, and anybody the earnings that drawn seats attest.
contract Ledger is Inclusions {
    using SafeCast for uint256;

    /// A pool's log in one word.
    struct Log {
        address coordinator;
        uint40 epochCount;
        uint40 settlingPeriod;
        bool isBySeats; // the last epoch was committed by seats: the coordinator hasn't come back
    }

    /// A committed log head; in a ring, because nothing asks for an epoch that is long settled.
    struct Epoch {
        bytes32 root;
        bytes32 beacon; // another epoch's until `isSealed`: writing over a word is cheaper than over zero
        uint64 size;
        uint64 previousSize;
        uint64 beaconBlock;
        uint40 time;
        bool isSealed;
    }

    struct Version {
        bytes32 manifestHash;
        bytes32 beacon; // zero until it is stored
        uint64 beaconBlock;
        uint64 time;
    }

    struct Earnings {
        bytes32 root;
        uint128 total; // gross, of all accounts
        uint64 previousEpoch; // whose root this one follows; its own epoch for the first
        uint56 claimableTime; // unless a dispute holds it longer
        bool isByCoordinator; // who committed it
    }

    struct Account {
        uint128 claimed;
        uint128 withheld; // held by open cases, or deducted for good by upheld ones
    }

    struct Totals {
        uint64 earningsEpoch; // of the newest root
        uint128 total; // of the newest root
    }

    uint64 public constant RING = 2048;

    address public immutable court;
    ClaimGate public immutable jury;

    mapping(uint64 poolId => Log) private _logs;
    mapping(uint64 poolId => mapping(uint64 slot => Epoch)) private _epochs;
    mapping(uint64 poolId => uint64) public numVersions;
    mapping(uint64 poolId => mapping(uint64 version => Version)) private _versions;
    mapping(uint64 poolId => Totals) private _totals;
    mapping(uint64 poolId => mapping(uint64 epoch => Earnings)) private _earnings;
    mapping(uint64 poolId => mapping(address account => Account)) private _accounts;

    event EpochCommitted(uint64 indexed poolId, uint64 indexed epoch, uint64 size, bytes32 root, uint64 beaconBlock);
    event EpochSealed(uint64 indexed poolId, uint64 indexed epoch, uint64 beaconBlock, bytes32 beaconHash);
    event EpochRearmed(uint64 indexed poolId, uint64 indexed epoch, uint64 beaconBlock);
    event WeightsPublished(uint64 indexed poolId, uint64 indexed version, bytes32 manifestHash, uint64 beaconBlock);
    event VersionSealed(uint64 indexed poolId, uint64 indexed version, uint64 beaconBlock, bytes32 beaconHash);
    event VersionRearmed(uint64 indexed poolId, uint64 indexed version, uint64 beaconBlock);
    event EarningsRevoked(uint64 indexed poolId, uint64 indexed epoch, bytes32 root);
    event EarningsCommitted(
        uint64 indexed poolId, uint64 indexed epoch, bytes32 root, uint128 total, uint64 claimableTime
    );
    event Claimed(uint64 indexed poolId, address indexed account, uint128 amount, uint128 cumulative);
    event EarningsHeld(uint64 indexed poolId, address indexed account, bytes32 indexed submissionId, uint128 amount);
    event EarningsFreed(uint64 indexed poolId, address indexed account, bytes32 indexed submissionId, uint128 amount);
    event EarningsDeducted(
        uint64 indexed poolId, address indexed account, bytes32 indexed submissionId, uint128 amount
    );
    event EpochAttested(uint64 indexed poolId, uint64 indexed epoch, address indexed sender, uint32[] drawIndexes);

    error NotPools(address caller);
    error NotCourt(address caller);
    error NotJury(address caller);
    error NotCoordinator(address caller);
    error NotTrainer(address caller);
    error EpochOutOfOrder(uint64 epoch, uint64 expected);
    error LogMustGrow(uint64 oldSize, uint64 newSize);
    error LogInconsistent();
    error RingFull(uint64 readyTime);
    error NoSuchEpoch(uint64 epoch);
    error NoSuchVersion(uint64 version);
    error VersionOutOfOrder(uint64 version, uint64 expected);
    error HashZero();
    error AlreadySealed();
    error BeaconPending(uint64 beaconBlock);
    error BeaconMissing(uint64 epoch);
    error EarningsOutOfOrder(uint64 epoch, uint64 newest);
    error EarningsFall(uint128 total, uint128 newest);
    error EarningsExceedFunds(uint256 total, uint256 budget);
    error QuorumMissing(uint256 signatures, uint256 quorum);
    error LengthsDiffer();
    error NotSeatSignature(uint32 seat);
    error NoEarnings(uint64 epoch);
    error NotClaimableYet(uint64 claimableTime);
    error NotInEarnings(address account, uint128 cumulative);
    error NothingToClaim();
    error CoordinatorNotSilent(uint256 silentTime);

    constructor(Pools pools_, Registry registry_, address court_, ClaimGate jury_, bytes32 salt)
        SigningDomain(salt)
        Inclusions(pools_, registry_)
    {
        (court, jury) = (court_, jury_);
    }

    modifier onlyCourt() {
        if (msg.sender != court) revert NotCourt(msg.sender);
        _;
    }

    modifier onlyJury() {
        if (msg.sender != address(jury)) revert NotJury(msg.sender);
        _;
    }

    modifier onlyPools() {
        if (msg.sender != address(pools)) revert NotPools(msg.sender);
        _;
    }

    // --- what Pools tells ---

    function openPool(uint64 poolId, address coordinator, uint40 settlingPeriod) external onlyPools {
        _logs[poolId] = Log(coordinator, 0, settlingPeriod, false);
    }

    function setCoordinator(uint64 poolId, address coordinator) external onlyPools {
        _logs[poolId].coordinator = coordinator;
    }

    // --- epochs ---

    /// Anchors everything that came in: `root` over `size` leaves, proven to extend the last head. Stores the last
    /// epoch's beacon on the way, so that an epoch costs one transaction.
    function commitEpoch(uint64 poolId, uint64 epoch, uint64 size, bytes32 root, bytes32[] calldata consistencyProof)
        external
    {
        if (msg.sender != _logs[poolId].coordinator) revert NotCoordinator(msg.sender);
        _commit(poolId, epoch, size, root, consistencyProof, false);
    }

    /// The same by anybody, once the coordinator is silent: with the signatures of two thirds of the seats at the raw
    /// draws of `epochId(poolId, epoch)`, round 0, by the last epoch's beacon, which must be stored.
    function commitEpochAttested(
        uint64 poolId,
        uint64 epoch,
        uint64 size,
        bytes32 root,
        bytes32[] calldata consistencyProof,
        uint32[] calldata drawIndexes,
        bytes[] calldata signatures
    ) external {
        _checkSilent(poolId);
        _checkEpochAttested(EpochAttestation(poolId, epoch, size, root, 0), drawIndexes, signatures);
        _commit(poolId, epoch, size, root, consistencyProof, true);
        emit EpochAttested(poolId, epoch, msg.sender, drawIndexes);
    }

    /// Stores an epoch's beacon, or arms it again where its block is out of reach. Anybody may.
    function sealEpoch(uint64 poolId, uint64 epoch) external {
        Epoch storage entry = _epochOf(poolId, epoch);
        if (entry.isSealed) revert AlreadySealed();
        if (_sealIfReady(poolId, epoch, entry) == Beacon.Status.Pending) revert BeaconPending(entry.beaconBlock);
    }

    // --- policy versions ---

    /// Once a version, in order, from 0 (the base model). Arms the beacon that seeds the version's tasks.
    function publishWeights(uint64 poolId, uint64 version, bytes32 manifestHash) external {
        if (msg.sender != pools.trainerOf(poolId)) revert NotTrainer(msg.sender);
        if (version != numVersions[poolId]) revert VersionOutOfOrder(version, numVersions[poolId]);
        if (manifestHash == 0) revert HashZero();
        numVersions[poolId] = version + 1;
        uint64 beaconBlock = Beacon.arm();
        _versions[poolId][version] = Version(manifestHash, 0, beaconBlock, uint64(block.timestamp));
        emit WeightsPublished(poolId, version, manifestHash, beaconBlock);
    }

    /// Stores a version's beacon, or arms it again where its block is out of reach. Anybody may.
    function sealVersion(uint64 poolId, uint64 version) external {
        Version storage entry = _versionOf(poolId, version);
        if (entry.beacon != 0) revert AlreadySealed();
        (Beacon.Status status, bytes32 beacon) = Beacon.read(entry.beaconBlock);
        if (status == Beacon.Status.Pending) revert BeaconPending(entry.beaconBlock);
        if (status == Beacon.Status.Missed) {
            uint64 beaconBlock = Beacon.arm();
            entry.beaconBlock = beaconBlock;
            emit VersionRearmed(poolId, version, beaconBlock);
        } else {
            entry.beacon = beacon;
            emit VersionSealed(poolId, version, entry.beaconBlock, beacon);
        }
    }

    // --- earnings ---

    /// Commits gross cumulative earnings up to `epoch`, which at least the accept quorum of drawn seats recomputed.
    /// The seats are those at raw draws `drawIndexes` of `earningsId(poolId, epoch)`, round 0, by that epoch's beacon.
    /// Open to anybody while the coordinator is silent.
    function commitEarnings(
        uint64 poolId,
        uint64 epoch,
        bytes32 root,
        uint128 total,
        uint32[] calldata drawIndexes,
        bytes[] calldata signatures
    ) external {
        if (msg.sender != _logs[poolId].coordinator) _checkSilent(poolId);
        if (root == 0) revert HashZero();
        _checkAttested(EarningsAttestation(poolId, epoch, root, total, 0), drawIndexes, signatures);
        _pushEarnings(poolId, epoch, root, total, msg.sender == _logs[poolId].coordinator);
    }

    /// Pays `account` what the root of `epoch` proves, less what it had and what cases withhold. Anybody may call.
    function claim(uint64 poolId, uint64 epoch, address account, uint128 cumulative, bytes32[] calldata proof)
        external
        nonReentrant
    {
        Earnings storage earnings = _earnings[poolId][epoch];
        bytes32 root = earnings.root;
        if (root == 0) revert NoEarnings(epoch);
        uint64 claimableTime = jury.claimableTime(poolId, earnings.claimableTime);
        if (block.timestamp < claimableTime) revert NotClaimableYet(claimableTime);
        bytes32 leaf = keccak256(bytes.concat(keccak256(abi.encode(account, cumulative))));
        if (!MerkleProof.verifyCalldata(proof, root, leaf)) revert NotInEarnings(account, cumulative);
        Account storage entry = _accounts[poolId][account];
        uint256 gone = uint256(entry.claimed) + entry.withheld;
        if (cumulative <= gone) revert NothingToClaim();
        uint128 amount = uint128(cumulative - gone);
        entry.claimed += amount;
        emit Claimed(poolId, account, amount, cumulative);
        pools.pay(poolId, account, amount, earnings.total);
    }

    // --- cases, for the Court only ---

    function holdEarnings(uint64 poolId, address account, bytes32 submissionId, uint128 amount) external onlyCourt {
        _accounts[poolId][account].withheld += amount;
        emit EarningsHeld(poolId, account, submissionId, amount);
    }

    function freeEarnings(uint64 poolId, address account, bytes32 submissionId, uint128 amount) external onlyCourt {
        _accounts[poolId][account].withheld -= amount;
        emit EarningsFreed(poolId, account, submissionId, amount);
    }

    /// What is held for the case stays withheld for good. It may be more than the account has earned so far, so it makes
    /// no room for others: who else is owed what can't be told from totals.
    function deductEarnings(uint64 poolId, address account, bytes32 submissionId, uint128 amount) external onlyCourt {
        emit EarningsDeducted(poolId, account, submissionId, amount);
    }

    // --- disputes over earnings, for the Jury only ---

    /// Takes back the root of `epoch` and all after it; the one before is the newest again.
    function revokeEarnings(uint64 poolId, uint64 epoch) external onlyJury {
        mapping(uint64 => Earnings) storage roots = _earnings[poolId];
        Totals storage totals = _totals[poolId];
        uint64 newest = totals.earningsEpoch;
        uint64 revoked;
        do {
            revoked = newest;
            newest = roots[revoked].previousEpoch;
            emit EarningsRevoked(poolId, revoked, roots[revoked].root);
            delete roots[revoked];
        } while (revoked != epoch);
        // Before the first root there is none: `newest` is then the revoked epoch, and its total zero.
        (totals.earningsEpoch, totals.total) = (newest, roots[newest].total);
    }

    // --- views ---

    function epochCount(uint64 poolId) external view returns (uint64) {
        return _logs[poolId].epochCount;
    }

    /// From when on seats may commit epochs and anybody attested earnings: the coordinator's time-out after the last
    /// epoch, or that epoch's own time where seats committed it. Never before the first: no beacon draws seats yet.
    function silentTime(uint64 poolId) public view returns (uint256) {
        Log storage log = _logs[poolId];
        uint64 count = log.epochCount;
        if (count == 0) return type(uint256).max;
        uint256 time = _epochs[poolId][(count - 1) % RING].time;
        return log.isBySeats ? time : time + pools.coordinatorTimeoutOf(poolId);
    }

    /// The newest head; all zero before the first.
    function head(uint64 poolId) external view returns (uint64 count, uint64 size, bytes32 root, uint64 time) {
        count = _logs[poolId].epochCount;
        if (count == 0) return (0, 0, 0, 0);
        Epoch storage entry = _epochs[poolId][(count - 1) % RING];
        return (count, entry.size, entry.root, entry.time);
    }

    /// A committed epoch that is still in the ring, its beacon zero until it is stored; reverts for any other.
    function epochOf(uint64 poolId, uint64 epoch) external view returns (Epoch memory entry) {
        entry = _epochOf(poolId, epoch);
        if (!entry.isSealed) entry.beacon = 0;
    }

    /// Zero until it is stored.
    function epochBeacon(uint64 poolId, uint64 epoch) public view returns (bytes32) {
        Epoch storage entry = _epochOf(poolId, epoch);
        return entry.isSealed ? entry.beacon : bytes32(0);
    }

    /// Whether nothing that the epoch anchored can be accused, appealed or judged any more.
    function isSettled(uint64 poolId, uint64 epoch) external view returns (bool) {
        Log storage log = _logs[poolId];
        if (epoch >= log.epochCount) return false;
        if (epoch + RING < log.epochCount) return true;
        return block.timestamp >= _epochs[poolId][epoch % RING].time + log.settlingPeriod;
    }

    function versionOf(uint64 poolId, uint64 version)
        external
        view
        returns (bytes32 manifestHash, uint64 beaconBlock, bytes32 beaconHash, uint64 publishedTime)
    {
        Version storage entry = _versionOf(poolId, version);
        return (entry.manifestHash, entry.beaconBlock, entry.beacon, entry.time);
    }

    /// Whether `leafHash` (LogProof.leafHash) stands at `leafIndex` under the head of `epoch`.
    function verifySubmission(
        uint64 poolId,
        uint64 epoch,
        uint64 leafIndex,
        bytes32 leafHash,
        bytes32[] calldata proof
    ) external view returns (bool) {
        Epoch storage entry = _epochOf(poolId, epoch);
        return LogProof.isIncluded(leafIndex, entry.size, entry.root, leafHash, proof);
    }

    /// What the seats that commit an epoch in the coordinator's place are drawn for.
    function epochId(uint64 poolId, uint64 epoch) public pure returns (bytes32) {
        return keccak256(abi.encode(bytes32("epoch"), poolId, epoch));
    }

    /// What the seats that attest an earnings root are drawn for.
    function earningsId(uint64 poolId, uint64 epoch) public pure returns (bytes32) {
        return keccak256(abi.encode(bytes32("earnings"), poolId, epoch));
    }

    function earningsOf(uint64 poolId, uint64 epoch) external view returns (Earnings memory) {
        return _earnings[poolId][epoch];
    }

    /// The newest root, claimable or not; root zero before the first. Earlier ones follow by `previousEpoch`.
    function newestEarnings(uint64 poolId) external view returns (uint64 epoch, Earnings memory) {
        epoch = _totals[poolId].earningsEpoch;
        return (epoch, _earnings[poolId][epoch]);
    }

    /// The newest root that can be claimed from; root zero where there is none.
    function claimableEarnings(uint64 poolId) external view returns (uint64 epoch, Earnings memory earnings) {
        epoch = _totals[poolId].earningsEpoch;
        earnings = _earnings[poolId][epoch];
        while (earnings.root != 0 && block.timestamp < jury.claimableTime(poolId, earnings.claimableTime)) {
            if (earnings.previousEpoch == epoch) return (0, _none());
            epoch = earnings.previousEpoch;
            earnings = _earnings[poolId][epoch];
        }
    }

    function claimed(uint64 poolId, address account) external view returns (uint128) {
        return _accounts[poolId][account].claimed;
    }

    /// What cases withhold from the account: held by open ones, deducted by upheld ones.
    function withheld(uint64 poolId, address account) external view returns (uint128) {
        return _accounts[poolId][account].withheld;
    }

    /// What all accounts together have been proven to earn, gross.
    function provenTotal(uint64 poolId) external view returns (uint256) {
        return _totals[poolId].total;
    }

    // --- inside ---

    function _commit(
        uint64 poolId,
        uint64 epoch,
        uint64 size,
        bytes32 root,
        bytes32[] calldata consistencyProof,
        bool isBySeats
    ) private {
        Log storage log = _logs[poolId];
        if (epoch != log.epochCount) revert EpochOutOfOrder(epoch, log.epochCount);
        if (root == 0) revert HashZero();
        mapping(uint64 slot => Epoch) storage ring = _epochs[poolId];
        uint64 oldSize;
        if (epoch != 0) {
            Epoch storage last = ring[(epoch - 1) % RING];
            oldSize = last.size;
            if (size <= oldSize) revert LogMustGrow(oldSize, size);
            if (!LogProof.isConsistent(oldSize, size, last.root, root, consistencyProof)) revert LogInconsistent();
            if (!last.isSealed) _sealIfReady(poolId, epoch - 1, last);
        } else if (size == 0) {
            revert LogMustGrow(0, 0);
        }
        Epoch storage entry = ring[epoch % RING];
        if (epoch >= RING && block.timestamp < entry.time + log.settlingPeriod) {
            revert RingFull(entry.time + log.settlingPeriod);
        }
        (log.epochCount, log.isBySeats) = (uint40(epoch + 1), isBySeats);
        uint64 beaconBlock = Beacon.arm();
        entry.root = root;
        (entry.size, entry.previousSize, entry.beaconBlock) = (size, oldSize, beaconBlock);
        (entry.time, entry.isSealed) = (uint40(block.timestamp), false);
        emit EpochCommitted(poolId, epoch, size, root, beaconBlock);
    }

    function _checkSilent(uint64 poolId) private view {
        uint256 time = silentTime(poolId);
        if (block.timestamp < time) revert CoordinatorNotSilent(time);
    }

    /// The seats are those of the epoch to be committed: who left for good isn't waited for.
    function _checkEpochAttested(
        EpochAttestation memory attestation,
        uint32[] calldata drawIndexes,
        bytes[] calldata signatures
    ) private view {
        (uint64 poolId, uint64 epoch) = (attestation.poolId, attestation.epoch);
        if (epoch != _logs[poolId].epochCount) revert EpochOutOfOrder(epoch, _logs[poolId].epochCount);
        bytes32 beacon = epochBeacon(poolId, epoch - 1);
        if (beacon == 0) revert BeaconMissing(epoch - 1);
        (, uint8 drawLimit) = pools.acceptQuorumOf(poolId);
        Draw memory draw = Draw(poolId, epoch, beacon, epochId(poolId, epoch), 0, drawLimit, new address[](0));
        EpochQuorum.check(registry, domainSeparator(), draw, attestation, drawIndexes, signatures);
    }

    function _openEpoch(uint64 poolId) internal view override returns (uint64) {
        return _logs[poolId].epochCount;
    }

    function _headOf(uint64 poolId, uint64 epoch) internal view override returns (uint64, bytes32, uint64) {
        Epoch storage entry = _epochOf(poolId, epoch);
        return (entry.size, entry.root, entry.time + _logs[poolId].settlingPeriod);
    }

    function _sealIfReady(uint64 poolId, uint64 epoch, Epoch storage entry) private returns (Beacon.Status status) {
        bytes32 beacon;
        uint64 beaconBlock = entry.beaconBlock;
        (status, beacon) = Beacon.read(beaconBlock);
        if (status == Beacon.Status.Ready) {
            entry.beacon = beacon;
            entry.isSealed = true;
            emit EpochSealed(poolId, epoch, beaconBlock, beacon);
        } else if (status == Beacon.Status.Missed) {
            beaconBlock = Beacon.arm();
            entry.beaconBlock = beaconBlock;
            emit EpochRearmed(poolId, epoch, beaconBlock);
        }
    }

    function _pushEarnings(uint64 poolId, uint64 epoch, bytes32 root, uint128 total, bool isByCoordinator) private {
        Totals storage totals = _totals[poolId];
        uint64 newest = totals.earningsEpoch;
        bool isFirst = _earnings[poolId][newest].root == 0;
        if (!isFirst && epoch <= newest) revert EarningsOutOfOrder(epoch, newest);
        if (total < totals.total) revert EarningsFall(total, totals.total);
        uint256 budget = pools.budget(poolId);
        if (total > budget) revert EarningsExceedFunds(total, budget);
        uint56 claimableTime = uint56(block.timestamp) + _logs[poolId].settlingPeriod;
        _earnings[poolId][epoch] = Earnings(root, total, isFirst ? epoch : newest, claimableTime, isByCoordinator);
        (totals.earningsEpoch, totals.total) = (epoch, total);
        emit EarningsCommitted(poolId, epoch, root, total, claimableTime);
    }

    function _checkAttested(
        EarningsAttestation memory attestation,
        uint32[] calldata drawIndexes,
        bytes[] calldata signatures
    ) private view {
        if (drawIndexes.length != signatures.length) revert LengthsDiffer();
        Draw memory draw = _earningsDraw(attestation.poolId, attestation.epoch, signatures.length);
        (uint32[] memory seats, address[] memory validators) = registry.drawnSeats(draw, drawIndexes);
        bytes32 domain = domainSeparator();
        for (uint256 k; k < seats.length; k++) {
            attestation.seat = seats[k];
            bytes32 digest = Messages.earningsAttestation(domain, attestation);
            if (ECDSA.recoverCalldata(digest, signatures[k]) != validators[k]) revert NotSeatSignature(seats[k]);
        }
    }

    function _earningsDraw(uint64 poolId, uint64 epoch, uint256 numSignatures) private view returns (Draw memory) {
        bytes32 beacon = epochBeacon(poolId, epoch);
        if (beacon == 0) revert BeaconMissing(epoch);
        (uint8 quorum, uint8 drawLimit) = pools.acceptQuorumOf(poolId);
        if (numSignatures < quorum) revert QuorumMissing(numSignatures, quorum);
        return Draw(poolId, epoch, beacon, earningsId(poolId, epoch), 0, drawLimit, new address[](0));
    }

    function _epochOf(uint64 poolId, uint64 epoch) private view returns (Epoch storage) {
        uint64 count = _logs[poolId].epochCount;
        if (epoch >= count || epoch + RING < count) revert NoSuchEpoch(epoch);
        return _epochs[poolId][epoch % RING];
    }

    function _versionOf(uint64 poolId, uint64 version) private view returns (Version storage) {
        if (version >= numVersions[poolId]) revert NoSuchVersion(version);
        return _versions[poolId][version];
    }

    function _none() private pure returns (Earnings memory) {}
}
