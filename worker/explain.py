"""What happened to one piece of own work, why, by which number, from which token on, and what to do.

    log ─▶ the sentence that `proofpool trace` and `audit show` have      verdicts ─▶ value against threshold
    outbox ─▶ what was refused at the door, and its file                  this machine ─▶ the first token that is off

In: `WorkerConfig`, the id of a submission or a task. Out: `Explanation`. Needs no key. The verdicts' numbers are the
validators'; the token is found by judging the file here, which takes the weights of its policy version.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.api import SubmissionView, VerdictView
from protocol.checks.basis import Given
from protocol.checks.report import CheckReport, FileReport
from protocol.client import CoordinatorClient
from protocol.errors import NotFound, UsageError
from protocol.progress import Progress
from protocol.reasons import Outcome, RejectReason
from protocol.shardcast.folder import version_folder
from protocol.trace import Trace
from protocol.wire import Address, Hash32
from worker.config import WorkerConfig
from worker.outbox import Answer, Entry, Outbox
from worker.questions import Questions

MODEL_REASONS = (
    RejectReason.TOPLOC_MISMATCH,
    RejectReason.SAMPLING_MISMATCH,
    RejectReason.LOGPROB_MISMATCH,
    RejectReason.VALUE_OUT_OF_BOUNDS,
)
"""Refusals in which a token or a proof is off that judging it here can find."""
DOOR_REASONS = (RejectReason.SCHEMA_INVALID, RejectReason.FILE_MISMATCH, RejectReason.PROOF_MALFORMED)
"""Refusals at the door for what is in the file."""
_WORDS: dict[Outcome, Literal["accept", "drop", "slash"]] = {
    Outcome.ACCEPT: "accept",
    Outcome.DROP: "drop",
    Outcome.SLASH: "slash",
}
AGREES = "this machine agrees that it doesn't hold: run `proofpool worker doctor` before the next task"


@dataclass(frozen=True)
class Kept:
    """A refused submission that the outbox has kept."""

    entry: Entry
    file: bytes


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class VerdictReason(_Shape):
    """A validator's verdict, and the check that decided it, with its value and thresholds; None where it accepts."""

    validator: Address
    outcome: Literal["accept", "drop", "slash"]
    decisive: CheckReport | None


class Explanation(_Shape):
    """`status` and `sentence` are the log's (`protocol/fate.py`); `status` is `not_in_log` where it has nothing.

    `here` is what judging the file on this machine found, None where nothing called for it.
    """

    schema_version: Literal[1] = 1
    subject: Hash32
    submission_id: Hash32 | None
    status: str
    sentence: str
    reason: str | None
    hint: str | None
    verdicts: tuple[VerdictReason, ...]
    here: FileReport | None
    todo: tuple[str, ...]
    unanswered: tuple[str, ...]


def explain(config: WorkerConfig, subject: str, *, judges_here: bool | None = None) -> Explanation:
    """`judges_here` None: where a verdict says that tokens or proofs are off, or a file that is kept was refused for
    what is in it. Raises Unreachable, UsageError."""
    answer, kept = _answer_to(config, subject), _kept(config, subject)
    questions = Questions()
    with closing(CoordinatorClient(config.coordinator_url)) as client:
        trace = _trace(client, subject, answer)
        if trace is None:
            here = _kept_judged_here(config, answer, kept, questions, judges_here)
            return _at_the_door(subject, answer, here, questions.unanswered)
        view = questions.ask(lambda: client.submission(trace.submission_id or "")) if trace.submission_id else None
    reason = trace.what_happened.reason
    wanted = reason in MODEL_REASONS if judges_here is None else judges_here
    here = questions.ask(lambda: _judged_here(config, view)) if wanted and view else None
    if view is None:
        here = _kept_judged_here(config, answer, kept, questions, judges_here)
    return Explanation(
        subject=subject,
        submission_id=trace.submission_id,
        status=trace.what_happened.status,
        sentence=trace.what_happened.sentence,
        reason=reason,
        hint=_hint(reason),
        verdicts=tuple(map(_verdict, view.verdicts)) if view else (),
        here=here,
        todo=tuple(_todo(trace, here, has_dissent=_has_dissent(view))),
        unanswered=questions.unanswered,
    )


def _answer_to(config: WorkerConfig, subject: str) -> Answer | None:
    """The coordinator's answer that lies in the outbox, by submission or task."""
    answers = Outbox(config.data_dir / "outbox", config.give_up_seconds).answers()
    return next((one for one in answers if subject in (one.submission_id, one.task_id)), None)


def _kept(config: WorkerConfig, subject: str) -> Kept | None:
    """What was refused for good, with its file; None where it isn't, or is kept no longer."""
    outbox = Outbox(config.data_dir / "outbox", config.give_up_seconds)
    entry = next((one for one in outbox.refused() if subject in (one.submission_id, one.task_id)), None)
    return None if entry is None else Kept(entry, outbox.refused_file(entry))


def _trace(client: CoordinatorClient, subject: str, answer: Answer | None) -> Trace | None:
    """None where the log has nothing, but the outbox has."""
    try:
        return client.trace(subject)
    except NotFound as error:
        if answer is not None:
            return None
        todo = "copy an id from `proofpool worker status`; one that is still in the outbox: `proofpool worker verify`"
        raise UsageError("neither the log nor this outbox knows it", subject, todo) from error


