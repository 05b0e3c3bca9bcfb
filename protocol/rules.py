"""The rules of a pool: everything a submission is judged by, under one hash.

`Rules.rules_hash` is in `Task`, `Submission` and `Verdict`; a change applies to later leases only.
In: a TOML or JSON document. Out: a frozen `Rules`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from protocol.canonical import canonical_hash
from protocol.wire import Hash32


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EnvironmentRules(_Frozen):
    """Which environment asks the questions. `environment_hash` covers package, version, config and tokenizer."""

    name: str
    config: dict[str, Any] = Field(default_factory=dict)
    environment_hash: Hash32


class SamplingRules(_Frozen):
    """How tokens are drawn (`protocol/sampling.py`). `top_k` 0 and `top_p` 1 keep the whole vocabulary."""

    temperature: float = Field(default=1.0, gt=0)
    top_k: int = Field(default=0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_new_tokens: int = Field(default=64, ge=1)
    bound_to_seed: bool = True


class ToplocRules(_Frozen):
    """Shape of the proofs: rows a chunk, values a chunk, and which of tied values count."""

    chunk_rows: int = 32
    topk: int = 128
    ties: Literal["lowest", "torch-cpu"] = "lowest"


class Limit(_Frozen):
    """A statistic beyond `reject` is refused, beyond `slash` it is punished."""

    reject: float
    slash: float


class Thresholds(_Frozen):
    """Calibrated limits, pooled over a submission unless said; the figures behind them: docs/thresholds.md."""

    toploc_exp_mismatch_share: Limit
    """Share of compared values whose sign or exponent differs, 0 to 1."""
    toploc_mantissa_mean: Limit
    """Mean difference of 7-bit mantissas where exponents agree, 0 to 127."""
    sampling_margin_mean: Limit
    """Mean over tokens of (best noised logit − claimed token's), clipped at `sampling_margin_clip`."""
    sampling_mismatch_share: Limit
    """Share of tokens that aren't the argmax of the noised logits, 0 to 1."""
    logprob_error_mean: Limit
    """Mean absolute difference of log-probs (nats); never slashed, so `slash` is unreachable."""
    sampling_margin_clip: float = 10.0


class LengthRules(_Frozen):
    """Length rewards: targets are drawn from the seed; none means no length penalty (INTELLECT-2, section 3)."""

    targets: tuple[int, ...] = ()
    penalty_per_token: float = 0.0


class Rules(_Frozen):
    """One pool's rules. See the glossary in docs/protocol.md for the words.

    Example: `Rules.model_validate_json(text).rules_hash`.
    """

    schema_version: Literal[1] = 1
    protocol_version: Literal[1] = 1
    environment: EnvironmentRules
    sampling: SamplingRules = SamplingRules()
    toploc: ToplocRules = ToplocRules()
    thresholds: Thresholds
    lengths: LengthRules = LengthRules()
    group_size: int = Field(default=8, ge=1)
    groups_per_task: int = Field(default=8, ge=1)
    max_file_bytes: int = Field(default=8 * 1024 * 1024, ge=1)

    @property
    def max_units(self) -> int:
        """The most output tokens that one task can yield."""
        return self.group_size * self.groups_per_task * self.sampling.max_new_tokens

    @cached_property
    def rules_hash(self) -> str:
        return canonical_hash(self.model_dump(mode="json"))
