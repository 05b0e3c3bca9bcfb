"""Target: a verifier's whole examination of an otherwise honest submission, with anything in it changed.

Two kinds of change: of the file's bytes and structure, under a signature that doesn't fit them any more; and of rows,
signed by the node as they are. The model is the testnet's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from protocol.canonical import canonical_hash
from protocol.forward import CausalLM
from protocol.reasons import Cost, Outcome
from protocol.rollouts import Rollout
from protocol.tokenizer import Tokenizer
from testnet.task import testnet_environment
from tests.fuzz.parquet_mutation import mutated_parquet
from tests.fuzz.target import Choices, Target
from tests.unit.verifier.verifier_world import BASE_MODEL, World, make_rules
from verifier.case import Dossier
from verifier.pipeline import examine

RULES = {"group_size": 2, "groups_per_task": 3}


@cache
def world() -> World:
    torch.set_num_threads(1)
    environment = testnet_environment(Tokenizer.load(BASE_MODEL))
    return World(make_rules(environment, **RULES), environment, BASE_MODEL, CausalLM.load(BASE_MODEL).eval())


@cache
def honest_rows() -> tuple[Rollout, ...]:
    return tuple(world().rollouts(world().completions()))


@cache
def honest_dossier() -> Dossier:
    return world().dossier(honest_rows())


def examine_any(data: bytes) -> None:
    """A verdict comes out: never an acceptance of other content, never a slash for bytes that the node didn't sign."""
    choices = Choices(data)
    if choices.flag():
        _examine_file(mutated_parquet(honest_dossier().file, choices))
    elif choices.flag():
        _examine_file(_patched(honest_dossier().file, choices))
    else:
        _examine_rows(choices)


def _examine_file(file: bytes) -> None:
    finding = examine(replace(honest_dossier(), file=file), world().instruments())
    assert finding.outcome in (Outcome.ACCEPT, Outcome.DROP)
    _check(finding)


def _examine_rows(choices: Choices) -> None:
    rows = [*honest_rows()]
    for _ in range(1 + choices.below(3)):
        index = choices.below(len(rows))
        rows[index] = _changed(rows[index], choices)
    finding = examine(world().dossier(rows), world().instruments())
    _check(finding)
    if finding.outcome is Outcome.ACCEPT:  # at most what numerical noise allows: log-probs and mantissas
        for row, honest in zip(rows, honest_rows(), strict=True):
            assert np.array_equal(row.input_tokens, honest.input_tokens)
            assert (row.task_reward, row.step, row.finish_reason) == (
                honest.task_reward,
                honest.step,
                honest.finish_reason,
            )
            assert (row.problem_id, row.task_type) == (honest.problem_id, honest.task_type)


def _check(finding: Any) -> None:
    assert (finding.outcome is Outcome.ACCEPT) == (finding.reason is None)
    assert finding.outcome is not Outcome.SLASH or finding.reason.cost is Cost.SLASH
    assert len(canonical_hash(finding.evidence.as_json())) == 66


def _patched(file: bytes, choices: Choices) -> bytes:
    data = bytearray(file)
    for _ in range(1 + choices.below(6)):
        place = choices.integer(2) % len(data) if choices.flag() else len(data) - 1 - choices.integer(2) % 900
        data[place : place + choices.below(3)] = choices.bytes(4)
    return bytes(data)


FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-3, 1e-45, -1e4, 3e38, -3e38, float("nan"), float("inf"), -float("inf"))
INTEGERS = (0, 1, -1, 5, 29, 30, 31, 127, 128, 32767, 2**31 - 1, -(2**31))


def _changed(row: Rollout, choices: Choices) -> Rollout:
    return choices.pick(_CHANGES)(row, choices)


def _change_tokens(name: str, row: Rollout, choices: Choices) -> Rollout:
    """Other ids, fewer or more of them; log-probs and proofs as they were, or in the right number."""
    tokens = list(getattr(row, name).tolist())
    place = choices.below(max(1, len(tokens)))
    ids = [choices.pick(INTEGERS) if choices.flag() else choices.below(40) for _ in range(choices.below(5))]
    tokens[place : place + choices.below(8)] = ids
    changed = replace(row, **{name: np.array(tokens, dtype=np.int32)})
    return _fitted(changed) if name == "output_tokens" and choices.flag() else changed


def _fitted(row: Rollout) -> Rollout:
    """As many log-probs and proofs as tokens."""
    count = row.num_units
    chunks = -(-count // 32)
    return replace(
        row,
        output_logprobs=np.resize(row.output_logprobs, count).astype(np.float32),
        proofs=(row.proofs[:258] * chunks)[: 258 * chunks],
    )


def _change_length(row: Rollout, choices: Choices) -> Rollout:
    count = choices.pick((1, 2, 31, 32, 33, 39, 40, 41, 64, 2000))
    return _fitted(replace(row, output_tokens=np.resize(row.output_tokens, count).astype(np.int32)))


def _change_logprobs(row: Rollout, choices: Choices) -> Rollout:
    values = row.output_logprobs.copy()
    values[choices.below(len(values)) :: 1 + choices.below(3)] = choices.pick(FLOATS)
    return replace(row, output_logprobs=values)


def _change_proofs(row: Rollout, choices: Choices) -> Rollout:
    proofs = bytearray(row.proofs)
    place = choices.integer(2) % max(1, len(proofs))
    proofs[place : place + choices.pick((0, 1, 2, 258))] = choices.bytes(6)
    return replace(row, proofs=bytes(proofs))


def _change_words(row: Rollout, choices: Choices) -> Rollout:
    """Single uint16 words: modulus and coefficients of the right length."""
    words = np.frombuffer(row.proofs, dtype=">u2").copy()
    for _ in range(1 + choices.below(4)):
        if len(words):
            words[choices.integer(2) % len(words)] = choices.pick((0, 1, 127, 128, 65496, 65497, 65535))
    return replace(row, proofs=words.tobytes())


def _change_texts(row: Rollout, choices: Choices) -> Rollout:
    text = choices.pick(("", "\0", "\u00e9" * 255, "x" * 257, "chain_sum:7", "\U0001f600"))
    return replace(row, **{choices.pick(("problem_id", "task_type")): text})


def _change_numbers(row: Rollout, choices: Choices) -> Rollout:
    if choices.flag():
        return replace(row, task_reward=float(np.float32(choices.pick(FLOATS))))
    return replace(row, **{choices.pick(("step", "target_length")): choices.pick(INTEGERS)})


def _change_end(row: Rollout, choices: Choices) -> Rollout:
    return replace(row, finish_reason=choices.pick(("stop", "length", "", "eos")))


def _copy_of(row: Rollout, choices: Choices) -> Rollout:
    """Another row, whole or in part."""
    other = choices.pick(honest_rows())
    names = ("proofs", "output_logprobs", "output_tokens", "input_tokens", "task_reward", "problem_id")
    return replace(row, **{name: getattr(other, name) for name in names if choices.flag()})


_CHANGES: tuple[Callable[[Rollout, Choices], Rollout], ...] = (
    *(partial(_change_tokens, "output_tokens"), partial(_change_tokens, "input_tokens"), _change_length),
    *(_change_logprobs, _change_proofs, _change_words, _change_texts, _change_numbers, _change_end, _copy_of),
)

VERDICT_TARGETS = (
    Target("verdict", examine_any, (), lambda: [bytes([n]) + bytes(range(n, n + 40)) for n in range(24)]),
)
