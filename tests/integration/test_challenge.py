"""An accepted forgery is challenged by somebody from outside, and the seats that accepted it are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from protocol.api import LogEntry, SubmissionView
from protocol.canonical import canonical_json, hex0x, sha256
from protocol.chain.cases import Inclusion
from protocol.chain.lane import Lane
from protocol.chain.pool import ChainPool
from protocol.checks.report import FileReport
from protocol.clock import SystemClock
from protocol.errors import NotEligible, TransactionReverted, VerificationFailed
from protocol.reasons import Outcome, RejectReason
from protocol.wire import Signed, Submission, Task
from tests.integration.conftest import CREDIT, PRICE_WEI, SETTLING, World
from tests.integration.test_promise_commands import CREATOR, Command, Keys, call, keys, refusal
from verifier.audit.court.challenge import Challenger, ChallengeReport
from verifier.audit.court.forgery import judge_again, reason_of
from verifier.implicate import acceptances

__all__ = ["call", "keys"]

FORGED = RejectReason.TOPLOC_MISMATCH


def elsewhere(chain: ChainPool, view: SubmissionView) -> tuple[RejectReason, FileReport | None]:
    return FORGED, None


def outsider(world: World, folder: Path) -> Challenger:
    """The pool's creator has nothing to do with its work."""
    world.send(world.chain.creator, "credits", "mint", world.chain.creator.address, CREDIT)
    lane = Lane(world.contracts.client, world.chain.creator, SystemClock())
    return Challenger(world.contracts, lane, world.client(), elsewhere, folder / "evidence.json")


def seats_of(world: World, submission_id: str) -> set[int]:
    return {view.verdict.message.seat for view in world.client().submission(submission_id).verdicts}


def balance(world: World) -> int:
    return int(world.read("credits", "balanceOf", world.chain.creator.address))


def test_a_challenge_stands_once_and_names_who_accepted(world: World, tmp_path: Path) -> None:
    submission_id, challenger = world.accept(), outsider(world, tmp_path)
    before = balance(world)
    found = challenger.challenge(submission_id)
    assert (found.state, found.reason, found.bond_wei) == ("challenged", FORGED.value, CREDIT)
    assert found.challenger == world.chain.creator.address and before - balance(world) == CREDIT
    assert set(found.implicated_seats) == seats_of(world, submission_id) != set()
    kept = (tmp_path / "evidence.json").read_bytes()
    assert found.evidence_hash == hex0x(sha256(kept)) and submission_id.encode() in kept
    again: ChallengeReport = challenger.challenge(submission_id)
    assert (again.evidence_hash, again.implicated_seats) == (None, found.implicated_seats)
    assert before - balance(world) == CREDIT


@pytest.mark.parametrize("is_challenged", [True, False])
def test_who_is_second_by_a_moment_finds_the_case_as_it_is(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_challenged: bool
) -> None:
    submission_id, challenger = world.accept(), outsider(world, tmp_path)
    first = replace(challenger, lane=Lane(world.contracts.client, world.provider, SystemClock()))
    world.send(world.provider, "credits", "faucet", CREDIT)
    before = balance(world)

    def meanwhile(chain: ChainPool, view: SubmissionView) -> tuple[RejectReason, FileReport | None]:
        if is_challenged:
            first.challenge(submission_id)
        else:
            monkeypatch.setattr(ChainPool, "challenge", refuse)
        return FORGED, None

    def refuse(self: ChainPool, challenge: object) -> None:
        raise TransactionReverted("a contract refused", "CaseExists")

    late = replace(challenger, judge=meanwhile)
    if not is_challenged:
        with pytest.raises(TransactionReverted, match="a contract refused"):
            late.challenge(submission_id)
        return
    found = late.challenge(submission_id)
    assert (found.challenger, found.evidence_hash) == (world.provider.address, None)
    assert balance(world) == before and set(found.implicated_seats) == seats_of(world, submission_id)


def test_what_the_submission_was_paid_is_held_once_the_log_shows_it(world: World, tmp_path: Path) -> None:
    submission_id, challenger = world.accept(), outsider(world, tmp_path)
    assert challenger.challenge(submission_id).held_earnings_wei == 0, "the payment isn't anchored yet"
    world.close_epoch()
    most_wei = PRICE_WEI * world.rules.max_units
    for _ in range(2):
        assert challenger.challenge(submission_id).held_earnings_wei == most_wei
        assert ChainPool(world.contracts, world.pool_id).withheld_wei(world.provider.address) == most_wei


def test_unpaid_work_costs_no_earnings(world: World, tmp_path: Path) -> None:
    submission_id, challenger = world.submit(), outsider(world, tmp_path)
    world.judge(submission_id, Outcome.DROP, RejectReason.LOGPROB_MISMATCH)
    for _ in range(2):
        assert challenger.challenge(submission_id).held_earnings_wei == 0
        world.close_epoch()
    pool = ChainPool(world.contracts, world.pool_id)
    rejected = world.client().submission(submission_id).settling
    assert rejected is not None
    proof, (entry,) = world.client().inclusion(rejected.log_index), world.client().entries(rejected.log_index, 1)
    shown = Inclusion(proof.epoch, entry.index, hex0x(canonical_json(entry.event)), proof.path)
    with pytest.raises(TransactionReverted) as refused:
        ChainPool(world.contracts, world.pool_id, lane=challenger.lane).hold_payment(submission_id, shown)
    assert refused.value.name == "NotPaid" and pool.withheld_wei(world.provider.address) == 0


