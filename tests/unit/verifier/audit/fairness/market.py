"""A hand-made log of leases: tasks have the ids that follow from terms and beacon, files the hashes that are logged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from protocol.environments.base import Environment
from protocol.environments.registry import load_environment
from protocol.errors import NotFound
from protocol.prompts import task_prompts
from protocol.randomness import task_seed
from protocol.rollouts import FileHeader, Rollout, content_hash, write_rollouts
from protocol.rules import EnvironmentRules, Rules, SamplingRules
from protocol.signing import Signer, SigningDomain
from protocol.tokenizer import Tokenizer
from protocol.wire import ZERO_HASH, Receipt, Signed, Submission, Task
from testnet.base_model.vocabulary import EOS_ID, PAD_ID, make_tokenizer
from tests.unit.verifier.conftest import LogTable
from verifier.audit.fairness.deliveries import Deliveries
from verifier.audit.fairness.fairness import Fairness, weigh
from verifier.audit.fairness.leases import Leases
from verifier.audit.fairness.promises import HeldReceipt, Promises
from verifier.audit.fairness.questions import Questions
from verifier.audit.fairness.refused import Refused
from verifier.thresholds import default_thresholds

POOL_ID = 1
DOMAIN = SigningDomain(chain_id=31337, contract="0x" + "11" * 20, salt="0x" + "22" * 32)
COORDINATOR = Signer((101).to_bytes(32, "big"))
BEACON = "0x" + "be" * 32
CONFIG = {"dataset": "chain_sum", "parameters": {"min_terms": 2, "max_terms": 5, "max_digits": 2}}
PRICE_WEI = 7
TOKENIZER = Tokenizer(make_tokenizer(), [EOS_ID], None, PAD_ID)


def make_rules(**changes: Any) -> Rules:
    environment = load_environment("reasoning_gym", CONFIG, TOKENIZER)
    document: dict[str, Any] = {
        "environment": EnvironmentRules(
            name="reasoning_gym", config=CONFIG, environment_hash=environment.environment_hash
        ),
        "sampling": SamplingRules(max_new_tokens=40),
        "thresholds": default_thresholds(),
        "group_size": 2,
        "groups_per_task": 2,
    }
    return Rules.model_validate(document | changes)


def node(number: int) -> str:
    return f"0x{number:040x}"


PROVIDER, OTHER_PROVIDER = node(0xAA), node(0xBB)


@dataclass
class Market:
    """Writes a log as a coordinator does; `receipts` are what workers keep."""

    rules: Rules
    environment: Environment
    log: LogTable = field(default_factory=LogTable)
    files: dict[str, bytes] = field(default_factory=dict)
    receipts: list[HeldReceipt] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    epoch: int = 0
    epochs: list[int] = field(default_factory=list)
    """Of each leaf."""

    def note(self, kind: str, subject: str = ZERO_HASH, **data: Any) -> None:
        self.log.append(kind, subject, **data)
        self.epochs.append(self.epoch)

    def open(self) -> None:
        """The contract events that terms and beacon follow from."""
        config = {
            "rules_hash": self.rules.rules_hash,
            "price": str(PRICE_WEI),
            "coordinator": COORDINATOR.address,
        }
        self.note("chain.PoolCreated", block=1, arguments={"pool_id": "1", "config": config})
        sealed = {"version": "0", "beacon_block": "5", "beacon_hash": BEACON}
        self.note("chain.VersionSealed", block=7, arguments=sealed)

    def close_epoch(self) -> None:
        self.note("epoch.closed", epoch=self.epoch)
        self.epoch += 1

    def lease(self, of: str = node(1), provider: str = PROVIDER, **changes: Any) -> Task:
        counter = self.counters[of] = self.counters.get(of, -1) + 1
        task = Task(
            pool_id=POOL_ID,
            policy_version=0,
            node=of,
            counter=counter,
            rules_hash=self.rules.rules_hash,
            beacon_block=5,
            beacon_hash=BEACON,
            price_wei=PRICE_WEI,
            max_units=self.rules.max_units,
            deadline=1_000,
        ).model_copy(update=changes)
        said = task.model_dump(include={"node", "policy_version", "counter", "deadline"})
        self.note("task.leased", task.id(DOMAIN), provider=provider, reserved_wei="1", **said)
        return task

    def terms(self, task: Task) -> float:
        """The mean number of terms in the task's sums."""
        problems = (prompt.problem for prompt in self.prompts(task))
        return float(np.mean([self.environment.difficulty(problem)["num_terms"] for problem in problems]))

    def prompts(self, task: Task) -> Any:
        seed = task_seed(task.pool_id, task.policy_version, task.node, task.counter, task.beacon_hash)
        return task_prompts(self.rules, self.environment, seed)

    def rollouts(self, task: Task, tokens: Sequence[int] = (3, 4, 5), reward: float = 1.0) -> list[Rollout]:
        return [
            Rollout(
                input_tokens=prompt.tokens,
                output_tokens=np.array([*tokens, group, member], dtype=np.int32),
                output_logprobs=np.zeros(len(tokens) + 2, dtype=np.float32),
                task_reward=reward,
                proofs=b"",
                step=0,
                problem_id=prompt.problem_id,
                task_type=prompt.task_type,
                target_length=prompt.target_length,
                finish_reason="stop",
            )
            for group, prompt in enumerate(self.prompts(task))
            for member in range(self.rules.group_size)
        ]

    def receive(self, task: Task, rollouts: list[Rollout] | None = None, *, logged: bool = True) -> str:
        """Handed in, with a receipt; `logged`: and the log says so. The submission's id."""
        rows = self.rollouts(task) if rollouts is None else rollouts
        header = FileHeader(task_id=task.id(DOMAIN), group_size=self.rules.group_size, sampling=self.rules.sampling)
        message = Submission(
            pool_id=POOL_ID,
            policy_version=0,
            node=task.node,
            counter=task.counter,
            rules_hash=task.rules_hash,
            content_hash=content_hash(header, rows),
        )
        submission_id = message.id(DOMAIN)
        self.files[submission_id] = write_rollouts(header, rows)
        self.promise(message)
        if logged:
            num_units = sum(row.num_units for row in rows)
            counts = {"num_rollouts": len(rows), "num_units": num_units}
            about = {"task_id": task.id(DOMAIN), "content_hash": message.content_hash}
            self.note("submission.received", submission_id, **about, **counts)
        return submission_id

    def promise(self, message: Submission, signer: Signer = COORDINATOR, **changes: Any) -> None:
        """A receipt for the open epoch."""
        values = {"submission_id": message.id(DOMAIN), "received_block": 9, "include_by_epoch": self.epoch}
        receipt = Signed[Receipt].by(signer, Receipt(**(values | changes)), DOMAIN)
        held = Signed[Submission](message=message, signature="0x" + "00" * 65)
        self.receipts.append(HeldReceipt(submission=held, receipt=receipt))

    def settle(self, submission_id: str, reason: str | None = None) -> None:
        self.note(f"submission.{'rejected' if reason else 'accepted'}", submission_id, reason=reason)

    def end(self, task: Task, how: str) -> None:
        self.note(f"task.{how}", task.id(DOMAIN))

    def fetch(self, submission_id: str) -> bytes:
        if submission_id not in self.files:
            raise NotFound("gone", submission_id)
        return self.files[submission_id]

    def rules_of(self, rules_hash: str) -> Rules:
        if rules_hash != self.rules.rules_hash:
            raise NotFound("no such rules", rules_hash)
        return self.rules

    def report(self, *, with_files: bool = False, model: Path | None = None) -> Fairness:
        questions = Questions(POOL_ID, DOMAIN, self.rules_of, model)
        leases, refused, promises = Leases(questions), Refused(), Promises(self.receipts)
        for epoch, entry in zip(self.epochs, self.log.entries, strict=True):
            leases.note(epoch, entry)
            refused.note(entry)
            promises.note(epoch, entry)
        found = promises.found(self.epoch, DOMAIN)
        deliveries = Deliveries() if with_files else None
        try:
            for submission_id, work in leases.work.items():
                if deliveries is not None:
                    known = questions.known.get(work.lease.rules_hash)
                    deliveries.read(submission_id, work, known.rules if known else None, self.fetch)
            return weigh(leases, questions.known, refused, found, deliveries)
        finally:
            if deliveries is not None:
                deliveries.close()
