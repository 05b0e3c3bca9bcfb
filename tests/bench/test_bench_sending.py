"""How long an epoch's commit takes from the call to its receipt: told by the node when it is mined, or polled for.

In: anvil with blocks of one second and with a block for each transaction, the contracts, a pool. Out: on stdout, the
median and the slowest of the commits, with `eth_sendRawTransactionSync` (EIP-7966) and without, by turns. A minute.

python -m pytest -m bench -s tests/bench/test_bench_sending.py
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pytest

from protocol.chain.contracts import encode
from protocol.chain.lane import Lane
from protocol.clock import SystemClock
from protocol.merkle.history import MemoryLog, consistency_proof, event_leaf_hash, root_of
from testnet.chain.anvil import find_anvil, start_anvil
from testnet.chain.genesis import dev_signers
from tests.integration.conftest import LocalChain, create_pool, deploy_contracts, number_hash

NUM_COMMITS = 12
"""Each way."""
LEAVES = 96
"""An epoch's: sixteen submissions."""


class Commits:
    """A log that grows, and the coordinator's account."""

    def __init__(self, chain: LocalChain, folder: Path) -> None:
        self.pool_id = create_pool(chain, folder).pool_id
        self.contracts = chain.contracts
        self.lane = Lane(chain.contracts.client, dev_signers(2)[1], SystemClock())
        self.log, self.size, self.epoch = MemoryLog(), 0, 0

    def seconds(self, *, told: bool) -> float:
        """One more commit, once the last one's beacon is there."""
        client, before = self.contracts.client, self.size
        client._knows_mined = told
        for _ in range(LEAVES):
            self.log.append(event_leaf_hash(number_hash(self.size), b"{}"))
            self.size += 1
        proof = consistency_proof(self.log, before, self.size)
        head = (self.pool_id, self.epoch, self.size, root_of(self.log, self.size))
        call = encode("ledger", "commitEpoch", *head, proof)
        start = time.perf_counter()
        self.lane.send(self.contracts.address("ledger"), call)
        self.epoch += 1
        return time.perf_counter() - start


@pytest.mark.bench
@pytest.mark.parametrize("block_seconds", [0, 1])
def test_commits_are_mined_no_later_where_the_node_tells(tmp_path: Path, block_seconds: int) -> None:
    binary = find_anvil()
    if binary is None:
        pytest.skip("anvil isn't installed: `make anvil` gets it from npm")
    with start_anvil(binary, tmp_path, SystemClock(), block_seconds=block_seconds) as node:
        chain = LocalChain(node, deploy_contracts(node.url))
        commits, found = Commits(chain, tmp_path), dict[bool, list[float]]({True: [], False: []})
        for _ in range(NUM_COMMITS):
            for told in (True, False):
                found[told].append(commits.seconds(told=told))
        chain.contracts.client.rpc.close()
    print(f"\nblocks of {block_seconds} s" if block_seconds else "\na block for each transaction")
    for told, seconds in found.items():
        way = "told by the node" if told else "polled for"
        print(f"{way:<18} median {statistics.median(seconds):.3f} s, slowest {max(seconds):.3f} s of {len(seconds)}")
    assert statistics.median(found[True]) <= 1.2 * statistics.median(found[False]) + 0.05
