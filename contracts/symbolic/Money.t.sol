// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Credits} from "../Credits.sol";
import {ClaimGate, Ledger} from "../Ledger.sol";
import {Messages} from "../Messages.sol";
import {Pools} from "../Pools.sol";
import {Registry} from "../Registry.sol";
import {Test} from "../test/base/Test.sol";
import {CaseTerms, Draw, PoolConfig, SlashOrder} from "../Types.sol";

/// The arithmetic of stake, slash and claim for every amount there is, not for samples: halmos looks for values that
/// break an assertion. This contract stands for everybody else: the pools, the seats, Court and Jury.
contract MoneyCheck is Test {
    uint256 private constant NODE = 201;
    uint64 private constant POOL = 1;

    Credits private credits;
    Registry private registry;
    Ledger private ledger;
    address private node;
    CaseTerms private terms;
    uint256 private paid;

    function setUp() public {
        node = vm.addr(NODE);
        credits = new Credits(address(this));
        registry = new Registry(
            credits, Pools(address(this)), Ledger(address(this)), address(this), address(this), 120, "salt"
        );
        bytes32 digest =
            Messages.nodeAuthorization(registry.domainSeparator(), address(this), node, 0, type(uint64).max);
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(NODE, digest);
        registry.addNode(node, 0, type(uint64).max, abi.encodePacked(r, s, v));
        ledger = new Ledger(
            Pools(address(this)), Registry(address(this)), address(this), ClaimGate(address(this)), "salt"
        );
        ledger.openPool(POOL, address(this), 0);
        _commitEpoch();
    }

    /// An epoch with its beacon, for whose end earnings can be committed.
    function _commitEpoch() private {
        ledger.commitEpoch(POOL, 0, 1, "root", new bytes32[](0));
        vm.roll(block.number + 3);
        ledger.sealEpoch(POOL, 0);
    }

    // --- what this contract stands for ---

    function isOpen(uint64) external pure returns (bool) {
        return true;
    }

    function configOf(uint64) external pure returns (PoolConfig memory c) {}

    function caseTerms(uint64) external view returns (CaseTerms memory) {
        return terms;
    }

    function budget(uint64) external pure returns (uint256) {
        return type(uint128).max;
    }

    function acceptQuorumOf(uint64) external pure returns (uint8, uint8) {
        return (0, 0);
    }

    function drawnSeats(Draw calldata, uint32[] calldata)
        external
        pure
        returns (uint32[] memory seats, address[] memory validators)
    {}

    function claimableTime(uint64, uint64 time) external pure returns (uint64) {
        return time;
    }

    function pay(uint64, address, uint128 amount, uint256 proven) external {
        paid += amount;
        assert(paid <= proven);
    }

    // --- stake ---

    /// What is staked is free, what is withdrawn was free, and every token is in one place.
    function check_stake_and_withdraw(uint128 amount, uint128 taken) public {
        _stake(amount);
        assert(registry.freeStake(address(this)) == amount);
        try registry.withdraw(taken) {
            assert(taken <= amount && taken != 0);
            assert(registry.freeStake(address(this)) == amount - taken);
            assert(credits.balanceOf(address(this)) == taken);
        } catch {
            assert(taken > amount || taken == 0);
        }
        assert(credits.balanceOf(address(registry)) == registry.freeStake(address(this)));
    }

    /// Free, allotted and unbonding add up to what was staked, whatever moves between them.
    function check_allot_and_deallot(uint128 amount, uint128 allotted, uint128 back) public {
        vm.assume(allotted != 0 && allotted <= amount && back != 0 && back <= allotted);
        _stake(amount);
        registry.allot(node, POOL, allotted);
        registry.deallot(node, POOL, back);
        Registry.Allotment memory entry = registry.allotmentOf(node, POOL);
        assert(entry.amount == allotted - back && entry.unbonding == back);
        assert(uint256(registry.freeStake(address(this))) + entry.amount + entry.unbonding == amount);
    }

    // --- slash ---

    /// A slash takes no more than the case held, out of the allotment and what is unbonding, and nothing else. The shares
    /// are those of the testnet profile and amounts have 16 bits, because no solver is quick with products of more.
    function check_slash(uint16 allotted, uint16 back) public {
        (uint256 held, uint256 slashed) = _slash(allotted, back);
        Registry.Allotment memory entry = registry.allotmentOf(node, POOL);
        assert(held <= allotted && slashed <= held && entry.held == 0);
        assert(uint256(entry.amount) + entry.unbonding == allotted - slashed);
    }

    function _slash(uint16 allotted, uint16 back) private returns (uint256 held, uint256 slashed) {
        vm.assume(allotted != 0 && back <= allotted);
        _stake(allotted);
        registry.allot(node, POOL, allotted);
        if (back != 0) registry.deallot(node, POOL, back);
        (terms.firstSlashBps, terms.bountyBps, terms.bountyCap) = (1_000, 1_000, 500);
        uint8 offence;
        (held, offence) = registry.holdAllotment(POOL, node, "case", 1_000, 0);
        SlashOrder memory order = SlashOrder(POOL, node, "case", uint128(held), offence, new address[](1));
        order.finders[0] = address(0xbeef);
        slashed = registry.slash(order);
    }

    // --- claim ---

    /// Claims pay what the root proves, less what cases withhold at the time, once, and never more.
    function check_claims(uint128 cumulative, uint128 withheld, uint128 freed) public {
        vm.assume(freed <= withheld);
        ledger.commitEarnings(POOL, 0, _leaf(cumulative), cumulative, new uint32[](0), new bytes[](0));
        ledger.holdEarnings(POOL, address(this), "case", withheld);
        _claim(cumulative);
        assert(paid == _less(cumulative, withheld));
        ledger.freeEarnings(POOL, address(this), "case", freed);
        _claim(cumulative);
        assert(paid == _less(cumulative, withheld - freed));
        assert(ledger.claimed(POOL, address(this)) == paid);
        uint256 before = paid;
        _claim(cumulative);
        assert(paid == before);
    }

    // --- inside ---

    function _stake(uint128 amount) private {
        vm.assume(amount != 0);
        credits.mint(address(this), amount);
        credits.approve(address(registry), amount);
        registry.stake(amount);
    }

    function _claim(uint128 cumulative) private {
        try ledger.claim(POOL, 0, address(this), cumulative, new bytes32[](0)) {} catch {}
    }

    /// The root of earnings whose only account is this one. Nobody need sign them: these pools ask for a quorum of none.
    function _leaf(uint128 cumulative) private view returns (bytes32) {
        return keccak256(bytes.concat(keccak256(abi.encode(address(this), cumulative))));
    }

    function _less(uint128 amount, uint128 taken) private pure returns (uint128) {
        return amount > taken ? amount - taken : 0;
    }
}
