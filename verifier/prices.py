"""What a unit may cost: the terms that the chain has recorded for when its work was leased.

In: the prices that the checked log pays, and when what they are for came in; the chain's epochs and terms. Out: faults,
for prices that no such lease can have had. Nothing of this is the coordinator's word: that work came in between two
commits, and was leased at most a lease's length before, is all that is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from protocol.chain.pool import PoolRecord
from protocol.chain.terms import PriceTerms, in_force
from verifier.chain import NUM_HEADS_ON_CHAIN
from verifier.payments import PROVIDER, VALIDATOR, Payments


class PriceChain(Protocol):
    """What is asked of the chain."""

    def record(self) -> PoolRecord: ...

    def num_epochs(self) -> int: ...

    def epoch_times(self, epochs: Collection[int]) -> dict[int, int]: ...

    def terms_since(self, time: int) -> Sequence[PriceTerms]: ...


def wrong_prices(payments: Payments, chain: PriceChain, after_epoch: int, epoch: int) -> list[str]:
    """Faults: prices paid after `after_epoch`, up to `epoch`, at which the work that they are for wasn't leased.

    Work whose epoch the chain has forgotten is passed over.
    """
    oldest_epoch = max(0, chain.num_epochs() - NUM_HEADS_ON_CHAIN)
    paid = [price for price in payments.unit_prices(after_epoch, epoch) if price.received_epoch >= oldest_epoch]
    if not paid:
        return []
    windows = lease_windows({price.received_epoch for price in paid}, chain, oldest_epoch)
    terms = chain.terms_since(min(since for since, _ in windows.values()))
    faults = []
    for price in sorted(paid, key=lambda price: (price.received_epoch, price.earner, price.price_wei)):
        known = in_force(terms, *windows[price.received_epoch])
        rates = {PROVIDER: [one.price_wei for one in known], VALIDATOR: [one.verify_price_wei for one in known]}
        if price.price_wei not in rates[price.earner]:
            faults.append(
                f"a {price.earner} is paid {price.price_wei} for a unit of epoch {price.received_epoch},"
                f" the pool's terms were {rates[price.earner]}"
            )
    return faults


def lease_windows(epochs: Collection[int], chain: PriceChain, oldest_epoch: int) -> dict[int, tuple[int, int]]:
    """Between which chain seconds work was leased that came in during each of these epochs.

    An epoch is closed once the one before is on chain, so its first leaf came after the commit of the second before.
    """
    wanted = {near for epoch in epochs for near in (epoch - 2, epoch) if near >= oldest_epoch}
    times, lease_seconds = chain.epoch_times(sorted(wanted)), chain.record().lease_seconds
    return {epoch: (max(0, times.get(epoch - 2, 0) - lease_seconds), times[epoch]) for epoch in epochs}
