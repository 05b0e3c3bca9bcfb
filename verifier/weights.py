"""The weights of the policy versions that rollouts name: fetched, checked against the chain, a few kept.

In: a policy version. Out: its folder, or its model in memory. The manifest's hash must be the one on chain and
the release must be signed by the pool's trainer; each shard is checked as it comes (`protocol/shardcast`).
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from protocol.client import CoordinatorClient
from protocol.errors import VerificationFailed
from protocol.heap import return_holes
from protocol.shardcast.client import fetch
from protocol.shardcast.folder import held_versions, remove_version, version_folder
from protocol.telemetry import get_logger
from verifier.chain import PoolChain

if TYPE_CHECKING:
    from protocol.forward import CausalLM

WAIT_SECONDS = 20.0
"""Without progress, for shards that relays are only about to have."""
NUM_MODELS = 2
"""Models in memory: rollouts of the newest version, and of the one before."""


class Weights:
    """Policy versions on disk and in memory."""

    def __init__(
        self, folder: Path, chain: PoolChain, client: CoordinatorClient, http: httpx.Client, num_kept: int
    ) -> None:
        self._folder = folder
        self._chain = chain
        self._client = client
        self._http = http
        self._num_kept = num_kept
        self._checked: set[int] = set()
        self._models: OrderedDict[int, CausalLM] = OrderedDict()

    def fetch(self, policy_version: int) -> Path:
        """The version's folder. Raises Unreachable, ShardCorrupt, or VerificationFailed for another manifest.

        What an earlier process left is checked once, byte by byte: honest work mustn't be held against damaged weights.
        """
        folder = version_folder(self._folder, policy_version)
        if policy_version in self._checked and folder.exists():
            return folder
        record = self._chain.version(policy_version)
        release = self._client.weights(policy_version).release.check(self._chain.record().trainer, self._chain.domain)
        says = (release.pool_id, release.policy_version, release.manifest_hash)
        if says != (self._chain.record().pool_id, policy_version, record.manifest_hash):
            raise VerificationFailed(
                f"the release of version {policy_version} isn't the one on chain",
                f"manifest {release.manifest_hash}, on chain {record.manifest_hash}",
            )
        urls = self._client.pool().shardcast_urls
        fetched = fetch(self._http, urls, release, self._folder, wait_seconds=WAIT_SECONDS)
        if fetched.way != "here":
            get_logger().info("weights.fetched", policy_version=policy_version, **fetched.figures)
        self._checked.add(policy_version)
        self._discard_old(policy_version)
        return fetched.folder

    def model(self, policy_version: int) -> CausalLM:
        """The version's model, computing in float32."""
        from protocol.forward import CausalLM  # torch is loaded for the first submission that needs it

        if policy_version not in self._models:
            self._models[policy_version] = CausalLM.load(self.fetch(policy_version)).eval()
            while len(self._models) > NUM_MODELS:
                self._models.popitem(last=False)
            return_holes()
        self._models.move_to_end(policy_version)
        return self._models[policy_version]

    def _discard_old(self, newest: int) -> None:
        """Remove what is oldest; a version that is asked for again is fetched again."""
        versions = held_versions(self._folder)
        for version in [v for v in versions if v != newest][: max(0, len(versions) - self._num_kept)]:
            remove_version(self._folder, version)
