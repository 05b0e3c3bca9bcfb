"""TRL's GRPO loss on the tokens of `cases.py`, and its gradients: run by a Python that has TRL.

    python -m tests.bench.trl.loss '{}'

Out (JSON, the last line of stdout): for each case its name, loss, and gradients by log-prob and entropy. It is
`GRPOTrainer._compute_loss` itself, of an object that has what that method reads, and given log-probs for a model's.
The importance ratio is what TRL hands to it for rollouts of vLLM, `token_truncate` mode.
"""

from __future__ import annotations

import json
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from trl import GRPOTrainer

from tests.bench.trl.cases import CASES, LENGTHS, MAX_NEW_TOKENS, NAMES, NORMALISATIONS, make_rows


def padded(row: Tensor) -> Tensor:
    """[sum of T] to [B, T]."""
    return pad_sequence(list(row.split(LENGTHS)), batch_first=True)


def trainer(objective: dict[str, Any], logprobs: Tensor, entropies: Tensor) -> SimpleNamespace:
    """What `_compute_loss` reads of a trainer, as GRPOTrainer's constructor sets it."""
    clip = {"epsilon": 0.2, "epsilon_high": None, "delta": 4.0} | objective.get("clip", {})
    entropy = objective.get("entropy_coefficient", 0.0)
    return SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logprobs, entropies, None),
        args=SimpleNamespace(delta=clip["delta"], use_bias_correction_kl=False, steps_per_generation=1),
        accelerator=Accelerator(cpu=True),
        model=SimpleNamespace(training=True),
        loss_type=NORMALISATIONS[objective["normalisation"]],
        epsilon_low=clip["epsilon"],
        epsilon_high=clip["epsilon"] if clip["epsilon_high"] is None else clip["epsilon_high"],
        beta=objective.get("kl_coefficient", 0.0),
        importance_sampling_level="token",
        use_vllm="importance_cap" in objective,
        vllm_importance_sampling_correction=True,
        max_completion_length=MAX_NEW_TOKENS,
        current_gradient_accumulation_steps=1,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        aux_loss_enabled=False,
        use_adaptive_entropy=False,
        entropy_coef=entropy,
        _entropy_bonus_enabled=bool(entropy),
        _metrics={"train": defaultdict(list)},
    )


def answer(case: dict[str, Any]) -> dict[str, Any]:
    columns, advantages = make_rows()
    rows = {name: columns[name].requires_grad_(name in ("logprobs", "entropy")) for name in NAMES}
    wide = {name: padded(row) for name, row in rows.items()}
    mask = padded(torch.ones(sum(LENGTHS), dtype=torch.float64))
    ratio = torch.exp(wide["old"] - wide["worker"])
    inputs = {
        "prompt_ids": torch.zeros(len(LENGTHS), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(LENGTHS), 1, dtype=torch.long),
        "completion_ids": torch.zeros(mask.shape, dtype=torch.long),
        "completion_mask": mask,
        "advantages": advantages,
        "old_per_token_logps": wide["old"],
        "ref_per_token_logps": wide["reference"],
        "importance_sampling_ratio": ratio.clamp(max=case["objective"].get("importance_cap", 1.0)),
        "num_items_in_batch": mask.sum(),
    }
    loss = GRPOTrainer._compute_loss(trainer(case["objective"], wide["logprobs"], wide["entropy"]), None, inputs)
    loss.backward()
    gradients = {name: [] if rows[name].grad is None else rows[name].grad.tolist() for name in ("logprobs", "entropy")}
    return {"name": case["name"], "loss": float(loss.detach())} | gradients


if __name__ == "__main__":
    print(json.dumps([answer(case) for case in CASES]))
