"""What is in an uploaded file, checked against its task before anything is kept.

In: bytes from anybody, the rules and the task that they are for. Out: `Upload`: the rows, their digests, the
groups; or Rejected. What needs the model, the environment or the seed is left to the verifiers.

Proofs are checked for being proofs at all: ⌈T/32⌉ of one length, each a modulus and coefficients in canonical
form. A proof that has another number of coefficients than the rules ask for is let in: it is a signed
forgery, and only a verdict can punish it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from protocol.canonical import hex0x
from protocol.errors import MalformedFile, MalformedProof, Rejected
from protocol.reasons import RejectReason
from protocol.rollouts import FileHeader, Rollout, content_hash, read_rollouts
from protocol.rules import Rules
from protocol.toploc.encoding import num_chunks, parse_proofs
from protocol.wire import Task

MAX_PROMPT_TOKENS = 8192
MAX_LOGPROB = 1e-3
"""Log-probs end at 0; float32 sums may round a little past it."""
WORD_BYTES = 2


@dataclass(frozen=True)
class Group:
    """One prompt's rollouts, as the worker claims them."""

    number: int
    has_variance: bool
    mean_reward: float
    num_tokens: int


@dataclass(frozen=True)
class Upload:
    """A file that fits its task."""

    content_hash: str
    rows_hash: str
    """SHA-256 over the rows without the header, which names the task."""
    num_rollouts: int
    num_units: int
    groups: tuple[Group, ...]


def read_upload(data: bytes, rules: Rules, task: Task, task_id: str) -> Upload:
    """Raises Rejected for whatever can be seen to be wrong without the model."""
    num_rows = rules.group_size * rules.groups_per_task
    try:
        header, rollouts = read_rollouts(data, max_rows=num_rows, max_tokens=max_row_tokens(rules))
    except MalformedFile as error:
        raise Rejected(RejectReason.SCHEMA_INVALID, f"{error.what}: {error.why}") from error
    _check_header(header, rules, task_id)
    if len(rollouts) != num_rows:
        raise Rejected(RejectReason.SCHEMA_INVALID, "rows", value=str(len(rollouts)), threshold=str(num_rows))
    for index, rollout in enumerate(rollouts):
        _check_rollout(index, rollout, rules, task)
    groups = tuple(_groups(rollouts, rules.group_size))
    return Upload(
        content_hash=content_hash(header, rollouts),
        rows_hash=hex0x(hashlib.sha256(b"".join(_row_digest(rollout) for rollout in rollouts)).digest()),
        num_rollouts=len(rollouts),
        num_units=sum(rollout.num_units for rollout in rollouts),
        groups=groups,
    )


def max_row_tokens(rules: Rules) -> int:
    """Bound of prompt and of completion while decoding."""
    return max(MAX_PROMPT_TOKENS, rules.sampling.max_new_tokens)


def _row_digest(rollout: Rollout) -> bytes:
    return hashlib.sha256(rollout.row_bytes()).digest()


def _check_header(header: FileHeader, rules: Rules, task_id: str) -> None:
    if header.task_id != task_id:
        raise Rejected(RejectReason.FILE_MISMATCH, f"the file is for task {header.task_id}, the lease is {task_id}")
    if header.group_size != rules.group_size or header.sampling != rules.sampling:
        raise Rejected(RejectReason.RULES_CHANGED, "the file names other sampling or group size than the rules")


def _check_rollout(index: int, rollout: Rollout, rules: Rules, task: Task) -> None:
    if rollout.num_units > rules.sampling.max_new_tokens:
        raise Rejected(
            RejectReason.VALUE_OUT_OF_BOUNDS,
            f"output tokens of row {index}",
            value=str(rollout.num_units),
            threshold=str(rules.sampling.max_new_tokens),
        )
    if min(rollout.input_tokens.min(), rollout.output_tokens.min()) < 0:
        raise Rejected(RejectReason.VALUE_OUT_OF_BOUNDS, f"row {index} has a negative token")
    if rollout.output_logprobs.max() > MAX_LOGPROB:
        raise Rejected(RejectReason.VALUE_OUT_OF_BOUNDS, f"row {index} has a log-prob above 0")
    if rollout.step != task.policy_version:
        raise Rejected(
            RejectReason.FILE_MISMATCH,
            f"policy version of row {index}",
            value=str(rollout.step),
            threshold=str(task.policy_version),
        )
    _check_proofs(index, rollout, rules)


def _check_proofs(index: int, rollout: Rollout, rules: Rules) -> None:
    chunks = num_chunks(rollout.num_units, rules.toploc.chunk_rows)
    num_words, odd = divmod(len(rollout.proofs), WORD_BYTES * chunks)
    if odd or not 1 < num_words <= 1 + rules.toploc.topk:
        raise Rejected(
            RejectReason.PROOF_MALFORMED, f"bytes of the {chunks} proofs of row {index}", value=str(len(rollout.proofs))
        )
    try:
        parse_proofs(rollout.proofs, rollout.num_units, chunk_rows=rules.toploc.chunk_rows, topk=num_words - 1)
    except MalformedProof as error:
        raise Rejected(RejectReason.PROOF_MALFORMED, f"row {index}: {error.what}, {error.why}") from error


def _groups(rollouts: Sequence[Rollout], group_size: int) -> Iterator[Group]:
    for number, start in enumerate(range(0, len(rollouts), group_size)):
        rows = rollouts[start : start + group_size]
        if len({_question(row) for row in rows}) != 1:
            raise Rejected(RejectReason.SCHEMA_INVALID, f"the rows of group {number} don't share one prompt")
        rewards = np.array([row.task_reward for row in rows], dtype=np.float64)
        yield Group(
            number=number,
            has_variance=bool(rewards.min() != rewards.max()),
            mean_reward=float(rewards.mean()),
            num_tokens=sum(row.num_units for row in rows),
        )


def _question(rollout: Rollout) -> tuple[bytes, str, str, int]:
    """What the rollouts of a group have in common."""
    return (rollout.input_tokens.tobytes(), rollout.problem_id, rollout.task_type, rollout.target_length)
