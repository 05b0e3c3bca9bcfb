// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {TestChain} from "./TestChain.sol";
import {PoolConfig} from "./Types.sol";

/// What a pool's configuration must satisfy, so that nobody can leave before what they did can be judged.
library PoolRules {
    uint256 private constant BPS = 10_000;
    uint256 private constant MAX_BOUNTY_BPS = 1_000;
    uint256 private constant MAX_DRAWN = 16;
    /// A case stores this many accusing seats.
    uint256 private constant MAX_SLASH_QUORUM = 3;
    uint256 private constant MAX_JURY_SIZE = 7;
    /// Reason codes below this never cost stake (protocol/reasons.py).
    uint256 private constant FIRST_SLASHABLE_CODE = 64;
    /// Share of the unbonding time that is kept as slack.
    uint256 private constant SLACK_DIVISOR = 16;

    error MissingValue(string member);
    error OutOfRange(string member, uint256 value);
    error UnbondingTooShort(uint256 needed, uint256 unbonding);
    error RetentionTooShort(uint256 needed, uint256 retention);

    function check(PoolConfig calldata config, uint256 unbonding) internal view {
        _checkPresent(config);
        _checkQuorums(config);
        _checkShares(config);
        _checkTimes(config, unbonding);
        checkTerms(config.price, config.maxUnits, config.rulesHash);
    }

    /// Products of price and units are computed in 128 bits.
    function checkTerms(uint128 price, uint48 maxUnits, bytes32 rulesHash) internal pure {
        if (rulesHash == 0) revert MissingValue("rulesHash");
        if (price == 0 || uint256(price) * maxUnits > type(uint128).max) revert OutOfRange("price", price);
    }

    /// From an epoch's commit until nothing in it can change any more.
    function settlingPeriod(PoolConfig memory config) internal pure returns (uint40) {
        return
            uint40(config.judgePeriod) + config.challengeWindow + config.appealPeriod + config.juryPeriod;
    }

    /// Leases at the old terms are over, anchored and accused by then.
    function noticePeriod(PoolConfig memory config) internal pure returns (uint256) {
        return uint256(config.leaseMax) + config.epochMax + config.judgePeriod + config.challengeWindow;
    }

    function _checkPresent(PoolConfig calldata config) private view {
        if (config.modelHash == 0) revert MissingValue("modelHash");
        if (config.environmentHash == 0) revert MissingValue("environmentHash");
        if (config.coordinator == address(0)) revert MissingValue("coordinator");
        if (config.trainer == address(0)) revert MissingValue("trainer");
        if (config.minAllotment == 0) revert MissingValue("minAllotment");
        if (config.seatBond == 0) revert MissingValue("seatBond");
        if (config.seatBond > type(uint96).max) revert OutOfRange("seatBond", config.seatBond);
        if (config.maxUnits == 0) revert MissingValue("maxUnits");
        if (config.coordinatorTimeout == 0) revert MissingValue("coordinatorTimeout");
        if (config.coordinatorBond == 0 && !TestChain.isHere()) revert MissingValue("coordinatorBond");
    }

    function _checkQuorums(PoolConfig calldata config) private view {
        uint256 least = TestChain.isHere() ? 1 : 2;
        if (config.acceptQuorum == 0) revert MissingValue("acceptQuorum");
        if (config.slashQuorum < least || config.slashQuorum > MAX_SLASH_QUORUM) {
            revert OutOfRange("slashQuorum", config.slashQuorum);
        }
        if (
            config.drawLimit < config.acceptQuorum || config.drawLimit < config.slashQuorum
                || config.drawLimit > MAX_DRAWN
        ) revert OutOfRange("drawLimit", config.drawLimit);
        // An even jury can be split.
        if (config.jurySize % 2 == 0 || config.jurySize > MAX_JURY_SIZE) revert OutOfRange("jurySize", config.jurySize);
    }

    function _checkShares(PoolConfig calldata config) private pure {
        uint256 mask = config.slashableMask;
        if (mask == 0 || mask & ((1 << FIRST_SLASHABLE_CODE) - 1) != 0) revert OutOfRange("slashableMask", mask);
        if (config.firstSlashBps == 0 || config.firstSlashBps > BPS) {
            revert OutOfRange("firstSlashBps", config.firstSlashBps);
        }
        bool doubles = config.laterSlashBps == 0;
        if (!doubles && (config.laterSlashBps < config.firstSlashBps || config.laterSlashBps > BPS)) {
            revert OutOfRange("laterSlashBps", config.laterSlashBps);
        }
        if (config.bountyBps > MAX_BOUNTY_BPS) revert OutOfRange("bountyBps", config.bountyBps);
        if (config.reauditBps > BPS) revert OutOfRange("reauditBps", config.reauditBps);
    }

    function _checkTimes(PoolConfig calldata config, uint256 unbonding) private pure {
        if (config.epochMax == 0) revert MissingValue("epochMax");
        if (config.challengeWindow == 0) revert MissingValue("challengeWindow");
        if (config.appealPeriod == 0) revert MissingValue("appealPeriod");
        if (config.juryPeriod == 0) revert MissingValue("juryPeriod");
        if (config.leaseMax == 0) revert MissingValue("leaseMax");
        uint256 settling = settlingPeriod(config);
        uint256 needed = settling + config.epochMax + unbonding / SLACK_DIVISOR;
        if (needed > unbonding) revert UnbondingTooShort(needed, unbonding);
        // A jury may be seated at the last moment, and votes for a jury period from then on.
        uint256 lastVote = settling + config.juryPeriod;
        if (config.retention < lastVote) revert RetentionTooShort(lastVote, config.retention);
    }
}
