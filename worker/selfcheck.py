"""The worker judges its own file before anybody else does: a fault of this machine must show here.

    file ─ strict read ─▶ content id ─▶ prompts, lengths, endings ─▶ rewards ─▶ proofs, draws, log-probs by a
    forward pass of its own ─▶ SelfCheckFailed, or nothing

In: a file that is about to be sent, and the task's work. A file that fails is never sent and never
mended. `findings` is what `proofpool worker verify` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from protocol.errors import MalformedFile, MalformedProof, VerificationFailed
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import FileHeader, Rollout, content_hash, read_rollouts
from protocol.wire import CheckResult
from worker.recompute import recompute
from worker.work import Work

FaultOf = Callable[[Rollout, int, Work], str]
"""What is wrong with a rollout, given its number in the task; "" for nothing."""

MODEL_REASONS = {
    "toploc_exp_mismatch_share": RejectReason.TOPLOC_MISMATCH,
    "toploc_mantissa_mean": RejectReason.TOPLOC_MISMATCH,
    "sampling_margin_mean": RejectReason.SAMPLING_MISMATCH,
    "sampling_mismatch_share": RejectReason.SAMPLING_MISMATCH,
    "logprob_error_mean": RejectReason.LOGPROB_MISMATCH,
}


class SelfCheckFailed(VerificationFailed):
    """This machine's own work doesn't hold; sent, it would be rejected or slashed."""


def check_file(file: bytes, claimed_hash: str, work: Work, model_folder: Path) -> None:
    """Raises SelfCheckFailed with the first finding that a verifier would hold against the file."""
    for finding in findings(file, claimed_hash, work, model_folder):
        if finding.outcome != Outcome.ACCEPT:
            raise SelfCheckFailed(
                f"own work failed the check `{finding.check}` and wasn't sent",
                f"{finding.reason}: {finding.detail or f'{finding.value} over {finding.reject_threshold}'}",
                RejectReason(finding.reason).hint if finding.reason else "",
            )


def findings(file: bytes, claimed_hash: str, work: Work, model_folder: Path) -> Iterator[CheckResult]:
    """Every check's result, cheapest first, ending after the first that fails."""
    try:
        header, rollouts = _read(file, work)
    except MalformedFile as error:
        yield _refused("schema", RejectReason.SCHEMA_INVALID, str(error))
        return
    for check, reason, fault in _exact_checks(header, rollouts, claimed_hash, work):
        yield _refused(check, reason, fault) if fault else CheckResult(check=check, outcome=Outcome.ACCEPT)
        if fault:
            return
    yield from _model_checks(rollouts, work, model_folder)


def _read(file: bytes, work: Work) -> tuple[FileHeader, list[Rollout]]:
    longest = max(len(prompt.tokens) for prompt in work.prompts)
    return read_rollouts(file, max_rows=work.num_rollouts, max_tokens=max(longest, work.rules.sampling.max_new_tokens))


def _exact_checks(
    header: FileHeader, rollouts: Sequence[Rollout], claimed_hash: str, work: Work
) -> Iterator[tuple[str, RejectReason, str]]:
    """Name, reason, and what is wrong ("" for nothing) of each check that knows no tolerance."""
    found_hash = content_hash(header, rollouts)
    yield "content", RejectReason.FILE_MISMATCH, "" if found_hash == claimed_hash else f"the file has {found_hash}"
    yield "bounds", RejectReason.VALUE_OUT_OF_BOUNDS, _bounds_fault(header, rollouts, work)
    yield "prompts", RejectReason.WRONG_PROMPTS, _first_fault(rollouts, work, _prompt_fault)
    yield "termination", RejectReason.TERMINATION_INVALID, _first_fault(rollouts, work, _ending_fault)
    yield "rewards", RejectReason.REWARD_MISMATCH, _first_fault(rollouts, work, _reward_fault)


def _bounds_fault(header: FileHeader, rollouts: Sequence[Rollout], work: Work) -> str:
    if header != work.header:
        return f"header {header}"
    if len(rollouts) != work.num_rollouts:
        return f"{len(rollouts)} rollouts of {work.num_rollouts}"
    num_units = sum(rollout.num_units for rollout in rollouts)
    return "" if num_units <= work.task.max_units else f"{num_units} units, the task pays {work.task.max_units}"


def _first_fault(rollouts: Sequence[Rollout], work: Work, fault_of: FaultOf) -> str:
    faults = ((sample, fault_of(rollout, sample, work)) for sample, rollout in enumerate(rollouts))
    return next((f"rollout {sample}: {fault}" for sample, fault in faults if fault), "")


def _prompt_fault(rollout: Rollout, sample: int, work: Work) -> str:
    prompt = work.prompt_of(sample)
    found = (rollout.problem_id, rollout.task_type, rollout.target_length, rollout.step)
    wanted = (prompt.problem_id, prompt.task_type, prompt.target_length, work.task.policy_version)
    if found != wanted:
        return f"{found}, the seed names {wanted}"
    return "" if np.array_equal(rollout.input_tokens, prompt.tokens) else "another prompt than the seed's"


def _ending_fault(rollout: Rollout, sample: int, work: Work) -> str:
    is_eos = np.isin(rollout.output_tokens, work.environment.tokenizer.eos_ids)
    if is_eos[:-1].any():
        return "goes on after EOS"
    at_limit = rollout.num_units == work.rules.sampling.max_new_tokens
    ends_well = is_eos[-1] if rollout.finish_reason == "stop" else at_limit and not is_eos[-1]
    return "" if ends_well else f"ends in {rollout.finish_reason!r} after {rollout.num_units} tokens"


def _reward_fault(rollout: Rollout, sample: int, work: Work) -> str:
    reward = work.environment.reward(work.prompt_of(sample).problem, rollout.output_tokens.tolist())
    return "" if reward == rollout.task_reward else f"claims {rollout.task_reward}, the environment gives {reward}"


def _model_checks(rollouts: Sequence[Rollout], work: Work, model_folder: Path) -> Iterator[CheckResult]:
    try:
        deviations = asdict(recompute(rollouts, work, model_folder))
    except MalformedProof as error:
        yield _refused("proofs", RejectReason.PROOF_MALFORMED, str(error))
        return
    for name, value in deviations.items():
        limit = getattr(work.rules.thresholds, name)
        is_over = value > limit.reject
        yield CheckResult(
            check=name,
            outcome=Outcome.DROP if is_over else Outcome.ACCEPT,
            reason=MODEL_REASONS[name] if is_over else None,
            value=value,
            reject_threshold=limit.reject,
            slash_threshold=limit.slash,
            num_audited=len(rollouts),
        )


def _refused(check: str, reason: RejectReason, detail: str) -> CheckResult:
    return CheckResult(check=check, outcome=Outcome.DROP, reason=reason, detail=detail)
