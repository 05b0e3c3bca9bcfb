"""`proofpool shardcast`: publish and serve policy versions, forward them, fetch one; make and apply patches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.errors import UsageError
from protocol.shardcast import patch_commands, status_command, token_command

if TYPE_CHECKING:
    from protocol.shardcast.file_server import FileServer
    from protocol.shardcast.releases import CoordinatorReleases
    from protocol.shardcast.token import Gate

DEFAULT_COORDINATOR = "http://127.0.0.1:8700"
MEBIBYTE = 1 << 20

app = typer.Typer(help="Publish, serve, forward, fetch and patch policy versions.", no_args_is_help=True)

Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
Coordinator = Annotated[
    str, typer.Option("--coordinator", envvar="PROOFPOOL_COORDINATOR_URL", help="Whose pool's versions.")
]
Trainer = Annotated[
    str | None, typer.Option(help="Address that signs the releases; else whom the coordinator names at first.")
]
Connections = Annotated[int, typer.Option(min=1, help="Connections at a time, in all.")]
PerIp = Annotated[int, typer.Option("--connections-per-ip", min=1, help="Connections at a time of one address.")]
Rate = Annotated[int, typer.Option("--bytes-per-second-per-ip", min=0, help="What one address gets; 0: no limit.")]

TokenSigner = Annotated[
    list[str] | None,
    typer.Option("--token-signer", help="Serve those only who show a token of this address's; may be given often."),
]
MetricsAddress = Annotated[str | None, typer.Option(help="HOST:PORT of /metrics and /healthz; off without.")]


@app.callback()
def shardcast() -> None:
    """Publish, serve, forward, fetch and patch policy versions."""


@app.command()
def serve(
    root: Annotated[Path, typer.Argument(help="The folder that the origin publishes into.")],
    host: Host = "127.0.0.1",
    port: Port = 8500,
    connections: Connections = 1024,
    connections_per_ip: PerIp = 64,
    bytes_per_second_per_ip: Rate = 0,
    token_signer: TokenSigner = None,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
    metrics_address: MetricsAddress = None,
) -> None:
    """Serve ROOT over HTTP until interrupted. A coordinator is asked only for what tokens are about."""
    from contextlib import ExitStack, closing

    from protocol.client import CoordinatorClient
    from protocol.shardcast.file_server import FileServer
    from protocol.shardcast.limits import Limits
    from protocol.shardcast.releases import CoordinatorReleases

    with ExitStack() as stack:
        limits, gate = Limits(connections, connections_per_ip, bytes_per_second_per_ip), None
        if token_signer:
            client = stack.enter_context(closing(CoordinatorClient(coordinator)))
            gate = _gate(token_signer, CoordinatorReleases(client))
        server = FileServer(root, (host, port), limits, gate=gate)
        stack.callback(server.close)
        stack.enter_context(_seen(server, root, metrics_address))
        server.run()


def _gate(signers: list[str] | None, releases: CoordinatorReleases) -> Gate | None:
    """Who lets in, where anybody is named who may."""
    from protocol.address import parse_address
    from protocol.clock import SystemClock
    from protocol.shardcast.token import Gate

    if not signers:
        return None
    return Gate([parse_address(one, "--token-signer") for one in signers], releases.ground, SystemClock())


def _seen(server: FileServer, root: Path, metrics_address: str | None) -> AbstractContextManager[object]:
    """Health and metrics of an origin, where an address is named for them."""
    from protocol.health_server import HealthServer
    from protocol.shardcast.origin_status import OriginMetrics, health_of

    if metrics_address is None:
        return nullcontext()
    return HealthServer(metrics_address, lambda: health_of(root), OriginMetrics(server, root))


@app.command()
def origin(
    root: Annotated[Path, typer.Argument(help="The folder to publish into, and to serve.")],
    checkpoint: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder with a version's files.")],
    pool: Annotated[int, typer.Option(min=0, help="The pool's id.")],
    policy_version: Annotated[int, typer.Option("--version", min=0, help="The policy version that it is.")],
    keep: Annotated[int, typer.Option(min=1, help="Newest versions to keep; those before are removed.")] = 5,
    host: Host = "127.0.0.1",
    port: Port = 8500,
    metrics_address: MetricsAddress = None,
) -> None:
    """Publish a checkpoint, served shard by shard while it is cut, and go on serving until interrupted.

    Says the manifest's hash and where it is served. The hash is what the trainer's key has
    to sign and bring on chain. A trainer publishes its versions
    itself, keeps all of them for audits, and needs `serve` only.
    """
    from protocol.shardcast.file_server import FileServer
    from protocol.shardcast.keeping import keep_newest
    from protocol.shardcast.origin import publish
    from protocol.signals import stop_on_signals

    stop = stop_on_signals("shardcast")
    with FileServer(root, (host, port)) as server, _seen(server, root, metrics_address):
        manifest = publish(checkpoint, root, pool, policy_version)
        keep_newest(root, keep, policy_version=policy_version)
        typer.echo(f"{manifest.manifest_hash} {server.url}")
        stop.wait()


@app.command()
def relay(
    root: Annotated[Path, typer.Argument(help="The folder to fill, and to serve.")],
    upstream: Annotated[list[str], typer.Option(help="The origin's or another relay's URL; may be given often.")],
    coordinator: Coordinator = DEFAULT_COORDINATOR,
    trainer: Trainer = None,
    own_url: Annotated[
        str | None,
        typer.Option("--url", help="Where peers reach this relay; they share out what the origin sends."),
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(help="Another relay of the same upstreams; may be given often. Else the pool's.")
    ] = None,
    keep: Annotated[int, typer.Option(min=1, help="Newest versions to keep.")] = 5,
    host: Host = "127.0.0.1",
    port: Port = 8500,
    connections: Connections = 1024,
    connections_per_ip: PerIp = 64,
    bytes_per_second_per_ip: Rate = 0,
    token_signer: TokenSigner = None,
    metrics_address: MetricsAddress = None,
) -> None:
    """Pull the pool's versions from upstreams as they are written, and hand out each shard once it is checked.

    With --url and peers (each --peer, or the relays that the pool names), each relay asks upstreams for a share of
    the shards and has the others from its peers, so that the origin sends each about once.
    """
    from contextlib import ExitStack, closing

    from protocol.client import CoordinatorClient
    from protocol.clock import SteadyClock
    from protocol.shardcast.exchange import Exchange
    from protocol.shardcast.file_server import FileServer
    from protocol.shardcast.forwarder import Forwarder
    from protocol.shardcast.limits import Limits
    from protocol.shardcast.line import weights_client
    from protocol.shardcast.relay import run_relay
    from protocol.shardcast.relays import Relays
    from protocol.shardcast.releases import CoordinatorReleases
    from protocol.signals import stop_on_signals

    if peer and own_url is None:
        raise UsageError("a relay among peers needs its own URL", "--peer without --url", "name what peers call it")
    stop, clock, relays = stop_on_signals("shardcast"), SteadyClock(), Relays(upstream)
    with ExitStack() as stack:
        client = stack.enter_context(closing(CoordinatorClient(coordinator)))
        http = stack.enter_context(weights_client())

        def members() -> Sequence[str]:
            return () if own_url is None else peer or client.pool().shardcast_urls

        exchange = stack.enter_context(Exchange(own_url or "", members, upstream, relays, clock))
        releases = CoordinatorReleases(client, trainer)
        forwarder = Forwarder(root, upstream, releases, http, keep, clock, exchange, relays)
        limits = Limits(connections, connections_per_ip, bytes_per_second_per_ip)
        server = FileServer(root, (host, port), limits, gate=_gate(token_signer, releases))
        run_relay(server, forwarder, stop, metrics_address)


@app.command()
def get(
    policy_version: Annotated[int, typer.Argument(metavar="VERSION", min=0, help="The policy version to fetch.")],
    out: Annotated[Path, typer.Option(help="Where its folder vVERSION goes.")] = Path(),
    url: Annotated[list[str] | None, typer.Option(help="A relay; may be given often. Else the pool's.")] = None,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
    trainer: Trainer = None,
    manifest_hash: Annotated[
        str | None, typer.Option(help="As it is on chain; then no coordinator is asked, and --url is needed.")
    ] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for shards that no relay has yet.")] = 60.0,
    deadline: Annotated[float | None, typer.Option(min=0, help="Seconds for the whole.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Fetch a policy version from relays, each byte checked; what an interrupted run has fetched is gone on with."""
    from contextlib import ExitStack, closing

    from pydantic import ValidationError

    from protocol.client import CoordinatorClient
    from protocol.clock import SteadyClock
    from protocol.progress import Progress
    from protocol.shardcast.client import fetch
    from protocol.shardcast.folder import MANIFEST_FILE, version_folder
    from protocol.shardcast.line import weights_client
    from protocol.shardcast.releases import CoordinatorReleases
    from protocol.shardcast.report import report_of, told
    from protocol.wire import WeightsRelease

    clock = SteadyClock()
    started, urls = clock.now(), tuple(url or ())
    folder = version_folder(out, policy_version)
    if folder.exists() and not (folder / MANIFEST_FILE).exists():
        why, todo = f"{folder} wasn't fetched", "move it away, or name another folder (--out): it would be replaced"
        raise UsageError("something else is where the version goes", why, todo)
    with ExitStack() as stack:
        if manifest_hash is not None:
            if not urls:
                raise UsageError("nobody is named to fetch from", "--manifest-hash without --url", "name a relay")
            try:
                release = WeightsRelease(pool_id=0, policy_version=policy_version, manifest_hash=manifest_hash)
            except ValidationError as error:
                why = f"--manifest-hash {manifest_hash}"
                raise UsageError("that is no hash", why, "a hash is 0x and 64 small hexadecimal digits") from error
        else:
            client = stack.enter_context(closing(CoordinatorClient(coordinator)))
            release = CoordinatorReleases(client, trainer).of(policy_version)
            urls = urls or client.pool().shardcast_urls
        http = stack.enter_context(weights_client())
        progress = stack.enter_context(Progress(f"policy version {policy_version}", 1, is_patient=True))

        def tell(done: int, total: int) -> None:
            rate = done / max(clock.now() - started, 1e-6) / MEBIBYTE
            progress.still(f"{done // MEBIBYTE} of {total // MEBIBYTE} MiB, {rate:.0f} MiB/s")

        progress.doing("the manifest")
        fetched = fetch(http, urls, release, out, tell, None, wait, deadline)
        progress.step()
    report = report_of(fetched, release, clock.now() - started)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
        return
    typer.echo(report.folder)
    for line in told(report):
        typer.echo(line, err=True)


app.command()(status_command.status)
app.command()(token_command.token)
app.command()(patch_commands.diff)
app.command()(patch_commands.apply)
