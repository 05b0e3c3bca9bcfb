"""Which prices a pool's leases had: as the chain recorded them, however often they have changed since.

In: `Contracts`, a pool's id, a time. Out: every price that was in force at that time or came after it, from the
contracts where they still have it, else from their events. The contracts keep the last two; roots that can still be
disputed may pay for leases at older ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.chain.contracts import Contracts, NamedEvent, Read


@dataclass(frozen=True)
class PriceTerms:
    """Prices of leases made from `effective_time` (chain seconds) on, until the next terms."""

    effective_time: int
    price_wei: int
    verify_price_wei: int


class PriceBook:
    """A pool's price terms. What was looked up once isn't looked up again, until other terms are announced.

    Example: `PriceBook(contracts, 1).since(1_700_000_000, "latest")`.
    """

    def __init__(self, contracts: Contracts, pool_id: int) -> None:
        self._contracts = contracts
        self._pool_id = pool_id
        self._found: list[PriceTerms] = []

    def since(self, time: int, block: int | str) -> Sequence[PriceTerms]:
        """Terms that were in force at `time` or later, oldest first; the oldest may have come before."""
        config, announced = self._contracts.read_all(
            [Read("pools", "configOf", (self._pool_id,)), Read("pools", "announcedTerms", (self._pool_id,))], block
        )
        newest = _announced(announced) if announced["effective_time"] else _created(config)
        if newest.effective_time <= time:
            return [newest]
        if not self._found or self._found[-1] != newest or self._found[0].effective_time > time:
            self._found = self._look_back(time)
        return in_force(self._found, time)

    def _look_back(self, time: int) -> list[PriceTerms]:
        """From the events, newest blocks first, until what was in force at `time` is found."""
        found = list[PriceTerms]()
        for logs in self._contracts.client.logs_back(self._contracts.addresses.pools):
            events = [event for log in logs if (event := self._contracts.decode(log)) is not None]
            found = [*self._terms(events), *found]
            if found and found[0].effective_time <= time:
                break
        return found

    def _terms(self, events: Sequence[NamedEvent]) -> list[PriceTerms]:
        own = [event for event in events if event.arguments.get("pool_id") == self._pool_id]
        terms = {"PoolCreated": lambda a: _created(a["config"]), "TermsAnnounced": _announced}
        return [terms[event.name](event.arguments) for event in own if event.name in terms]


def in_force(terms: Sequence[PriceTerms], since: int, until: int | None = None) -> list[PriceTerms]:
    """Those among `terms` (oldest first) that were in force at any moment from `since` to `until`, both included."""
    ends = [later.effective_time for later in terms[1:]]
    return [
        one
        for one, end in zip(terms, [*ends, None], strict=True)
        if (end is None or end > since) and (until is None or one.effective_time <= until)
    ]


def _created(config: dict[str, int]) -> PriceTerms:
    return PriceTerms(0, config["price"], config["verify_price"])


def _announced(terms: dict[str, int]) -> PriceTerms:
    return PriceTerms(terms["effective_time"], terms["price"], terms["verify_price"])
