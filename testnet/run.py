"""A run of the testnet, stage by stage: chain -> roles -> work -> settling -> audit -> summary.

    chain       local node, contracts, pool, stakes
    roles       coordinator, relay, trainer, one worker and the verifiers first; the others once work flows
    work        until the trainer has published the last policy version
    settling    until tasks at hand are handed in, submissions settled, and each cheat slashed
    audit       every claim of an accepted and of a slashed submission; every wei
    summary     pass rates of the first and the last weights, counts, checks

Processes are the product's own; everything here is told by their outside: the log, the chain, files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from protocol.chain.client import ChainClient
from protocol.chain.rpc import JsonRpc
from protocol.client import CoordinatorClient
from protocol.clock import Clock
from protocol.errors import ChainError, ProofpoolError
from protocol.rules import Rules
from testnet import genesis, profile, roles
from testnet.accounts import Accounts, Provider
from testnet.arrivals import Arrivals
from testnet.chain.node import start_node
from testnet.folder import check_room
from testnet.observer import Observer
from testnet.plan import Plan
from testnet.ports import Ports
from testnet.process import Process, stop_all
from testnet.rules import model_hash, testnet_rules, write_rules
from testnet.table import Progress
from testnet.transactions import check_ticking
from testnet.waiting import Awaited, awaited

CHAIN_ID = 31337
LOOK_SECONDS = 0.5
METRICS = Path("data") / "trainer" / "metrics.jsonl"


class Run:
    """One testnet. `start`, then `run_until_done`, then `stop`; the summary is `testnet/summary.py`'s."""

    def __init__(self, plan: Plan, run_dir: Path, clock: Clock) -> None:
        self.plan = plan
        self.run_dir = run_dir
        self.clock = clock
        self.accounts = Accounts.of(plan.seed, plan.num_workers, plan.num_verifiers, plan.cheats)
        self.processes: dict[str, Process] = {}
        self.first_accept_seconds: float | None = None
        """From the start to the first acceptance, by the observer's own clock."""
        self.restarted: list[str] = []
        """Processes that somebody killed, in order."""
        self.started = clock.now()
        self._at_work: list[str] = []
        """Workers that were up before the last look: the log may have more of them since."""
        self._awaited = Awaited(clock)
        self._ends = ExitStack()

    def start(self) -> None:
        """Bring up the chain and the roles that the first accepted rollout needs."""
        self._start_chain()
        coordinator_port, relay_port = self._ends.enter_context(Ports(2)).numbers
        self.site = roles.Site(
            self.run_dir, self.genesis, self.node.url, coordinator_port, relay_port, self.plan.base_model
        )
        self.processes = self._prepared_roles()
        self._ends.callback(lambda: stop_all(list(self.processes.values())))
        first = ["coordinator", "trainer", "relay", "worker-0", *(v.name for v in self.accounts.validators)]
        for name in first:
            self.processes[name].start()
        self.coordinator = CoordinatorClient(self.site.coordinator_url)
        self._ends.callback(self.coordinator.close)
        (self.run_dir / METRICS.name).symlink_to(METRICS)
        self.observer = Observer(self.coordinator, self.run_dir, self.run_dir / METRICS)
        logs = {name: process.log for name, process in self.processes.items()}
        self.arrivals = Arrivals(logs["trainer"], {name: logs[name] for name in self._workers})

    def turn(self) -> None:
        """Look, start and stop what is due, and make sure that nobody died of something that isn't ours."""
        self._at_work = [name for name in self._workers if self.processes[name].is_running()]
        self.observer.look()
        self.arrivals.look()
        check_room(self.run_dir)
        if self.first_accept_seconds is None and self.observer.tally.accepted:
            self.first_accept_seconds = round(self.seconds, 1)
        if self.observer.tally.node(self.accounts.providers[0].node.address).received:
            self._start_the_others()
        if self.has_trained:
            self._stop_workers()
        self._check_processes()

    def run_until_done(
        self, watch: Callable[[Progress], None] = lambda progress: None, *, is_kept: bool = False
    ) -> None:
        """Turn until done or out of time; `watch` sees each turn.

        The time of a run that `is_kept` counts from its last progress: it may go on for as long as it gets on.
        """
        never = threading.Event()
        while not self.is_done():
            self.turn()
            progress = self.progress()
            watch(progress)
            self._check_time(progress, is_kept=is_kept)
            self.clock.wait(never, LOOK_SECONDS)

    def _check_time(self, progress: Progress, *, is_kept: bool) -> None:
        """Raises ProofpoolError once it is up."""
        seconds, most = progress.waiting_seconds if is_kept else self.seconds, self.plan.timeout_seconds
        if seconds > most:
            how = "without progress" if is_kept else "of running"
            raise ProofpoolError(
                "the testnet isn't done in time",
                f"waiting for {progress.waiting} after {seconds:.0f} s {how}, `timeout_seconds` is {most:g}",
                f"read the logs in {self.run_dir / 'logs'}; --timeout-seconds gives it longer",
            )

    def is_done(self) -> bool:
        """All steps taken, every worker heard of and ended, no task at hand, all settled, every cheat slashed."""
        tally = self.observer.tally
        if not self.has_trained or self._idle or self._at_work:
            return False
        return not (tally.working or tally.unsettled or self._unslashed)

    def stop(self) -> None:
        """End every process of this run, and nothing else."""
        self._ends.close()

    @cached_property
    def rules(self) -> Rules:
        """The pool's."""
        return testnet_rules(self.plan.base_model, self.plan.rules, self.plan.thresholds)

    @property
    def seconds(self) -> float:
        return self.clock.now() - self.started

    @property
    def has_trained(self) -> bool:
        return self.observer.tally.policy_version == self.plan.num_steps

    def progress(self) -> Progress:
        tally = self.observer.tally
        idle, unslashed = ([provider.name for provider in found] for found in (self._idle, self._unslashed))
        what = awaited(tally, self.plan.num_steps, idle, unslashed, self._at_work)
        since = self._awaited.since(what)
        return Progress(
            tally=tally,
            num_steps=self.plan.num_steps,
            seconds=self.seconds,
            figures=list(self.observer.figures),
            waiting=what,
            waiting_seconds=since,
            restarted=list(self.restarted),
            versions=self.arrivals.versions,
        )

    @property
    def _workers(self) -> list[str]:
        return [provider.name for provider in self.accounts.providers]

    @property
    def _idle(self) -> list[Provider]:
        """Those whose worker hasn't handed anything in yet."""
        return [each for each in self.accounts.providers if not self.observer.tally.node(each.node.address).received]

    @property
    def _unslashed(self) -> list[Provider]:
        slashed = self.observer.tally.slashed
        return [cheater for cheater in self.accounts.cheaters if cheater.owner.address not in slashed]

    def _start_chain(self) -> None:
        """A node, and on it everything that the roles find there."""
        self.node = self._ends.enter_context(
            start_node(self.run_dir / "chain", self.clock, block_seconds=profile.BLOCK_SECONDS, url=self.plan.chain_url)
        )
        rpc = JsonRpc(self.node.url, clock=self.clock)
        self._ends.callback(rpc.close)
        chain = ChainClient(rpc, CHAIN_ID)
        chain.check_chain()
        check_ticking(chain, self.clock)
        self.genesis = genesis.create(
            chain, self.clock, self.accounts, self.rules, model_hash(self.plan.base_model), self.plan
        )

    def _prepared_roles(self) -> dict[str, Process]:
        rules_file = write_rules(self.rules, self.run_dir / "config" / "rules.json")
        prepared = [
            roles.coordinator(
                self.site, self.accounts.coordinator, self.accounts.log, rules_file, self.plan.groups_per_step
            ),
            roles.relay(self.site),
            roles.trainer(self.site, self.accounts.trainer, self.plan),
            *(roles.worker(self.site, p, self.plan.engine, self.plan.worker_python) for p in self.accounts.providers),
            *(roles.verifier(self.site, validator) for validator in self.accounts.validators),
        ]
        return {process.name: process for process in prepared}

    def _check_processes(self) -> None:
        """Start again what was killed. Raises ProofpoolError where one has ended that should be up."""
        if self.node.process is not None and not self.node.process.is_running():
            raise ChainError("the local chain has ended", self.node.name, f"read the logs in {self.run_dir / 'chain'}")
        for process in self.processes.values():
            if process.revive():
                self.restarted.append(process.name)
            process.check()

    def _start_the_others(self) -> None:
        for process in self.processes.values():
            if not process.was_started:
                process.start()

    def _stop_workers(self) -> None:
        """Honest ones that have handed something in, now that the training is over; cheats that stand accused."""
        for provider in self.accounts.providers:
            is_accused = provider.owner.address in self.observer.tally.accused
            if is_accused if provider.cheat else provider not in self._idle:
                self.processes[provider.name].ask_to_stop()
