// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Credits} from "../../Credits.sol";
import {ClaimGate, Ledger} from "../../Ledger.sol";
import {LogProof} from "../../LogProof.sol";
import {Messages, Submission, Verdict, EarningsAttestation} from "../../Messages.sol";
import {Pools} from "../../Pools.sol";
import {Registry} from "../../Registry.sol";
import {Court} from "../../Court.sol";
import {CaseParties, Jury} from "../../Jury.sol";
import {Draw, PoolConfig} from "../../Types.sol";
import {GrowingLog} from "./GrowingLog.sol";
import {Test} from "./Test.sol";

/// All contracts, one funded pool with a bonded coordinator, a provider with two nodes, and three validators; and the log that its
/// coordinator keeps. Private keys are small numbers.
abstract contract World is Test {
    uint256 internal constant COORDINATOR = 2;
    uint256 internal constant PROVIDER = 101;
    uint256 internal constant NODE = 201;
    uint256 internal constant OTHER_NODE = 202;
    uint256 internal constant FIRST_VALIDATOR = 301;
    uint64 internal constant UNBONDING = 120;
    bytes32 internal constant SALT = "deployment";
    bytes32 internal constant RULES = "rules";

    address internal creator = vm.addr(1);
    address internal coordinator = vm.addr(COORDINATOR);
    address internal trainer = vm.addr(3);
    address internal stranger = vm.addr(4);
    address internal provider = vm.addr(PROVIDER);
    address internal node = vm.addr(NODE);
    address internal otherNode = vm.addr(OTHER_NODE);

    Credits internal credits;
    Registry internal registry;
    Pools internal pools;
    Ledger internal ledger;
    Court internal court;
    Jury internal jury;
    uint64 internal poolId;
    GrowingLog internal log;
    address[] internal validators;
    mapping(address validator => uint256) private _keys;

    function setUp() public virtual {
        vm.warp(1_700_000_000);
        mine(10);
        _deploy();
        vm.prank(creator);
        poolId = pools.createPool(config());
        give(creator, address(pools), 1_000 ether);
        vm.prank(creator);
        pools.fund(poolId, 1_000 ether);
        bondCoordinator(coordinator, 100 ether);
        _enrol();
        for (uint256 i; i < numValidators(); i++) {
            bondSeat(FIRST_VALIDATOR + i);
            validators.push(vm.addr(FIRST_VALIDATOR + i));
        }
    }

    // --- the pool ---

    function config() internal view virtual returns (PoolConfig memory c) {
        (c.modelHash, c.environmentHash, c.rulesHash) = ("model", "environment", RULES);
        c.slashableMask = (1 << 64) | (1 << 65) | (1 << 66);
        (c.price, c.verifyPrice, c.maxUnits) = (0.001 ether, 0.0001 ether, 1_000);
        (c.minAllotment, c.seatBond, c.appealBond, c.challengeBond) = (100 ether, 50 ether, 5 ether, 5 ether);
        (c.epochMax, c.judgePeriod, c.challengeWindow, c.appealPeriod, c.juryPeriod) = (5, 40, 15, 15, 10);
        (c.retention, c.leaseMax, c.coordinatorTimeout, c.confirmations) = (120, 60, 60, 1);
        (c.acceptQuorum, c.slashQuorum, c.jurySize, c.drawLimit) = (1, 2, 3, 4);
        (c.firstSlashBps, c.laterSlashBps, c.bountyBps, c.reauditBps) = (1_000, 10_000, 1_000, 10_000);
        (c.bountyCap, c.maxAsync) = (100 ether, 2);
        (c.coordinator, c.trainer, c.coordinatorBond) = (coordinator, trainer, 100 ether);
    }

    /// With keys from FIRST_VALIDATOR on, a seat each.
    function numValidators() internal pure virtual returns (uint256) {
        return 3;
    }

    // --- people ---

    /// `amount` new credits for `owner`, which `spender` may take.
    function give(address owner, address spender, uint256 amount) internal {
        vm.prank(creator);
        credits.mint(owner, amount);
        vm.prank(owner);
        credits.approve(spender, amount);
    }

    function stake(address owner, uint256 amount) internal {
        give(owner, address(registry), amount);
        vm.prank(owner);
        registry.stake(amount);
    }

    function addNode(address owner, uint256 nodeKey) internal {
        uint256 nonce = registry.nonces(vm.addr(nodeKey));
        bytes memory signature = signAuthorization(nodeKey, owner, nonce, uint64(block.timestamp));
        vm.prank(owner);
        registry.addNode(vm.addr(nodeKey), nonce, uint64(block.timestamp), signature);
    }

    function signAuthorization(uint256 nodeKey, address owner, uint256 nonce, uint64 deadline)
        internal
        view
        returns (bytes memory)
    {
        bytes32 domain = registry.domainSeparator();
        return sign(nodeKey, Messages.nodeAuthorization(domain, owner, vm.addr(nodeKey), nonce, deadline));
    }

    function bondCoordinator(address key, uint128 amount) internal {
        give(key, address(pools), amount);
        vm.prank(key);
        pools.bondCoordinator(poolId, amount);
    }

    function bondSeat(uint256 validatorKey) internal returns (uint32 seat) {
        address validator = vm.addr(validatorKey);
        _keys[validator] = validatorKey;
        stake(validator, 50 ether);
        vm.prank(validator);
        return registry.bondSeat(poolId);
    }

    function sign(uint256 key, bytes32 digest) internal pure returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, digest);
        return abi.encodePacked(r, s, v);
    }

    // --- time ---

    /// `blocks` blocks of a second each, with hashes.
    function mine(uint256 blocks) internal {
        for (uint256 i; i < blocks; i++) {
            vm.setBlockhash(block.number, keccak256(abi.encode("block", block.number)));
            vm.roll(block.number + 1);
        }
        vm.warp(block.timestamp + blocks);
    }

    function pass(uint256 time) internal {
        vm.warp(block.timestamp + time);
    }

    // --- the log ---

    function receivedDocument(bytes32 submissionId) internal pure returns (bytes memory) {
        return abi.encodePacked(
            '{"data":{"node":"0x00","num_bytes":1234},"index":7,"schema_version":1,"subject":"',
            submissionId,
            '","time":1700000000,"type":"submission.received"}'
        );
    }

    function append(bytes32 subject, bytes memory document) internal returns (uint64 index) {
        return log.append(LogProof.leafHash(subject, sha256(document)));
    }

    /// Logs the epoch's own leaf: what is to be committed then.
    function closeEpoch() internal returns (uint64 epoch, bytes32 root, bytes32[] memory proof) {
        append(0, "epoch.closed");
        epoch = ledger.epochCount(poolId);
        (, uint64 oldSize,,) = ledger.head(poolId);
        if (oldSize != 0) proof = log.consistency(oldSize);
        root = log.root();
    }

    /// Commits everything that was logged, and the epoch's own leaf.
    function commit() internal returns (uint64 epoch) {
        bytes32 root;
        bytes32[] memory proof;
        (epoch, root, proof) = closeEpoch();
        vm.prank(coordinator);
        ledger.commitEpoch(poolId, epoch, log.size, root, proof);
    }

    /// Commits, waits for the beacon and stores it.
    function commitAndSeal() internal returns (uint64 epoch) {
        epoch = commit();
        mine(3);
        ledger.sealEpoch(poolId, epoch);
    }

    function settledDocument(bool accepted) internal pure returns (bytes memory) {
        return abi.encodePacked('{"data":{},"type":"submission.', accepted ? "accepted" : "rejected", '"}');
    }

    /// The raw draws of the first `count` eligible seats, by the plain reading of the rule.
    function drawIndexes(uint64 epoch, bytes32 id, uint32 round, uint256 count, address excluded)
        internal
        view
        returns (uint32[] memory)
    {
        address[] memory all = new address[](1);
        all[0] = excluded;
        return drawIndexesBy(Draw(poolId, epoch, ledger.epochBeacon(poolId, epoch), id, round, 0, all), count);
    }

    /// The same for any beacon and whoever is excluded.
    function drawIndexesBy(Draw memory draw, uint256 count) internal view returns (uint32[] memory indexes) {
        indexes = new uint32[](count);
        address[] memory seen = new address[](count);
        uint256 found;
        for (uint32 i; found < count; i++) {
            address validator = _activeValidatorAt(draw, i);
            bool isPassedOver = contains(draw.excluded, validator) || contains(seen, validator);
            if (validator == address(0) || isPassedOver) continue;
            (indexes[found], seen[found]) = (i, validator);
            found++;
        }
    }

    function seatAt(uint64 epoch, bytes32 id, uint32 round, uint32 index)
        internal
        view
        returns (uint32 seat, uint256 validatorKey)
    {
        seat = registry.drawSeat(poolId, ledger.epochBeacon(poolId, epoch), id, round, index, epoch);
        validatorKey = keyOf(validatorAt(seat));
    }

    function validatorAt(uint32 seat) internal view returns (address validator) {
        (validator,,,,,,) = registry.seatOf(poolId, seat);
    }

    function bondAt(uint32 seat) internal view returns (uint128 bond) {
        (,,, bond,,,) = registry.seatOf(poolId, seat);
    }

    /// In how many open cases the seat answers.
    function dutiesOf(uint32 seat) internal view returns (uint16 numOpen) {
        (,,,,, numOpen,) = registry.seatOf(poolId, seat);
    }

    function keyOf(address validator) internal view returns (uint256 key) {
        key = _keys[validator];
        assertTrue(key != 0, "no validator of these tests");
    }

    function contains(address[] memory list, address wanted) internal pure returns (bool) {
        for (uint256 i; i < list.length; i++) {
            if (list[i] == wanted) return true;
        }
        return false;
    }

    function _activeValidatorAt(Draw memory draw, uint32 index) private view returns (address) {
        uint32 seat = registry.drawSeat(poolId, draw.beacon, draw.id, draw.round, index, draw.epoch);
        return registry.seatIsActive(poolId, seat, draw.epoch) ? validatorAt(seat) : address(0);
    }

    // --- inside ---

    /// The first that is deployed, and nothing beside it.
    function newCredits() internal virtual returns (Credits) {
        return new Credits(creator);
    }

    function _deploy() private {
        uint256 nonce = vm.getNonce(address(this));
        address[6] memory where;
        for (uint256 i; i < 6; i++) {
            where[i] = vm.computeCreateAddress(address(this), nonce + i);
        }
        credits = newCredits();
        registry = new Registry(Credits(where[0]), Pools(where[2]), Ledger(where[3]), where[4], where[5], UNBONDING, SALT);
        pools = new Pools(where[0], Registry(where[1]), Ledger(where[3]));
        ledger = new Ledger(Pools(where[2]), Registry(where[1]), where[4], ClaimGate(where[5]), SALT);
        court = new Court(credits, registry, pools, ledger, Jury(where[5]));
        jury = new Jury(credits, registry, pools, ledger, CaseParties(where[4]));
        assertEq(address(jury), where[5], "the jury's address");
    }

    function _enrol() private {
        stake(provider, 1_000 ether);
        addNode(provider, NODE);
        addNode(provider, OTHER_NODE);
        vm.startPrank(provider);
        registry.allot(node, poolId, 200 ether);
        registry.allot(otherNode, poolId, 300 ether);
        vm.stopPrank();
    }
}
