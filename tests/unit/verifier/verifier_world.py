"""A small honest world: rules, a task, and a submission made by the worker's own engine and prover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protocol.api import PoolInfo
from protocol.checks.case import Case, Terms, open_case
from protocol.engines.base import Completion, generate, requests_of
from protocol.engines.torch import TorchEngine
from protocol.environments.base import Environment
from protocol.forward import CausalLM
from protocol.prompts import task_prompts
from protocol.prover import in_task_order, proofs_of, reward_of, rollout_of
from protocol.randomness import task_seed
from protocol.rollouts import FileHeader, Rollout, content_hash, write_rollouts
from protocol.rules import EnvironmentRules, Rules, SamplingRules
from protocol.signing import Signer, SigningDomain
from protocol.wire import Signed, Submission, Task
from testnet import base_model
from verifier.case import Dossier, Facts, Instruments, terms_of
from verifier.pipeline import Finding, examine
from verifier.thresholds import default_thresholds

BASE_MODEL = Path(base_model.__file__).parent
POOL_ID = 1
BEACON = "0x" + "be" * 32
DEADLINE = 1_000
DOMAIN = SigningDomain(chain_id=31337, contract="0x" + "11" * 20, salt="0x" + "22" * 32)
NODE, COORDINATOR = Signer((1).to_bytes(32, "big")), Signer((101).to_bytes(32, "big"))


def make_rules(environment: Environment, **changes: Any) -> Rules:
    """Rules of a small pool: 4 groups of 8 rollouts, about 900 tokens."""
    document: dict[str, Any] = {
        "environment": EnvironmentRules(
            name="reasoning_gym",
            config=environment.config.model_dump(mode="json"),
            environment_hash=environment.environment_hash,
        ),
        "sampling": SamplingRules(max_new_tokens=40),
        "thresholds": default_thresholds(),
        "group_size": 8,
        "groups_per_task": 4,
    }
    return Rules.model_validate(document | changes)


@dataclass(frozen=True)
class World:
    """One pool, one model, one node. The engine generates with `folder`'s weights in `dtype`; `model` judges."""

    rules: Rules
    environment: Environment
    folder: Path
    model: CausalLM
    dtype: torch.dtype = torch.float32

    def task(self, counter: int = 0) -> Task:
        return Task(
            pool_id=POOL_ID,
            policy_version=0,
            node=NODE.address,
            counter=counter,
            rules_hash=self.rules.rules_hash,
            beacon_block=9,
            beacon_hash=BEACON,
            price_wei=1,
            max_units=self.rules.max_units,
            deadline=DEADLINE,
        )

    def pool(self) -> PoolInfo:
        """As its coordinator tells it to anybody."""
        numbers = ("chain_id", "max_async", "accept_quorum", "slash_quorum", "confirmations", "epoch", "policy_version")
        info: dict[str, Any] = dict.fromkeys(numbers, 1)
        info |= dict.fromkeys(("price_wei", "verify_price_wei", "min_allotment_wei"), "1")
        contracts = dict.fromkeys(("credits", "registry", "pools", "ledger", "court", "jury"), DOMAIN.contract)
        info |= {"pool_id": POOL_ID, "paused": False, "shardcast_urls": (), "contracts": contracts}
        info |= {"coordinator": COORDINATOR.address, "trainer": NODE.address, "rules_hash": self.rules.rules_hash}
        info |= {"chain_id": DOMAIN.chain_id, "deployment_salt": DOMAIN.salt, "model_hash": "0x" + "00" * 32}
        info |= {"freshness": {"head_block": 1, "indexed_block": 1, "chain_time": 1, "lag_seconds": 0}}
        return PoolInfo.model_validate(info)

    def seed(self, counter: int = 0) -> bytes:
        return task_seed(POOL_ID, 0, NODE.address, counter, BEACON)

    def header(self, counter: int = 0) -> FileHeader:
        task_id = self.task(counter).id(DOMAIN)
        return FileHeader(task_id=task_id, group_size=self.rules.group_size, sampling=self.rules.sampling)

    def completions(
        self,
        counter: int = 0,
        *,
        folder: Path | None = None,
        seed: bytes | None = None,
        sampling: SamplingRules | None = None,
        dtype: torch.dtype | None = None,
        max_batch: int = 64,
    ) -> list[Completion]:
        """What a worker's engine makes of the task; other weights, noise, sampling or dtype make a cheat's."""
        engine = TorchEngine(max_batch, dtype or self.dtype)
        engine.load(folder or self.folder)
        prompts = task_prompts(self.rules, self.environment, self.seed(counter))
        num_rollouts = self.rules.group_size * self.rules.groups_per_task
        asked = [prompts[i // self.rules.group_size].tokens for i in range(num_rollouts)]
        how = (sampling or self.rules.sampling, self.environment.tokenizer.eos_ids)
        requests = requests_of(seed or self.seed(counter), asked, *how)
        return in_task_order(list(generate(engine, requests)), num_rollouts)

    def rollouts(self, completions: Sequence[Completion], counter: int = 0) -> list[Rollout]:
        """Completions with their proofs and rewards, as the worker's prover gives them."""
        prompts = task_prompts(self.rules, self.environment, self.seed(counter))
        proofs = proofs_of(completions, self.rules.toploc)
        rows = []
        for completion, proof in zip(completions, proofs, strict=True):
            prompt = prompts[completion.sample // self.rules.group_size]
            rows.append(rollout_of(prompt, completion, proof, reward_of(self.environment, prompt, completion), 0))
        return rows

    def dossier(self, rollouts: Sequence[Rollout], counter: int = 0, header: FileHeader | None = None) -> Dossier:
        """What a verifier fetches of these rows, signed by the node and leased by the coordinator."""
        header, task = header or self.header(counter), self.task(counter)
        shared = task.model_dump(include={"pool_id", "policy_version", "node", "counter", "rules_hash"})
        submission = Submission(**shared, content_hash=content_hash(header, rollouts))
        facts = Facts(
            domain=DOMAIN,
            coordinator=COORDINATOR.address,
            beacon_hash=BEACON,
            received_time=DEADLINE,
            rules_hashes=frozenset({self.rules.rules_hash}),
        )
        return Dossier(
            submission=Signed[Submission].by(NODE, submission, DOMAIN),
            task=Signed[Task].by(COORDINATOR, task, DOMAIN),
            file=write_rollouts(header, rollouts),
            rules=self.rules,
            facts=facts,
        )

    def terms(self, **changes: Any) -> Terms:
        """What the files of task 0 are judged by; with `seed`, those of another."""
        honest = terms_of(self.dossier([]), self.instruments())
        return replace(honest, **changes)

    def case(
        self, rollouts: Sequence[Rollout], counter: int = 0, *, header: FileHeader | None = None, **changes: Any
    ) -> Case:
        """These rows as a file, opened; `changes` are of its `Terms`."""
        file = write_rollouts(header or self.header(counter), rollouts)
        return open_case(file, self.terms(**{"seed": self.seed(counter)} | changes))

    def instruments(self, **changes: Any) -> Instruments:
        honest = Instruments(
            environment=self.environment,
            model_config=self.model.config,
            load_model=lambda: self.model,
            find_twin=lambda node, completions_hash, submission_id: None,
        )
        return replace(honest, **changes)

    def examine(self, rollouts: Sequence[Rollout], counter: int = 0) -> Finding:
        return examine(self.dossier(rollouts, counter), self.instruments())


def states_of(model: CausalLM, rollout: Rollout) -> torch.Tensor:
    """bf16 [T, H]: another model's hidden states for the same tokens."""
    tokens = np.concatenate([rollout.input_tokens, rollout.output_tokens[:-1]]).astype(np.int64)
    with torch.inference_mode():
        hidden = model(torch.from_numpy(tokens), [len(tokens)])
    return hidden[len(rollout.input_tokens) - 1 :].bfloat16()
