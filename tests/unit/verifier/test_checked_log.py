"""The log is believed as far as the chain anchors it, and no leaf further."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from protocol.api import LogEntry
from protocol.canonical import canonical_json, hex0x, sha256
from protocol.errors import VerificationFailed
from protocol.merkle.history import MemoryLog, event_leaf_hash_of
from verifier.history import History
from verifier.store import open_store

SUBMISSION = "0x" + "5b" * 32
ALICE, BOB = "0x" + "a1" * 20, "0x" + "b0" * 20


def test_what_was_received_and_paid_is_known_up_to_each_epoch(store: sqlite3.Connection, chain: Any, log: Any) -> None:
    log.append("submission.received", SUBMISSION, time=120)
    log.append("submission.accepted", SUBMISSION, num_units=1, payments=[[ALICE, "7"], [BOB, "1"]])
    log.anchor(chain)
    log.append("submission.accepted", "0x" + "6c" * 32, num_units=1, payments=[[ALICE, str(10**30)]])
    log.anchor(chain)
    history = History(store)
    history.follow(chain.heads(0), log.read)
    received = history.received(SUBMISSION)
    assert received is not None and (received.log_index, received.time, received.epoch) == (0, 120, 0)
    assert history.payments.earnings(0) == {ALICE: 7, BOB: 1}
    assert history.payments.earnings(1) == {ALICE: 7 + 10**30, BOB: 1}
    assert history.received("0x" + "99" * 32) is None


def test_following_goes_on_where_it_stopped(tmp_path: Path, chain: Any, log: Any) -> None:
    for number in range(9):
        log.append("task.leased", f"0x{number:064x}")
        log.anchor(chain)
        db = open_store(tmp_path)
        history = History(db)
        history.follow(chain.heads(history.num_epochs), log.read)
        assert (history.num_epochs, history.size) == (number + 1, number + 1)
        db.close()


def test_a_submission_keeps_the_epoch_it_was_first_logged_in(store: sqlite3.Connection, chain: Any, log: Any) -> None:
    for _ in range(2):
        log.append("submission.received", SUBMISSION)
        log.anchor(chain)
    history = History(store)
    history.follow(chain.heads(0), log.read)
    received = history.received(SUBMISSION)
    assert received is not None and received.epoch == 0


def altered(entry: LogEntry, **changes: Any) -> LogEntry:
    return entry.model_copy(update=changes)


def test_a_log_that_the_chain_does_not_anchor_is_refused(store: sqlite3.Connection, chain: Any, log: Any) -> None:
    log.append("submission.accepted", SUBMISSION, num_units=1, payments=[[ALICE, "7"]])
    log.anchor(chain)
    forged = type(log)()
    forged.append("submission.accepted", SUBMISSION, num_units=1, payments=[[BOB, "7"]])
    history = History(store)
    with pytest.raises(VerificationFailed, match="anchors"):
        history.follow(chain.heads(0), forged.read)
    assert history.num_epochs == 0 and history.payments.earnings(0) == {}
    history.follow(chain.heads(0), log.read)
    assert history.payments.earnings(0) == {ALICE: 7}


@pytest.mark.parametrize(
    "changes",
    [{"index": 1}, {"subject": "0x" + "77" * 32}, {"event_hash": "0x" + "00" * 32}, {"leaf_hash": "0x" + "00" * 32}],
)
def test_an_entry_that_contradicts_its_document_is_refused(
    store: sqlite3.Connection, chain: Any, log: Any, changes: dict[str, Any]
) -> None:
    entry = log.append("task.leased", SUBMISSION)
    log.anchor(chain)
    with pytest.raises(VerificationFailed, match="isn't what it says"):
        History(store).follow(chain.heads(0), lambda start, limit: [altered(entry, **changes)])


def test_entries_that_are_held_back_are_noticed(store: sqlite3.Connection, chain: Any, log: Any) -> None:
    log.append("task.leased", SUBMISSION)
    log.anchor(chain)

    def nothing(start: int, limit: int) -> Sequence[LogEntry]:
        return []

    with pytest.raises(VerificationFailed, match="holds back"):
        History(store).follow(chain.heads(0), nothing)


def test_an_event_without_a_time_receives_nothing_and_ends_nothing(
    store: sqlite3.Connection, chain: Any, log: Any
) -> None:
    log.append("submission.received", SUBMISSION, time=None)
    log.anchor(chain)
    history = History(store)
    history.follow(chain.heads(0), log.read)
    assert history.received(SUBMISSION) is None and history.num_epochs == 1


@pytest.mark.parametrize("data", [None, [], 5, {"num_units": "1"}])
def test_events_whose_data_say_nothing_are_faults_and_stop_nobody(
    store: sqlite3.Connection, chain: Any, log: Any, data: Any
) -> None:
    """A coordinator may log anything, and then pay for it."""
    log.append("submission.received", SUBMISSION)
    log.entries[-1] = relogged(log, data)
    log.append("submission.accepted", SUBMISSION, num_units=1, payments=[[ALICE, "7"]])
    log.anchor(chain)
    history = History(store)
    history.follow(chain.heads(0), log.read)
    assert 1 in {fault.log_index for fault in history.payments.faults(0)}


def relogged(log: Any, data: Any) -> LogEntry:
    """The only entry of a log, with other data, hashed as it is."""
    entry = log.entries[-1]
    event = {**entry.event, "data": data} if data is not None else {k: v for k, v in entry.event.items() if k != "data"}
    event_hash = hex0x(sha256(canonical_json(event)))
    leaf = event_leaf_hash_of(entry.subject, event_hash)
    log.tree = MemoryLog([leaf])
    return LogEntry(index=0, subject=entry.subject, event_hash=event_hash, leaf_hash=leaf, event=event)
