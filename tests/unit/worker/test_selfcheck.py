"""The worker's judgement of its own files: honest ones pass, every kind of fault is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocol.reasons import Outcome
from protocol.rollouts import Rollout, content_hash, write_rollouts
from tests.unit.worker.flying import rollouts_of
from worker.loop import Worker
from worker.selfcheck import SelfCheckFailed, check_file, examine_own
from worker.work import Work

Change = Callable[[Rollout], Rollout]


@pytest.fixture
def honest(make_worker: Callable[..., Worker]) -> tuple[Work, list[Rollout]]:
    worker = make_worker()
    work = worker.open_work(worker.next_task())
    return work, rollouts_of(worker, work)


def check(work: Work, rollouts: list[Rollout], model_folder: Path) -> None:
    file = write_rollouts(work.header, rollouts)
    check_file(file, content_hash(work.header, rollouts), work, model_folder)


def with_first(rollouts: list[Rollout], **changes: Any) -> list[Rollout]:
    return [replace(rollouts[0], **changes), *rollouts[1:]]


def test_honest_work_passes_every_check(honest: tuple[Work, list[Rollout]], model_folder: Path) -> None:
    work, rollouts = honest
    check(work, rollouts, model_folder)
    file = write_rollouts(work.header, rollouts)
    found = examine_own(file, content_hash(work.header, rollouts), work, model_folder).results
    assert {finding.outcome for finding in found} == {Outcome.ACCEPT}
    judged = [finding for finding in found if finding.reject_threshold is not None]
    assert {finding.check for finding in judged} >= {"toploc_mantissas", "sampling_margin", "logprobs"}
    assert all(finding.value is not None and finding.value < 0.01 for finding in judged)


def corrupted(proofs: bytes) -> bytes:
    """The same length, still canonical, and about nothing: coefficients turned around."""
    coefficients = np.frombuffer(proofs[2:258], dtype=">u2")[::-1]
    return proofs[:2] + coefficients.tobytes() + proofs[258:]


FAULTS: dict[str, tuple[str, Callable[[Rollout], dict[str, Any]]]] = {
    "short proof": ("proofs", lambda r: {"proofs": r.proofs[:-1]}),
    "no proof": ("proofs", lambda r: {"proofs": b""}),
    "constant proof": ("proofs", lambda r: {"proofs": b"\xff\xd9\x00\x01"}),
    "another proof": ("toploc_exponents", lambda r: {"proofs": corrupted(r.proofs)}),
    "reward": ("rewards", lambda r: {"task_reward": r.task_reward + 0.5}),
    "prompt": ("prompts", lambda r: {"input_tokens": r.input_tokens[::-1].copy()}),
    "problem": ("prompts", lambda r: {"problem_id": "chain_sum:0"}),
    "version": ("bounds", lambda r: {"step": 1}),
    "finish": ("termination", lambda r: {"finish_reason": "length" if r.finish_reason == "stop" else "stop"}),
    "log-probs": ("logprobs", lambda r: {"output_logprobs": r.output_logprobs - 9}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_one_rollout_is_found(honest: tuple[Work, list[Rollout]], model_folder: Path, fault: str) -> None:
    work, rollouts = honest
    expected, change = FAULTS[fault]
    with pytest.raises(SelfCheckFailed, match=f"`{expected}`"):
        check(work, with_first(rollouts, **change(rollouts[0])), model_folder)


def test_tokens_of_another_seed_are_found(honest: tuple[Work, list[Rollout]], model_folder: Path) -> None:
    """Rollouts in swapped places were drawn with each other's noise."""
    work, rollouts = honest
    swapped = [rollouts[1], rollouts[0], *rollouts[2:]]
    with pytest.raises(SelfCheckFailed, match="`sampling_"):
        check(work, swapped, model_folder)


def test_other_weights_are_found(honest: tuple[Work, list[Rollout]], make_model_folder: Callable[[int], Path]) -> None:
    with pytest.raises(SelfCheckFailed, match="`toploc_"):
        check(*honest, make_model_folder(9))


def test_a_missing_rollout_is_found(honest: tuple[Work, list[Rollout]], model_folder: Path) -> None:
    work, rollouts = honest
    with pytest.raises(SelfCheckFailed, match="`bounds`"):
        check(work, rollouts[:-1], model_folder)


def test_a_file_of_other_content_than_signed_is_found(honest: tuple[Work, list[Rollout]], model_folder: Path) -> None:
    work, rollouts = honest
    with pytest.raises(SelfCheckFailed, match="`content`"):
        check_file(write_rollouts(work.header, rollouts), "0x" + "00" * 32, work, model_folder)


def test_bytes_that_are_no_file_are_found(honest: tuple[Work, list[Rollout]], model_folder: Path) -> None:
    with pytest.raises(SelfCheckFailed, match="`schema`"):
        check_file(b"PAR1", "0x" + "00" * 32, honest[0], model_folder)
