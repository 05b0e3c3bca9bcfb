"""`/v1/status`, readiness and metrics: what operators look at."""

from __future__ import annotations

import dataclasses

from coordinator.db.chain import ChainHead, Pool
from coordinator.status import MAX_LAG_SECONDS
from tests.unit.coordinator.conftest import POOL_ID, Site


def test_the_status_counts_work_and_money(site: Site) -> None:
    site.accept()
    site.lease()
    status = site.client().status()
    assert status.num_by_standing == {"accepted": 1, "leased": 1}
    assert status.num_pending_groups == 2
    assert status.earned_wei > 0 and status.claimed_wei == 0
    assert status.log_size == len(list(site.client().all_entries()))


def test_the_status_says_what_became_of_each_accepted_group(site: Site) -> None:
    task = site.lease().message
    rollouts = [dataclasses.replace(r, task_reward=1.0) if i < 2 else r for i, r in enumerate(site.rollouts(task))]
    envelope, submission_id, file = site.pack(task, rollouts)
    site.client(site.node).submit(envelope, submission_id, file)
    assert site.client().status().num_by_use == {}  # nobody has judged it yet
    site.judge(submission_id)
    assert site.client().status().num_by_use == {"no_variance": 1, "pending": 1}
    for version in (1, 2, 3):
        site.publish(version)
    assert site.client(site.trainer).lease_batch(4) is None
    assert site.client().status().num_by_use == {"no_variance": 1, "stale": 1}
    assert 'proofpool_coordinator_groups{use="stale"} 1.0' in site.http().get("/v1/metrics").text


def test_an_idle_coordinator_is_healthy_and_ready(site: Site) -> None:
    assert site.http().get("/v1/healthz").status_code == 204
    assert site.http().get("/v1/readyz").status_code == 204


def test_a_coordinator_far_behind_the_chain_is_healthy_but_not_ready(site: Site) -> None:
    now = site.clock.now()
    site.mirror(ChainHead(id=1, number=site.num_blocks + 100, time=int(now), seen_time=now - MAX_LAG_SECONDS - 1))
    assert site.http().get("/v1/healthz").status_code == 204
    answer = site.http().get("/v1/readyz")
    assert answer.status_code == 503 and "far ahead" in answer.json()["detail"]


def test_a_coordinator_without_its_pool_is_not_ready(site: Site) -> None:
    with site.coordinator.writing() as session:
        session.delete(session.get_one(Pool, POOL_ID))
    assert site.http().get("/v1/readyz").status_code == 503


def test_metrics_are_prometheus_text(site: Site) -> None:
    site.accept()
    text = site.http().get("/v1/metrics").text
    assert 'proofpool_coordinator_tasks{standing="accepted"} 1.0' in text
    assert "# HELP proofpool_coordinator_lag_seconds" in text
