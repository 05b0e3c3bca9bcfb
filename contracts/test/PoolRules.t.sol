// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {PoolRules} from "../PoolRules.sol";
import {PoolConfig} from "../Types.sol";
import {World} from "./base/World.sol";

/// What a pool may be made with: each bound at its edge, allowed on one side and refused on the other.
contract PoolRulesTest is World {
    function setUp() public override {}

    function check(PoolConfig calldata c, uint256 unbonding) external view {
        PoolRules.check(c, unbonding);
    }

    // --- what must be there ---

    function test_hashes_and_keys_must_be_there() public {
        _allowed(config());
        PoolConfig memory c = config();
        c.modelHash = 0;
        _missing(c, "modelHash");
        c = config();
        c.environmentHash = 0;
        _missing(c, "environmentHash");
        c = config();
        c.rulesHash = 0;
        _missing(c, "rulesHash");
        c = config();
        c.coordinator = address(0);
        _missing(c, "coordinator");
        c = config();
        c.trainer = address(0);
        _missing(c, "trainer");
    }

    function test_amounts_and_times_must_be_there() public {
        PoolConfig memory c = config();
        c.minAllotment = 0;
        _missing(c, "minAllotment");
        c = config();
        c.seatBond = 0;
        _missing(c, "seatBond");
        c = config();
        c.maxUnits = 0;
        _missing(c, "maxUnits");
        c = config();
        c.coordinatorTimeout = 0;
        _missing(c, "coordinatorTimeout");
        c = config();
        c.acceptQuorum = 0;
        _missing(c, "acceptQuorum");
        c = config();
        c.epochMax = 0;
        _missing(c, "epochMax");
        c = config();
        c.challengeWindow = 0;
        _missing(c, "challengeWindow");
        c = config();
        c.appealPeriod = 0;
        _missing(c, "appealPeriod");
        c = config();
        c.juryPeriod = 0;
        _missing(c, "juryPeriod");
        c = config();
        c.leaseMax = 0;
        _missing(c, "leaseMax");
    }

    function test_a_coordinators_bond_must_be_there_but_on_test_chains() public {
        PoolConfig memory c = config();
        c.coordinatorBond = 0;
        _allowed(c);
        vm.chainId(1337);
        _allowed(c);
        vm.chainId(1);
        _missing(c, "coordinatorBond");
        c.coordinatorBond = 1;
        _allowed(c);
    }

    function test_a_seats_bond_fits_its_word() public {
        PoolConfig memory c = config();
        c.seatBond = type(uint96).max;
        _allowed(c);
        c.seatBond++;
        _outOfRange(c, "seatBond", c.seatBond);
    }

    // --- quorums ---

    function test_slash_quorums_are_one_on_test_chains_two_elsewhere_and_at_most_three() public {
        PoolConfig memory c = config();
        c.slashQuorum = 0;
        _outOfRange(c, "slashQuorum", 0);
        c.slashQuorum = 1;
        _allowed(c);
        c.slashQuorum = 3;
        _allowed(c);
        c.slashQuorum = 4;
        _outOfRange(c, "slashQuorum", 4);
        vm.chainId(1);
        c.slashQuorum = 1;
        _outOfRange(c, "slashQuorum", 1);
        c.slashQuorum = 2;
        _allowed(c);
    }

    function test_a_draw_has_room_for_both_quorums_and_an_end() public {
        PoolConfig memory c = config();
        (c.acceptQuorum, c.drawLimit) = (5, 4);
        _outOfRange(c, "drawLimit", 4);
        c.drawLimit = 5;
        _allowed(c);
        (c.acceptQuorum, c.slashQuorum, c.drawLimit) = (1, 3, 2);
        _outOfRange(c, "drawLimit", 2);
        c.drawLimit = 3;
        _allowed(c);
        c.drawLimit = 16;
        _allowed(c);
        c.drawLimit = 17;
        _outOfRange(c, "drawLimit", 17);
    }

    function test_juries_are_odd_and_at_most_seven() public {
        PoolConfig memory c = config();
        for (uint8 size; size <= 9; size++) {
            c.jurySize = size;
            if (size % 2 == 1 && size <= 7) _allowed(c);
            else _outOfRange(c, "jurySize", size);
        }
    }

    // --- shares ---

    function test_only_reasons_from_64_on_may_cost_stake_and_one_must() public {
        PoolConfig memory c = config();
        c.slashableMask = 0;
        _outOfRange(c, "slashableMask", 0);
        c.slashableMask = 1 << 63;
        _outOfRange(c, "slashableMask", c.slashableMask);
        c.slashableMask = (1 << 64) | 1;
        _outOfRange(c, "slashableMask", c.slashableMask);
        c.slashableMask = 1 << 64;
        _allowed(c);
        c.slashableMask = 1 << 255;
        _allowed(c);
    }

    function test_slashes_are_shares_that_never_fall() public {
        PoolConfig memory c = config();
        c.firstSlashBps = 0;
        _outOfRange(c, "firstSlashBps", 0);
        c.firstSlashBps = 1;
        _allowed(c);
        c.firstSlashBps = 10_000;
        _allowed(c);
        c.firstSlashBps = 10_001;
        _outOfRange(c, "firstSlashBps", 10_001);
        (c.firstSlashBps, c.laterSlashBps) = (2_000, 1_999);
        _outOfRange(c, "laterSlashBps", 1_999);
        c.laterSlashBps = 2_000;
        _allowed(c);
        c.laterSlashBps = 10_001;
        _outOfRange(c, "laterSlashBps", 10_001);
        c.laterSlashBps = 0;
        _allowed(c);
    }

    function test_bounties_and_re_audits_are_shares() public {
        PoolConfig memory c = config();
        c.bountyBps = 1_000;
        _allowed(c);
        c.bountyBps = 1_001;
        _outOfRange(c, "bountyBps", 1_001);
        c = config();
        c.reauditBps = 10_000;
        _allowed(c);
        c.reauditBps = 10_001;
        _outOfRange(c, "reauditBps", 10_001);
    }

    function test_what_a_task_may_cost_fits_128_bits_and_isnt_nothing() public {
        PoolConfig memory c = config();
        c.price = 0;
        _outOfRange(c, "price", 0);
        (c.price, c.maxUnits) = (type(uint128).max, 1);
        _allowed(c);
        (c.price, c.maxUnits) = (2 ** 127, 2);
        _outOfRange(c, "price", 2 ** 127);
        c.price--;
        _allowed(c);
    }

    // --- times ---

    function test_unbonding_outlasts_all_windows_an_epoch_and_a_slack() public {
        PoolConfig memory c = config();
        // 40 + 15 + 15 + 10 to settle, 5 for the epoch, and a sixteenth of the unbonding.
        this.check(c, 90);
        vm.expectRevert(abi.encodeWithSelector(PoolRules.UnbondingTooShort.selector, 90, 89));
        this.check(c, 89);
    }

    function test_evidence_is_kept_until_the_last_vote() public {
        PoolConfig memory c = config();
        c.retention = 90;
        _allowed(c);
        c.retention = 89;
        vm.expectRevert(abi.encodeWithSelector(PoolRules.RetentionTooShort.selector, 90, 89));
        this.check(c, UNBONDING);
    }

    // --- inside ---

    function _allowed(PoolConfig memory c) private view {
        this.check(c, UNBONDING);
    }

    function _missing(PoolConfig memory c, string memory member) private {
        vm.expectRevert(abi.encodeWithSelector(PoolRules.MissingValue.selector, member));
        this.check(c, UNBONDING);
    }

    function _outOfRange(PoolConfig memory c, string memory member, uint256 value) private {
        vm.expectRevert(abi.encodeWithSelector(PoolRules.OutOfRange.selector, member, value));
        this.check(c, UNBONDING);
    }
}
