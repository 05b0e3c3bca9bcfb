"""The forwarder: what makes a folder a relay's. It pulls what upstreams have; each shard is served once it is checked.

    coordinator ─ newest release, signed by the trainer ─▶ manifest with that hash ─▶ shards of it
    upstream's listing of the version after that, signed by the trainer ─▶ its shards, ahead of the release

In: upstreams (the origin, or other relays; none is trusted), and releases. Out: `DIR/versions/N`, as an origin writes
it, but that manifest or listing come first: clients ask for shards while they arrive. A restart hashes what is there
and fetches what is missing.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import httpx

from protocol.clock import Clock
from protocol.errors import ProofpoolError, ShardCorrupt, SignatureInvalid, VerificationFailed
from protocol.files import write_atomically
from protocol.shardcast.document import ask_relays, read_document
from protocol.shardcast.exchange import Exchange
from protocol.shardcast.holding import OwnHolding
from protocol.shardcast.keeping import keep_newest
from protocol.shardcast.listing import LISTING_FILE, Listing, read_listing
from protocol.shardcast.manifest import MAX_MANIFEST_BYTES, Kind, Manifest, Shard, read_manifest, version_path
from protocol.shardcast.relays import Relay, Relays
from protocol.shardcast.shard_folder import ShardFolder
from protocol.shardcast.work import ShardWork
from protocol.telemetry import get_logger
from protocol.wire import ShardListing, Signed, WeightsRelease

WAIT_SECONDS = 60.0
"""Without progress, for shards that upstreams haven't got yet."""
POLL_SECONDS = 1.0
LISTING_SECONDS = 5.0
"""An upstream that says nothing for so long isn't waited for: it is asked again soon."""
PEER_POLL_SECONDS = 0.25
"""While peers are waited for."""


class Releases(Protocol):
    """Where the trainer's word comes from."""

    def newest(self) -> WeightsRelease | None:
        """The newest release, its signature checked; None before the first. Raises ProofpoolError."""
        ...

    def check(self, listing: Signed[ShardListing]) -> ShardListing:
        """The listing, if the pool's trainer signed it. Raises SignatureInvalid, VerificationFailed."""
        ...


class _Sinks(NamedTuple):
    """Where a version goes."""

    policy_version: int
    holding: OwnHolding
    shards: ShardFolder
    patch: ShardFolder


