"""Batches from the coordinator: leased, checked, fetched, let go.

In: the pool's coordinator, whose address the chain names. Out: a `BatchFile` whose samples the learner takes. Offers
are taken only with the coordinator's signature over exactly their groups, since that is the evidence of what a
step was made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from protocol.api import BatchOffer, BatchRefusal
from protocol.batches import check_offer
from protocol.client import CoordinatorClient
from protocol.errors import VerificationFailed
from protocol.rules import Rules
from protocol.signing import SigningDomain
from trainer.batch_file import BatchFile


class BatchTerms(Protocol):
    """The part of a pool's record that batches are held against."""

    @property
    def pool_id(self) -> int: ...
    @property
    def coordinator(self) -> str: ...
    @property
    def max_async(self) -> int: ...


class Batches:
    """One pool's batches.

    `terms` asks the chain, so that a handed-over key is noticed.
    """

    def __init__(
        self,
        coordinator: CoordinatorClient,
        terms: Callable[[], BatchTerms],
        domain: SigningDomain,
    ) -> None:
        self._coordinator = coordinator
        self._terms = terms
        self._domain = domain
        self._rules: dict[str, Rules] = {}

    def lease(self, step: int) -> BatchOffer | None:
        """The offer for this step; None while groups are wanting. Raises VerificationFailed for a false one."""
        offer = self._coordinator.lease_batch(step)
        if offer is None:
            return None
        terms = self._terms()
        check_offer(offer, terms.coordinator, self._domain)
        if (offer.pool_id, offer.step) != (terms.pool_id, step):
            raise VerificationFailed(
                "the coordinator offers another batch than it was asked for",
                f"pool {offer.pool_id}, step {offer.step}; asked for pool {terms.pool_id}, step {step}",
                "keep its answer, which is signed, and ask whoever runs it; nothing was trained on",
            )
        return offer

    def fetch(self, offer: BatchOffer) -> BatchFile:
        """What was offered, with the rules that it was leased by; `read` holds the one against the other."""
        oldest_version = max(0, offer.step - 1 - self._terms().max_async)
        return BatchFile(offer, self._rules_of(offer), self._coordinator.batch_file(offer.number), oldest_version)

    def acknowledge(self, number: int) -> None:
        self._coordinator.acknowledge_batch(number)

    def refuse(self, number: int, refusal: BatchRefusal) -> None:
        """Tell the pool what can't be trained on; the step's next lease is of other groups."""
        self._coordinator.refuse_batch(number, refusal)

    def groups_by_use(self) -> dict[str, int]:
        """What became of all accepted groups so far: pending, batched, consumed, or why they are unused."""
        return dict(self._coordinator.status().num_by_use)

    def rules(self) -> Rules:
        """The pool's, as they are now."""
        return self._coordinator.rules(self._coordinator.pool().rules_hash)

    def _rules_of(self, offer: BatchOffer) -> Rules:
        if offer.rules_hash not in self._rules:
            self._rules[offer.rules_hash] = self._coordinator.rules(offer.rules_hash)
        return self._rules[offer.rules_hash]
