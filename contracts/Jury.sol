// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bench} from "./Bench.sol";
import {Credits} from "./Credits.sol";
import {Disputes} from "./Disputes.sol";
import {Ledger} from "./Ledger.sol";
import {Pools} from "./Pools.sol";
import {Registry} from "./Registry.sol";
import {Vote} from "./Types.sol";

/// What is asked of the Court.
interface CaseParties {
    function partiesOf(bytes32 caseId) external view returns (address[] memory);
}

/// Juries, for the Court's cases and for disputes over earnings. A contract of its own, because a contract's code is
/// limited to 24,576 bytes.
contract Jury is Disputes {
    CaseParties public immutable court;

    error NotCourt(address caller);

    constructor(Credits credits_, Registry registry_, Pools pools_, Ledger ledger_, CaseParties court_)
        Bench(credits_, registry_, pools_, ledger_)
    {
        court = court_;
    }

    modifier onlyCourt() {
        if (msg.sender != address(court)) revert NotCourt(msg.sender);
        _;
    }

    /// A case of the Court comes before a jury.
    function summon(bytes32 caseId, uint64 poolId) external onlyCourt {
        _summonJury(caseId, poolId, _juryTerms(poolId).juryPeriod);
    }

    /// What the jury found, and the validators who voted, once it is over.
    function close(bytes32 caseId) external onlyCourt returns (Vote finding, address[] memory voters) {
        return _closeJury(caseId);
    }

    /// The case is dropped before its jury has found anything.
    function dismiss(bytes32 caseId) external onlyCourt {
        _dismissJury(caseId);
    }

    function _partiesOf(bytes32 caseId) internal view override returns (address[] memory) {
        return isDispute(caseId) ? partiesOf(caseId) : court.partiesOf(caseId);
    }
}
