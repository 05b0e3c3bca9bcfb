"""`GET /v1/weights`: which nodes have the newest versions since when."""

from __future__ import annotations

import pytest

from coordinator.context import Coordinator
from coordinator.db.chain import Version
from coordinator.log import append
from coordinator.mirrors import ANNOUNCED
from coordinator.pool import chain_time
from protocol.errors import ProofpoolError
from tests.unit.coordinator.conftest import POOL_ID, Site


def announce(coordinator: Coordinator, policy_version: int, time: int) -> None:
    """As the trainer's release would."""
    with coordinator.writing() as session:
        version = session.get_one(Version, (POOL_ID, policy_version))
        version.release_signature = "0x" + "11" * 65
        append(session, ANNOUNCED, version.manifest_hash, time, {"policy_version": policy_version})


def test_a_version_says_who_leased_on_it_first_when(site: Site) -> None:
    announce(site.coordinator, 0, 77)
    first = site.lease().message
    (found,) = site.client().version_spreads()
    assert (found.policy_version, found.announced_time, found.num_nodes) == (0, 77, 1)
    assert [one.node for one in found.nodes] == [first.node] == [site.node.address]
    with site.coordinator.reading() as session:
        assert found.nodes[0].first_lease_time == chain_time(session)
    site.client(site.node).return_task(first.id(site.domain))
    site.mine(60)
    site.lease()
    assert site.client().version_spreads() == [found], "a second lease changes nothing"


def test_the_newest_versions_come_first_and_as_many_as_are_asked_for(site: Site) -> None:
    for version in (1, 2, 3):
        site.publish(version)
        announce(site.coordinator, version, 100 + version)
    found = site.client().version_spreads(2)
    assert [(one.policy_version, one.announced_time, one.num_nodes) for one in found] == [(3, 103, 0), (2, 102, 0)]


def test_a_version_that_is_not_announced_is_not_named(site: Site) -> None:
    site.publish(1)
    assert 1 not in [one.policy_version for one in site.client().version_spreads()]


def test_what_has_no_leaf_counts_from_its_publication(site: Site) -> None:
    site.publish(1)
    with site.coordinator.writing() as session:
        version = session.get_one(Version, (POOL_ID, 1))
        version.release_signature = "0x" + "11" * 65
        published = version.published_time
    assert site.client().version_spreads(1)[0].announced_time == published


@pytest.mark.parametrize("limit", [0, 101])
def test_a_limit_that_makes_no_sense_is_refused(site: Site, limit: int) -> None:
    with pytest.raises(ProofpoolError):
        site.client().version_spreads(limit)
