// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Accusing} from "./base/Accusing.sol";

/// What an epoch's one transaction costs, once the ring's first round is over: it proves the log's growth, writes over
/// the epoch of 2,048 before, and stores the last epoch's beacon. Each figure is compared with snapshots/epochs.json.
/// forge-config: default.isolate = true
contract EpochGasTest is Accusing {
    uint256 private constant BOUND = 95_000;
    /// task.leased, submission.received, draw.opened, verdict.committed, verdict.revealed, submission.accepted
    uint64 private constant LEAVES_PER_SUBMISSION = 6;

    function setUp() public override {
        super.setUp();
        uint64 ring = ledger.RING();
        for (uint64 k; k < ring; k++) {
            commit();
            mine(3);
        }
        pass(80);
    }

    function test_an_epoch_costs_at_most_95_000_at_10_000_leaves() public {
        _epochsAt(10_000, "10^4");
    }

    function test_an_epoch_costs_at_most_95_000_at_a_million_leaves() public {
        _epochsAt(1_000_000, "10^6");
    }

    function test_an_epoch_costs_at_most_95_000_at_a_hundred_million_leaves() public {
        _epochsAt(100_000_000, "10^8");
    }

    /// Of all logs below 10^8, one of 2^26 - 1 leaves has the longest proof, and hashes both trees on every level.
    function test_an_epoch_with_the_dearest_proof_costs_at_most_95_000() public {
        log.grow(2 ** 26 - 2 - log.size);
        _epoch(0, "2^26 - 1 leaves and its own, the dearest");
    }

    /// The first epoch is at `size` leaves when it starts; the next ones follow, a few thousand leaves on.
    function _epochsAt(uint64 size, string memory what) private {
        log.grow(size - 1 - log.size);
        _epoch(1, string.concat(what, " leaves, 1 submission"));
        _epoch(16, string.concat(what, " leaves, 16 submissions"));
        _epoch(256, string.concat(what, " leaves, 256 submissions"));
        _epoch(4096, string.concat(what, " leaves, 4096 submissions"));
    }

    /// An epoch of `numSubmissions`, whose transaction finds the beacon of the last one ready.
    function _epoch(uint64 numSubmissions, string memory what) private {
        uint64 last = commit();
        mine(3);
        log.grow(numSubmissions * LEAVES_PER_SUBMISSION);
        commit();
        uint256 used = vm.snapshotGasLastCall("epochs", what);
        assertTrue(used <= BOUND, what);
        assertTrue(ledger.epochBeacon(poolId, last) != 0, "the commit stored the last beacon");
    }
}
