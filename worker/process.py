"""The worker's process: from configuration to a running loop, and how it ends.

In: a configuration file, and which `Worker` to run. Out: exit 0 after SIGTERM or SIGINT, once the tasks at hand
are finished, or handed back after `drain_seconds` (a second signal ends it at once, which is as safe as kill -9). Run:
`proofpool worker run`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import torch

from protocol.clock import Clock, SteadyClock, SystemClock
from protocol.config import load_config, write_resolved
from protocol.doctor import installed_version
from protocol.errors import NotEligible, NotFound, Rejected, Unreachable, WrongChain
from protocol.shardcast.line import weights_client
from protocol.signals import stop_on_signals
from protocol.telemetry import configure_logging, get_logger
from worker.activity import Activity
from worker.bounds import Bounds
from worker.config import WorkerConfig
from worker.folder import WorkerFolder
from worker.joining import join
from worker.loop import Worker
from worker.membership import Membership
from worker.patience import Patience, may_pass
from worker.surroundings import surrounded
from worker.weights import Follower, Weights

NUM_ERRANDS = 3
"""Threads beside the generating: uploads, the next task, renewals."""


def run_worker(
    file: Path | None, worker_class: type[Worker] = Worker, flags: Mapping[str, object] | None = None
) -> None:
    """Work until a signal comes. Raises SelfCheckFailed, ConfigError, KeyFailure, WrongChain: no wait can mend them."""
    config = load_config(WorkerConfig, "worker", file, flags=flags)
    clock = SystemClock()
    pace = SteadyClock()
    activity = Activity(clock, installed_version("proofpool"), pace)
    configure_logging("worker", config.log_format, observers=[activity.observe])
    torch.set_num_threads(config.num_threads)
    with surrounded(config, activity, clock, pace):
        WorkerProcess(config, worker_class, clock, stop_on_signals("worker")).run()


class WorkerProcess:
    """A worker with what surrounds it: the membership, the data folder, the follower of weights."""

    def __init__(self, config: WorkerConfig, worker_class: type[Worker], clock: Clock, stop: threading.Event) -> None:
        """`clock` dates what is signed."""
        self._config = config
        self._worker_class = worker_class
        self._clock = clock
        self._pace = SteadyClock()
        self._stop = stop
        self._patience = Patience(self._pace, random.Random(), config.retry_first_seconds, config.retry_most_seconds)

    def run(self) -> None:
        """Join, then work, until `stop`."""
        membership = self.join()
        if membership is not None:
            with weights_client() as http:
                self.work(membership, http)
        get_logger().info("worker.stopped")

    def join(self) -> Membership | None:
        """A membership, however long coordinator and chain take to answer; None if `stop` comes first.

        Raises WrongChain: a node of another chain was named by mistake, and no wait mends that.
        """
        while not self._stop.is_set():
            try:
                membership = join(self._config, self._clock)
            except WrongChain:
                raise
            except (Unreachable, NotEligible, NotFound, Rejected) as error:
                self._pace.wait(self._stop, self._patience.wait_for(error))
            else:
                self._patience.rewarded()
                return membership
        return None

    def work(self, membership: Membership, http: httpx.Client) -> None:
        """Turn after turn until `stop`, with weights followed beside it; then return what isn't finished."""
        opened = self._open_folder(membership)
        if opened is None:
            return
        with opened as folder:
            config, bounds = self._config, Bounds.of(self._config)
            weights = Weights(folder.weights, membership, http, config.num_versions_kept, bounds)
            engine = self._worker_class.make_engine(config)
            executor = ThreadPoolExecutor(NUM_ERRANDS, thread_name_prefix="errand")
            try:
                worker = self._worker_class(
                    membership, folder, weights, engine, self._pace, self._patience, bounds, executor
                )
                get_logger().info("worker.started", node=membership.node, pool_id=membership.pool_id)
                self._run_followed(worker, weights)
            finally:
                executor.shutdown(wait=False, cancel_futures=True)
                engine.close()

    def _open_folder(self, membership: Membership) -> WorkerFolder | None:
        """The data folder, as soon as its disk has room for what is written first; None if `stop` comes before."""
        while not self._stop.is_set():
            try:
                return self._opened(membership)
            except OSError as error:
                if not may_pass(error):
                    raise
                self._clock.wait(self._stop, self._patience.wait_for(error))
        return None

    def _opened(self, membership: Membership) -> WorkerFolder:
        config = self._config
        folder = WorkerFolder(
            config.data_dir,
            node=membership.node,
            pool_id=membership.pool_id,
            domain=membership.domain,
            give_up_seconds=config.give_up_seconds,
            keep_refused_seconds=86_400 * config.keep_refused_days,
        )
        try:
            write_resolved(config, config.data_dir)
        except OSError:
            folder.close()
            raise
        return folder

    def _run_followed(self, worker: Worker, weights: Weights) -> None:
        pause_seconds = self._config.follow_seconds
        follower = Follower(weights, self._pace, self._patience.another(), pause_seconds, self._stop)
        follower.start()
        try:
            worker.run(self._stop)
        finally:
            self._stop.set()
            follower.join()
