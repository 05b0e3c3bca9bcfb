"""The loop: assignment to verdict to commitment to reveal, over refusals, lies, faults and restarts."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.api import Assignment, EarningsStatement, LogEntry, VerdictReveal, VerdictView
from protocol.canonical import canonical_hash, hex0x, sha256
from protocol.chain.cases import CaseRecord, CaseState
from protocol.chain.pool import VersionRecord
from protocol.clock import SystemClock
from protocol.draw import Seat
from protocol.errors import CoordinatorUnreachable, NotFound, Rejected
from protocol.merkle.commitment import verify_commitment
from protocol.merkle.standard import earnings_tree
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
from protocol.rules import Rules
from protocol.signing import Signer
from protocol.wire import EarningsAttestation, Evidence, Signed, Verdict, VerdictCommitment
from tests.unit.verifier.verifier_world import BEACON, COORDINATOR, DOMAIN, NODE, World
from verifier.accuse import Accuser
from verifier.attest import Attester
from verifier.commitments import Commitments
from verifier.completions import Completions
from verifier.history import History
from verifier.judge import Judge
from verifier.juror import Jurors
from verifier.loop import Verifier
from verifier.reaudits import Reaudits
from verifier.store import open_store
from verifier.verdicts import Verdicts

VALIDATOR = Signer((11).to_bytes(32, "big"))


@dataclass
class Coordinator:
    """The coordinator's side of the API, in memory; tests make it lie, refuse or fall silent."""

    log: Any
    chain: Any
    rules_document: Rules
    files: dict[str, bytes] = field(default_factory=dict)
    drawn: list[Assignment] = field(default_factory=list)
    commitments: list[VerdictCommitment] = field(default_factory=list)
    reveals: list[VerdictReveal] = field(default_factory=list)
    views: dict[str, list[VerdictView]] = field(default_factory=dict)
    statement: EarningsStatement | None = None
    attestations: list[EarningsAttestation] = field(default_factory=list)
    refusing: bool = False
    silent: bool = False

    def pool(self) -> Any:
        self._answer()
        facts = {"epoch": len(self.chain.head_list), "policy_version": 0, "rules_hash": self.rules_document.rules_hash}
        return type("Pool", (), facts)()

    def rules(self, rules_hash: str) -> Rules:
        return self.rules_document

    def assignments(self, validator: str) -> list[Assignment]:
        self._answer()
        return self.drawn if validator == VALIDATOR.address else []

    def submission_file(self, submission_id: str) -> bytes:
        self._answer()
        return self.files[submission_id]

    def submission(self, submission_id: str) -> Any:
        if submission_id not in self.views:
            raise CoordinatorUnreachable("not told in this test")
        return SimpleNamespace(verdicts=self.views[submission_id])

    def commit_verdicts(self, commitment: Signed[VerdictCommitment]) -> None:
        self._answer()
        self.commitments.append(commitment.check(VALIDATOR.address, DOMAIN))

    def reveal_verdict(self, reveal: VerdictReveal) -> None:
        self._answer()
        self.reveals.append(reveal)

    def newest_earnings(self) -> EarningsStatement | None:
        return self.statement

    def attest_earnings(self, attestation: Signed[EarningsAttestation]) -> None:
        self.attestations.append(attestation.check(VALIDATOR.address, DOMAIN))

    def entries(self, start: int, limit: int = 1000) -> Sequence[LogEntry]:
        self._answer()
        return list(self.log.read(start, limit))

    def _answer(self) -> None:
        if self.silent:
            raise CoordinatorUnreachable("the coordinator doesn't answer", "silent")
        if self.refusing:
            raise Rejected(RejectReason.VALUE_OUT_OF_BOUNDS, "not now")


class WorldWeights:
    """Weights that are there already."""

    def __init__(self, world: World) -> None:
        self._world = world

    def fetch(self, policy_version: int) -> Path:
        return self._world.folder

    def model(self, policy_version: int) -> Any:
        return self._world.model


