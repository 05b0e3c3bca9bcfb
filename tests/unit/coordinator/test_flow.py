"""The life of one submission, from lease to consumed groups, over HTTP."""

from __future__ import annotations

from typing import Any


def test_a_submission_goes_from_lease_to_consumed_groups(site: Any) -> None:
    submission_id = site.accept()
    trainer = site.client(site.trainer)
    offer = trainer.lease_batch(1)
    assert {group.submission_id for group in offer.groups} == {submission_id}
    trainer.acknowledge_batch(offer.number)
