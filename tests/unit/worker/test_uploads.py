"""Uploads: a long file goes in pieces, and a cut costs a piece and no file."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from protocol.client import CoordinatorClient
from protocol.errors import CoordinatorUnreachable
from protocol.reasons import RejectReason
from worker.loop import Worker
from worker.patience import Patience
from worker.uploads import MOST_EPOCHS_AHEAD, Uploads

PIECE = 1000


@pytest.fixture
def make_uploads(
    make_worker: Callable[..., Worker], make_clock: Callable[[], Any], pool: Any
) -> Callable[..., Uploads]:
    """One file lies in the outbox; each call is a worker that starts."""
    worker = make_worker()
    pool.refusals["submissions"] = [RejectReason.STORAGE_FULL]
    worker.turn()
    pool.requests.clear()
    clock = make_clock()
    patience = Patience(clock, random.Random(0), 0.25, 30.0)
    return lambda piece=PIECE: Uploads(worker.outbox, worker.membership, clock, patience, piece)


def puts(pool: Any) -> list[str]:
    return [request.rpartition("/")[2] for request in pool.requests if request.startswith("PUT")]


def only_file(pool: Any) -> bytes:
    (file,) = pool.files.values()
    return bytes(file)


def test_a_long_file_goes_in_pieces_and_is_taken_in_whole(make_uploads: Any, pool: Any) -> None:
    (answer,) = make_uploads().flush()
    assert answer.receipt is not None
    num_pieces = -(-len(only_file(pool)) // PIECE)
    assert num_pieces > 2
    assert puts(pool) == ["pieces"] * (1 + num_pieces) + [answer.submission_id], "one asks how much is there"


def test_a_short_file_goes_at_once(make_uploads: Any, pool: Any) -> None:
    (answer,) = make_uploads(piece=1 << 20).flush()
    assert puts(pool) == [answer.submission_id]


def test_cut_off_it_goes_on_where_the_coordinator_says(make_uploads: Any, pool: Any) -> None:
    pool.cut_after = 4  # the third piece is kept, and its answer lost
    with pytest.raises(CoordinatorUnreachable):
        make_uploads().flush()
    (kept,) = pool.pieces.values()
    assert len(kept) == 3 * PIECE
    pool.requests.clear()
    (answer,) = make_uploads().flush()
    assert answer.receipt is not None
    assert puts(pool).count("pieces") == 1 + -(-(len(only_file(pool)) - 3 * PIECE) // PIECE)


def test_a_coordinator_that_keeps_nothing_is_not_asked_for_ever(make_uploads: Any, pool: Any) -> None:
    pool.forgets_pieces = True
    with pytest.raises(CoordinatorUnreachable, match="keeps no piece"):
        make_uploads().flush()
    assert puts(pool) == ["pieces"] * 2
    pool.forgets_pieces = False
    (answer,) = make_uploads().flush()
    assert answer.receipt is not None


def test_a_coordinator_that_keeps_a_byte_of_each_piece_is_not_fed(
    make_uploads: Any, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def kept(client: Any, envelope: Any, submission_id: str, offset: int, piece: bytes) -> int:
        asked.append(offset)
        return offset + min(1, len(piece))

    with monkeypatch.context() as lying:
        lying.setattr(CoordinatorClient, "send_piece", kept)
        with pytest.raises(CoordinatorUnreachable, match="keeps no piece"):
            make_uploads().flush()
    assert asked == [0, 0]
    (answer,) = make_uploads().flush()
    assert answer.receipt is not None


@pytest.mark.parametrize("promised", [5 + MOST_EPOCHS_AHEAD + 1, 2**53 - 1])
def test_a_promise_that_is_never_due_is_no_receipt(make_uploads: Any, pool: Any, promised: int) -> None:
    pool.chain.epochs, pool.include_by_epoch = 5, promised
    uploads = make_uploads(piece=1 << 20)
    with capture_logs() as lines:
        assert uploads.flush() == []
    assert [str(promised) in line["why"] for line in lines if line["event"] == "waiting"] == [True]
    pool.include_by_epoch = 5 + MOST_EPOCHS_AHEAD
    (answer,) = make_uploads(piece=1 << 20).flush()
    assert answer.receipt is not None and answer.receipt.message.include_by_epoch == 5 + MOST_EPOCHS_AHEAD


def test_an_entry_that_gets_damaged_while_the_worker_runs_holds_nothing_up(
    make_worker: Callable[..., Worker], pool: Any
) -> None:
    worker = make_worker()
    pool.refusals["submissions"] = [RejectReason.STORAGE_FULL] * 10
    worker.turn()
    (entry,) = worker.outbox.pending()
    file = worker.folder.path / "outbox" / f"{entry.task_id}.json"
    file.write_bytes(b"{")
    pool.refusals.clear()
    with capture_logs() as lines:
        worker.turn()
    (told,) = [line for line in lines if line["event"] == "outbox.set_aside"]
    assert told["task_id"] == entry.task_id and "can't be read" in told["why"]
    assert entry.submission_id not in pool.received and len(pool.received) == 1
    assert (worker.outbox.num_pending, file.exists(), worker.outbox.knows(entry.task_id)) == (0, False, True)


def test_a_file_that_is_removed_while_the_worker_runs_holds_nothing_up(make_uploads: Any, pool: Any) -> None:
    uploads = make_uploads(piece=1 << 20)
    outbox = uploads._outbox
    (entry,) = outbox.pending()
    outbox.answer_file(entry.task_id).with_name(f"{entry.task_id}.parquet").unlink()
    with capture_logs() as lines:
        assert uploads.flush() == []
    assert [line["event"] for line in lines] == ["outbox.set_aside"]
    assert outbox.pending() == [] and outbox.knows(entry.task_id)
