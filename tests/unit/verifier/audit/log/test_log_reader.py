"""A log is read to its end only where it is the one that the heads anchor."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.api import LogEntry
from protocol.errors import VerificationFailed
from verifier.audit.log.log_reader import read_log


@pytest.fixture
def closed_log(log: Any, chain: Any) -> Any:
    """Three epochs of 3, 2 and 1 leaves, each with a leaf of its own at its end."""
    for epoch, num_leases in enumerate((2, 1, 0)):
        for number in range(num_leases):
            log.append("task.leased", f"0x{16 * epoch + number + 1:064x}")
        log.append("epoch.closed", epoch=epoch)
        log.anchor(chain)
    return log


def test_every_leaf_comes_with_its_epoch(closed_log: Any, chain: Any) -> None:
    found = list(read_log(closed_log.read, chain.heads(0)))
    assert [epoch for epoch, _ in found] == [0, 0, 0, 1, 1, 2]
    assert [entry for _, entry in found] == closed_log.entries


def test_epochs_are_known_also_where_the_chain_has_forgotten_their_heads(closed_log: Any, chain: Any) -> None:
    assert [epoch for epoch, _ in read_log(closed_log.read, chain.heads(2))] == [0, 0, 0, 1, 1, 2]


def test_pages_may_be_short(closed_log: Any, chain: Any) -> None:
    assert len(list(read_log(lambda start, limit: closed_log.read(start, 1), chain.heads(0)))) == 6


def test_a_log_that_ends_early_is_not_read_to_its_end(closed_log: Any, chain: Any) -> None:
    with pytest.raises(VerificationFailed, match="holds back"):
        list(read_log(lambda start, limit: closed_log.read(start, limit)[: 5 - start], chain.heads(0)))


def test_another_event_in_its_place_is_found(closed_log: Any, chain: Any) -> None:
    forged = type(closed_log)()
    for entry in closed_log.entries:
        forged.append(entry.event["type"], entry.subject, time=99, **entry.event["data"])
    with pytest.raises(VerificationFailed, match="epoch 0 anchors"):
        list(read_log(forged.read, chain.heads(0)))


def test_more_than_was_asked_for_is_no_log(closed_log: Any, chain: Any) -> None:
    def generous(start: int, limit: int) -> list[LogEntry]:
        return closed_log.entries[start:]  # type: ignore[no-any-return]

    with pytest.raises(VerificationFailed, match="epoch 0 anchors"):
        list(read_log(generous, chain.heads(0)))