@dataclass
class Site:
    world: World
    chain: Any
    coordinator: Coordinator
    folder: Path
    opened: list[Any] = field(default_factory=list)
    clock: Any = field(default_factory=SystemClock)
    judge_seconds: float = 600.0
    units_added: int = 0
    """By a coordinator that lets the pool pay for more than was handed in."""

    def submit(self, rollouts: list[Rollout], counter: int = 0) -> str:
        """Hand in rows, log and anchor them, and draw the one validator there is."""
        dossier = self.world.dossier(rollouts, counter)
        submission_id, epoch = dossier.submission_id, len(self.chain.head_list)
        num_units = sum(rollout.num_units for rollout in rollouts) + self.units_added
        self.coordinator.log.append("submission.received", submission_id, time=900, num_units=num_units)
        self.coordinator.log.anchor(self.chain)
        self.chain.beacons[epoch] = BEACON
        self.coordinator.files[submission_id] = dossier.file
        self.coordinator.drawn.append(
            Assignment(
                submission_id=submission_id,
                provider="0x" + "77" * 20,
                submission=dossier.submission,
                task=dossier.task,
                file_sha256=hex0x(sha256(dossier.file)),
                epoch=epoch,
                beacon_hash=BEACON,
                round=0,
                draw=0,
                seat=0,
                verdict_epoch=epoch + 1,
            )
        )
        return submission_id

    def anchor(self) -> None:
        self.coordinator.log.append("epoch.closed")
        self.coordinator.log.anchor(self.chain)

    def verifier(self) -> Verifier:
        """A process on the validator's folder: calling this again is a restart."""
        db = open_store(self.folder)
        self.opened.append(db)
        client: Any = self.coordinator
        history, verdicts = History(db), Verdicts(db)
        reaudits = Reaudits(db, history.payments)
        weights: Any = WorldWeights(self.world)
        judge = Judge(VALIDATOR, self.chain, client, history, verdicts, weights, Completions(db))
        return Verifier(
            VALIDATOR.address,
            self.chain,
            client,
            history,
            verdicts,
            Commitments(db, VALIDATOR, DOMAIN),
            judge,
            Accuser(db, self.chain, client, history),
            Attester(db, VALIDATOR, self.chain, client, history, reaudits),
            reaudits,
            Jurors(db, VALIDATOR.address, self.chain, client, history, judge),
            clock=self.clock,
            judge_seconds=self.judge_seconds,
        )


@pytest.fixture
def site(world: World, chain: Any, log: Any, tmp_path: Path) -> Iterator[Site]:
    chain.pool = replace(chain.pool, rules_hashes=frozenset({world.rules.rules_hash}), coordinator=COORDINATOR.address)
    chain.seat_list = [Seat(0, VALIDATOR.address)]
    chain.versions[0] = VersionRecord(0, "0x" + "3a" * 32, 9, BEACON)
    chain.case_of = lambda submission_id: CaseRecord(CaseState.NONE, 0)
    site = Site(world, chain, Coordinator(log, chain, world.rules), tmp_path)
    yield site
    for db in site.opened:
        db.close()


def test_from_assignment_to_reveal(site: Site, honest: list[Rollout]) -> None:
    submission_id = site.submit(honest)
    verifier = site.verifier()
    verifier.turn()
    (commitment,) = site.coordinator.commitments
    assert (commitment.epoch, commitment.seat) == (1, 0) and site.coordinator.reveals == []
    verifier.turn()
    assert site.coordinator.reveals == [] and len(site.coordinator.commitments) == 1
    site.anchor()
    verifier.turn()
    (reveal,) = site.coordinator.reveals
    verdict = reveal.verdict.check(VALIDATOR.address, DOMAIN)
    assert (verdict.submission_id, verdict.epoch, verdict.outcome) == (submission_id, 0, Outcome.ACCEPT)
    assert verify_commitment(commitment.root, submission_id, verdict.id(DOMAIN), reveal.salt, reveal.path)
    verifier.turn()
    assert len(site.coordinator.reveals) == 1


