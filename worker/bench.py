"""`proofpool worker bench`: what this machine does in this pool, and what that would earn.

    rules, prompts, weights of the pool ─▶ the configured engine, kept full ─▶ tokens, proofs, rewards ─▶ tokens/s

In: `WorkerConfig`, a number of seconds. Out: `BenchReport`. The seeds are made up, so nothing of it can be handed in;
everything else is as in a task. Nothing is leased, and no key is needed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.api import PoolInfo
from protocol.canonical import sha256
from protocol.checks.basis import fetched_weights, read_document
from protocol.client import CoordinatorClient
from protocol.clock import Clock
from protocol.engines.base import Completion, Engine, Request, requests_of
from protocol.environments.base import Environment
from protocol.environments.registry import environment_of
from protocol.errors import UsageError
from protocol.progress import Steps
from protocol.prompts import Prompt, task_prompts
from protocol.prover import proofs_of, reward_of
from protocol.reasons import RejectReason
from protocol.rules import Rules
from protocol.shardcast.folder import version_folder
from protocol.tokenizer import Tokenizer
from protocol.wire import Hash32, Wei
from worker.config import WorkerConfig
from worker.folder import contents
from worker.remembered import last_known
from worker.state_file import process_of

DAY_SECONDS = 86400
LEAST_SECONDS = 60.0
"""A shorter run tells nothing of a pool's demand."""
TELLING_SHARE = 0.05
ASSUMPTIONS = (
    "the engine is always busy: there are tasks, leases, weights in time, and nothing else on this machine",
    "the pool's price stays as it is, and every accepted output token is a unit of it",
    "rollouts are as long as those measured: a model that learns to answer at length or briefly changes that",
    "lease limits, fetching weights, self-checks, gas and slashes are left out",
    "the start, and the end when fewer rollouts decode together, are in the measured time",
)


class BenchReport(BaseModel):
    """`credits_per_day_wei` = tokens a second × a day × price × `accepted_share`, where price and share are known.

    `accepted_share` is that of the node's last judged submissions as `worker status` last saw them; None: 1 is assumed.
    `no_demand_share` of its time the worker of this folder, as it last ran, stood idle since the pool wanted no more
    work: then demand is the limit. None where none ran for `LEAST_SECONDS`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    engine: str
    dtype: str
    max_batch: int
    num_threads: int
    model: str
    policy_version: int | None
    rules_hash: Hash32
    num_tasks: int
    num_rollouts: int
    num_tokens: int
    seconds: float
    proof_seconds: float
    tokens_per_second: float
    price_wei: Wei | None
    accepted_share: float | None
    credits_per_day_wei: Wei | None
    no_demand_share: float | None
    assumptions: tuple[str, ...]


@dataclass(frozen=True)
class Ground:
    """What is measured with; `pool` is None where rules and model were named by hand."""

    rules: Rules
    model: Path
    policy_version: int | None
    pool: PoolInfo | None


@dataclass(frozen=True)
class Given:
    """Named by hand, in place of the pool's."""

    rules: Path | None = None
    model: Path | None = None


def bench(
    config: WorkerConfig, engine: Engine, clock: Clock, seconds: float, progress: Steps, given: Given
) -> BenchReport:
    """Raises UsageError where there are neither weights nor anybody who has them, Unreachable, ConfigError."""
    with tempfile.TemporaryDirectory(prefix="proofpool-bench-") as scratch:
        progress.doing("rules and weights")
        ground = _ground(config, given, Path(scratch))
        environment = environment_of(ground.rules.environment, Tokenizer.load(ground.model))
        engine.load(ground.model)
        try:
            found = _Run(engine, ground.rules, environment, clock).measure(seconds, progress)
        finally:
            engine.close()
    return _report(config, ground, found)


def _ground(config: WorkerConfig, given: Given, scratch: Path) -> Ground:
    if given.rules is not None and given.model is not None:
        return Ground(read_document(given.rules, Rules), given.model, None, None)
    with closing(CoordinatorClient(config.coordinator_url)) as client:
        pool = client.configured_pool(config.pool_id, config.ledger)
        rules = read_document(given.rules, Rules) if given.rules else client.rules(pool.rules_hash)
        if given.model is not None:
            return Ground(rules, given.model, None, pool)
        if pool.policy_version is None:
            raise UsageError("the pool has no weights yet", f"pool {pool.pool_id}", "give --model FOLDER, or wait")
        if pool.policy_version in contents(config.data_dir).policy_versions:
            model = version_folder(config.data_dir / "weights", pool.policy_version)
        else:
            model = fetched_weights(client, pool.policy_version, scratch)
        return Ground(rules, model, pool.policy_version, pool)


@dataclass
class _Measured:
    num_tasks: int = 0
    num_rollouts: int = 0
    num_tokens: int = 0
    seconds: float = 0.0
    proof_seconds: float = 0.0


