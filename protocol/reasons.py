"""Why something is refused, what that costs, and what to do: the same words in API, CLI, web and events.

`code` is what goes on chain (uint8): below 32 nothing is lost, 32 to 63 the work isn't paid,
from 64 on a slash may follow. Codes are part of the protocol: they are never reused.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Outcome(IntEnum):
    """What a verdict says of a submission (uint8 on chain)."""

    ACCEPT = 0
    DROP = 1
    SLASH = 2


class Cost(StrEnum):
    """What a refusal costs the provider."""

    RETRY = "retry"
    DROP = "drop"
    SLASH = "slash"


class RejectReason(StrEnum):
    """A reason code; see `_TABLE` below for its number, cost and hint.

    Example: `RejectReason.TOPLOC_MISMATCH.code == 65`, `.cost is Cost.SLASH`.
    """

    SCHEMA_INVALID = "schema_invalid"
    SIGNATURE_INVALID = "signature_invalid"
    NOT_REGISTERED = "not_registered"
    UNDERSTAKED = "understaked"
    LEASE_UNKNOWN = "lease_unknown"
    LEASE_LIMIT = "lease_limit"
    FILE_MISMATCH = "file_mismatch"
    TOO_LARGE = "too_large"
    POOL_PAUSED = "pool_paused"
    POOL_CLOSED = "pool_closed"
    ESCROW_EMPTY = "escrow_empty"
    RULES_CHANGED = "rules_changed"
    RATE_LIMITED = "rate_limited"
    REORGED = "reorged"
    STORAGE_FULL = "storage_full"
    NO_DEMAND = "no_demand"
    FILE_MISSING = "file_missing"
    RENEWAL_LIMIT = "renewal_limit"
    LEASE_EXPIRED = "lease_expired"
    DUPLICATE = "duplicate"
    STALE_POLICY = "stale_policy"
    TERMINATION_INVALID = "termination_invalid"
    LOGPROB_MISMATCH = "logprob_mismatch"
    VALUE_OUT_OF_BOUNDS = "value_out_of_bounds"
    PROOF_MALFORMED = "proof_malformed"
    TOPLOC_MISMATCH = "toploc_mismatch"
    SAMPLING_MISMATCH = "sampling_mismatch"
    WRONG_PROMPTS = "wrong_prompts"
    REWARD_MISMATCH = "reward_mismatch"

    @property
    def code(self) -> int:
        return _TABLE[self][0]

    @property
    def cost(self) -> Cost:
        """The most that this reason can cost; `toploc_mismatch` and `sampling_mismatch` drop below the slash limit."""
        if self.code < 32:
            return Cost.RETRY
        return Cost.DROP if self.code < 64 else Cost.SLASH

    @property
    def hint(self) -> str:
        return _TABLE[self][1]

    @classmethod
    def from_code(cls, code: int) -> RejectReason:
        """The reason with this number. Raises KeyError where there is none."""
        return _BY_CODE[code]


_TABLE: dict[RejectReason, tuple[int, str]] = {
    RejectReason.SCHEMA_INVALID: (1, "send what docs/protocol.md describes, with the version that the pool uses"),
    RejectReason.SIGNATURE_INVALID: (2, "sign with the node key, for this host and chain, with a clock that is right"),
    RejectReason.NOT_REGISTERED: (
        3,
        "register the node (`proofpool provider register`), then wait for the pool's confirmations",
    ),
    RejectReason.UNDERSTAKED: (
        4,
        "`proofpool provider stake` lets more stand behind the node: the pool asks for a minimum",
    ),
    RejectReason.LEASE_UNKNOWN: (5, "submit only for a task that this coordinator leased to this node"),
    RejectReason.LEASE_LIMIT: (
        6,
        "finish or let expire what is leased; the limit doubles with each accepted submission",
    ),
    RejectReason.FILE_MISMATCH: (7, "the bytes don't hash to the id that was signed: send the file again"),
    RejectReason.TOO_LARGE: (8, "the file is over the pool's limit: send what the task asked for and no more"),
    RejectReason.POOL_PAUSED: (9, "new leases are paused; work that is leased can still be handed in"),
    RejectReason.POOL_CLOSED: (10, "the pool is draining: choose another pool"),
    RejectReason.ESCROW_EMPTY: (11, "the pool's funds are all reserved: wait until it is funded"),
    RejectReason.RULES_CHANGED: (12, "fetch the pool's rules again and ask for a new task"),
    RejectReason.RATE_LIMITED: (13, "wait for the seconds that Retry-After names"),
    RejectReason.REORGED: (14, "the chain dropped this task's beacon: ask for a new task"),
    RejectReason.STORAGE_FULL: (15, "the coordinator can't store it now: the worker's outbox sends it again"),
    RejectReason.NO_DEMAND: (16, "enough work is on its way to the trainer: nothing is wrong, ask again in a moment"),
    RejectReason.FILE_MISSING: (17, "the submission is forced in on chain, and its file never came: hand that in too"),
    RejectReason.RENEWAL_LIMIT: (18, "the lease lasts as long as the pool allows: finish it by its deadline"),
    RejectReason.LEASE_EXPIRED: (32, "the deadline has passed: lease less, or on a faster machine"),
    RejectReason.DUPLICATE: (33, "this node has already handed in the same content"),
    RejectReason.STALE_POLICY: (34, "the policy version is too old to train on: update weights before leasing"),
    RejectReason.TERMINATION_INVALID: (35, "a completion must end in EOS or at the length limit"),
    RejectReason.LOGPROB_MISMATCH: (36, "log-probs differ from the model's: check dtype, temperature and weights"),
    RejectReason.VALUE_OUT_OF_BOUNDS: (37, "a value lies outside what the rules allow"),
    RejectReason.PROOF_MALFORMED: (64, "the proof isn't canonical TOPLOC: run `proofpool worker verify` locally"),
    RejectReason.TOPLOC_MISMATCH: (65, "hidden states aren't this model's: check weights, dtype and version"),
    RejectReason.SAMPLING_MISMATCH: (66, "tokens weren't drawn with the seed's noise: check sampler and weights"),
    RejectReason.WRONG_PROMPTS: (67, "prompts must be those that the task's seed names"),
    RejectReason.REWARD_MISMATCH: (68, "claimed rewards differ from the environment's: check its version"),
}

_BY_CODE = {reason.code: reason for reason in RejectReason}

SLASHABLE_MASK = sum(1 << reason.code for reason in RejectReason if reason.cost is Cost.SLASH)
"""uint256 with a bit for each slashable code: what a pool's record carries on chain."""


def fits(outcome: int, code: int) -> bool:
    """Whether a verdict may say this: accepted without a reason, dropped for any, slashed for one that can be."""
    return (outcome, code) in _FITTING


_FITTING = frozenset(
    {(Outcome.ACCEPT, 0)}
    | {(Outcome.DROP, reason.code) for reason in RejectReason}
    | {(Outcome.SLASH, reason.code) for reason in RejectReason if reason.cost is Cost.SLASH}
)