def test_seats_that_condemned_it_are_not_named(world: World, tmp_path: Path) -> None:
    submission_id = world.submit()
    world.judge(submission_id, Outcome.DROP, RejectReason.LOGPROB_MISMATCH)
    assert seats_of(world, submission_id)
    assert outsider(world, tmp_path).challenge(submission_id).implicated_seats == ()


def test_an_acceptance_that_somebody_else_signed_names_nobody(world: World) -> None:
    submission_id, pool = world.accept(), ChainPool(world.contracts, world.pool_id)
    views = world.client().submission(submission_id).verdicts
    assert len(acceptances(pool, world.pool_id, submission_id, views)) == len(views)
    message = views[0].verdict.message
    forged = Signed[type(message)].by(world.trainer, message, world.domain)  # type: ignore[misc]
    assert acceptances(pool, world.pool_id, submission_id, [views[0].model_copy(update={"verdict": forged})]) == []
    assert acceptances(pool, world.pool_id, "0x" + "11" * 32, views) == []


def test_what_the_coordinator_serves_is_held_against_the_chain(world: World, tmp_path: Path) -> None:
    submission_id, challenger = world.accept(), outsider(world, tmp_path)
    honest = challenger.client

    class Liar:
        """Answers as the coordinator does, but for one thing."""

        def __init__(self, what: str) -> None:
            self._what = what

        def __getattr__(self, name: str) -> object:
            return getattr(honest, name)

        def entries(self, start: int, limit: int) -> list[LogEntry]:
            found = honest.entries(start, limit)
            return found if self._what != "leaf" else honest.entries(start + 1, limit)

        def submission(self, subject: str) -> SubmissionView:
            view = honest.submission(subject)
            if self._what != "submission":
                return view
            other: Submission = view.submission.message.model_copy(update={"counter": 9})
            return view.model_copy(update={"submission": Signed[Submission].by(world.node, other, world.domain)})

        def case(self, subject: str) -> object:
            found = honest.case(subject)
            path = found.inclusion.path[:-1]
            changed = found.inclusion.model_copy(update={"path": path} if self._what == "path" else {"epoch": 1})
            return found if self._what in ("leaf", "submission") else found.model_copy(update={"inclusion": changed})

    before = balance(world)
    for what, match in (
        ("leaf", "another event"),
        ("submission", "another submission"),
        ("path", "isn't under the root"),
        ("epoch", "isn't one of epoch 1"),
    ):
        with pytest.raises(VerificationFailed, match=match):
            replace(challenger, client=Liar(what)).challenge(submission_id)  # type: ignore[arg-type]
    assert balance(world) == before


def test_a_challenge_is_refused_where_the_court_would(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission_id, challenger = world.accept(), outsider(world, tmp_path)

    def retry(chain: ChainPool, view: SubmissionView) -> tuple[RejectReason, None]:
        return RejectReason.LOGPROB_MISMATCH, None

    with pytest.raises(NotEligible, match="slashes nobody"):
        replace(challenger, judge=retry).challenge(submission_id)
    world.send(world.chain.creator, "credits", "transfer", world.trainer.address, balance(world) - CREDIT + 1)
    with pytest.raises(NotEligible, match="takes a bond") as refused:
        challenger.challenge(submission_id)
    assert f"{CREDIT - 1} of {CREDIT} wei" in refused.value.why
    world.send(world.trainer, "credits", "transfer", world.chain.creator.address, 1)
    world.chain.pass_time(SETTLING["judge_period"] + SETTLING["challenge_window"] + 1)
    with pytest.raises(NotEligible, match="too late"):
        challenger.challenge(submission_id)
    monkeypatch.setattr(ChainPool, "time", lambda pool: 0)  # as it was before judging took its time
    with pytest.raises(NotEligible, match="too late"):
        challenger.challenge(submission_id)


def test_a_task_under_another_beacon_than_the_chains_is_not_judged(world: World) -> None:
    submission_id, pool = world.accept(), ChainPool(world.contracts, world.pool_id)
    view = world.client().submission(submission_id)
    other = view.task.message.model_copy(update={"beacon_hash": "0x" + "bb" * 32})
    lie = view.model_copy(update={"task": Signed[Task].by(world.coordinator.signer, other, world.domain)})
    with pytest.raises(VerificationFailed, match="beacon isn't the chain's"):
        judge_again("http://127.0.0.1:9", world.client(), pool, lie, None)


def test_only_what_a_check_would_slash_is_a_forgery() -> None:
    words = {"checks": (), "num_rollouts": 4, "num_audited": 4, "hint": None, "milliseconds": {}}
    slashed = FileReport(outcome="slash", reason=FORGED.value, **words)  # type: ignore[arg-type]
    assert reason_of(slashed) is FORGED
    for outcome, reason in (("accept", None), ("drop", FORGED.value)):
        with pytest.raises(VerificationFailed, match="no forgery") as refused:
            reason_of(slashed.model_copy(update={"outcome": outcome, "reason": reason}))
        assert refused.value.why.startswith(outcome)


def test_a_challenge_that_is_named_badly_is_a_usage_error(world: World, keys: Keys, call: Command) -> None:
    options, subject = keys.options(CREATOR), "0x" + "11" * 32
    for words in (
        ("0x12",),
        (subject, "--without-check"),
        (subject, "--reason", FORGED.value),
        (subject, "--without-check", "--reason", RejectReason.DUPLICATE.value),
    ):
        assert refusal(call("audit", "challenge", *words, *options)) == (2, ["error", "why", "do"])
