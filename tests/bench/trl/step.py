"""Optimizer steps of TRL's GRPOTrainer and of our learner by turns, in one process: run by a Python that has both.

    python -m tests.bench.trl.step '{"model": "FOLDER", "shape": "mixed", "work": [4, 40, 200], "micro_batch": 16,
        "threads": 1, "runs": 5, "sides": ["trl", "ours"]}'

In: a model's folder, and what is trained on (`work.py`). Out (JSON, the last line of stdout): seconds of each step, the
gradient's norm of the first, and how far the process's resident memory rose above what it was before the first step.

TRL's own loop runs: `train()`, with its callbacks at an optimizer step's beginning and end, micro-batches, loss, clip
and fused AdamW. Generation is stubbed: the same prompts, completions and advantages come as its padded tensors. Old
log-probs are those of the step itself on both sides, so neither computes them apart. Both get the same tokens a pass:
TRL `micro_batch` rows of the longest length, ours as many tokens. Gradient checkpointing, which slows TRL down, is off;
"trl-compact" has its head score trained positions alone, as it does on a GPU, where on a processor it scores all.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import utils as trl_utils

from protocol.forward import CausalLM
from tests.bench.trl.work import GROUP_SIZE, Work, fullness
from tests.resident import forget_peak, peak
from trainer.learner import Learner, RecipeConfig
from trainer.samples import TrainingBatch

LEARNING_RATE, WEIGHT_DECAY, BETAS, GRAD_NORM_CLIP, DELTA = 1e-6, 0.01, (0.9, 0.99), 0.1, 4.0


class Stubbed(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer whose generation is a batch that is there already."""

    batch: TrainingBatch

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
            "advantages": torch.tensor([s.advantage for s in samples]),
            "num_items_in_batch": lengths.sum(),
        }


class Turns(TrainerCallback):  # type: ignore[misc]
    """Times TRL's steps, and takes one of ours after each."""

    def __init__(self, ours: Learner | None, batch: TrainingBatch) -> None:
        self.ours, self.batch = ours, batch
        self.seconds: dict[str, list[float]] = {"trl": [], "ours": []}
        self.norms: dict[str, float] = {}
        self.start = 0.0

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        gc.collect()
        self.start = time.perf_counter()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.seconds["trl"].append(time.perf_counter() - self.start)
        if self.ours is not None:
            taken, norm = our_step(self.ours, self.batch)
            self.seconds["ours"].append(taken)
            self.norms.setdefault("ours", norm)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        if "grad_norm" in logs:
            self.norms.setdefault("trl", float(logs["grad_norm"]))


def our_step(ours: Learner, batch: TrainingBatch) -> tuple[float, float]:
    gc.collect()
    start = time.perf_counter()
    figures = ours.learn(batch, 0)
    return time.perf_counter() - start, figures.grad_norm


def make_ours(folder: str, budget: int) -> Learner:
    recipe = RecipeConfig(
        learning_rate=LEARNING_RATE,
        betas=BETAS,
        weight_decay=WEIGHT_DECAY,
        warmup_steps=0,
        grad_norm_clip=GRAD_NORM_CLIP,
        optimizer_steps=1,
        max_tokens=budget,
    )
    return Learner(CausalLM.load(Path(folder)), recipe)


def make_trl(folder: str, batch: TrainingBatch, micro_batch: int, runs: int, scratch: str) -> Stubbed:
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
    trainer.batch = batch
    return trainer


def main() -> None:
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(asked["threads"])
    sides, folder = asked["sides"], asked["model"]
    vocab_size = json.loads((Path(folder) / "config.json").read_text())["vocab_size"]
    batch = Work(*asked["work"]).batch(asked["shape"], vocab_size)
    budget = asked["micro_batch"] * max(len(sample) for sample in batch.samples)
    ours = make_ours(folder, budget) if "ours" in sides else None
    turns = Turns(ours, batch)
    if sides == ["ours"]:
        assert ours is not None
        before = forget_peak()
        for _ in range(asked["runs"]):
            taken, norm = our_step(ours, batch)
            turns.seconds["ours"].append(taken)
            turns.norms.setdefault("ours", norm)
    else:
        if "trl-compact" in sides:
            trl_utils._use_triton = lambda device: True
        with tempfile.TemporaryDirectory() as scratch:
            trainer = make_trl(folder, batch, asked["micro_batch"], asked["runs"], scratch)
            trainer.add_callback(turns)
            before = forget_peak()
            trainer.train()
    answer = {
        "seconds": turns.seconds,
        "norms": turns.norms,
        "before": before,
        "peak": peak(),
        "tokens": sum(map(len, batch.samples)),
        "fullness": fullness(batch),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
