"""A rehearsal: the whole recipe in one process, with no chain and no proofs, and the policy lag emulated exactly.

    version max(0, step − 1 − lag) ─▶ rollouts ─▶ groups with variance ─▶ learner ─▶ version `step`

In: a base model, a pool's rules, a recipe. Out: the run folder's metrics.jsonl, a line a step as the trainer writes it,
with held-back pass rates. For choosing a recipe before a pool is made, and for experiments on asynchrony: a real run's
lag varies, here each batch is exactly `lag` versions old. Run: `proofpool trainer rehearse`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import torch
from pydantic import Field

from protocol.canonical import hex0x, keccak256
from protocol.clock import Clock
from protocol.config import RoleConfig
from protocol.engines.base import Completion, Engine, generate, requests_of
from protocol.environments.base import Environment, Problem
from protocol.environments.registry import environment_of
from protocol.errors import ProofpoolError, UsageError
from protocol.files import write_atomically
from protocol.forward import CausalLM
from protocol.lock import FolderLock
from protocol.progress import Steps
from protocol.prompts import task_prompts
from protocol.prover import in_task_order, reward_of, rollout_of
from protocol.randomness import task_seed
from protocol.rollouts import Rollout
from protocol.rules import Rules
from protocol.rules_document import unjudged_rules
from protocol.tokenizer import TOKENIZER_FILE, Tokenizer
from protocol.weights import save_checkpoint
from protocol.wire import ZERO_ADDRESS
from trainer.evaluation import EVALUATION_SEED, PassRates, pass_counts, pass_rates
from trainer.figures import StepFigures
from trainer.learner import Learner, RecipeConfig
from trainer.metrics_file import FILE_NAME, MetricsFile
from trainer.policy import Policy
from trainer.samples import TrainingBatch, batch_of

DEFAULT_BATCHES = 64
"""Batches' worth of rollouts that a step generates at most where the configuration doesn't say."""


class RehearsalConfig(RoleConfig):
    """What is rehearsed."""

    base_model: Path
    """Hugging Face folder of policy version 0."""
    rules: Path
    """The pool's rules, as the coordinator serves them (`GET /v1/rules/HASH`), or as much of them as is decided."""
    data_dir: Path
    """metrics.jsonl, and the versions while they are needed."""
    num_steps: int = Field(default=12, ge=1)
    """Policy versions to train."""
    lag: int = Field(default=0, ge=0, le=8)
    """How many versions behind each batch is, exactly."""
    groups_per_step: int = Field(default=32, ge=1, le=1_000_000)
    """Groups that make a batch."""
    drop_flat_groups: bool = True
    """The online filter: groups whose task rewards are all equal don't count, and more are generated."""
    max_rollouts: int | None = Field(default=None, ge=1)
    """A step that has generated so many, and has no batch yet, ends the rehearsal; without it, 64 times a batch."""
    max_batch: int = Field(default=256, ge=1, le=65_536)
    """Rollouts that decode together."""
    seed: int = Field(default=0, ge=0)
    """Of the beacons: other prompts and other noise."""
    evaluate_every: int = Field(default=4, ge=1, lt=2**31)
    """Steps between two looks at held-back problems; the first and the last version are always looked at."""
    num_held_back: int = Field(default=256, ge=0, le=1_000_000)
    """Problems that no task draws and the pass rate is of; 0 for no looks."""
    num_samples: int = Field(default=1, ge=1, le=65_536)
    """Completions a held-back problem."""
    num_threads: int = Field(default=1, ge=1, le=1024)
    recipe: RecipeConfig = RecipeConfig()


@dataclass(frozen=True)
class Gathered:
    """A batch, and what it took."""

    batch: TrainingBatch
    num_dropped: int
    """Groups without variance."""
    num_surplus: int
    """Groups that the last task has beyond the batch: a pool's next batch would have those that are young enough."""

    @property
    def num_generated(self) -> int:
        """Rollouts that the batch took, those of dropped groups included, and no surplus."""
        return len(self.batch.samples) + self.num_dropped * self.batch.group_size


