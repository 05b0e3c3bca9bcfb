"""`proofpool shardcast status`: who has which policy version since when, as a table or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from protocol.shardcast.propagation import Propagation, Quantiles

ANSWER_SECONDS = 10.0
COLUMNS = "{:>8}  {:>10}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}"


def status(
    coordinator: Annotated[
        str, typer.Option("--coordinator", envvar="PROOFPOOL_COORDINATOR_URL", help="Whose pool's versions.")
    ] = "http://127.0.0.1:8700",
    url: Annotated[list[str] | None, typer.Option(help="A relay; may be given often. Else the pool's.")] = None,
    versions: Annotated[int, typer.Option(min=1, max=100, help="How many of the newest versions.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Say who has the newest policy versions since when: relays by what they say, nodes by their first lease.

    Seconds are from the announcement: for half, for nine tenths, and for the last of those that have a version.
    """
    from contextlib import closing

    from protocol.client import CoordinatorClient
    from protocol.clock import SteadyClock
    from protocol.shardcast.line import weights_client
    from protocol.shardcast.propagation import propagation

    with closing(CoordinatorClient(coordinator)) as client, weights_client(ANSWER_SECONDS) as http:
        urls = url or client.pool().shardcast_urls
        found = propagation(http, urls, client.version_spreads(versions), SteadyClock())
    typer.echo(found.model_dump_json(indent=2) if as_json else table(found))


def table(found: Propagation) -> str:
    """Versions, and below them what each relay has of the newest."""
    if not found.versions:
        return "no policy version is announced yet"
    lines = [COLUMNS.format("version", "relays", "p50 s", "p90 s", "last s", "nodes", "p50 s", "p90 s", "last s")]
    for one in found.versions:
        num_complete = sum(relay.state == "complete" for relay in one.relays)
        relays = (f"{num_complete} of {len(one.relays)}", *_seconds(one.relay_seconds))
        lines.append(COLUMNS.format(one.policy_version, *relays, one.num_nodes, *_seconds(one.node_seconds)))
    newest = found.versions[0]
    lines.extend(["", f"version {newest.policy_version}, announced at {newest.announced_time}"])
    for relay in newest.relays:
        since = "" if relay.seconds is None else f", {relay.seconds:.1f} s after the announcement"
        shards = "" if relay.num_shards is None else f", {relay.num_shards} shards"
        lines.append(f"  {relay.url}: {relay.state}{shards}{since}")
    return "\n".join(lines)


def _seconds(found: Quantiles | None) -> tuple[str, str, str]:
    if found is None:
        return "-", "-", "-"
    return f"{found.p50:.1f}", f"{found.p90:.1f}", f"{found.last:.1f}"
