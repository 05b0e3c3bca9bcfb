"""Files that come in pieces: cut off anywhere they go on, and nobody keeps more here than leases allow."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.partial import sweep_pieces
from coordinator.pieces import PieceStore
from coordinator.tasks import expire_leases
from protocol.canonical import hex0x, sha256
from protocol.errors import Rejected
from protocol.reasons import RejectReason
from protocol.signing import Signer

STRANGER = Signer((99).to_bytes(32, "big"))
TASK, FIRST, SECOND = ("0x" + word * 32 for word in ("01", "02", "03"))
PIECE = 500


@pytest.fixture
def store(tmp_path: Path) -> PieceStore:
    return PieceStore(tmp_path / "pieces")


def kept(site: Any) -> list[str]:
    folder = site.coordinator.config.data_dir / "pieces"
    return sorted(path.name for path in folder.glob("*"))


def send_all(site: Any, packed: Any, node: Signer | None = None) -> None:
    envelope, submission_id, file = packed
    client = site.client(node or site.node)
    for start in range(0, len(file), PIECE):
        piece = file[start : start + PIECE]
        assert client.send_piece(envelope, submission_id, start, piece) == start + len(piece)


def refusal_of(call: Callable[[], object]) -> RejectReason:
    with pytest.raises(Rejected) as refused:
        call()
    return refused.value.reason


def test_what_came_in_pieces_is_taken_in_as_if_it_came_at_once(site: Any) -> None:
    packed = envelope, submission_id, file = site.pack(site.lease().message)
    send_all(site, packed)
    assert len(file) > 3 * PIECE
    receipt = site.client(site.node).submit(envelope, submission_id, b"")
    assert receipt.check(site.coordinator.signer.address, site.domain).submission_id == submission_id
    assert site.client().submission_file(submission_id) == file
    assert site.client(site.node).submit(envelope, submission_id, file) == receipt


def test_whoever_was_cut_off_is_told_where_to_go_on(site: Any) -> None:
    envelope, submission_id, file = site.pack(site.lease().message)
    client = site.client(site.node)
    assert client.send_piece(envelope, submission_id, 0, b"") == 0
    assert client.send_piece(envelope, submission_id, 0, file[:PIECE]) == PIECE
    for offset in (0, 7, PIECE - 1, PIECE + 1, len(file) - 3):
        assert client.send_piece(envelope, submission_id, offset, b"abc") == PIECE
    assert client.send_piece(envelope, submission_id, PIECE, file[PIECE:]) == len(file)
    assert client.submit(envelope, submission_id, b"")


def test_a_coordinator_that_starts_again_goes_on_with_what_it_has(site: Any) -> None:
    envelope, submission_id, file = site.pack(site.lease().message)
    site.client(site.node).send_piece(envelope, submission_id, 0, file[:PIECE])
    site.coordinator.pieces = PieceStore(site.coordinator.config.data_dir / "pieces")
    assert site.client(site.node).send_piece(envelope, submission_id, 0, b"") == PIECE


def test_what_isnt_whole_is_not_taken_in_and_stays(site: Any) -> None:
    envelope, submission_id, file = site.pack(site.lease().message)
    client = site.client(site.node)
    client.send_piece(envelope, submission_id, 0, file[:PIECE])
    before = site.dump()
    assert refusal_of(lambda: client.submit(envelope, submission_id, b"")) is RejectReason.FILE_MISMATCH
    assert site.dump() == before
    assert client.send_piece(envelope, submission_id, 0, b"") == PIECE


def test_what_is_whole_and_damaged_goes_and_can_be_sent_anew(site: Any) -> None:
    packed = envelope, submission_id, file = site.pack(site.lease().message)
    client = site.client(site.node)
    client.send_piece(envelope, submission_id, 0, bytes(len(file)))
    assert refusal_of(lambda: client.submit(envelope, submission_id, b"")) is RejectReason.FILE_MISMATCH
    assert kept(site) == []
    send_all(site, packed)
    assert client.submit(envelope, submission_id, b"")


def test_what_was_taken_in_needs_no_more_pieces(site: Any) -> None:
    envelope, submission_id, file = site.pack(site.lease().message)
    client = site.client(site.node)
    client.submit(envelope, submission_id, file)
    assert client.send_piece(envelope, submission_id, 0, file[:PIECE]) == len(file)
    assert kept(site) == []


def test_a_task_has_one_file_however_many_submissions_are_signed_for_it(site: Any) -> None:
    task = site.lease().message
    for _ in range(3):
        envelope, submission_id, file = site.pack(task)
        site.client(site.node).send_piece(envelope, submission_id, 0, file[:PIECE])
    assert kept(site) == [f"{task.id(site.domain)}.{submission_id}"]


def test_nobody_sends_more_than_was_said_or_than_the_rules_allow(site: Any) -> None:
    envelope, submission_id, file = site.pack(site.lease().message)
    client = site.client(site.node)
    longer = file + b"x"
    assert refusal_of(lambda: client.send_piece(envelope, submission_id, 0, longer)) is RejectReason.FILE_MISMATCH
    assert refusal_of(lambda: client.send_piece(envelope, submission_id, len(file), b"x")) is RejectReason.FILE_MISMATCH
    huge = envelope.model_copy(update={"num_bytes": site.rules.max_file_bytes + 1})
    assert refusal_of(lambda: client.send_piece(huge, submission_id, 0, b"x")) is RejectReason.TOO_LARGE
    assert kept(site) == []


@pytest.mark.parametrize("fault", ["another node", "another id", "no lease", "expired", "unsigned"])
def test_nothing_is_kept_but_for_an_open_lease_of_the_sender(site: Any, fault: str) -> None:
    leased = site.lease().message
    changes = {"counter": 7} if fault == "no lease" else {}
    envelope, submission_id, file = site.pack(leased, **changes)
    if fault == "expired":
        site.mine(61)
    client = site.client(STRANGER if fault == "another node" else None if fault == "unsigned" else site.node)
    path_id = "0x" + "09" * 32 if fault == "another id" else submission_id
    reasons = {"another id": RejectReason.FILE_MISMATCH, "no lease": RejectReason.LEASE_UNKNOWN}
    reasons["expired"] = RejectReason.LEASE_EXPIRED
    found = refusal_of(lambda: client.send_piece(envelope, path_id, 0, file[:PIECE]))
    assert found is reasons.get(fault, RejectReason.SIGNATURE_INVALID)
    assert kept(site) == []


def test_what_came_for_leases_that_are_over_goes_and_the_rest_stays(site: Any) -> None:
    site.judge(site.submit())
    done, open_ = site.pack(site.lease().message), site.pack(site.lease().message)
    for envelope, submission_id, file in (done, open_):
        site.client(site.node).send_piece(envelope, submission_id, 0, file[:PIECE])
    site.client(site.node).submit(*done)
    sweep_pieces(site.coordinator)
    assert [name.partition(".")[2] for name in kept(site)] == [open_[1]]
    site.mine(61)
    expire_leases(site.coordinator)
    sweep_pieces(site.coordinator)
    assert kept(site) == []


def test_a_full_disk_keeps_nothing_of_a_piece(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    envelope, submission_id, file = site.pack(site.lease().message)
    client = site.client(site.node)
    client.send_piece(envelope, submission_id, 0, file[:PIECE])
    with monkeypatch.context() as full:

        def no_space(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(os, "fsync", no_space)
        found = refusal_of(lambda: client.send_piece(envelope, submission_id, PIECE, file[PIECE:]))
        assert found is RejectReason.STORAGE_FULL
    assert client.send_piece(envelope, submission_id, 0, b"") == PIECE
    assert client.send_piece(envelope, submission_id, PIECE, file[PIECE:]) == len(file)
    assert client.submit(envelope, submission_id, b"")


def test_pieces_are_kept_apart_by_submission(store: PieceStore) -> None:
    assert store.append(TASK, FIRST, 0, b"abc") == 3
    assert (store.num_bytes(TASK, FIRST), store.num_bytes(TASK, SECOND)) == (3, 0)
    assert store.append(TASK, SECOND, 3, b"def") == 0, "it doesn't go on where another's ends"
    assert store.read(TASK, FIRST) == b"", "one file a task"


MOVES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 40), st.sampled_from(("send", "cut", "restart"))), max_size=20
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(MOVES)
def test_whatever_is_lost_on_the_way_what_is_here_is_the_files_beginning(tmp_path_factory: Any, moves: Any) -> None:
    """A sender that believes anything, answers that get lost, and restarts: no byte is doubled or skipped."""
    file = bytes(range(60))
    folder = tmp_path_factory.mktemp("pieces")
    store, believed = PieceStore(folder), 0
    for offset, length, what in moves:
        if what == "restart":
            store = PieceStore(folder)
        start = believed if what != "cut" else offset
        there = store.append(TASK, FIRST, start, file[start : start + length])
        assert store.read(TASK, FIRST) == file[:there]
        believed = there if what == "send" else believed
    while believed < len(file):
        believed = store.append(TASK, FIRST, believed, file[believed : believed + 25])
    assert hex0x(sha256(store.read(TASK, FIRST))) == hex0x(sha256(file))