class Rehearsal:
    """Example: `Rehearsal(config, rules, environment, engine, learner, clock).run(progress)`."""

    def __init__(
        self,
        config: RehearsalConfig,
        rules: Rules,
        environment: Environment,
        engine: Engine,
        learner: Learner,
        clock: Clock,
    ) -> None:
        self.config = config
        self.rules = rules
        self.environment = environment
        self.engine = engine
        self.learner = learner
        self.clock = clock
        self._metrics = MetricsFile(config.data_dir / FILE_NAME)
        self._counters: dict[int, int] = {}
        self._num_generated = 0

    def run(self, progress: Steps) -> None:
        """Every step. Raises UsageError where the folder has a run already."""
        if self._metrics.path.exists():
            raise UsageError("the folder has a run already", f"{self._metrics.path}", "name another --data-dir")
        settings = self.config.model_dump_json(indent=2).encode() + b"\n"
        write_atomically(self.config.data_dir / "config.json", settings)
        self.publish(0)
        self.report(0, self.evaluate(0), None, None, 0.0)
        for step in range(1, self.config.num_steps + 1):
            started = self.clock.now()
            progress.doing(f"step {step}")
            gathered = self.gather(step, progress)
            figures = self.learner.learn(gathered.batch, step - 1)
            self.publish(step)
            self.report(step, self.evaluate(step), gathered, figures, self.clock.now() - started)
            progress.step()

    def gather(self, step: int, progress: Steps) -> Gathered:
        """As many groups as a batch takes. Raises ProofpoolError where that takes more than `max_rollouts`."""
        version = max(0, step - 1 - self.config.lag)
        self.engine.load(self._version_folder(version))
        kept: list[list[Rollout]] = []
        num_dropped = num_surplus = 0
        wanted, size = self.config.groups_per_step, self.rules.group_size
        most = self.config.max_rollouts or DEFAULT_BATCHES * wanted * size
        while len(kept) < wanted:
            if (len(kept) + num_dropped) * size >= most:
                raise self._too_flat(version, len(kept), num_dropped)
            for group in self._task(version):
                if len(kept) == wanted:
                    num_surplus += 1
                elif self.config.drop_flat_groups and len({rollout.task_reward for rollout in group}) == 1:
                    num_dropped += 1
                else:
                    kept.append(group)
            progress.still(f"step {step}: {len(kept)} of {wanted} groups, {num_dropped} dropped without variance")
        rollouts = [rollout for group in kept for rollout in group]
        return Gathered(batch_of(rollouts, self.rules, self.config.recipe.advantage_scale), num_dropped, num_surplus)

    def _too_flat(self, version: int, num_kept: int, num_dropped: int) -> ProofpoolError:
        num_rollouts = (num_kept + num_dropped) * self.rules.group_size
        return ProofpoolError(
            "too few groups have rewards that differ",
            f"{num_rollouts} rollouts of version {version} gave {num_kept} of {self.config.groups_per_step}: in "
            f"{num_dropped} of {num_kept + num_dropped} groups all task rewards are equal",
            "take problems of another difficulty (`proofpool trainer filter`), a larger group_size in the rules, a "
            "larger `max_rollouts`, or set `drop_flat_groups = false`",
        )

    def publish(self, policy_version: int) -> None:
        """The version as a pool would have it: bf16, in a folder of its own; what nobody asks for again goes."""
        weights = {name: tensor.to(torch.bfloat16) for name, tensor in self.learner.policy.published()}
        folder, tokenizer = self._version_folder(policy_version), self.config.base_model / TOKENIZER_FILE
        save_checkpoint(folder, self.learner.model.config, weights, [tokenizer])
        old = policy_version - self.config.lag - 1
        if old >= 0:
            shutil.rmtree(self._version_folder(old), ignore_errors=True)

    def evaluate(self, policy_version: int) -> PassRates | None:
        """On held-back problems, where this version's turn is."""
        is_due = policy_version % self.config.evaluate_every == 0 or policy_version == self.config.num_steps
        if not is_due or not self.config.num_held_back:
            return None
        problems = self._held_back
        self.engine.load(self._version_folder(policy_version))
        counts = pass_counts(
            self.engine, self.environment, problems, self.rules, self.config.num_samples, EVALUATION_SEED
        )
        return pass_rates(counts, self.config.num_samples)

    def report(
        self,
        step: int,
        rates: PassRates | None,
        gathered: Gathered | None,
        figures: StepFigures | None,
        seconds: float,
    ) -> None:
        """One line in metrics.jsonl."""
        line: dict[str, object] = {"step": step, "seconds": round(seconds, 3)}
        if gathered is not None and figures is not None:
            self._num_generated += gathered.num_generated
            line |= asdict(figures)
            line |= {"num_dropped_groups": gathered.num_dropped, "num_surplus_groups": gathered.num_surplus}
            line |= {"num_generated_rollouts": self._num_generated}
        if rates is not None:
            line |= {"held_back_average": rates.average, "held_back_at_least_once": rates.at_least_once}
        self._metrics.append(line)

    def _task(self, policy_version: int) -> Iterator[list[Rollout]]:
        """The groups of the next task of a version, made as a worker makes them, but for the proofs."""
        counter = self._counters.get(policy_version, 0)
        self._counters[policy_version] = counter + 1
        beacon = hex0x(keccak256(f"proofpool/rehearsal/{self.config.seed}/{policy_version}".encode()))
        seed = task_seed(1, policy_version, ZERO_ADDRESS, counter, beacon)
        prompts = task_prompts(self.rules, self.environment, seed)
        size = self.rules.group_size
        asked = [prompts[sample // size].tokens for sample in range(len(prompts) * size)]
        requests = requests_of(seed, asked, self.rules.sampling, self.environment.tokenizer.eos_ids)
        completions = in_task_order(list(generate(self.engine, requests)), len(requests))
        for group, prompt in enumerate(prompts):
            members: list[Completion] = completions[group * size : (group + 1) * size]
            rewards = [reward_of(self.environment, prompt, completion) for completion in members]
            yield [
                rollout_of(prompt, completion, b"", reward, policy_version)
                for completion, reward in zip(members, rewards, strict=True)
            ]

    @cached_property
    def _held_back(self) -> list[Problem]:
        return self.environment.held_back(self.config.num_held_back)

    def _version_folder(self, policy_version: int) -> Path:
        return self.config.data_dir / "versions" / str(policy_version)


def rehearse(config: RehearsalConfig, engine: Engine, clock: Clock, progress: Steps) -> None:
    """Make everything that the configuration names, and run it. Raises ConfigError where they don't fit."""
    tokenizer = Tokenizer.load(config.base_model)
    rules = unjudged_rules(config.rules, tokenizer)
    environment = environment_of(rules.environment, tokenizer)
    torch.set_num_threads(config.num_threads)
    needs_reference = config.recipe.objective.kl_coefficient > 0 and config.recipe.lora is None
    reference = CausalLM.load(config.base_model).eval().requires_grad_(False) if needs_reference else None
    policy = Policy(CausalLM.load(config.base_model)).adapted(config.recipe.lora)
    learner = Learner(policy, config.recipe, reference)
    with FolderLock(config.data_dir, "rehearsal"):
        Rehearsal(config, rules, environment, engine, learner, clock).run(progress)
