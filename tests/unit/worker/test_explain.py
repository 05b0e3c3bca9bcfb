"""Why work was refused, in the log's words, with the verdicts' numbers, and from which token on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from protocol.api import Standing, VerdictView
from protocol.canonical import canonical_hash
from protocol.cli import run
from protocol.client import CoordinatorClient
from protocol.engines.base import Completion
from protocol.errors import UsageError
from protocol.fate import Fate
from protocol.reasons import Outcome, RejectReason
from protocol.wire import CheckResult, Evidence, Signed, Verdict
from tests.documents import fitting
from worker import explain as module
from worker.config import WorkerConfig
from worker.explain import Explanation, explain, explainable, explanation_lines
from worker.loop import Worker
from worker.work import Work

pytestmark = pytest.mark.usefixtures("asked")
REASON = RejectReason.LOGPROB_MISMATCH
SENTENCE = f"Rejected for {REASON.value} ({REASON.hint}): submission … was rejected."


class Liar(Worker):
    """Claims other log-probs than the model's, and doesn't look at its own work."""

    def completions(self, work: Work, finished: Sequence[Completion]) -> list[Completion]:
        found = super().completions(work, finished)
        return [replace(one, output_logprobs=one.output_logprobs - 9) for one in found]

    def check_own(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def explained(
    pool: Any, make_config: Callable[..., WorkerConfig], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Explanation]:
    transport = httpx.MockTransport(pool.handle)
    monkeypatch.setattr(module, "CoordinatorClient", lambda url: CoordinatorClient(url, transport=transport))
    return lambda subject, **options: explain(make_config(), subject, **options)


@pytest.fixture
def condemn(pool: Any, make_signer: Any) -> Callable[[], str]:
    """The last submission is rejected, by a verdict with its numbers; its id."""

    def condemned() -> str:
        submission_id = list(pool.received)[-1]
        check = CheckResult(
            check="logprobs",
            outcome=Outcome.DROP,
            reason=REASON.value,
            value=9.0,
            reject_threshold=0.05,
            slash_threshold=0.5,
        )
        fine = CheckResult(check="schema", outcome=Outcome.ACCEPT)
        evidence = Evidence(
            submission_id=submission_id, seed="0x" + "00" * 32, num_units=9, checks=(fine, check), num_rollouts=8
        )
        verdict = Verdict(
            submission_id=submission_id,
            pool_id=1,
            round=0,
            seat=0,
            epoch=0,
            rules_hash="0x" + "00" * 32,
            outcome=Outcome.DROP,
            reason=REASON.code,
            evidence_hash=canonical_hash(evidence.as_json()),
        )
        validator = make_signer(8)
        signed = Signed[Verdict].by(validator, verdict, pool.domain)
        pool.verdicts[submission_id] = (VerdictView(validator=validator.address, verdict=signed, evidence=evidence),)
        pool.standings[submission_id] = (Standing.REJECTED, REASON.value)
        pool.fates[submission_id] = Fate(status="rejected", reason=REASON.value, sentence=SENTENCE)
        return submission_id

    return condemned


def lines(found: Explanation) -> Sequence[str]:
    return list(explanation_lines(found))


def test_value_threshold_and_the_first_token_are_told(
    make_worker: Callable[..., Worker], explained: Callable[..., Explanation], condemn: Callable[[], str]
) -> None:
    make_worker(Liar).turn()
    found = explained(condemn())
    assert (found.status, found.reason, found.sentence) == ("rejected", REASON.value, SENTENCE)
    assert found.here is not None and found.here.reason == REASON.value
    assert found.here.first_token is not None and (found.here.first_token.rollout, found.here.first_token.position) == (
        0,
        0,
    )
    said = lines(found)
    assert said[0] == SENTENCE
    assert f"{REASON.value} in `logprobs`: 9 measured, reject over 0.05, slash over 0.5" in said[1]
    assert any(line.startswith("first token that is off: rollout 0, token 0: ") for line in said)
    assert f"do: {REASON.hint}" in said and any("this machine agrees" in line for line in said)


def test_a_verdict_that_doesnt_hold_here_is_told(
    make_worker: Callable[..., Worker], explained: Callable[..., Explanation], condemn: Callable[[], str]
) -> None:
    make_worker().turn()
    found = explained(submission_id := condemn())
    assert found.here is not None and found.here.holds and found.here.first_token is None
    assert any(f"`proofpool audit replay {submission_id}`" in todo for todo in found.todo)


def test_nothing_is_judged_that_needs_no_judging(
    make_worker: Callable[..., Worker], explained: Callable[..., Explanation], condemn: Callable[[], str], pool: Any
) -> None:
    make_worker().turn()
    submission_id = condemn()
    assert explained(submission_id, judges_here=False).here is None
    pool.fates[submission_id] = Fate(status="accepted", reason=None, sentence="Accepted: it was.")
    found = explained(submission_id)
    assert (found.here, found.reason, found.todo) == (None, None, ())
    assert explained(submission_id, judges_here=True).here is not None
    pool.verdicts[submission_id] = ()
    judged = explained(submission_id, judges_here=True)
    assert judged.here is not None and judged.here.holds and judged.todo == (), "no verdict is against it"


def test_a_task_is_explained_by_what_was_handed_in_for_it(
    make_worker: Callable[..., Worker], explained: Callable[..., Explanation], condemn: Callable[[], str], pool: Any
) -> None:
    make_worker().turn()
    submission_id, task_id = condemn(), pool.tasks[0].message.id(pool.domain)
    pool.fates[task_id] = pool.fates[submission_id]
    found = explained(task_id, judges_here=False)
    assert (found.subject, found.submission_id) == (task_id, submission_id)
    assert found.verdicts[0].decisive is not None and found.verdicts[0].decisive.value == 9.0


def test_what_was_refused_at_the_door_is_in_no_log(
    make_worker: Callable[..., Worker], explained: Callable[..., Explanation], pool: Any
) -> None:
    worker = make_worker()
    pool.refusals["submissions"] = [RejectReason.DUPLICATE]
    worker.turn()
    (answer,) = worker.outbox.answers()
    for subject in (answer.submission_id, answer.task_id):
        found = explained(subject)
        assert (found.status, found.reason, found.hint) == ("not_in_log", "duplicate", RejectReason.DUPLICATE.hint)
        assert lines(found)[0].startswith("Refused at the door for duplicate")


@pytest.mark.parametrize(("shape", "holds"), [(Liar, False), (Worker, True)])
def test_a_kept_file_is_judged_where_it_was_refused_for_what_is_in_it(
    make_worker: Callable[..., Worker],
    explained: Callable[..., Explanation],
    pool: Any,
    tmp_path: Path,
    shape: type[Worker],
    holds: bool,
) -> None:
    worker = make_worker(shape)
    pool.refusals["submissions"] = [RejectReason.PROOF_MALFORMED]
    worker.turn()
    (answer,) = worker.outbox.answers()
    for subject in (answer.submission_id, answer.task_id):
        found = explained(subject)
        assert found.here is not None and found.here.holds is holds
        assert (found.here.submission_id, found.reason) == (answer.submission_id, "proof_malformed")
        assert (found.here.first_token is None) is holds
        assert ("force-intake" in found.todo[-1], "this machine agrees" in found.todo[-1]) == (holds, not holds)
    assert explained(answer.submission_id, judges_here=False).here is None
    shutil.rmtree(tmp_path / "data" / "weights")
    assert explained(answer.submission_id).here is None, "nothing is fetched for it"
    assert explained(answer.submission_id, judges_here=True).here is not None
    shutil.rmtree(tmp_path / "data" / "outbox" / "refused")
    assert explained(answer.submission_id, judges_here=True).here is None, "the file isn't kept any longer"


def test_a_kept_file_that_was_refused_for_something_else_is_judged_only_where_it_is_asked_for(
    make_worker: Callable[..., Worker], explained: Callable[..., Explanation], pool: Any
) -> None:
    worker = make_worker()
    pool.refusals["submissions"] = [RejectReason.DUPLICATE]
    worker.turn()
    (answer,) = worker.outbox.answers()
    assert explained(answer.submission_id).here is None
    found = explained(answer.submission_id, judges_here=True)
    assert found.here is not None and found.here.holds


def test_what_nobody_knows_and_what_is_no_id_is_a_usage_error(explained: Callable[..., Explanation]) -> None:
    with pytest.raises(UsageError, match="neither the log nor this outbox"):
        explained("0x" + "77" * 32)
    with pytest.raises(UsageError, match="no id"):
        explainable("0x12")
    assert explainable("0x" + "AB" * 32) == "0x" + "ab" * 32


def test_the_command_prints_a_document(
    make_worker: Callable[..., Worker],
    explained: Callable[..., Explanation],
    condemn: Callable[[], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_worker(Liar).turn()
    submission_id = condemn()
    file = tmp_path / "worker.toml"
    file.write_text(
        'coordinator_url = "http://pool"\nchain_url = "http://chain"\npool_id = 1\n'
        f'keystore = "{tmp_path}/none.json"\ndata_dir = "{tmp_path}/data"\n'
    )
    capsys.readouterr()
    assert run(["worker", "explain", submission_id, "--config", str(file), "--json"]) == 0
    document = fitting("worker explain", capsys.readouterr().out)
    assert document["here"]["first_token"]["rollout"] == 0 and document["hint"] == REASON.hint
    assert run(["worker", "explain", submission_id, "--config", str(file), "--no-judge"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == SENTENCE
    assert run(["worker", "explain", "0x12", "--config", str(file)]) == 2
