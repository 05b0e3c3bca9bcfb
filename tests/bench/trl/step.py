"""Optimizer steps of TRL's GRPOTrainer and of our learner by turns, in one process: run by a Python that has both.

    python -m tests.bench.trl.step '{"model": "FOLDER", "shape": "mixed", "work": [4, 40, 200], "micro_batch": 16,
        "threads": 1, "runs": 5, "sides": ["trl", "ours"]}'

In: a model's folder, and what is trained on (`work.py`). Out (JSON, the last line of stdout), for each side: wall and
CPU seconds, loss and gradient's norm of each step; and how far the process's resident memory rose above what it was
before the first step, weights being there and nothing else: gradients, optimizer, activations, and what is between.

TRL's own loop runs: `train()`, with its callbacks at an optimizer step's beginning and end, micro-batches, loss, clip
and fused AdamW. Generation is stubbed: the same prompts, completions, advantages and old log-probs come as its padded
tensors, so that neither side recomputes log-probs; some ratios are past the clip. Both get the same tokens a pass: TRL
`micro_batch` rows of the longest length, ours as many tokens. Gradient checkpointing, which slows TRL down, is off;
"trl-compact" has its head score trained positions alone, as it does on a GPU, where on a processor it scores all.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import utils as trl_utils

from protocol.forward import CausalLM
from tests.bench.trl.work import GROUP_SIZE, Work, fullness
from tests.resident import forget_peak, peak
from trainer.learner import Fixed, Learner, RecipeConfig
from trainer.samples import TrainingBatch

LEARNING_RATE, WEIGHT_DECAY, BETAS, GRAD_NORM_CLIP, DELTA = 1e-5, 0.01, (0.9, 0.99), 0.1, 4.0
OFF = 0.15
"""Spread of the old log-probs about the model's own: a fifth of the ratios is past the clip."""


class Stubbed(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer whose generation is a batch that is there already."""

    batch: TrainingBatch
    old: list[Tensor]

    def _generate_and_score_completions(self, inputs: list[Any]) -> dict[str, torch.Tensor]:
        samples = self.batch.samples
        completions = pad_sequence([s.outputs for s in samples], batch_first=True)
        lengths = torch.tensor([s.num_outputs for s in samples])
        prompts = torch.stack([s.prompt for s in samples])
        return {
            "prompt_ids": prompts,
            "prompt_mask": torch.ones_like(prompts),
            "completion_ids": completions,
            "completion_mask": (torch.arange(completions.shape[1]) < lengths[:, None]).long(),
            "old_per_token_logps": pad_sequence(self.old, batch_first=True),
            "advantages": torch.tensor([s.advantage for s in samples]),
            "num_items_in_batch": lengths.sum(),
        }


@dataclass
class Steps:
    """What was measured of one side's steps."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)

    def start(self) -> None:
        gc.collect()
        self._started = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        self.wall.append(time.perf_counter() - self._started[0])
        self.cpu.append(time.process_time() - self._started[1])


class Ours(Learner):
    """Our learner, with old log-probs that are there already; its steps are measured."""

    def __init__(self, model: CausalLM, recipe: RecipeConfig, batch: TrainingBatch, old: list[Tensor]) -> None:
        super().__init__(model, recipe)
        self.batch, self.old, self.steps = batch, old, Steps()

    def _fixed(self, batch: TrainingBatch, parts: Sequence[Sequence[int]]) -> Fixed:
        return Fixed(frozenset(), self.old, None)

    def take(self) -> None:
        self.steps.start()
        figures = self.learn(self.batch, 0)
        self.steps.stop()
        self.steps.losses.append(-figures.objective)
        self.steps.norms.append(figures.grad_norm)


class Turns(TrainerCallback):  # type: ignore[misc]
    """Measures TRL's steps, and takes one of ours after each."""

    def __init__(self, ours: Ours | None) -> None:
        self.ours, self.steps = ours, Steps()

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self.steps.start()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.steps.stop()
        if self.ours is not None:
            self.ours.take()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        if "grad_norm" in logs:
            self.steps.losses.append(float(logs["loss"]))
            self.steps.norms.append(float(logs["grad_norm"]))


def old_logprobs(folder: str, batch: TrainingBatch, budget: int) -> list[Tensor]:
    """Those of the model, a little off: float32 [T] a sample."""
    found = Learner(CausalLM.load(Path(folder)), RecipeConfig(max_tokens=budget)).logprobs(batch)
    generator = torch.Generator().manual_seed(0)
    return [piece + OFF * torch.randn(len(piece), generator=generator) for piece in found]


def make_ours(folder: str, budget: int, batch: TrainingBatch, old: list[Tensor]) -> Ours:
    recipe = RecipeConfig(
        learning_rate=LEARNING_RATE,
        betas=BETAS,
        weight_decay=WEIGHT_DECAY,
        warmup_steps=0,
        grad_norm_clip=GRAD_NORM_CLIP,
        optimizer_steps=1,
        max_tokens=budget,
    )
    return Ours(CausalLM.load(Path(folder)), recipe, batch, old)


def make_trl(
    folder: str, batch: TrainingBatch, old: list[Tensor], micro_batch: int, runs: int, scratch: str
) -> Stubbed:
    settings = GRPOConfig(
        output_dir=scratch,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=len(batch.samples) // micro_batch,
        num_generations=GROUP_SIZE,
        max_completion_length=batch.max_new_tokens,
        max_steps=runs,
        loss_type="dapo",
        beta=0.0,
        delta=DELTA,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        weight_decay=WEIGHT_DECAY,
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        max_grad_norm=GRAD_NORM_CLIP,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    words = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<pad>": 0, "a": 1}, "<pad>")), pad_token="<pad>", eos_token="a"
    )
    data = Dataset.from_dict({"prompt": ["a"] * len(batch.samples)})
    trainer = Stubbed(
        model=model, reward_funcs=lambda **kwargs: [], args=settings, train_dataset=data, processing_class=words
    )
    trainer.batch, trainer.old = batch, old
    return trainer


def main() -> None:
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(asked["threads"])
    sides, folder = asked["sides"], asked["model"]
    vocab_size = json.loads((Path(folder) / "config.json").read_text())["vocab_size"]
    batch = Work(*asked["work"]).batch(asked["shape"], vocab_size)
    budget = asked["micro_batch"] * max(len(sample) for sample in batch.samples)
    old = old_logprobs(folder, batch, budget)
    ours = make_ours(folder, budget, batch, old) if "ours" in sides else None
    found: dict[str, Steps] = {} if ours is None else {"ours": ours.steps}
    if sides == ["ours"]:
        assert ours is not None
        before = forget_peak()
        for _ in range(asked["runs"]):
            ours.take()
    else:
        if "trl-compact" in sides:
            trl_utils._use_triton = lambda device: True
        turns = Turns(ours)
        found["trl"] = turns.steps
        with tempfile.TemporaryDirectory() as scratch:
            trainer = make_trl(folder, batch, old, asked["micro_batch"], asked["runs"], scratch)
            trainer.add_callback(turns)
            before = forget_peak()
            trainer.train()
    answer = {
        "steps": {side: asdict(steps) for side, steps in found.items()},
        "rise": peak() - before,
        "tokens": sum(map(len, batch.samples)),
        "fullness": fullness(batch),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
