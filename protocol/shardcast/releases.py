"""The trainer's word on versions, handed over by the coordinator, who isn't trusted with it.

In: a coordinator, and the trainer's address where the caller knows it. Out: releases with the trainer's signature.
"""

from __future__ import annotations

from protocol.client import CoordinatorClient
from protocol.errors import VerificationFailed
from protocol.signing import SigningDomain
from protocol.wire import WeightsRelease


class CoordinatorReleases:
    """Releases of a coordinator's pool. Without `trainer` it is whom the coordinator named at the first answer."""

    def __init__(self, client: CoordinatorClient, trainer: str | None = None) -> None:
        self._client = client
        self._trainer = trainer

    def newest(self) -> WeightsRelease | None:
        """None before the first. Raises Unreachable, SignatureInvalid, VerificationFailed."""
        pool = self._client.pool()
        self._trainer = self._trainer or pool.trainer
        return None if pool.policy_version is None else self.of(pool.policy_version)

    def of(self, policy_version: int) -> WeightsRelease:
        """The release of a version. Raises NotFound as well."""
        pool = self._client.pool()
        self._trainer = self._trainer or pool.trainer
        domain = SigningDomain(pool.chain_id, pool.contracts.ledger, pool.deployment_salt)
        release = self._client.weights(policy_version).release.check(self._trainer, domain)
        if (release.pool_id, release.policy_version) != (pool.pool_id, policy_version):
            why = (
                f"of version {release.policy_version} in pool {release.pool_id}, not {policy_version} in {pool.pool_id}"
            )
            raise VerificationFailed("the coordinator served another release", why)
        return release
