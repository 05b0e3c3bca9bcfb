"""Is a leaf under a head that the chain has? Asked leaf by leaf, without reading the rest of the log.

In: a coordinator's proofs, the chain's heads. Out: the epoch that anchors a leaf. Of an epoch whose head the chain has
forgotten, the coordinator has to show that its log is a prefix of the newest one's.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

from protocol.api import InclusionProof
from protocol.chain.contracts import Contracts
from protocol.client import CoordinatorClient
from protocol.errors import NotFound, VerificationFailed
from protocol.merkle.history import verify_consistency, verify_inclusion
from verifier.audit.step import StillOpen, must_equal, must_hold
from verifier.chain import NUM_HEADS_ON_CHAIN


class Anchors:
    """Example: `Anchors(client, contracts, 1).epoch_of(12, leaf_hash)`."""

    def __init__(self, client: CoordinatorClient, contracts: Contracts, pool_id: int) -> None:
        self._client = client
        self._contracts = contracts
        self._pool_id = pool_id
        self.num_epochs = int(contracts.read("ledger", "epochCount", pool_id))
        self._head = cache(self._read_head)

    def epoch_of(self, index: int, leaf_hash: str) -> int:
        """Raises StillOpen while nothing anchors it, VerificationFailed where what is anchored is something else."""
        if index >= self._size:
            raise StillOpen("not anchored yet")
        proof = self._proof(index)
        must_equal("the proof is for another leaf", (proof.index, proof.leaf_hash), (index, leaf_hash))
        must_hold(
            f"leaf {index} isn't under the root that its proof names",
            verify_inclusion(leaf_hash, index, proof.size, proof.path, proof.root),
            f"root {proof.root}, size {proof.size}",
        )
        self._check_head(proof)
        return proof.epoch

    @cached_property
    def _size(self) -> int:
        """Leaves under the newest head on chain."""
        return int(self._head(self.num_epochs - 1)["size"]) if self.num_epochs else 0

    def _read_head(self, epoch: int) -> Any:
        return self._contracts.read("ledger", "epochOf", self._pool_id, epoch)

    def _proof(self, index: int) -> InclusionProof:
        try:
            return self._client.inclusion(index)
        except NotFound as refusal:
            if index >= self._head(self.num_epochs - 1)["previous_size"]:
                raise StillOpen("anchored on chain just now, which the coordinator hasn't seen yet") from refusal
            why = f"leaf {index} of {self._size} that are anchored"
            raise VerificationFailed("the coordinator holds back a proof", why) from refusal

    def _check_head(self, proof: InclusionProof) -> None:
        """The head that the proof leads to is the chain's, and the first one that holds the leaf."""
        epoch = proof.epoch
        must_hold(f"the chain has no epoch {epoch}", epoch < self.num_epochs, f"{self.num_epochs} epochs")
        if epoch < self.num_epochs - NUM_HEADS_ON_CHAIN:
            return self._check_prefix(proof)
        head = self._head(epoch)
        must_equal(
            f"the head of epoch {epoch} isn't the chain's", (proof.size, proof.root), (head["size"], head["root"])
        )
        must_hold("an earlier epoch holds it already", head["previous_size"] <= proof.index, f"epoch {epoch}")
        return None

    def _check_prefix(self, proof: InclusionProof) -> None:
        newest = self.num_epochs - 1
        head = self._head(newest)
        link = self._client.consistency(proof.epoch, newest)
        must_hold(
            f"epoch {proof.epoch} isn't a prefix of epoch {newest}",
            verify_consistency(proof.size, head["size"], proof.root, head["root"], link.path),
            f"sizes {proof.size} and {head['size']}",
        )
