"""The rules of a pool: everything a submission is judged by, under one hash.

`Rules.rules_hash` is in `Task`, `Submission` and `Verdict`; a change applies to later leases only.
In: a TOML or JSON document. Out: a frozen `Rules`.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AllowInfNan, BaseModel, ConfigDict, Field, PlainSerializer

from protocol.canonical import canonical_hash, json_number
from protocol.wire import Hash32

Number = Annotated[float, AllowInfNan(False), PlainSerializer(json_number, return_type=float | str, when_used="json")]
"""A finite number; below 1e-4 it is a decimal string in JSON, where canonical numbers end."""
NonNegative = Annotated[Number, Field(ge=0)]
MARGIN_REACH = 10.0
"""How far margins are measured at least, in nats: beyond that they say no more."""
Probability = Annotated[Number, Field(gt=0, lt=1)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


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
    """A statistic beyond `reject` is refused, beyond `slash` it is punished; no `slash` means never.

    Small samples get more room, `spread` for what varies from each observation to the next, `burst` for rare ones that
    are far off: the limits for n observations (chunks for TOPLOC, tokens else) are reject + spread / √n + burst / n and
    slash + 2 · (spread / √n + burst / n).
    """

    reject: Number
    slash: Number | None = None
    spread: NonNegative = 0.0
    burst: NonNegative = 0.0

    @property
    def gives_room(self) -> bool:
        """Whether it holds for small samples too."""
        return self.spread > 0 or self.burst > 0

    def at(self, num_observations: int) -> Limit:
        """The limits for so many observations, as numbers that need no more room."""
        count = max(1, num_observations)
        room = self.spread / math.sqrt(count) + self.burst / count
        slash = None if self.slash is None else self.slash + 2 * room
        return Limit(reject=self.reject + room, slash=slash)


class FlipTest(_Frozen):
    """Tokens that aren't the drawn one, against an honest rate: an exact binomial tail (`protocol/statistics.py`).

    With `flips` of N tokens, P[Binomial(N, rate) ≥ flips] < `reject` is refused, < `slash` punished: both are
    probabilities that it befalls an honest submission.
    """

    rate: Probability
    """Calibrated: how often an honest token isn't the one that the verifier's logits draw."""
    reject: Probability = 1e-6
    slash: Probability = 1e-9


class Thresholds(_Frozen):
    """Calibrated limits, pooled over the audited rollouts; the figures behind them: docs/thresholds.md."""

    toploc_exp_mismatch_share: Limit
    """Share of compared values whose sign or exponent differs, 0 to 1. Where it gives room, of each rollout too."""
    toploc_mantissa_mean: Limit
    """Mean difference of 7-bit mantissas where exponents agree, 0 to 127. Where it gives room, of each rollout too."""
    sampling_margin_mean: Limit
    """Mean over tokens of (best noised logit − claimed token's), clipped at `sampling_margin_clip`."""
    sampling_margin_max: Limit
    """The largest single margin (nats): one edited token is enough."""
    sampling_flips: FlipTest
    """How many tokens may differ from the drawn ones."""
    logprob_error_mean: Limit
    """Mean absolute difference of log-probs (nats); it is dropped, never slashed."""
    logprob_error_max: Limit | None = None
    """The largest difference of log-probs (nats); not judged where there is no limit."""
    sampling_margin_clip: Annotated[Number, Field(gt=0, le=500)] = MARGIN_REACH
    """A margin counts for the mean as no more than this (nats): a rare far one isn't to hide what many come to."""
    near_tie_nats: NonNegative = 1e-4
    """A token is a near-tie where its two best noised logits are this close: there noise of the numbers may choose."""
    near_tie_flip_rate: Probability = 0.5
    """How often an honest near-tie flips; a worker that picks the branch it likes exceeds it."""
    flip_side_rate: Probability = 0.75
    """How often honest flips may go to the likelier of the two tokens, or to the less likely one: rounding has no side,
    another temperature has one."""
    surprisal_z: Limit = Limit(reject=6.0, spread=12.0)
    """|z| of mean surprisal against mean entropy; judged in pools whose sampling isn't bound to the seed."""

    @property
    def margin_reach(self) -> float:
        """How far a margin is measured (nats); never less than counts for the mean."""
        return max(MARGIN_REACH, self.sampling_margin_clip)

    def at(self, num_chunks: int, num_tokens: int) -> Thresholds:
        """The limits of a file with so many proof chunks and tokens, for any part of it: few get no more room."""
        limits = {name: value for name, value in self if isinstance(value, Limit)}
        count = {name: num_chunks if name.startswith("toploc_") else num_tokens for name in limits}
        return self.model_copy(update={name: limit.at(count[name]) for name, limit in limits.items()})


class AuditRules(_Frozen):
    """How much of a submission the model looks at; the cheap checks look at everything.

    `sampled`: max(`min_rollouts`, ⌈`share` · rollouts⌉ of them, drawn by the beacon (`protocol/checks/audit_rows.py`);
    with `escalating`, all of them once any drawn one is suspicious.
    """

    policy: Literal["all", "sampled"] = "all"
    share: Annotated[Number, Field(gt=0, le=1)] = 1.0
    escalating: bool = True
    min_rollouts: int = Field(default=1, ge=1)
    num_stamps: int = Field(default=16, ge=0, le=64)
    """Log-probs of other tokens in each work stamp (`protocol/stamp.py`)."""


class LengthRules(_Frozen):
    """Length rewards: targets are drawn from the seed; none means no length penalty (INTELLECT-2, section 3)."""

    targets: tuple[Annotated[int, Field(ge=0)], ...] = ()
    penalty_per_token: NonNegative = 0.0
    """α: what a token too many or too few costs of the reward."""


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
    audit: AuditRules = AuditRules()
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
