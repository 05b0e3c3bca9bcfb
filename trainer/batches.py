"""Batches from the coordinator: leased, checked, fetched, let go.

In: the pool's coordinator, whose address the chain names. Out: a `TrainingBatch` for the learner. Offers are
taken only with the coordinator's signature over exactly their groups, since that is the evidence of what a
step was made of.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.api import BatchOffer, BatchRefusal
from protocol.batches import check_offer
from protocol.client import CoordinatorClient
from protocol.rules import Rules
from protocol.signing import SigningDomain
from trainer.advantages import AdvantageScale
from trainer.samples import TrainingBatch, read_batch


class Batches:
    """One pool's batches for a model of `vocab_size` tokens.

    `signer_of_batches` asks the chain, so that a handed-over key is noticed.
    """

    def __init__(
        self,
        coordinator: CoordinatorClient,
        signer_of_batches: Callable[[], str],
        domain: SigningDomain,
        vocab_size: int,
        scale: AdvantageScale = "std",
    ) -> None:
        self._coordinator = coordinator
        self._signer_of_batches = signer_of_batches
        self._domain = domain
        self._vocab_size = vocab_size
        self._scale = scale
        self._rules: dict[str, Rules] = {}

    def lease(self, step: int) -> BatchOffer | None:
        """The offer for this step; None while groups are wanting. Raises VerificationFailed for a false one."""
        offer = self._coordinator.lease_batch(step)
        if offer is not None:
            check_offer(offer, self._signer_of_batches(), self._domain)
        return offer

    def fetch(self, offer: BatchOffer) -> TrainingBatch:
        """The offered samples, under the rules that they were leased by."""
        file, rules = self._coordinator.batch_file(offer.number), self._rules_of(offer)
        return read_batch(offer, file, rules, self._vocab_size, self._scale)

    def acknowledge(self, number: int) -> None:
        self._coordinator.acknowledge_batch(number)

    def refuse(self, number: int, refusal: BatchRefusal) -> None:
        """Tell the pool what can't be trained on; the step's next lease is of other groups."""
        self._coordinator.refuse_batch(number, refusal)

    def _rules_of(self, offer: BatchOffer) -> Rules:
        if offer.rules_hash not in self._rules:
            self._rules[offer.rules_hash] = self._coordinator.rules(offer.rules_hash)
        return self._rules[offer.rules_hash]
