"""Batches from the coordinator: leased, checked, fetched, let go.

In: the pool's coordinator, whose address the chain names. Out: a `BatchFile` whose samples the learner takes. Offers
are taken only with the coordinator's signature over exactly their groups, since that is the evidence of what a
step was made of.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.api import BatchOffer, BatchRefusal
from protocol.batches import check_offer
from protocol.client import CoordinatorClient
from protocol.rules import Rules
from protocol.signing import SigningDomain
from trainer.batch_file import BatchFile


class Batches:
    """One pool's batches.

    `signer_of_batches` asks the chain, so that a handed-over key is noticed.
    """

    def __init__(
        self,
        coordinator: CoordinatorClient,
        signer_of_batches: Callable[[], str],
        domain: SigningDomain,
    ) -> None:
        self._coordinator = coordinator
        self._signer_of_batches = signer_of_batches
        self._domain = domain
        self._rules: dict[str, Rules] = {}

    def lease(self, step: int) -> BatchOffer | None:
        """The offer for this step; None while groups are wanting. Raises VerificationFailed for a false one."""
        offer = self._coordinator.lease_batch(step)
        if offer is not None:
            check_offer(offer, self._signer_of_batches(), self._domain)
        return offer

    def fetch(self, offer: BatchOffer) -> BatchFile:
        """What was offered, with the rules that it was leased by; `read` holds the one against the other."""
        return BatchFile(offer, self._rules_of(offer), self._coordinator.batch_file(offer.number))

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