class _Run:
    """The engine at work on made-up tasks."""

    def __init__(self, engine: Engine, rules: Rules, environment: Environment, clock: Clock) -> None:
        self._engine = engine
        self._rules = rules
        self._environment = environment
        self._clock = clock
        self._prompts: dict[bytes, list[Prompt]] = {}

    def measure(self, seconds: float, progress: Steps) -> _Measured:
        """New tasks for so many seconds, then what is left of them."""
        found, start, told = _Measured(), self._clock.now(), 0
        tasks = self._tasks()
        progress.doing("tokens")
        while (elapsed := self._clock.now() - start) < seconds or self._engine.has_work:
            if elapsed < seconds and self._engine.num_waiting == 0:
                self._engine.add(next(tasks))
                found.num_tasks += 1
            self._take(self._engine.step(), found)
            for _ in range(told, min(int(elapsed), int(seconds))):
                told += 1
                progress.step()
        found.seconds = self._clock.now() - start
        return found

    def _tasks(self) -> Iterator[list[Request]]:
        number = 0
        while True:
            seed = sha256(b"bench %d" % number)
            self._prompts[seed] = prompts = task_prompts(self._rules, self._environment, seed)
            tokens = [prompt.tokens for prompt in prompts for _ in range(self._rules.group_size)]
            yield requests_of(seed, tokens, self._rules.sampling, self._environment.tokenizer.eos_ids)
            number += 1

    def _take(self, completions: list[Completion], found: _Measured) -> None:
        """Proofs and rewards, as a task's are made."""
        if not completions:
            return
        start = self._clock.now()
        proofs_of(completions, self._rules.toploc)
        for completion in completions:
            prompt = self._prompts[completion.request.seed][completion.sample // self._rules.group_size]
            reward_of(self._environment, prompt, completion)
            found.num_tokens += len(completion.output_tokens)
        found.num_rollouts += len(completions)
        found.proof_seconds += self._clock.now() - start


def _report(config: WorkerConfig, ground: Ground, found: _Measured) -> BenchReport:
    speed = found.num_tokens / found.seconds if found.seconds else 0.0
    known = last_known(config.data_dir)
    share = known.accepted_share if known is not None else None
    price_wei = ground.pool.price_wei if ground.pool else None
    earned = None if price_wei is None else int(speed * DAY_SECONDS * (1.0 if share is None else share)) * price_wei
    return BenchReport(
        engine=config.engine,
        dtype=config.dtype,
        max_batch=config.max_batch,
        num_threads=config.num_threads,
        model=str(ground.model) if ground.policy_version is None else f"policy version {ground.policy_version}",
        policy_version=ground.policy_version,
        rules_hash=ground.rules.rules_hash,
        num_tasks=found.num_tasks,
        num_rollouts=found.num_rollouts,
        num_tokens=found.num_tokens,
        seconds=round(found.seconds, 3),
        proof_seconds=round(found.proof_seconds, 3),
        tokens_per_second=round(speed, 2),
        price_wei=price_wei,
        accepted_share=share,
        credits_per_day_wei=earned,
        no_demand_share=_no_demand_share(config.data_dir),
        assumptions=ASSUMPTIONS,
    )


def _no_demand_share(data_dir: Path) -> float | None:
    state = process_of(data_dir).state
    if state is None or (seconds := state.written_time - state.started_time) < LEAST_SECONDS:
        return None
    waited = state.waited_seconds.get(f"refused: {RejectReason.NO_DEMAND.value}", 0.0)
    return round(min(1.0, waited / seconds), 3)


def bench_lines(found: BenchReport) -> Iterator[str]:
    """For people."""
    from protocol.amount import format_amount

    yield f"{found.tokens_per_second:.1f} tokens/s: {found.engine}, {found.dtype}, {found.model}"
    yield (
        f"{found.num_tokens} tokens of {found.num_rollouts} rollouts in {found.num_tasks} tasks, {found.seconds:.1f} s,"
        f" of which {found.proof_seconds:.1f} s for proofs and rewards; max_batch {found.max_batch},"
        f" {found.num_threads} threads"
    )
    if found.credits_per_day_wei is None or found.price_wei is None:
        yield "no pool was asked: what that earns isn't known"
        return
    share = "all of it accepted" if found.accepted_share is None else f"{found.accepted_share:.0%} accepted, as of late"
    yield (
        f"at most {format_amount(found.credits_per_day_wei)} credits a day at {format_amount(found.price_wei)} a token,"
        f" {share}, if:"
    )
    yield from (f"  - {assumption}" for assumption in found.assumptions)
    if found.no_demand_share and found.no_demand_share >= TELLING_SHARE:
        rest = format_amount(int(found.credits_per_day_wei * (1 - found.no_demand_share)))
        idle = f"{found.no_demand_share:.0%} of the worker's last run went by without work to lease"
        yield f"the pool's demand is the limit, not this machine: {idle}; about {rest} credits a day if that stays so"
