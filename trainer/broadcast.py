"""Broadcast: a checkpoint becomes a published policy version.

In: a `Checkpoint`, beside which the one before may lie. Out: its patch, shards and manifest in the origin's folder, the
manifest's hash on chain, and the signed release at the coordinator, in this order; each step may be repeated after a
kill. Versions that nobody can ask for any more go from the origin's folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from protocol.client import CoordinatorClient
from protocol.clock import Clock, SystemClock
from protocol.errors import ProofpoolError
from protocol.files import write_atomically
from protocol.shardcast.folder import MANIFEST_FILE
from protocol.shardcast.keeping import keep_newest
from protocol.shardcast.origin import Base, own_manifest, publish
from protocol.signing import Signer, SigningDomain
from protocol.telemetry import get_logger
from protocol.wire import Signed, WeightsRelease
from trainer.checkpoint import Checkpoint
from trainer.config import PublishingConfig


class WeightsChain(Protocol):
    """The part of the Ledger contract that a trainer uses."""

    def manifest_hash(self, policy_version: int) -> str | None:
        """What the chain has for this version; None before it is published."""
        ...

    def publish_weights(self, policy_version: int, manifest_hash: str) -> None:
        """Publish a version; returns once it is mined."""
        ...


class Broadcaster:
    """Publishes checkpoints of one pool, signed by the trainer's key."""

    def __init__(
        self,
        origin: Path,
        pool_id: int,
        chain: WeightsChain,
        coordinator: CoordinatorClient,
        signer: Signer,
        domain: SigningDomain,
        config: PublishingConfig = PublishingConfig(),  # noqa: B008
        clock: Clock | None = None,
    ) -> None:
        self.origin = origin
        self.pool_id = pool_id
        self.chain = chain
        self.coordinator = coordinator
        self.signer = signer
        self.domain = domain
        self.config = config
        self.clock = clock or SystemClock()

    def broadcast(self, checkpoint: Checkpoint) -> WeightsRelease:
        """Publish; repeating it changes nothing. Raises ProofpoolError if the chain has another manifest."""
        manifest = publish(
            checkpoint.model_folder,
            self.origin,
            self.pool_id,
            checkpoint.policy_version,
            sign=lambda message: self.signer.sign(message, self.domain),
            base=self._base(checkpoint),
            snapshot_every=self.config.snapshot_every,
        )
        write_atomically(checkpoint.model_folder / MANIFEST_FILE, manifest.to_bytes())
        release = WeightsRelease(
            pool_id=self.pool_id, policy_version=checkpoint.policy_version, manifest_hash=manifest.manifest_hash
        )
        self._anchor(release)
        self.coordinator.announce_weights(Signed[WeightsRelease].by(self.signer, release, self.domain))
        get_logger().info(
            "weights.announced",
            policy_version=release.policy_version,
            num_bytes=manifest.num_bytes,
            num_patch_bytes=None if manifest.patch is None else manifest.patch.num_bytes,
            is_snapshot=manifest.is_snapshot,
        )
        since = self.clock.now() - self.config.keep_seconds
        keep_newest(self.origin, self.config.keep_versions, since, release.policy_version)
        return release

    def _base(self, checkpoint: Checkpoint) -> Base | None:
        """The version before, where its checkpoint is still there and it was published from here."""
        version = checkpoint.policy_version - 1
        folder = checkpoint.folder.parent / str(version) / checkpoint.model_folder.name
        if version < 0 or not folder.is_dir():
            return None
        try:
            return Base(folder, own_manifest(self.origin, version))
        except ProofpoolError as error:
            get_logger().warning("weights.no_patch", policy_version=checkpoint.policy_version, why=error.what)
            return None

    def keep_on_chain(self, policy_version: int) -> None:
        """Publish again what a reorg has dropped, up to this version, which the origin has: versions follow each other.

        Its announcement stands: the coordinator has it in its log.
        """
        dropped = policy_version
        while dropped >= 0 and self.chain.manifest_hash(dropped) is None:
            dropped -= 1
        for version in range(dropped + 1, policy_version + 1):
            manifest = own_manifest(self.origin, version)
            get_logger().warning("weights.dropped", policy_version=version, manifest_hash=manifest.manifest_hash)
            self.chain.publish_weights(version, manifest.manifest_hash)

    def _anchor(self, release: WeightsRelease) -> None:
        known = self.chain.manifest_hash(release.policy_version)
        if known is None:
            self.keep_on_chain(release.policy_version - 1)
            self.chain.publish_weights(release.policy_version, release.manifest_hash)
        elif known != release.manifest_hash:
            raise ProofpoolError(
                f"policy version {release.policy_version} is on chain with another manifest",
                f"{known}, not {release.manifest_hash}",
                "use the data_dir of the run that published it, or restore its checkpoints: each is published once",
            )
