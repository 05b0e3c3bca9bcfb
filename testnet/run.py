"""A run of the testnet, stage by stage: chain -> roles -> work -> settling -> audit -> summary.

    chain       local node, contracts, pool, stakes
    roles       coordinator, relay, trainer, one worker and the verifiers first; the others once work flows
    work        until the trainer has published the last policy version
    settling    until each received submission is settled and each cheat slashed
    audit       every claim of an accepted and of a slashed submission; every wei
    summary     pass rates of the first and the last weights, counts, checks

Processes are the product's own; everything here is told by their outside: the log, the chain, files.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.chain.client import ChainClient
from protocol.chain.rpc import JsonRpc
from protocol.client import CoordinatorClient
from protocol.clock import Clock
from protocol.errors import ProofpoolError
from testnet import genesis, profile, roles
from testnet.accounts import Accounts
from testnet.chain.node import ChainNode, start_node
from testnet.observer import Observer
from testnet.plan import Plan
from testnet.ports import free_ports
from testnet.process import Process, stop_all
from testnet.rules import model_hash, testnet_rules, write_rules
from testnet.table import Progress

CHAIN_ID = 31337
LOOK_SECONDS = 0.5


@dataclass
class Run:
    """One testnet. `start`, then `turn` until `is_done`, then `stop`; the summary is `testnet/summary.py`'s."""

    plan: Plan
    run_dir: Path
    clock: Clock
    processes: dict[str, Process] = field(default_factory=dict)
    _first_accept_seconds: float | None = None

    def start(self) -> None:
        """Bring up the chain and the roles that the first accepted rollout needs."""
        self.started = self.clock.now()
        self.accounts = Accounts.of(self.plan.seed, self.plan.num_workers, self.plan.num_verifiers, self.plan.cheats)
        self.node: ChainNode = start_node(
            self.run_dir / "chain", self.clock, block_seconds=profile.BLOCK_SECONDS, url=self.plan.chain_url
        )
        self.rules = testnet_rules(self.plan.base_model)
        self.chain = ChainClient(JsonRpc(self.node.url), CHAIN_ID)
        self.chain.check_chain()
        self.genesis = genesis.create(
            self.chain, self.clock, self.accounts, self.rules, model_hash(self.plan.base_model), self.plan
        )
        coordinator_port, relay_port = free_ports(2)
        self.site = roles.Site(
            self.run_dir, self.genesis, self.node.url, coordinator_port, relay_port, self.plan.base_model
        )
        self._prepare_roles()
        first = ["coordinator", "trainer", "relay", "worker-0", *(v.name for v in self.accounts.validators)]
        for name in first:
            self.processes[name].start()
        self.coordinator = CoordinatorClient(self.site.coordinator_url)
        self.observer = Observer(self.coordinator, self.run_dir, self._metrics_file)

    def turn(self) -> None:
        """Look, start what is due, and make sure that nobody died of something that isn't ours."""
        self.observer.look()
        if self._first_accept_seconds is None and self.observer.tally.accepted:
            self._first_accept_seconds = round(self.seconds, 1)
        if self.observer.tally.node(self.accounts.providers[0].node.address).received:
            self._start_the_others()
        for process in self.processes.values():
            if process.was_started and not (process.name == "trainer" and self.has_trained):
                process.check()

    def run_until_done(self, watch: Any = None) -> None:
        """Turn until done or out of time; `watch(progress)` sees each turn."""
        never = threading.Event()
        while not self.is_done():
            self.turn()
            self._stop_what_is_done()
            if watch is not None:
                watch(self.progress())
            if self.seconds > self.plan.timeout_seconds:
                raise ProofpoolError(
                    "the testnet isn't done in time",
                    f"{self.progress().waiting} after {self.seconds:.0f} s",
                    f"read the logs in {self.run_dir / 'logs'}",
                )
            self.clock.wait(never, LOOK_SECONDS)

    def is_done(self) -> bool:
        """All steps taken, all that was received settled, every cheat slashed."""
        return self.has_trained and not self._num_unsettled and not self._unslashed

    def stop(self) -> None:
        """End every process of this run, and nothing else."""
        stop_all(list(self.processes.values()))
        if hasattr(self, "node"):
            self.node.stop()

    @property
    def seconds(self) -> float:
        return self.clock.now() - self.started

    @property
    def first_accept_seconds(self) -> float | None:
        """From the start to the first acceptance, by the observer's own clock."""
        return self._first_accept_seconds

    @property
    def has_trained(self) -> bool:
        return self.observer.tally.policy_version == self.plan.num_steps

    def progress(self) -> Progress:
        tally = self.observer.tally
        return Progress(tally, self.plan.num_steps, self.seconds, list(self.observer.figures), self._waiting())

    def _waiting(self) -> str:
        if not self.has_trained:
            return f"training: step {self.observer.tally.step} of {self.plan.num_steps}"
        if self._num_unsettled:
            return f"{self._num_unsettled} submissions to be judged"
        if self._unslashed:
            return f"slash of {', '.join(self._unslashed)}: the time to appeal is running"
        return "done"

    @property
    def _num_unsettled(self) -> int:
        nodes = self.observer.tally.nodes.values()
        return sum(node.received - node.settled for node in nodes)

    @property
    def _unslashed(self) -> list[str]:
        slashed = self.observer.tally.slashed
        return [cheater.name for cheater in self.accounts.cheaters if cheater.owner.address not in slashed]

    @property
    def _metrics_file(self) -> Path:
        return self.run_dir / "data" / "trainer" / "metrics.jsonl"

    def _prepare_roles(self) -> None:
        rules_file = write_rules(self.rules, self.run_dir / "config" / "rules.json")
        prepared = [
            roles.coordinator(self.site, self.accounts.coordinator, rules_file, self.plan.groups_per_step),
            roles.relay(self.site),
            roles.trainer(self.site, self.accounts.trainer, self.plan.num_steps, self.plan.recipe),
            *(roles.worker(self.site, provider) for provider in self.accounts.providers),
            *(roles.verifier(self.site, validator) for validator in self.accounts.validators),
        ]
        self.processes = {process.name: process for process in prepared}

    def _start_the_others(self) -> None:
        for process in self.processes.values():
            if not process.was_started:
                process.start()

    def _stop_what_is_done(self) -> None:
        """Honest workers once the training is over, and each cheat once it is slashed as well."""
        if not self.has_trained:
            return
        for provider in self.accounts.providers:
            if provider.name not in self._unslashed:
                self.processes[provider.name].ask_to_stop()