def test_a_forgery_gets_its_slash_verdict(site: Site, honest: list[Rollout]) -> None:
    site.submit([replace(r, task_reward=1.0 - r.task_reward) for r in honest])
    verifier = site.verifier()
    verifier.turn()
    site.anchor()
    verifier.turn()
    verdict = site.coordinator.reveals[0].verdict.message
    assert (verdict.outcome, verdict.reject_reason) == (Outcome.SLASH, RejectReason.REWARD_MISMATCH)


@pytest.mark.parametrize(("is_forged", "outcome"), [(False, Outcome.ACCEPT), (True, Outcome.SLASH)])
def test_a_juror_judges_the_same_again_whatever_it_said_before(
    site: Site, honest: list[Rollout], is_forged: bool, outcome: Outcome
) -> None:
    rows = [replace(r, task_reward=1.0 - r.task_reward) for r in honest] if is_forged else honest
    submission_id, verifier = site.submit(rows), site.verifier()
    verifier.turn()
    work, received = site.coordinator.drawn[0], verifier.history.received(submission_id)
    view: Any = SimpleNamespace(submission_id=submission_id, submission=work.submission, task=work.task, renewal=None)
    assert received is not None
    finding = verifier._judge.look_again(view, received)
    assert finding.outcome is outcome and finding.case is not None
    assert verifier.verdicts.count_by_outcome() == {outcome.name.lower(): 1}


def test_nobody_judges_while_a_verdict_that_the_log_names_is_held_back(site: Site, honest: list[Rollout]) -> None:
    """Its stamp would go unreviewed: a coordinator could keep a friend's from whoever looks again."""
    submission_id, colleague = site.submit(honest), Signer((12).to_bytes(32, "big"))
    evidence = Evidence(submission_id=submission_id, seed=BEACON, num_units=9, checks=())
    values = {"submission_id": submission_id, "pool_id": 1, "epoch": 0, "round": 0, "seat": 1, "outcome": 0}
    values |= {"reason": 0, "rules_hash": "0x" + "44" * 32, "evidence_hash": canonical_hash(evidence.as_json())}
    signed = Signed[Verdict].by(colleague, Verdict.model_validate(values), DOMAIN)
    view = VerdictView(validator=colleague.address, verdict=signed, evidence=evidence)
    logged = {"validator": colleague.address, "outcome": 0, "in_time": True}
    site.coordinator.log.append("verdict.revealed", submission_id, **logged)
    site.anchor()
    verifier = site.verifier()
    forged = view.model_copy(update={"evidence": evidence.model_copy(update={"num_units": 8})})
    for served in ([], [forged]):
        site.coordinator.views[submission_id] = served
        verifier.turn()
        assert site.coordinator.commitments == []
    site.coordinator.views[submission_id] = [view]
    verifier.turn()
    assert len(site.coordinator.commitments) == 1


@pytest.mark.parametrize("killed_after", ["judge", "commit"])
def test_a_restart_reveals_exactly_what_was_committed(site: Site, honest: list[Rollout], killed_after: str) -> None:
    site.submit(honest)
    first = site.verifier()
    first.follow()
    first.judge()
    if killed_after == "commit":
        first.commit()
    site.verifier().turn()
    (commitment,) = site.coordinator.commitments
    site.anchor()
    site.verifier().turn()
    (reveal,) = site.coordinator.reveals
    verdict = reveal.verdict.message
    assert verify_commitment(commitment.root, verdict.submission_id, verdict.id(DOMAIN), reveal.salt, reveal.path)


def test_a_commitment_that_nobody_confirmed_is_sent_again(site: Site, honest: list[Rollout]) -> None:
    site.submit(honest)
    verifier = site.verifier()
    verifier.follow()
    verifier.judge()
    site.coordinator.silent = True
    with pytest.raises(CoordinatorUnreachable):
        verifier.commit()
    site.coordinator.silent = False
    site.verifier().commit()
    assert [c.epoch for c in site.coordinator.commitments] == [1]


