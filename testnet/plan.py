"""What a run of the testnet is asked to do.

In: a TOML file, `PROOFPOOL_TESTNET_…` variables, the flags of `proofpool testnet up`. Out: a frozen `Plan`, written
into the run folder as config.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from protocol.config import RoleConfig
from protocol.engines.names import EngineName
from protocol.errors import UsageError
from testnet.task import NUM_HELD_BACK

BASE_MODEL = Path(__file__).parent / "base_model"
OTHER_WEIGHTS = BASE_MODEL / "other.safetensors"
"""An honest model of the same shape, trained from another seed: what `wrong-model` uses."""

CHEATS = {
    "wrong-model": "generates with another checkpoint than the policy version that it names",
    "forged-proof": "sends proofs of nothing, a constant one included",
    "false-reward": "claims that every completion passed",
    "cherry-pick": "generates again until the reward is good",
}


RECIPE: dict[str, Any] = {
    "learning_rate": 1e-4,
    "weight_decay": 0.0,
    "warmup_steps": 0,
    "grad_norm_clip": 1.0,
    "optimizer_steps": 4,
    "max_tokens": 4096,
}
"""For the small base model: twelve steps of 32 groups raise its pass rate by some 0.2; at 6e-4 it collapses."""


class Plan(RoleConfig):
    """The size of a run. Example: `Plan(num_steps=3, cheats=("forged-proof",))`."""

    seed: int = Field(default=0, ge=0)
    num_steps: int = Field(default=12, ge=1)
    num_workers: int = Field(default=3, ge=1)
    num_verifiers: int = Field(default=2, ge=2)
    """Slashing takes two validators."""
    cheats: tuple[str, ...] = ("wrong-model",)
    engine: EngineName = "torch"
    """What workers and cheats generate with."""
    worker_python: Path | None = None
    """The Python of their processes, where that engine is in an environment of its own; this one without it."""
    chain_url: str | None = None
    base_model: Path = BASE_MODEL
    rules: Path | None = None
    """The pool's rules as JSON, or as much of them as is decided (`verifier calibrate --rules`); short sums without."""
    thresholds: str | None = None
    """Which limits the rules have: a name of docs/thresholds.md, or a file; those measured on the model without."""
    max_async: int = Field(default=2, ge=0, le=8)
    groups_per_step: int = Field(default=32, ge=1)
    recipe: dict[str, Any] = Field(default_factory=lambda: dict(RECIPE))
    """The trainer's (`trainer/learner.py:RecipeConfig`)."""
    scale: dict[str, Any] = Field(default_factory=dict)
    """The trainer's (`trainer/ranks.py:ScaleConfig`)."""
    evaluation: dict[str, Any] = Field(default_factory=dict)
    """The trainer's (`trainer/held_back.py:EvaluationConfig`); nothing is measured between the first and the last
    weights without."""
    num_held_back: int = Field(default=NUM_HELD_BACK, ge=1)
    """Problems that the first and the last weights are measured on."""
    timeout_seconds: float = Field(default=900.0, gt=0)
    """A run that isn't done by then has failed; one that is kept, where it has waited so long for the same thing."""

    @field_validator("cheats")
    @classmethod
    def _known(cls, cheats: tuple[str, ...]) -> tuple[str, ...]:
        for kind in cheats:
            if kind not in CHEATS:
                raise ValueError(f"unknown cheat {kind}: choose from {', '.join(CHEATS)}")
        return cheats

    @property
    def is_own_task(self) -> bool:
        """Whether it is the task and the model that the default recipe is known to teach."""
        return self.rules is None and self.base_model == BASE_MODEL


def parse_cheats(flags: list[str]) -> tuple[str, ...]:
    """`KIND` or `KIND:N` for each; `none` for no cheat at all.

    >>> parse_cheats(["forged-proof:2", "cherry-pick"])
    ('forged-proof', 'forged-proof', 'cherry-pick')
    """
    kinds: list[str] = []
    for flag in flags:
        kind, _, count = flag.partition(":")
        if kind == "none":
            continue
        if kind not in CHEATS or (count and not count.isdecimal()):
            raise UsageError(
                "no such cheat", flag, f"choose KIND or KIND:N with KIND from {', '.join(CHEATS)}, or none"
            )
        kinds.extend([kind] * int(count or 1))
    return tuple(kinds)
