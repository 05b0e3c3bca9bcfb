"""The trainer's word on versions, handed over by the coordinator, who isn't trusted with it.

In: a coordinator, and the trainer's address where the caller knows it. Out: releases, and listings of what comes next,
with the trainer's signature.
"""

from __future__ import annotations

from protocol.api import PoolInfo
from protocol.client import CoordinatorClient
from protocol.errors import NotFound, VerificationFailed
from protocol.shardcast.token import Ground
from protocol.signing import SigningDomain
from protocol.wire import M, ShardListing, Signed, WeightsRelease


class CoordinatorReleases:
    """Releases of a coordinator's pool. Without `trainer` it is whom the coordinator named at the first answer."""

    def __init__(self, client: CoordinatorClient, trainer: str | None = None) -> None:
        self._client = client
        self._trainer = trainer
        self._pool: PoolInfo | None = None
        """As it was last told."""

    def newest(self) -> WeightsRelease | None:
        """The newest that is announced; None before the first. Raises Unreachable, SignatureInvalid, ….

        A pool names a version once its beacon is sealed; relays start as soon as the next one is announced.
        """
        version = self._ask().policy_version
        try:
            return self.of(0 if version is None else version + 1)
        except NotFound:
            return None if version is None else self.of(version)

    def of(self, policy_version: int) -> WeightsRelease:
        """The release of a version. Raises NotFound, Unreachable, SignatureInvalid, VerificationFailed."""
        pool = self._pool or self._ask()
        release = self._signed(pool, self._client.weights(policy_version).release)
        if (release.pool_id, release.policy_version) != (pool.pool_id, policy_version):
            why = (
                f"of version {release.policy_version} in pool {release.pool_id}, not {policy_version} in {pool.pool_id}"
            )
            raise VerificationFailed("the coordinator served another release", why)
        return release

    def check(self, listing: Signed[ShardListing]) -> ShardListing:
        """The listing, if it is the trainer's and of this pool. Raises SignatureInvalid, VerificationFailed."""
        pool = self._pool or self._ask()
        listed = self._signed(pool, listing)
        if listed.pool_id != pool.pool_id:
            raise VerificationFailed("a listing is of another pool", f"{listed.pool_id}, not {pool.pool_id}")
        return listed

    def ground(self) -> Ground:
        """What tokens are for. Raises Unreachable before the coordinator has answered for the first time."""
        pool = self._pool or self._ask()
        return Ground(pool.pool_id, SigningDomain(pool.chain_id, pool.contracts.ledger, pool.deployment_salt))

    def _ask(self) -> PoolInfo:
        self._pool = self._client.pool()
        self._trainer = self._trainer or self._pool.trainer
        return self._pool

    def _signed(self, pool: PoolInfo, signed: Signed[M]) -> M:
        domain = SigningDomain(pool.chain_id, pool.contracts.ledger, pool.deployment_salt)
        return signed.check(self._trainer or pool.trainer, domain)
