"""Accusations: enough agreeing, valid, drawn verdicts, or none; and nobody minds who was first."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.testing import capture_logs

from protocol.api import SubmissionView, VerdictView
from protocol.canonical import from_hex0x, hex0x, sha256
from protocol.chain.cases import NOT_SETTLED, Accusation, CaseRecord, CaseState
from protocol.chain.contracts import abi_of, encode
from protocol.draw import Seat, drawn_seats
from protocol.errors import CoordinatorUnreachable, NotFound, SignatureInvalid, TransactionReverted
from protocol.merkle.history import event_leaf_hash_of, verify_inclusion
from protocol.reasons import Outcome, RejectReason
from protocol.signing import Signer
from protocol.wire import Evidence, Signed, Submission, Task, Verdict
from tests.unit.verifier.verifier_world import COORDINATOR, DOMAIN, NODE
from verifier.accuse import WATCHED_SECONDS, Accuser, assemble
from verifier.history import History
from verifier.verdicts import KeptVerdict, Verdicts

BEACON, OTHER_BEACON = "0x" + "be" * 32, "0x" + "bf" * 32
MakeSigner = Callable[[int], Signer]
VALIDATORS = (11, 12, 13)


@dataclass
class Court:
    """The chain of the tests, with a court in memory."""

    chain: Any
    case: CaseRecord = field(default_factory=lambda: CaseRecord(CaseState.NONE, 0))
    accusations: list[Accusation] = field(default_factory=list)
    enforced: list[str] = field(default_factory=list)
    implicated: list[int] = field(default_factory=list)
    now: int = 200
    refusal: str = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.chain, name)

    def time(self) -> int:
        return self.now

    def case_of(self, submission_id: str) -> CaseRecord:
        return self.case

    def accuse(self, accusation: Accusation) -> None:
        if self.refusal:
            raise TransactionReverted("refused", self.refusal)
        self.accusations.append(accusation)
        self.case = CaseRecord(CaseState.ACCUSED, self.now + 15)

    def implicated_of(self, submission_id: str) -> tuple[int, ...]:
        return tuple(self.implicated)

    def implicate(self, submission_id: str, verdict: Verdict, signature: str) -> None:
        self.implicated.append(verdict.seat)

    def enforce(self, submission_id: str) -> None:
        if self.refusal:
            raise TransactionReverted("refused", self.refusal)
        self.enforced.append(submission_id)
        self.case = CaseRecord(CaseState.UPHELD, 0)


@dataclass
class Site:
    """A forged submission, logged and drawn, with the verdicts of three validators."""

    court: Court
    history: History
    view: SubmissionView
    store: sqlite3.Connection
    is_silent: bool = False

    def submission(self, submission_id: str) -> SubmissionView:
        if self.is_silent:
            raise CoordinatorUnreachable("the coordinator doesn't answer")
        return self.view

    @property
    def accuser(self) -> Accuser:
        return Accuser(self.store, self.court, self, self.history)  # type: ignore[arg-type]

    @property
    def received(self) -> Any:
        return self.history.received(self.view.submission_id)

    def with_verdicts(self, *verdicts: VerdictView) -> SubmissionView:
        return self.view.model_copy(update={"verdicts": verdicts})


def verdict_by(site_id: str, signer: Signer, seat: int, rules_hash: str, /, **changes: Any) -> VerdictView:
    honest = {
        "submission_id": site_id,
        "pool_id": 1,
        "epoch": 0,
        "round": 0,
        "seat": seat,
        "outcome": int(Outcome.SLASH),
        "reason": RejectReason.TOPLOC_MISMATCH.code,
        "rules_hash": rules_hash,
        "evidence_hash": "0x" + "ee" * 32,
    }
    verdict = Verdict(**(honest | changes))
    evidence = Evidence(submission_id=site_id, seed="0x" + "00" * 32, num_units=1, checks=())
    return VerdictView(validator=signer.address, verdict=Signed[Verdict].by(signer, verdict, DOMAIN), evidence=evidence)


def signed_work() -> tuple[Signed[Submission], Signed[Task]]:
    shared = {"pool_id": 1, "policy_version": 0, "node": NODE.address, "counter": 4, "rules_hash": "0x" + "44" * 32}
    submission = Submission(**shared, content_hash="0x" + "c0" * 32)
    task = Task(**shared, beacon_block=9, beacon_hash=BEACON, price_wei=1, max_units=9, deadline=200)
    return Signed[Submission].by(NODE, submission, DOMAIN), Signed[Task].by(COORDINATOR, task, DOMAIN)


def settle(site: Site, log: Any) -> None:
    """Epoch 1 anchors that round 0 accepted the submission."""
    log.append("submission.accepted", site.view.submission_id, time=160, num_units=1, payments=[])
    log.anchor(site.court.chain)
    site.court.chain.beacons[1] = OTHER_BEACON
    site.history.follow(site.court.heads(site.history.num_epochs), log.read)


@pytest.fixture
def site(store: sqlite3.Connection, chain: Any, log: Any, make_signer: MakeSigner) -> Site:
    submission_message, task = signed_work()
    submission_id = submission_message.message.id(DOMAIN)
    log.append("task.leased", "0x" + "aa" * 32)
    log.append("submission.received", submission_id, time=150)
    log.append("draw.opened", submission_id)
    log.anchor(chain)
    chain.beacons[0] = BEACON
    chain.seat_list = [Seat(i, make_signer(number).address) for i, number in enumerate(VALIDATORS)]
    history = History(store)
    history.follow(chain.heads(0), log.read)
    rules_hash = submission_message.message.rules_hash
    verdicts = tuple(
        verdict_by(submission_id, make_signer(number), i, rules_hash) for i, number in enumerate(VALIDATORS)
    )
    view = SubmissionView(
        submission_id=submission_id,
        provider="0x" + "77" * 20,
        submission=submission_message,
        task=task,
        standing="received",
        reason=None,
        file_sha256="0x" + "f1" * 32,
        num_bytes=1,
        num_rollouts=1,
        num_units=1,
        received_time=150,
        epoch=0,
        log_index=1,
        verdicts=verdicts,
    )
    own = KeptVerdict(verdicts[0].verdict, verdicts[0].evidence, "0x" + "55" * 32)
    Verdicts(store).keep(own, NODE.address, None)
    store.execute("UPDATE verdict SET revealed = 1")
    return Site(Court(chain), history, view, store)


def test_two_agreeing_verdicts_make_an_accusation_that_the_court_can_check(site: Site) -> None:
    accusation = assemble(site.view, site.received, 0, site.history, site.court)
    assert accusation is not None and accusation.settling == NOT_SETTLED
    order = {
        drawn.seat.index: drawn.draw_index
        for drawn in drawn_seats(BEACON, site.view.submission_id, 0, site.court.seats(), 0)
    }
    assert len(accusation.verdicts) == len(accusation.signatures) == 2
    assert [order[verdict.seat] for verdict in accusation.verdicts] == list(accusation.draw_indexes)
    assert list(accusation.draw_indexes) == sorted(accusation.draw_indexes)
    inclusion, head = accusation.inclusion, site.court.head_list[0]
    document = from_hex0x(inclusion.document)
    assert document.endswith(b',"type":"submission.received"}')
    leaf = event_leaf_hash_of(site.view.submission_id, hex0x(sha256(document)))
    assert verify_inclusion(leaf, inclusion.leaf_index, head.size, inclusion.proof, head.root)


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": int(Outcome.DROP)},
        {"reason": RejectReason.SAMPLING_MISMATCH.code},
        {"reason": RejectReason.LOGPROB_MISMATCH.code},
        {"epoch": 1},
        {"round": 1},
        {"rules_hash": "0x" + "45" * 32},
        {"submission_id": "0x" + "46" * 32},
        {"seat": 9},
    ],
)
def test_a_verdict_that_the_court_would_not_take_does_not_count(
    site: Site, make_signer: MakeSigner, changes: dict[str, Any]
) -> None:
    rules_hash = site.view.submission.message.rules_hash
    other = verdict_by(site.view.submission_id, make_signer(VALIDATORS[1]), 1, rules_hash, **changes)
    view = site.with_verdicts(site.view.verdicts[0], other)
    assert assemble(view, site.received, 0, site.history, site.court) is None
    whole = site.with_verdicts(*site.view.verdicts[:2])
    assert assemble(whole, site.received, 0, site.history, site.court) is not None


@pytest.mark.parametrize(("round_number", "named"), [(1, [2]), (0, [])])
def test_who_accepted_what_a_re_audit_condemns_is_named_once(
    site: Site, make_signer: MakeSigner, round_number: int, named: list[int]
) -> None:
    rules_hash, accepted = site.view.submission.message.rules_hash, {"outcome": int(Outcome.ACCEPT), "reason": 0}
    honest = verdict_by(site.view.submission_id, make_signer(VALIDATORS[2]), 2, rules_hash, **accepted)
    forged = verdict_by(site.view.submission_id, make_signer(VALIDATORS[2]), 1, rules_hash, **accepted)
    site.view = site.with_verdicts(site.view.verdicts[0], forged, honest)
    site.court.case = CaseRecord(CaseState.ACCUSED, site.court.now + 15, round=round_number)
    accuser, site.is_silent = site.accuser, True
    accuser.turn()
    assert site.court.implicated == [], "a coordinator that doesn't answer is asked again"
    site.is_silent = False
    for one in (accuser, accuser, site.accuser):  # the last one after a restart
        one.turn()
        assert site.court.implicated == named
    site.court.now += 15
    accuser.turn()
    assert site.court.enforced == [site.view.submission_id]


def test_who_reveals_an_acceptance_while_the_case_is_open_is_named_too(site: Site, make_signer: MakeSigner) -> None:
    rules_hash, accepted = site.view.submission.message.rules_hash, {"outcome": int(Outcome.ACCEPT), "reason": 0}
    early, late = (
        verdict_by(site.view.submission_id, make_signer(VALIDATORS[i]), i, rules_hash, **accepted) for i in (1, 2)
    )
    site.court.case = CaseRecord(CaseState.ACCUSED, site.court.now + 15, round=1)
    accuser, condemned = site.accuser, site.view.verdicts[0]
    for shown, named in (((), []), ((early,), [1]), ((early,), [1]), ((early, late), [1, 2])):
        site.view = site.with_verdicts(condemned, *shown)
        accuser.turn()
        assert site.court.implicated == named


def test_a_re_audits_accusation_shows_the_settling_and_the_draw_of_its_epoch(
    site: Site, log: Any, make_signer: MakeSigner
) -> None:
    submission_id, rules_hash = site.view.submission_id, site.view.submission.message.rules_hash
    settle(site, log)
    again = [
        verdict_by(submission_id, make_signer(number), i, rules_hash, epoch=1, round=1)
        for i, number in enumerate(VALIDATORS[1:], start=1)
    ]
    view = site.with_verdicts(*again)
    accusation = assemble(view, site.received, 1, site.history, site.court)
    assert accusation is not None
    settling, head = accusation.settling, site.court.head_list[1]
    assert (settling.epoch, accusation.inclusion.epoch) == (1, 0)
    document = from_hex0x(settling.document)
    assert document.endswith(b',"type":"submission.accepted"}')
    leaf = event_leaf_hash_of(submission_id, hex0x(sha256(document)))
    assert verify_inclusion(leaf, settling.leaf_index, head.size, settling.proof, head.root)
    drawn = drawn_seats(OTHER_BEACON, submission_id, 1, site.court.seats(), 1)
    order = {found.seat.index: found.draw_index for found in drawn}
    assert [order[verdict.seat] for verdict in accusation.verdicts] == list(accusation.draw_indexes)
    # Verdicts of another round's draw don't count, and before the settling there is no round 1.
    mixed = site.with_verdicts(again[0], site.view.verdicts[2])
    assert assemble(mixed, site.received, 1, site.history, site.court) is None
    assert assemble(view, site.received, 0, site.history, site.court) is None


def test_a_re_audit_that_says_slash_is_accused(site: Site, log: Any, make_signer: MakeSigner) -> None:
    submission_id, rules_hash = site.view.submission_id, site.view.submission.message.rules_hash
    settle(site, log)
    again = [
        verdict_by(submission_id, make_signer(number), i, rules_hash, epoch=1, round=1)
        for i, number in enumerate(VALIDATORS[1:], start=1)
    ]
    site.view = site.with_verdicts(again[0])
    site.accuser.turn()
    assert site.court.accusations == []
    site.view = site.with_verdicts(*again)
    site.accuser.turn()
    assert [accusation.settling.epoch for accusation in site.court.accusations] == [1]


def test_a_challenge_is_taken_over_and_any_other_case_is_left_alone(site: Site) -> None:
    site.court.case = CaseRecord(CaseState.APPEALED, 0, round=0)
    site.accuser.turn()
    assert site.court.accusations == []
    site.court.case = CaseRecord(CaseState.CHALLENGED, 0, round=2)
    site.accuser.turn()
    assert len(site.court.accusations) == 1


def test_a_forged_signature_does_not_count(site: Site, make_signer: MakeSigner) -> None:
    stranger = verdict_by(site.view.submission_id, make_signer(66), 1, site.view.submission.message.rules_hash)
    pretended = stranger.model_copy(update={"validator": make_signer(VALIDATORS[1]).address})
    for forged in (stranger, pretended):
        view = site.with_verdicts(site.view.verdicts[0], forged)
        assert assemble(view, site.received, 0, site.history, site.court) is None


def test_from_accusation_to_slash(site: Site) -> None:
    site.accuser.turn()
    assert len(site.court.accusations) == 1 and not site.court.enforced
    site.accuser.turn()
    assert not site.court.enforced  # the appeal period runs
    site.court.now = site.court.case.deadline
    site.accuser.turn()
    assert site.court.enforced == [site.view.submission_id]
    site.accuser.turn()
    assert site.accuser.open_cases() == []


@pytest.mark.parametrize("seconds", [WATCHED_SECONDS, WATCHED_SECONDS + 1])
def test_an_end_that_a_reorg_takes_back_is_brought_about_again_for_a_while(site: Site, seconds: int) -> None:
    accuser = site.accuser
    accuser.turn()
    accused = site.court.case
    site.court.now = accused.deadline
    for _ in range(2):
        accuser.turn()
    assert site.court.enforced == [site.view.submission_id] and accuser.open_cases() == []
    site.court.case = accused
    site.court.now += seconds
    accuser.turn()
    is_watched = seconds <= WATCHED_SECONDS
    assert len(site.court.enforced) == (2 if is_watched else 1)
    accuser.turn()
    assert accuser.open_cases() == []


def test_one_slash_alone_waits(site: Site) -> None:
    site.view = site.with_verdicts(site.view.verdicts[0])
    site.accuser.turn()
    assert site.court.accusations == [] and site.accuser.open_cases() == [site.view.submission_id]


@pytest.mark.parametrize("refusal", ["CaseExists", "WrongState"])
def test_a_colleague_who_was_first_is_no_fault(site: Site, refusal: str) -> None:
    site.court.refusal = refusal
    site.accuser.turn()
    site.court.case = CaseRecord(CaseState.ACCUSED, 0)
    site.accuser.turn()
    site.court.case = CaseRecord(CaseState.UPHELD, 0)
    site.accuser.turn()
    assert site.accuser.open_cases() == []


def test_any_other_refusal_is_heard_of(site: Site) -> None:
    site.court.refusal = "NotInLog"
    with capture_logs() as logs:
        site.accuser.turn()
    assert [(entry["event"], entry["kind"]) for entry in logs] == [("accusation.postponed", "TransactionReverted")]
    assert site.accuser.open_cases() == [site.view.submission_id]


@pytest.mark.parametrize("error", [NotFound("withheld"), SignatureInvalid("forged"), CoordinatorUnreachable("silent")])
def test_a_case_that_cant_go_on_keeps_no_other_from_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    other, case_of = "0x" + "01" * 32, site.court.case_of
    monkeypatch.setattr(Accuser, "open_cases", lambda self: [other, site.view.submission_id])

    def withheld(submission_id: str) -> CaseRecord:
        if submission_id == other:
            raise error
        return case_of(submission_id)

    monkeypatch.setattr(site.court, "case_of", withheld)
    site.accuser.turn()
    assert len(site.court.accusations) == 1
    site.court.now = site.court.case.deadline
    site.accuser.turn()
    assert site.court.enforced == [site.view.submission_id]


def test_a_fault_of_ours_is_not_taken_for_one_of_others(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Accuser, "_advance", lambda self, submission_id: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        site.accuser.turn()


def test_what_can_not_be_accused_any_more_is_closed(site: Site) -> None:
    site.court.now = 150 + 2 * site.court.record().accuse_seconds + 1
    site.accuser.turn()
    assert site.court.accusations == [] and site.accuser.open_cases() == []


def test_an_unrevealed_verdict_accuses_nobody(site: Site) -> None:
    site.store.execute("UPDATE verdict SET revealed = 0")
    assert site.accuser.open_cases() == []


def test_the_courts_word_on_the_deadline_is_final(site: Site) -> None:
    site.court.refusal = "AccusedTooLate"
    site.accuser.turn()
    assert site.accuser.open_cases() == []


def test_an_accusation_fits_the_courts_abi(site: Site) -> None:
    accusation = assemble(site.view, site.received, 0, site.history, site.court)
    assert accusation is not None
    function, (sent,) = abi_of("court").decode_call(encode("court", "accuse", accusation))
    assert function == "accuse"
    assert sent["inclusion"]["document"] == accusation.inclusion.document
    assert [verdict["seat"] for verdict in sent["verdicts"]] == [verdict.seat for verdict in accusation.verdicts]
    assert sent["draw_indexes"] == accusation.draw_indexes
