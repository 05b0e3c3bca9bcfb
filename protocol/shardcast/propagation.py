"""How far the newest policy versions have come: each relay asked what it has, each node by its first lease.

In: what the coordinator says of the newest versions, and relays. Out: `Propagation`, what `proofpool shardcast status`
prints. Relays' times are by their own clocks, versions' and nodes' by the chain's. A folder without a holding is an
origin's, or a web server's copy of one: there the manifest comes last, and its date is when all were there.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import Literal

import httpx
from pydantic import BaseModel, ConfigDict

from protocol.api import VersionSpread
from protocol.clock import Clock
from protocol.errors import ShardCorrupt
from protocol.shardcast.document import read_document
from protocol.shardcast.holding import HOLDING_FILE, MAX_HOLDING_BYTES, read_holding
from protocol.shardcast.manifest import version_path
from protocol.wire import Address, Hash32, UInt64

RELAYS_AT_A_TIME = 16


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RelayArrival(_Shape):
    """What a relay has of a version. `seconds` from the announcement until it was complete there."""

    url: str
    state: Literal["complete", "partial", "missing", "silent"]
    num_shards: int | None
    """None where it doesn't say."""
    completed_time: float | None
    seconds: float | None


class NodeSeconds(_Shape):
    """From the announcement to a node's first lease."""

    node: Address
    seconds: int


class Quantiles(_Shape):
    """Of those that have the version, in seconds from the announcement."""

    p50: float
    p90: float
    last: float


class VersionPropagation(_Shape):
    policy_version: UInt64
    manifest_hash: Hash32
    announced_time: UInt64
    relays: tuple[RelayArrival, ...]
    relay_seconds: Quantiles | None
    num_nodes: int
    nodes: tuple[NodeSeconds, ...]
    node_seconds: Quantiles | None


class Propagation(_Shape):
    """Of the newest versions, newest first."""

    schema_version: Literal[1] = 1
    versions: tuple[VersionPropagation, ...]


def propagation(http: httpx.Client, urls: Sequence[str], spreads: Sequence[VersionSpread], clock: Clock) -> Propagation:
    """Ask each relay for each version. A relay that doesn't answer is `silent`, and no reason to fail."""
    with ThreadPoolExecutor(RELAYS_AT_A_TIME) as pool:
        asked = {
            (spread.policy_version, url): pool.submit(_arrival, http, url.rstrip("/"), spread, clock)
            for spread in spreads
            for url in urls
        }
    return Propagation(
        versions=tuple(
            _version(spread, [asked[spread.policy_version, url].result() for url in urls]) for spread in spreads
        )
    )


def quantiles(seconds: Sequence[float]) -> Quantiles | None:
    """By the nearest rank; None of none.

    >>> quantiles([3.0, 1.0, 2.0])
    Quantiles(p50=2.0, p90=3.0, last=3.0)
    """
    if not seconds:
        return None
    ordered = sorted(seconds)
    p50, p90 = (ordered[-(-len(ordered) * percent // 100) - 1] for percent in (50, 90))
    return Quantiles(p50=p50, p90=p90, last=ordered[-1])


def _version(spread: VersionSpread, relays: Sequence[RelayArrival]) -> VersionPropagation:
    nodes = tuple(
        NodeSeconds(node=one.node, seconds=one.first_lease_time - spread.announced_time) for one in spread.nodes
    )
    return VersionPropagation(
        policy_version=spread.policy_version,
        manifest_hash=spread.manifest_hash,
        announced_time=spread.announced_time,
        relays=tuple(relays),
        relay_seconds=quantiles([one.seconds for one in relays if one.seconds is not None]),
        num_nodes=spread.num_nodes,
        nodes=nodes,
        node_seconds=quantiles([one.seconds for one in nodes]),
    )


def _arrival(http: httpx.Client, url: str, spread: VersionSpread, clock: Clock) -> RelayArrival:
    try:
        num_shards, completed_time, is_there = _asked(http, url, spread.policy_version, clock)
    except (httpx.HTTPError, httpx.InvalidURL, ShardCorrupt):
        return RelayArrival(url=url, state="silent", num_shards=None, completed_time=None, seconds=None)
    if completed_time is None:
        state: Literal["partial", "missing"] = "partial" if is_there else "missing"
        return RelayArrival(url=url, state=state, num_shards=num_shards, completed_time=None, seconds=None)
    seconds = round(completed_time - spread.announced_time, 3)
    return RelayArrival(
        url=url, state="complete", num_shards=num_shards, completed_time=round(completed_time, 3), seconds=seconds
    )


def _asked(http: httpx.Client, url: str, version: int, clock: Clock) -> tuple[int | None, float | None, bool]:
    """Number of shards, when all were there, and whether there is anything."""
    try:
        data = read_document(http, f"{url}/{version_path(version)}/{HOLDING_FILE}", MAX_HOLDING_BYTES, clock)
    except httpx.HTTPStatusError as error:
        if error.response.status_code != httpx.codes.NOT_FOUND:
            raise
        return _asked_of_origin(http, url, version)
    holding = read_holding(data, version)
    return len(holding.shards) + len(holding.patch), holding.completed_time, True


def _asked_of_origin(http: httpx.Client, url: str, version: int) -> tuple[int | None, float | None, bool]:
    answer = http.head(f"{url}/{version_path(version)}/manifest.json", follow_redirects=False)
    if answer.status_code == httpx.codes.NOT_FOUND:
        return None, None, False
    answer.raise_for_status()
    try:
        return None, parsedate_to_datetime(answer.headers["last-modified"]).timestamp(), True
    except (KeyError, ValueError) as error:
        raise ShardCorrupt("a relay doesn't date its manifest", url) from error
