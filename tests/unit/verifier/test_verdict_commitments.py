"""Commit first, reveal afterwards: the same verdict and salt under every root, whatever is killed in between."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

from protocol.merkle.commitment import verify_commitment
from protocol.reasons import Outcome
from protocol.signing import Signer, SigningDomain
from verifier.commitments import Commitments
from verifier.store import open_store
from verifier.verdicts import KeptVerdict, Verdicts

NODE = "0x" + "0a" * 20
MakeVerdict = Callable[..., KeptVerdict]
MakeSigner = Callable[[int], Signer]


def keep(db: sqlite3.Connection, *verdicts: KeptVerdict) -> None:
    for verdict in verdicts:
        Verdicts(db).keep(verdict, NODE, None)


def test_a_reveal_opens_the_commitment(
    store: sqlite3.Connection, make_verdict: MakeVerdict, make_signer: MakeSigner, domain: SigningDomain
) -> None:
    commitments = Commitments(store, make_signer(5), domain)
    keep(store, make_verdict(1), make_verdict(2, Outcome.SLASH, salt=2), make_verdict(3))
    commitments.prepare(pool_id=1, epoch=7)
    (signed,) = commitments.unsent()
    root = signed.check(make_signer(5).address, domain).root
    commitments.mark_sent(signed.message)
    reveals = commitments.due_reveals(num_anchored_epochs=8)
    assert [reveal.verdict.message.submission_id[-1] for reveal in reveals] == ["1", "2", "3"]
    for reveal in reveals:
        verdict = reveal.verdict.message
        assert verify_commitment(root, verdict.submission_id, verdict.id(domain), reveal.salt, reveal.path)
    first, second = reveals[0], reveals[1].verdict.message
    assert not verify_commitment(root, second.submission_id, second.id(domain), first.salt, reveals[1].path)


def test_nothing_is_revealed_before_its_epoch_is_anchored(
    store: sqlite3.Connection, make_verdict: MakeVerdict, make_signer: MakeSigner, domain: SigningDomain
) -> None:
    commitments = Commitments(store, make_signer(5), domain)
    keep(store, make_verdict(1))
    commitments.prepare(1, epoch=7)
    assert commitments.due_reveals(8) == []  # not sent yet
    commitments.mark_sent(commitments.unsent()[0].message)
    assert commitments.due_reveals(7) == []  # epoch 7 is still open
    (reveal,) = commitments.due_reveals(8)
    commitments.mark_revealed(reveal)
    assert commitments.due_reveals(8) == []


def test_a_restart_sends_the_same_root_and_reveals_the_same_verdict(
    tmp_path: Path, make_verdict: MakeVerdict, make_signer: MakeSigner, domain: SigningDomain
) -> None:
    db = open_store(tmp_path)
    keep(db, make_verdict(1, salt=11))
    Commitments(db, make_signer(5), domain).prepare(1, epoch=7)
    before = Commitments(db, make_signer(5), domain).unsent()
    db.close()
    db = open_store(tmp_path)
    commitments = Commitments(db, make_signer(5), domain)
    keep(db, make_verdict(1, Outcome.SLASH, salt=12))  # judged again after the crash
    commitments.prepare(1, epoch=8)
    assert commitments.unsent() == before
    commitments.mark_sent(before[0].message)
    (reveal,) = commitments.due_reveals(8)
    assert (reveal.verdict.message.outcome, reveal.salt) == (Outcome.ACCEPT, f"0x{11:064x}")
    db.close()


def test_a_commitment_that_came_too_late_goes_into_the_next_epoch_unchanged(
    store: sqlite3.Connection, make_verdict: MakeVerdict, make_signer: MakeSigner, domain: SigningDomain
) -> None:
    commitments = Commitments(store, make_signer(5), domain)
    keep(store, make_verdict(1))
    commitments.prepare(1, epoch=7)
    late = commitments.unsent()[0].message
    commitments.dissolve(late)
    assert commitments.unsent() == []
    commitments.prepare(1, epoch=8)
    (again,) = commitments.unsent()
    assert (again.message.epoch, again.message.root) == (8, late.root)


def test_later_verdicts_of_an_epoch_are_another_part(
    store: sqlite3.Connection, make_verdict: MakeVerdict, make_signer: MakeSigner, domain: SigningDomain
) -> None:
    commitments = Commitments(store, make_signer(5), domain)
    for number in (1, 2):
        keep(store, make_verdict(number))
        commitments.prepare(1, epoch=7)
    assert [signed.message.part for signed in commitments.unsent()] == [0, 1]
    commitments.prepare(1, epoch=7)
    assert len(commitments.unsent()) == 2


def test_two_rounds_of_one_submission_never_share_a_root(
    store: sqlite3.Connection, make_verdict: MakeVerdict, make_signer: MakeSigner, domain: SigningDomain
) -> None:
    commitments = Commitments(store, make_signer(5), domain)
    keep(store, make_verdict(1), make_verdict(1, Outcome.SLASH, round_number=1))
    commitments.prepare(1, epoch=7)
    commitments.prepare(1, epoch=7)
    for signed in commitments.unsent():
        commitments.mark_sent(signed.message)
    reveals = commitments.due_reveals(8)
    assert [(r.part, r.verdict.message.round) for r in reveals] == [(0, 0), (1, 1)]
