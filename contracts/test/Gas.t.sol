// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Court} from "../Court.sol";
import {Accusing} from "./base/Accusing.sol";
import {Earning} from "./base/Earning.sol";

/// What a transaction costs in all: the 21,000 of any, its data, and the execution on cold storage (isolated calls).
/// The bounds are promises of the documentation; each figure is compared with snapshots/transactions.json.
/// forge-config: default.isolate = true
contract GasTest is Accusing, Earning {
    function test_later_claims_cost_at_most_80_000() public {
        uint64 first = commitAndSeal();
        earn(first, 1 ether, 1 ether);
        uint64 second = commitAndSeal();
        earn(second, 2 ether, 2 ether);
        pass(80);
        claimFor(first, provider);
        _used("claim, the first of an account without credits");
        claimFor(second, provider);
        assertTrue(_used("claim, later") <= 80_000, "later claim");
    }

    function test_accuse_with_a_quorum_of_two_costs_at_most_250_000() public {
        Court.Accusation memory a = accusation(NODE, 0);
        court.accuse(a);
        assertTrue(_used("accuse, quorum 2") <= 250_000, "accuse");
        pass(15);
        court.enforce(idOf(a.submission));
        _used("enforce");
    }

    function test_the_other_transactions_are_listed() public {
        vm.prank(trainer);
        ledger.publishWeights(poolId, 0, "manifest");
        _used("publishWeights");
        mine(3);
        ledger.sealVersion(poolId, 0);
        _used("sealVersion");
        earn(commitAndSeal(), 1 ether, 1 ether);
        _used("commitEarnings, quorum 1");
        vm.prank(provider);
        registry.allot(node, poolId, 1 ether);
        _used("allot, more");
        bondSeat(FIRST_VALIDATOR);
        _used("bondSeat");
    }

    function _used(string memory what) private returns (uint256) {
        return vm.snapshotGasLastCall("transactions", what);
    }
}
