"""The trainer as a process: configuration, key, chain and coordinator put together around the loop.

In: a configuration file. Out: the loop, until SIGTERM or the last step. Heavy imports happen here and
not in the command line.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import torch

from protocol.chain.contracts import Contracts
from protocol.chain.deployment import connect, stay_with
from protocol.chain.journal import FILE_NAME as JOURNAL_NAME
from protocol.chain.journal import Journal
from protocol.chain.lane import Lane
from protocol.chain.pool import ChainPool, PoolRecord
from protocol.client import CoordinatorClient
from protocol.clock import Clock, SteadyClock, SystemClock
from protocol.config import load_config, write_resolved
from protocol.engines.registry import make_engine
from protocol.errors import NotEligible
from protocol.health_server import HealthServer
from protocol.heap import return_large_blocks
from protocol.http import RequestSigner
from protocol.keystore import load_signer
from protocol.lock import FolderLock
from protocol.signals import stop_on_signals
from protocol.signing import Signer
from protocol.telemetry import configure_logging
from protocol.waiting import Waiting
from trainer.batches import Batches
from trainer.broadcast import Broadcaster
from trainer.checkpoint import CheckpointStore
from trainer.config import TrainerConfig
from trainer.crew import Crew
from trainer.flops import step_flops
from trainer.held_back import Evaluations
from trainer.learner import Learner
from trainer.loop import Trainer
from trainer.machine import check_pool, check_tokenizer
from trainer.metrics import TrainerMetrics, health_of
from trainer.metrics_file import FILE_NAME, MetricsFile
from trainer.peak import Peak, measured_peak
from trainer.policy import COMPUTE_DTYPES, Policy
from trainer.ranks import ALONE, Ranks, parting, start_ranks
from trainer.reporting import Reporting
from trainer.stopwatch import Stopwatch
from trainer.trackers import make_tracker


def run_trainer(file: Path | None, num_steps: int | None, resume: str | None = None) -> None:
    """`proofpool trainer run`: on the first rank the loop, on the others what the loop asks of all."""
    config = load_config(TrainerConfig, "trainer", file, flags={"num_steps": num_steps, "resume": resume})
    configure_logging("trainer", config.log_format)
    if config.scale.map_large_blocks:
        return_large_blocks()
    torch.set_num_threads(config.num_threads)
    torch.manual_seed(config.seed)
    stop = stop_on_signals("trainer")
    ranks = start_ranks(config.scale)
    if not ranks.is_first:
        build_crew(config, ranks).follow()
        return
    with FolderLock(config.data_dir, "trainer"), parting(ranks):
        write_resolved(config, config.data_dir)
        trainer = build_trainer(config, SystemClock(), stop, ranks)
        if trainer is not None:
            with closing(trainer.reporting), serving(config, trainer.reporting):
                trainer.run(config.num_steps)


def build_trainer(config: TrainerConfig, clock: Clock, stop: threading.Event, ranks: Ranks = ALONE) -> Trainer | None:
    """The trainer of the configured pool; None if stopped while waiting for the chain's node.

    Raises WrongChain for other contracts than expected, NotEligible where the key isn't the pool's trainer.
    """
    waiting = Waiting(clock, stop, config.poll_seconds)
    contracts = waiting.until("the chain's node", lambda: _connect(config, clock))
    if contracts is None:
        return None
    signer = load_signer(contracts.client.chain_id, config.keystore, config.password_file)
    journal = Journal(config.data_dir / JOURNAL_NAME)
    lane = Lane(contracts.client, signer, clock, journal=journal, stop=stop)
    pool = ChainPool(contracts, config.pool_id, lane=lane)
    waiting.until("the chain's node", lane.resume)
    record = waiting.until("the chain's node", pool.record)
    if record is None:
        return None
    _check_role(record, signer)
    coordinator = CoordinatorClient(config.coordinator_url, RequestSigner(signer, contracts.domain, clock))
    check_pool(CheckpointStore(config.data_dir / "checkpoints"), config.pool_id)
    crew = build_crew(config, ranks)
    check_tokenizer(config.base_model, crew.learner.model.config)
    batches = Batches(coordinator, pool.record, contracts.domain)
    reporting = build_reporting(config, crew, clock)
    return Trainer(
        crew,
        Broadcaster(
            config.origin_dir, config.pool_id, pool, coordinator, signer, contracts.domain, config.publishing, clock
        ),
        batches,
        reporting,
        build_evaluations(config, batches, reporting, waiting),
        waiting,
        config.resume,
    )


def build_crew(config: TrainerConfig, ranks: Ranks) -> Crew:
    """This rank's learner and checkpoints."""
    policy = Policy.load(config.base_model, ranks, config.scale, config.recipe.lora)
    reference = None
    if config.recipe.objective.kl_coefficient and config.recipe.lora is None:
        reference = Policy.load(config.base_model, ranks, config.scale).requires_grad_(False)
    learner = Learner(policy, config.recipe, reference, ranks)
    return Crew(learner, CheckpointStore(config.data_dir / "checkpoints", config.keep_checkpoints), config.base_model)


def build_reporting(config: TrainerConfig, crew: Crew, clock: Clock) -> Reporting:
    """Lines of the run's folder, and the tracker that is configured."""
    model, recipe, scale, ranks = crew.learner.model.config, crew.learner.recipe, config.scale, crew.learner.ranks
    rank_peak = scale.peak_flops or measured_peak(ranks.device, COMPUTE_DTYPES[scale.compute_dtype])
    return Reporting(
        MetricsFile(config.data_dir / FILE_NAME),
        clock,
        Stopwatch(SteadyClock()),
        make_tracker(config.tracker, config.data_dir, config.tracker_project, config.tracker_run),
        partial(step_flops, model, recipe),
        Peak(rank_peak * ranks.size, is_given=scale.peak_flops is not None),
    )


def build_evaluations(config: TrainerConfig, batches: Batches, reporting: Reporting, waiting: Waiting) -> Evaluations:
    """Of held-back problems, by an engine as a worker has it."""
    chosen = config.evaluation
    engine = partial(make_engine, chosen.engine, max_batch=chosen.max_batch, dtype=chosen.dtype)
    return Evaluations(chosen, engine, batches.rules, config.data_dir / "evaluations", reporting, waiting)


@contextmanager
def serving(config: TrainerConfig, reporting: Reporting) -> Iterator[None]:
    """`/metrics` and `/healthz` during the block, where an address is configured; ConfigError where it is taken."""
    if config.metrics_address is None:
        yield
        return
    metrics = TrainerMetrics(reporting, config.pool_id)
    with HealthServer(config.metrics_address, lambda: health_of(reporting, config.stall_seconds), metrics):
        yield


def _connect(config: TrainerConfig, clock: Clock) -> Contracts:
    contracts = connect(config.chain_url, clock, deployment=config.deployment, ledger=config.ledger)
    stay_with(config.data_dir, contracts)
    return contracts


def _check_role(record: PoolRecord, signer: Signer) -> None:
    if signer.address != record.trainer:
        raise NotEligible(
            "this key isn't the pool's trainer",
            f"{signer.address}, the pool names {record.trainer}",
            "use the keystore of the address that the pool was created with",
        )