class Forwarder:
    """Example: `Forwarder(root, ["http://origin:8500"], releases, http, num_kept=5, clock=clock).run(stop)`."""

    def __init__(
        self,
        root: Path,
        upstreams: Sequence[str],
        releases: Releases,
        http: httpx.Client,
        num_kept: int,
        clock: Clock,
        exchange: Exchange | None = None,
        relays: Relays | None = None,
    ) -> None:
        """`exchange` shares out with peers whom upstreams send what; it and this have the same `relays`."""
        self.root = root
        self.relays = relays or Relays(upstreams)
        self._upstreams = self.relays.all
        self._exchange = exchange
        self.policy_version: int | None = None
        """The newest version that is here completely."""
        self.trouble = ""
        """What stood in the way of the last look; empty where nothing did."""
        self._releases, self._http, self._num_kept, self._clock = releases, http, num_kept, clock
        self._latest: _Sinks | None = None
        self._whole: dict[int, str] = {}
        """Versions that are here, and their manifests' hashes: they aren't hashed once more with each new version."""
        self._listed: Listing | None = None
        """The trainer's newest word on a version that isn't released yet."""
        self._is_waiting = False
        """Peers are about to have what is missing."""
        self._unsigned: set[str] = set()
        """Where listings were found that aren't believed: each is said once."""

    @property
    def peers(self) -> list[Relay]:
        """Relays that share out with this one what upstreams send."""
        return [relay for relay in self.relays.all if relay not in self._upstreams]

    def run(self, stop: threading.Event) -> None:
        """Look for what is new until `stop` is set. What stands in the way is logged, and tried again."""
        while not self._clock.wait(stop, 0.0 if self._looked() else self._pause_seconds):
            pass

    @property
    def _pause_seconds(self) -> float:
        """Peers are looked at more often than coordinators."""
        return PEER_POLL_SECONDS if self._is_waiting else POLL_SECONDS

    def look(self) -> bool:
        """Pull what is there now; whether that was anything. Raises ProofpoolError, OSError."""
        release = self._releases.newest()
        here = -1 if self.policy_version is None else self.policy_version
        if release is not None and release.policy_version > here:  # an older one may be a replayed one
            self._pull(release)
            return True
        return self._pull_ahead(here + 1)

    def _looked(self) -> bool:
        try:
            found = self.look()
        except (ProofpoolError, OSError) as error:
            why = self._why(error)
            if why != self.trouble:
                get_logger().warning("shardcast.waiting", why=why)
            self.trouble = why
            return False
        self.trouble = ""
        return found

    def _why(self, error: Exception) -> str:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"there is no room left in {self.root}; free some, or keep fewer versions (--keep)"
        return str(error)

    def _pull(self, release: WeightsRelease) -> None:
        """A whole version. Its manifest is the one that the trainer signed, or it isn't taken.

        Then what a chain of patches to it needs, back to a snapshot: for those who come new.
        """
        manifest = self._manifest(release.policy_version, release.manifest_hash)
        self._pull_version(manifest)
        get_logger().info("shardcast.pulled", policy_version=release.policy_version, num_bytes=manifest.num_bytes)
        while manifest.patch is not None and not manifest.is_snapshot:
            manifest = self._manifest(manifest.patch.base_version, manifest.patch.base_manifest_hash)
            self._pull_version(manifest)
        self.policy_version = release.policy_version
        for dropped in keep_newest(self.root, self._num_kept, policy_version=release.policy_version):
            self._whole.pop(dropped, None)
            if self._latest is not None and self._latest.policy_version == dropped:
                self._latest = None

    def _pull_version(self, manifest: Manifest) -> None:
        """The patch, which most are after, and what else is published of a version."""
        version = manifest.policy_version
        if self._whole.get(version) == manifest.manifest_hash:
            return
        sinks = self._sinks_of(version)
        if patch := manifest.patch_shards:
            self._pull_kind(version, "patch", patch, sinks.patch)
        self._pull_kind(version, "shards", manifest.published_shards, sinks.shards)
        sinks.holding.complete(self._clock.now())
        self._whole[version] = manifest.manifest_hash
        if self._exchange is not None:
            self._exchange.rest()

    def _pull_kind(self, policy_version: int, kind: Kind, shards: Mapping[int, Shard], folder: ShardFolder) -> None:
        with folder as sink:
            self._follow(policy_version, kind, shards.keys() - sink.found(shards), sink)
            self._work(policy_version, kind, shards, sink).run(wait_seconds=WAIT_SECONDS)
        sink.clear_but(shards)

    def _manifest(self, policy_version: int, promised: str) -> Manifest:
        """From the disk of an earlier process, or an upstream."""
        file = self.root / version_path(policy_version) / "manifest.json"
        if file.exists():
            try:
                return read_manifest(file.read_bytes(), promised)
            except ShardCorrupt:
                file.unlink()
        path = f"{version_path(policy_version)}/manifest.json"
        manifest = ask_relays(
            self._http,
            self.relays,
            path,
            MAX_MANIFEST_BYTES,
            lambda data: read_manifest(data, promised),
            self._clock,
            promised,
        )
        write_atomically(file, manifest.to_bytes())
        return manifest

    def _pull_ahead(self, policy_version: int) -> bool:
        """Shards of a version that isn't released yet; whether any were new."""
        listing = self._listing(policy_version)
        if listing is None:
            return False
        with self._sinks_of(policy_version).shards as sink:
            missing = listing.shards.keys() - sink.found(listing.shards)
            ready = self._follow(policy_version, "shards", missing, sink)
            self._work(policy_version, "shards", {number: listing.shards[number] for number in ready}, sink).run()
        self._is_waiting = len(ready) < len(missing)
        return bool(ready)

    def _follow(self, policy_version: int, kind: Kind, missing: Collection[int], sink: ShardFolder) -> Collection[int]:
        """Share them out among peers, where there are any; those that somebody would be asked for now."""
        if self._exchange is None:
            return missing
        self._exchange.follow(policy_version, kind, missing, sink)
        return self._exchange.ready()

    def _work(self, policy_version: int, kind: Kind, shards: Mapping[int, Shard], sink: ShardFolder) -> ShardWork:
        return ShardWork(policy_version, shards, sink, self._http, self.relays, self._clock, self._exchange, kind)

    def _sinks_of(self, policy_version: int) -> _Sinks:
        """The same ones for all looks at a version: they know what they have hashed."""
        if self._latest is None or self._latest.policy_version != policy_version:
            folder = self.root / version_path(policy_version)
            holding = OwnHolding(folder, policy_version)
            patch = ShardFolder(folder, holding, "patch")
            self._latest = _Sinks(policy_version, holding, ShardFolder(folder, holding), patch)
        return self._latest

    def _listing(self, policy_version: int) -> Listing | None:
        """The trainer's newest word, of the first upstream that has a newer one; handed on before what it lists."""
        if self._listed is not None and self._listed.policy_version != policy_version:
            self._listed = None
        for relay in self._upstreams:
            listing = self._ask_for_listing(relay, policy_version)
            if listing is not None and (self._listed is None or listing.goes_on_from(self._listed)):
                listing.write(self.root / version_path(policy_version))
                self._listed = listing
                break
        return self._listed

    def _ask_for_listing(self, relay: Relay, policy_version: int) -> Listing | None:
        """None where there is none, which is so most of the time, or none that the trainer signed."""
        url = f"{relay.url}/{version_path(policy_version)}/{LISTING_FILE}"
        try:
            data = read_document(self._http, url, MAX_MANIFEST_BYTES, self._clock, LISTING_SECONDS)
            return read_listing(data, policy_version, self._releases.check)
        except (httpx.HTTPError, httpx.InvalidURL):
            return None
        except (ShardCorrupt, SignatureInvalid, VerificationFailed) as error:
            if url not in self._unsigned:
                self._unsigned.add(url)
                get_logger().warning("shardcast.unsigned", url=url, why=str(error))
            return None