def _at_the_door(
    subject: str, answer: Answer | None, here: FileReport | None, unanswered: tuple[str, ...]
) -> Explanation:
    """Of what was never taken in, the log says nothing."""
    assert answer is not None
    reason = answer.refusal.value if answer.refusal else None
    why = f"Refused at the door for {reason}: {answer.detail}" if reason else "Taken in, and not in the log yet"
    return Explanation(
        subject=subject,
        submission_id=answer.submission_id,
        status="not_in_log",
        sentence=f"{why}.",
        reason=reason,
        hint=_hint(reason),
        verdicts=(),
        here=here,
        todo=(_hint(reason) or "wait for the epoch that its receipt promises", *_door_todo(answer, here)),
        unanswered=unanswered,
    )


def _verdict(view: VerdictView) -> VerdictReason:
    outcome = Outcome(view.verdict.message.outcome)
    checks = view.evidence.checks
    decisive = max(checks, key=lambda check: check.outcome) if checks and outcome is not Outcome.ACCEPT else None
    return VerdictReason(
        validator=view.validator,
        outcome=_WORDS[outcome],
        decisive=CheckReport.of(decisive) if decisive else None,
    )


def _judged_here(config: WorkerConfig, view: SubmissionView) -> FileReport:
    """As a verifier would that audits every rollout, with the weights of this machine where they are still here."""
    from protocol.checks.local_check import check_subject

    given = _given(config, view.task.message.policy_version)
    with _judging(view.submission_id):
        return check_subject(view.submission_id, given).report


def _kept_judged_here(
    config: WorkerConfig, answer: Answer | None, kept: Kept | None, questions: Questions, judges_here: bool | None
) -> FileReport | None:
    """A file that nobody else has. Nothing is fetched for it unless it is asked for: its weights must still be here."""
    if answer is None or kept is None or judges_here is False:
        return None
    if judges_here is None:
        has_weights = _given(config, answer.policy_version).model is not None
        if not has_weights or answer.refusal not in (*MODEL_REASONS, *DOOR_REASONS):
            return None
    return questions.ask(lambda: _judged_kept(config, kept))


def _judged_kept(config: WorkerConfig, kept: Kept) -> FileReport:
    from protocol.checks.local_check import check_bytes

    entry = kept.entry
    with _judging(entry.submission_id):
        found = check_bytes(kept.file, _given(config, entry.task.message.policy_version)).found
    return FileReport.of(found, entry.submission_id, entry.envelope.submission.message.content_hash)


def _given(config: WorkerConfig, policy_version: int) -> Given:
    held = version_folder(config.data_dir / "weights", policy_version)
    return Given(model=held if held.exists() else None, coordinator=config.coordinator_url)


@contextmanager
def _judging(submission_id: str) -> Iterator[None]:
    with Progress(f"judging {submission_id}", 1, verb="waiting for", is_patient=True) as progress:
        progress.doing("the model, over every rollout")
        yield
        progress.step()


def _has_dissent(view: SubmissionView | None) -> bool:
    """Whether any validator found it wanting."""
    return view is not None and any(one.verdict.message.outcome != Outcome.ACCEPT for one in view.verdicts)


def _todo(trace: Trace, here: FileReport | None, *, has_dissent: bool) -> Iterator[str]:
    """What can be done, the most urgent first."""
    status, reason = trace.what_happened.status, trace.what_happened.reason
    if status == "accused":
        yield f"appeal in time, if it holds: `proofpool provider appeal {trace.submission_id}`"
    if hint := _hint(reason):
        yield hint
    if here is not None and here.holds and has_dissent:
        yield f"here the file holds: `proofpool audit replay {trace.submission_id}` says which verdict doesn't"
    elif here is not None and not here.holds:
        yield AGREES
    if status == "expired":
        yield "lease less at a time, or on a faster machine: `proofpool worker bench` says what this one does"


def _door_todo(answer: Answer, here: FileReport | None) -> Iterator[str]:
    if here is not None and here.holds:
        again = f"`proofpool provider force-intake {answer.submission_id}` has it handed in again"
        yield f"here the file holds: {again}, and the log answers for it"
    elif here is not None:
        yield AGREES


def _hint(reason: str | None) -> str | None:
    return RejectReason(reason).hint if reason in set(RejectReason) else None


def explanation_lines(found: Explanation) -> Iterator[str]:
    """For people: what happened, the numbers, where it parts, what to do."""
    from protocol.checks.report_table import divergence_lines, limits_text, number_text

    yield found.sentence
    for one in found.verdicts:
        check = one.decisive
        if check is None:
            yield f"verdict {one.outcome} by {one.validator}"
            continue
        measured = f": {number_text(check.value)} measured, {limits_text(check)}" if check.value is not None else ""
        detail = f"; {check.detail}" if check.detail else ""
        yield f"verdict {one.outcome} by {one.validator}: {check.reason} in `{check.check}`{measured}{detail}"
    if found.here is not None:
        yield f"judged on this machine: {found.here.outcome}{f' for {found.here.reason}' if found.here.reason else ''}"
        yield from divergence_lines(found.here)
    for silent in found.unanswered:
        yield f"no answer: {silent}"
    for todo in found.todo:
        yield f"do: {todo}"


def explainable(subject: str) -> str:
    """Small letters. Raises UsageError for what is no id."""
    from protocol.canonical import is_hash32

    if not is_hash32(subject.lower()):
        why = f"{subject}: an id is 0x and 64 hexadecimal digits"
        raise UsageError("that is no id of a submission or a task", why, "copy one from `proofpool worker status`")
    return subject.lower()
