// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {LogProof} from "./LogProof.sol";
import {Messages, Receipt, Submission} from "./Messages.sol";
import {Pools} from "./Pools.sol";
import {Registry} from "./Registry.sol";
import {SigningDomain} from "./SigningDomain.sol";

/// Promises that a submission will be in the log, and what becomes of broken ones.
///
/// A receipt is such a promise, signed by the coordinator; an intake that a node forced is another. Once the promised
/// epoch is committed, anybody with a bond may demand the leaf. Who shows it gets the coordinator the bond; where
/// nobody does in time, the coordinator pays. Pools keeps the money of both.
abstract contract Inclusions is SigningDomain, ReentrancyGuardTransient {
    enum DemandState {
        None,
        Open,
        Answered,
        Broken
    }

    struct Demand {
        bytes32 submissionId;
        bytes32 root; // of the promised epoch's head: the ring may forget the epoch before the deadline
        uint64 size;
        uint64 poolId;
        uint40 deadline;
        DemandState state;
        bool isForced;
    }

    /// How the canonical documents of the events that keep a promise end: keys are sorted, so `type` is last.
    bytes private constant RECEIVED_SUFFIX = ',"type":"submission.received"}';
    /// Keeps the promise of a forced intake only: the coordinator says why it doesn't take the submission.
    bytes private constant REFUSED_SUFFIX = ',"type":"submission.refused"}';

    Pools public immutable pools;
    Registry public immutable registry;

    /// One more than the epoch by which the log must say what became of a submission that was forced in; zero for any
    /// other.
    mapping(uint64 poolId => mapping(bytes32 submissionId => uint64)) public forcedIntake;
    mapping(bytes32 demandId => Demand) private _demands;

    event IntakeForced(uint64 indexed poolId, address indexed node, bytes32 indexed submissionId, uint64 epoch);
    event InclusionDemanded(
        uint64 indexed poolId,
        bytes32 indexed submissionId,
        bytes32 indexed demandId,
        address demander,
        address coordinator,
        uint64 epoch,
        bool isForced,
        uint64 deadline
    );
    event InclusionAnswered(
        uint64 indexed poolId, bytes32 indexed submissionId, bytes32 indexed demandId, uint64 leafIndex
    );
    event PromiseBroken(uint64 indexed poolId, bytes32 indexed submissionId, bytes32 indexed demandId);

    error NotEligible(address node);
    error IdZero();
    error AlreadyForced(bytes32 submissionId);
    error NotForced(bytes32 submissionId);
    error NotReceiptOf(bytes32 submissionId);
    error DemandExists(bytes32 demandId);
    error DemandNotOpen(bytes32 demandId);
    error DemandTooLate(uint64 deadline);
    error DemandTooEarly(uint64 deadline);
    error NotTheEvent();
    error NotPromisedInclusion(uint64 leafIndex);

    constructor(Pools pools_, Registry registry_) {
        pools = pools_;
        registry = registry_;
    }

    /// A node that is refused posts its submission's id. By the epoch after the open one (whose commit may be on its
    /// way already), the log must have received the submission, or say why it is refused. Goes on while leasing stops.
    function forceIntake(uint64 poolId, bytes32 submissionId) external {
        bool isBacked = registry.allotment(msg.sender, poolId) >= pools.minAllotmentOf(poolId);
        if (!isBacked || registry.providerOf(msg.sender) == address(0)) revert NotEligible(msg.sender);
        if (submissionId == 0) revert IdZero();
        if (forcedIntake[poolId][submissionId] != 0) revert AlreadyForced(submissionId);
        uint64 epoch = _openEpoch(poolId) + 1;
        forcedIntake[poolId][submissionId] = epoch + 1;
        emit IntakeForced(poolId, msg.sender, submissionId, epoch);
    }

    /// Demands what a receipt promised. The submission is there for its pool, which a receipt doesn't name.
    function demandInclusion(Submission calldata submission, Receipt calldata receipt, bytes calldata signature)
        external
        nonReentrant
        returns (bytes32 demandId)
    {
        bytes32 domain = domainSeparator();
        bytes32 submissionId = Messages.submission(domain, submission);
        if (receipt.submissionId != submissionId) revert NotReceiptOf(submissionId);
        demandId = Messages.receipt(domain, receipt);
        address coordinator = ECDSA.recoverCalldata(demandId, signature);
        _demand(demandId, submission.poolId, submissionId, coordinator, receipt.includeByEpoch, false);
    }

    /// Demands what became of a forced submission, from the coordinator that the promised epoch was up to.
    function demandForced(uint64 poolId, bytes32 submissionId, address coordinator)
        external
        nonReentrant
        returns (bytes32 demandId)
    {
        uint64 promised = forcedIntake[poolId][submissionId];
        if (promised == 0) revert NotForced(submissionId);
        demandId = forcedDemandId(poolId, submissionId, coordinator);
        _demand(demandId, poolId, submissionId, coordinator, promised - 1, true);
    }

    /// Anybody shows the leaf: the event's canonical JSON, and its path to the head of the promised epoch.
    function answerInclusion(bytes32 demandId, uint64 leafIndex, bytes calldata document, bytes32[] calldata proof)
        external
        nonReentrant
    {
        Demand storage demand = _openDemand(demandId);
        if (block.timestamp >= demand.deadline) revert DemandTooLate(demand.deadline);
        bytes32 submissionId = demand.submissionId;
        bool isKept = _endsWith(document, RECEIVED_SUFFIX) || (demand.isForced && _endsWith(document, REFUSED_SUFFIX));
        if (!isKept) revert NotTheEvent();
        bytes32 leaf = LogProof.leafHash(submissionId, sha256(document));
        if (!LogProof.isIncluded(leafIndex, demand.size, demand.root, leaf, proof)) {
            revert NotPromisedInclusion(leafIndex);
        }
        demand.state = DemandState.Answered;
        emit InclusionAnswered(demand.poolId, submissionId, demandId, leafIndex);
        pools.settleBond(demandId, false);
    }

    /// Without an answer in time the coordinator pays what was held. The demander has its bond back, and at most as
    /// much again; the rest is burned.
    function enforceInclusion(bytes32 demandId) external nonReentrant {
        Demand storage demand = _openDemand(demandId);
        if (block.timestamp < demand.deadline) revert DemandTooEarly(demand.deadline);
        demand.state = DemandState.Broken;
        emit PromiseBroken(demand.poolId, demand.submissionId, demandId);
        pools.settleBond(demandId, true);
    }

    // --- views ---

    /// By the receipt's digest, or by `forcedDemandId`.
    function demandOf(bytes32 demandId) external view returns (Demand memory) {
        return _demands[demandId];
    }

    function forcedDemandId(uint64 poolId, bytes32 submissionId, address coordinator) public pure returns (bytes32) {
        return keccak256(abi.encode(bytes32("forced"), poolId, submissionId, coordinator));
    }

    // --- inside ---

    function _demand(
        bytes32 demandId,
        uint64 poolId,
        bytes32 submissionId,
        address coordinator,
        uint64 epoch,
        bool isForced
    ) private {
        Demand storage demand = _demands[demandId];
        if (demand.state != DemandState.None) revert DemandExists(demandId);
        (uint64 size, bytes32 root, uint64 settledTime) = _headOf(poolId, epoch);
        if (block.timestamp >= settledTime) revert DemandTooLate(settledTime);
        uint32 window = pools.holdBond(poolId, coordinator, epoch, demandId, msg.sender, true);
        uint40 deadline = uint40(block.timestamp) + window;
        (demand.submissionId, demand.root) = (submissionId, root);
        (demand.size, demand.poolId, demand.deadline) = (size, poolId, deadline);
        (demand.state, demand.isForced) = (DemandState.Open, isForced);
        emit InclusionDemanded(poolId, submissionId, demandId, msg.sender, coordinator, epoch, isForced, deadline);
    }

    function _openDemand(bytes32 demandId) private view returns (Demand storage demand) {
        demand = _demands[demandId];
        if (demand.state != DemandState.Open) revert DemandNotOpen(demandId);
    }

    function _endsWith(bytes calldata document, bytes memory suffix) private pure returns (bool) {
        uint256 length = suffix.length;
        if (document.length < length) return false;
        return keccak256(document[document.length - length:]) == keccak256(suffix);
    }

    /// The number of the epoch that will be committed next.
    function _openEpoch(uint64 poolId) internal view virtual returns (uint64);

    /// A committed epoch's head, and when nothing in it can change any more; reverts for any other.
    function _headOf(uint64 poolId, uint64 epoch)
        internal
        view
        virtual
        returns (uint64 size, bytes32 root, uint64 settledTime);
}