def test_a_refused_commitment_goes_into_the_next_epoch_with_the_same_verdicts(
    site: Site, honest: list[Rollout]
) -> None:
    site.submit(honest)
    verifier = site.verifier()
    verifier.turn()
    first = site.coordinator.commitments.pop()
    verifier.commitments.dissolve(first)  # what a refusal leads to
    site.anchor()
    verifier.turn()
    assert [(c.epoch, c.root) for c in site.coordinator.commitments] == [(2, first.root)]


def test_a_reveal_that_is_refused_is_offered_again(site: Site, honest: list[Rollout]) -> None:
    site.submit(honest)
    verifier = site.verifier()
    verifier.turn()
    site.anchor()
    site.coordinator.refusing = True
    verifier.reveal()
    assert site.coordinator.reveals == []
    site.coordinator.refusing = False
    verifier.reveal()
    assert len(site.coordinator.reveals) == 1


def test_a_silent_coordinator_costs_turns_and_no_verdict(site: Site, honest: list[Rollout]) -> None:
    site.submit(honest)
    site.coordinator.silent = True
    verifier = site.verifier()
    verifier.turn()
    site.coordinator.silent = False
    verifier.turn()
    assert len(site.coordinator.commitments) == 1


@pytest.mark.parametrize("error", [sqlite3.OperationalError("database or disk is full"), OSError(28, "no space left")])
def test_a_full_disk_costs_turns_and_no_verdict(
    site: Site, honest: list[Rollout], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    site.submit(honest)
    verifier = site.verifier()

    def full(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Verdicts, "keep", full)
        patched.setattr(History, "follow", full)
        verifier.turn()
    assert site.coordinator.commitments == []
    verifier.turn()
    assert len(site.coordinator.commitments) == 1


def test_a_damaged_store_ends_the_process(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    verifier = site.verifier()

    def damaged(*_: object) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr(History, "follow", damaged)
    with pytest.raises(sqlite3.DatabaseError):
        verifier.turn()


def test_a_reveal_of_what_the_coordinator_has_lost_keeps_no_other_back(
    site: Site, honest: list[Rollout], monkeypatch: pytest.MonkeyPatch
) -> None:
    for counter in range(2):
        site.submit(honest if counter == 0 else site.world.rollouts(site.world.completions(counter), counter), counter)
    verifier = site.verifier()
    verifier.turn()
    site.anchor()
    reveal, lost = site.coordinator.reveal_verdict, list[str]()

    def forgetful(one: VerdictReveal) -> None:
        if not lost or one.verdict.message.submission_id in lost:
            lost.append(one.verdict.message.submission_id)
            raise NotFound("the coordinator has no such object")
        reveal(one)

    monkeypatch.setattr(site.coordinator, "reveal_verdict", forgetful)
    verifier.reveal()
    assert len(lost) == 1 and len(site.coordinator.reveals) == 1


@pytest.mark.parametrize(
    "lie",
    [
        {"beacon_hash": "0x" + "00" * 32},
        {"draw": 1},
        {"file_sha256": "0x" + "00" * 32},
    ],
)
def test_a_lie_of_the_coordinator_gets_no_verdict(site: Site, honest: list[Rollout], lie: dict[str, Any]) -> None:
    site.submit(honest)
    truth = site.coordinator.drawn[0]
    site.coordinator.drawn = [truth.model_copy(update=lie)]
    verifier = site.verifier()
    verifier.turn()
    assert verifier.verdicts.count_by_outcome() == {}
    site.coordinator.drawn = [truth]
    verifier.turn()
    assert verifier.verdicts.count_by_outcome() == {"accept": 1}


def test_units_that_were_not_handed_in_get_no_acceptance(site: Site, honest: list[Rollout]) -> None:
    site.units_added = 1
    site.submit(honest)
    verifier = site.verifier()
    verifier.turn()
    assert verifier.verdicts.count_by_outcome() == {}


def test_a_log_that_the_chain_does_not_anchor_stops_judging(site: Site, honest: list[Rollout]) -> None:
    site.submit(honest)
    site.chain.head_list[0] = replace(site.chain.head_list[0], root="0x" + "00" * 32)
    verifier = site.verifier()
    verifier.turn()
    assert verifier.verdicts.count_by_outcome() == {}


def test_a_fault_of_ours_on_one_file_gives_no_verdict_and_stops_no_other(
    site: Site, honest: list[Rollout], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, good = (
        site.submit(honest),
        site.submit(site.world.rollouts(site.world.completions(counter=1), 1), counter=1),
    )
    verifier = site.verifier()
    judge = verifier._judge.judge

    def faulty(assignment: Assignment) -> Any:
        if assignment.submission_id == broken:
            raise ZeroDivisionError("a bug")
        return judge(assignment)

    monkeypatch.setattr(verifier._judge, "judge", faulty)
    verifier.turn()
    assert verifier.verdicts.find(broken, 0, 0) is None
    assert verifier.verdicts.find(good, 0, 0) is not None


def test_the_same_completions_again_are_a_duplicate(site: Site, honest: list[Rollout]) -> None:
    site.submit(honest)
    verifier = site.verifier()
    verifier.turn()
    hash_of_first = verifier.verdicts.find_twin(NODE.address, completions_hash(site, honest), "0x" + "00" * 32)
    assert hash_of_first == site.coordinator.drawn[0].submission_id


def completions_hash(site: Site, rollouts: list[Rollout]) -> str:
    found = site.world.examine(rollouts).completions_hash
    assert found is not None
    return found


def test_earnings_are_attested_once_where_they_hold(site: Site) -> None:
    account = "0x" + "a1" * 20
    subject = "0x" + "5b" * 32
    site.coordinator.log.append("submission.received", subject, provider=account, num_units=7)
    site.coordinator.log.append("verdict.revealed", subject, validator="0x" + "0a" * 20, outcome=0, in_time=True)
    site.coordinator.log.append("submission.accepted", subject, num_units=7, payments=[[account, "7"]])
    site.anchor()
    right = EarningsStatement(pool_id=1, epoch=0, root=earnings_tree({account: 7}).root, total_wei=7, accounts=())
    verifier = site.verifier()
    site.coordinator.statement = right.model_copy(update={"total_wei": 8})
    verifier.turn()
    assert site.coordinator.attestations == []
    site.coordinator.statement = right
    verifier.turn()
    verifier.turn()
    assert [(a.seat, a.root) for a in site.coordinator.attestations] == [(0, right.root)]


class Ticks:
    """A clock on which every look at it costs a second, and waiting ends the run."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        self.seconds += 1
        return self.seconds

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        stop.set()
        return True


def test_stopping_finishes_the_turn(site: Site, honest: list[Rollout]) -> None:
    site.submit(honest)
    site.clock = Ticks()
    site.verifier().run(threading.Event(), 0.5)
    assert len(site.coordinator.commitments) == 1


def test_a_slow_judge_commits_before_it_judges_on(site: Site, honest: list[Rollout]) -> None:
    for counter in range(2):
        site.submit(honest if counter == 0 else site.world.rollouts(site.world.completions(counter), counter), counter)
    site.clock, site.judge_seconds = Ticks(), 1.0
    verifier = site.verifier()
    verifier.turn()
    assert verifier.verdicts.count_by_outcome() == {"accept": 1}
    verifier.turn()
    assert verifier.verdicts.count_by_outcome() == {"accept": 2}
    assert [c.part for c in site.coordinator.commitments] == [0, 1]


def test_a_version_is_loaded_before_the_first_file_asks_for_it(site: Site) -> None:
    loaded = []
    verifier = site.verifier()
    verifier._judge._weights.model = loaded.append  # type: ignore[method-assign,assignment]
    for _ in range(2):
        verifier.turn()
    assert loaded == [0]
