// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Court} from "../Court.sol";
import {Ledger} from "../Ledger.sol";
import {Accusing} from "./base/Accusing.sol";
import {Earning} from "./base/Earning.sol";
import {PeakLog, PeakLogs} from "./base/PeakLog.sol";

/// What a transaction costs in all: the 21,000 of any, its data, and the execution on cold storage (isolated calls).
/// The bounds are promises of the documentation; figures: forge test --match-path test/Gas.t.sol -vvv.
/// forge-config: default.isolate = true
contract GasTest is Accusing, Earning {
    using PeakLogs for PeakLog;

    PeakLog private _log;

    event GasUsed(string what, uint256 amount);

    /// 10^8 leaves, as an average size; and 2^26 - 1, whose proof is the longest below 10^8.
    function test_commit_epoch_costs_at_most_95_000_past_the_rings_first_round() public {
        assertTrue(_commitAfterRing(99_999_999, "commitEpoch at 10^8") <= 95_000, "10^8 leaves");
    }

    function test_commit_epoch_with_the_longest_proof_costs_at_most_95_000() public {
        assertTrue(_commitAfterRing(2 ** 26 - 1, "commitEpoch, longest proof") <= 95_000, "2^26 - 1 leaves");
    }

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

    /// A commit that writes over the ring's first round: its own epoch, and the last epoch's beacon.
    function _commitAfterRing(uint64 size, string memory what) private returns (uint256 used) {
        uint64 ring = ledger.RING();
        _log.start(size - 1 - ring);
        bytes32 root = _log.root();
        vm.prank(coordinator);
        ledger.commitEpoch(poolId, 0, _log.size, root, new bytes32[](0));
        for (uint64 epoch = 1; epoch <= ring + 1; epoch++) {
            if (epoch == 1 || epoch == ring) pass(80);
            if (epoch == 1 || epoch == ring + 1) mine(3);
            bytes32[] memory proof = _log.grow(keccak256(abi.encode(epoch)));
            root = _log.root();
            vm.prank(coordinator);
            ledger.commitEpoch(poolId, epoch, _log.size, root, proof);
            used = vm.lastCallGas().total;
        }
        assertTrue(ledger.epochBeacon(poolId, ring) != 0, "the commit stored the last beacon");
        assertEq(_log.size, size, "leaves");
        emit GasUsed(what, used);
    }

    function _used(string memory what) private returns (uint256 used) {
        used = vm.lastCallGas().total;
        emit GasUsed(what, used);
    }
}
