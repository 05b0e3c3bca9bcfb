"""Anything in any order, over the real chain client, contracts, indexer and database, on anvil.

Register, stake, unbond, lease, submit, verdict, accuse, appeal, vote, epoch, claim, pool close, with reorgs of one to
five blocks and restarts of node and coordinator in between: after each step the SQL mirror is the chain, and money
adds up to the wei; after each run `audit money` says so too.
"""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.stateful.machine import PoolMachine
from tests.stateful.play import Tally
from tests.stateful.stages import BUILDERS, Stages

QUICK_RUNS = 5
"""From each stage."""
SLOW_RUNS = {"open": 64, "judged": 160, "tried": 160, "closing": 120}
NUM_STEPS = 10
RULES = (
    *("stake", "withdraw", "register", "remove_node", "allot", "unbond", "release"),
    *("bond_seat", "release_seat", "withdraw_seat"),
    *("lease", "submit", "give_back", "judge", "reveal", "turn", "anchor", "publish"),
    *("accuse", "challenge", "implicate", "appeal", "enforce", "dispute", "implicate_attester"),
    *("call_jury", "commit_vote", "reveal_vote", "resolve", "resolve_dispute"),
    *("fund", "attest", "claim", "pause", "announce_terms", "close_pool", "refund", "expiry"),
    *("bond_coordinator", "unbond_coordinator", "wait", "restart_node", "restart_coordinator"),
    *("reorg_1", "reorg_2", "reorg_3", "reorg_4", "reorg_5"),
)


def play(stages: Stages, name: str, num_runs: int, tally: Tally) -> None:
    """The same runs each time, but for block hashes; so nothing is gained from trying to shrink one."""
    stage = stages.stage(name)
    how = settings(
        max_examples=num_runs,
        stateful_step_count=NUM_STEPS,
        deadline=None,
        derandomize=False,
        database=None,
        print_blob=True,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(crc32(name.encode()))(lambda: PoolMachine(stages, stage, tally)), settings=how)


@pytest.mark.parametrize("name", BUILDERS)
def test_the_mirror_is_the_chain_whatever_happens(stages: Stages, name: str) -> None:
    tally = Tally()
    play(stages, name, QUICK_RUNS, tally)
    assert tally.done.total() > QUICK_RUNS, tally


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_five_hundred_runs_in_which_nearly_everything_happens(stages: Stages) -> None:
    tally = Tally()
    for name, num_runs in SLOW_RUNS.items():
        play(stages, name, num_runs, tally)
    idle = [name for name in RULES if not tally.done[name]]
    assert len(idle) <= len(RULES) // 5, f"too many never did anything: {idle}, {tally}"
