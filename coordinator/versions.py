"""Policy versions: published by the trainer on chain, announced here, sealed by whoever comes first.

In: `WeightsRelease` from the trainer, `Version` mirrors. Out: `weights.announced` leaves, `sealVersion` calls in the
outbox, `WeightsView` for workers. Workers may start on a version once its beacon is sealed.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator.context import Coordinator
from coordinator.db.chain import ChainHead, Version
from coordinator.indexer import index_chain
from coordinator.log import append
from coordinator.mirrors import ANNOUNCED
from coordinator.outbox import queue_calls
from coordinator.pool import chain_time, pool_record
from protocol.api import WeightsView
from protocol.chain.contracts import encode
from protocol.errors import NotFound, Rejected, VerificationFailed
from protocol.reasons import RejectReason
from protocol.wire import ZERO_HASH, Signed, WeightsRelease


def announce_weights(coordinator: Coordinator, release: Signed[WeightsRelease]) -> None:
    """The trainer's release of a version that is on chain; again is no change.

    Raises SignatureInvalid, VerificationFailed where the chain has another manifest, NotFound where it has none, and
    Rejected(RATE_LIMITED) while it has too few confirmations.
    """
    with coordinator.reading() as session:
        trainer = pool_record(session, coordinator.config.pool_id).trainer
    message = release.check(trainer, coordinator.domain)
    if not _is_indexed(coordinator, message):
        index_chain(coordinator)  # the trainer announces right after its transaction; the loop may not have seen it
        _check_confirmed(coordinator, message)
    with coordinator.writing() as session:
        version = _version(session, message.pool_id, message.policy_version)
        if version.manifest_hash != message.manifest_hash:
            raise VerificationFailed(
                "the release names another manifest than the chain",
                f"{message.manifest_hash}, on chain {version.manifest_hash}",
            )
        if version.release_signature is None:
            version.release_signature = release.signature
            append(
                session,
                ANNOUNCED,
                message.manifest_hash,
                chain_time(session),
                {"policy_version": message.policy_version, "signature": release.signature},
            )


def weights_view(session: Session, pool_id: int, policy_version: int) -> WeightsView:
    """Raises NotFound until the version is published on chain and announced."""
    version = _version(session, pool_id, policy_version)
    if version.release_signature is None:
        raise NotFound("this policy version isn't announced yet", f"version {policy_version}", "ask again shortly")
    message = WeightsRelease(pool_id=pool_id, policy_version=policy_version, manifest_hash=version.manifest_hash)
    return WeightsView(
        release=Signed[WeightsRelease](message=message, signature=version.release_signature),
        beacon_block=version.beacon_block,
        beacon_hash=version.beacon_hash,
        published_time=version.published_time,
    )


def can_seal(version: Version, head: ChainHead | None) -> bool:
    """Whether the beacon's block is mined: a transaction in the next block can read its hash."""
    return version.beacon_hash is None and head is not None and head.number >= version.beacon_block


def seal_versions(coordinator: Coordinator) -> None:
    """Stage of the loop: queue `sealVersion` for each version whose beacon can be read and nobody has stored."""
    pool_id = coordinator.config.pool_id
    unsealed = select(Version).where(Version.pool_id == pool_id, Version.beacon_hash.is_(None))
    with coordinator.reading() as session:
        head = session.get(ChainHead, 1)
        ready = [version for version in session.scalars(unsealed) if can_seal(version, head)]
    calls = {
        f"seal-version:{version.policy_version}:{version.beacon_block}": encode(
            "ledger", "sealVersion", pool_id, version.policy_version
        )
        for version in ready
    }
    queue_calls(coordinator, "ledger", calls)


def is_version_sealed(coordinator: Coordinator, policy_version: int, block: int | str) -> bool:
    """Whether the chain has this version's beacon as of a block, whoever stored it."""
    pool_id = coordinator.config.pool_id
    if int(coordinator.chain.read("ledger", "numVersions", pool_id, block=block)) <= policy_version:
        return False
    found = coordinator.chain.read("ledger", "versionOf", pool_id, policy_version, block=block)
    return bool(found["beacon_hash"] != ZERO_HASH)


def _is_indexed(coordinator: Coordinator, release: WeightsRelease) -> bool:
    with coordinator.reading() as session:
        return session.get(Version, (release.pool_id, release.policy_version)) is not None


def _check_confirmed(coordinator: Coordinator, release: WeightsRelease) -> None:
    """Raises Rejected, to be tried again, for a version that is on chain without enough confirmations."""
    count = coordinator.chain.read("ledger", "numVersions", coordinator.config.pool_id)
    if release.policy_version < count and not _is_indexed(coordinator, release):
        detail = f"version {release.policy_version} has too few confirmations"
        raise Rejected(RejectReason.RATE_LIMITED, detail)


def _version(session: Session, pool_id: int, policy_version: int) -> Version:
    version = session.get(Version, (pool_id, policy_version))
    if version is None:
        raise NotFound("no such policy version on chain", f"version {policy_version}", "publish it, then announce it")
    return version
