"""What everybody can read: pages in the order of arrival, filters, immutable files."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.reasons import Outcome, RejectReason
from protocol.signing import Signer


def test_pages_are_complete_and_in_order(site: Any) -> None:
    ids = [site.accept() for _ in range(3)] + [site.submit()]
    client = site.client()
    everything = client.submissions()
    assert [view.submission_id for view in everything] == ids
    pages, after = [], -1
    while page := client.submissions(after, limit=2):
        pages += page
        after = page[-1].log_index
    assert pages == everything
    assert [view.submission_id for view in client.submissions(standing="received")] == ids[-1:]
    assert client.submissions(node=Signer((9).to_bytes(32, "big")).address) == []


def test_a_full_page_links_to_the_next_one(site: Any) -> None:
    ids = [site.accept() for _ in range(2)]
    with site.http() as http:
        first = http.get("/v1/submissions", params={"limit": 1, "standing": "accepted"})
        second = http.get(first.links["next"]["url"])
        assert [row["submission_id"] for answer in (first, second) for row in answer.json()] == ids
        assert "next" not in http.get("/v1/submissions", params={"limit": 3}).links


def test_a_decision_is_shown_with_its_epoch_and_what_it_earned(site: Any) -> None:
    accepted, dropped, waiting = site.submit(), site.submit(), site.submit()
    site.judge(accepted)
    site.judge(dropped, Outcome.DROP, RejectReason.LOGPROB_MISMATCH)
    client = site.client()
    paid = client.submission(accepted)
    assert paid.settling is not None
    assert paid.settling.amount_wei == paid.num_units * paid.task.message.price_wei > 0
    assert client.submission(dropped).settling.amount_wei == 0
    assert client.submission(waiting).settling is None
    open_epoch = client.submission(dropped).settling.epoch
    assert site.close_epoch() == open_epoch
    site.close_epoch()
    assert client.submission(dropped).settling.epoch == open_epoch > paid.settling.epoch
    (leaf,) = client.entries(paid.settling.log_index, limit=1)
    assert (leaf.event["type"], leaf.subject) == ("submission.accepted", accepted)


def test_files_are_immutable_for_caches(site: Any) -> None:
    submission_id = site.submit()
    path = f"/v1/submissions/{submission_id}/file"
    with site.http() as http:
        first = http.get(path)
        assert first.headers["content-type"] == "application/vnd.apache.parquet"
        assert "immutable" in first.headers["cache-control"]
        again = http.get(path, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(("ranges", "status"), [("bytes=0-3", 206), ("bytes", 422), ("bytes=999999999-", 416)])
def test_a_range_is_served_or_refused_with_a_problem_document(site: Any, ranges: str, status: int) -> None:
    submission_id = site.submit()
    with site.http() as http:
        answer = http.get(f"/v1/submissions/{submission_id}/file", headers={"range": ranges})
    assert answer.status_code == status
    if status == 206:
        assert answer.content == b"PAR1"
    else:
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_file_that_is_gone_is_not_found(site: Any) -> None:
    submission_id = site.submit()
    view = site.client().submission(submission_id)
    site.coordinator.blobs.path(view.file_sha256).unlink()
    with site.http() as http:
        assert http.get(f"/v1/submissions/{submission_id}/file").status_code == 404
        assert http.get(f"/v1/submissions/0x{'00' * 32}").json()["code"] == "not_found"
