// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Credits} from "./Credits.sol";
import {Ledger} from "./Ledger.sol";
import {Pools} from "./Pools.sol";
import {Registry} from "./Registry.sol";
import {CaseTerms, Draw, JuryTerms} from "./Types.sol";

/// What Court and Jury share: the contracts that they ask, and what becomes of money that they hold.
abstract contract Bench is ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    Credits public immutable credits;
    Registry public immutable registry;
    Pools public immutable pools;
    Ledger public immutable ledger;

    error TooLate(uint64 deadline);
    error TooEarly(uint64 deadline);

    constructor(Credits credits_, Registry registry_, Pools pools_, Ledger ledger_) {
        credits = credits_;
        registry = registry_;
        pools = pools_;
        ledger = ledger_;
    }

    /// Half to `first`, the rest to the others in equal parts.
    function _halve(uint256 amount, address first, address[] memory others) internal {
        uint256 half = amount / 2;
        if (half != 0) _pay(first, half);
        _share(amount - half, others);
    }

    /// In equal parts; what doesn't divide is burned.
    function _share(uint256 amount, address[] memory among) internal {
        uint256 part = among.length == 0 ? 0 : amount / among.length;
        for (uint256 i; i < among.length && part != 0; i++) {
            _pay(among[i], part);
        }
        _burn(amount - part * among.length);
    }

    function _pay(address to, uint256 amount) internal {
        IERC20(credits).safeTransfer(to, amount);
    }

    function _burn(uint256 amount) internal {
        if (amount != 0) credits.burn(amount);
    }

    // --- what the contracts say; each in one place, because a call's code is long ---

    function _caseTerms(uint64 poolId) internal view returns (CaseTerms memory) {
        return pools.caseTerms(poolId);
    }

    function _juryTerms(uint64 poolId) internal view returns (JuryTerms memory) {
        return pools.juryTerms(poolId);
    }

    function _providerOf(address node) internal view returns (address) {
        return registry.ownerOf(node);
    }

    function _validatorsOf(uint64 poolId, uint32[] memory seats) internal view returns (address[] memory) {
        return registry.validatorsOf(poolId, seats);
    }

    function _domain() internal view returns (bytes32) {
        return ledger.domainSeparator();
    }

    function _drawnSeats(Draw memory draw, uint32[] calldata drawIndexes)
        internal
        view
        returns (uint32[] memory, address[] memory)
    {
        return registry.drawnSeats(draw, drawIndexes);
    }

    function _holdSeats(uint64 poolId, uint32[] memory seats) internal {
        registry.holdSeats(poolId, seats);
    }

    /// The seats pay for a wrong verdict; what they paid is here then.
    function _slashSeats(uint64 poolId, uint32[] memory seats, bytes32 caseId) internal returns (uint256) {
        return registry.slashSeats(poolId, seats, caseId);
    }

    function _freeSeats(uint64 poolId, uint32[] memory seats) internal {
        registry.freeSeats(poolId, seats);
    }
}
