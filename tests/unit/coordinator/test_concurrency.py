"""Requests at the same time: each transaction sees what the others did."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from protocol.errors import Rejected
from protocol.reasons import RejectReason

NUM_THREADS = 6


def at_once(action: Callable[[], Any]) -> list[Any]:
    """What `action` gives in several threads; a refusal counts as its reason."""

    def run(_: int) -> Any:
        try:
            return action()
        except Rejected as refusal:
            return refusal.reason

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        return list(pool.map(run, range(NUM_THREADS)))


def test_a_limit_of_one_lease_gives_one(site: Any) -> None:
    answers = at_once(site.lease)
    assert answers.count(RejectReason.LEASE_LIMIT) == NUM_THREADS - 1


def test_counters_stay_gap_free(site: Any) -> None:
    site.coordinator.config = site.coordinator.config.model_copy(update={"backlog_steps": 100})
    for _ in range(3):
        site.accept()  # the limit is 8 now
    leased = [signed.message.counter for signed in at_once(site.lease)]
    assert sorted(leased) == list(range(3, 3 + NUM_THREADS))


def test_one_submission_sent_many_times_is_received_once(site: Any) -> None:
    sent = site.pack(site.lease().message)
    receipts = at_once(lambda: site.client(site.node).submit(*sent))
    assert len({receipt.signature for receipt in receipts}) == 1
    assert len(site.client().submissions()) == 1


def test_one_step_has_one_batch(site: Any) -> None:
    site.accept()
    offers = at_once(lambda: site.client(site.trainer).lease_batch(1))
    assert all(offer == offers[0] for offer in offers)
    with site.http() as http:
        assert len(http.get("/v1/batches").json()) == 1
