"""One run: a world on a kept node, who acts in it, and what of that the contracts or the coordinator took.

A rule asks for something that may be impossible just then. What is refused with an error of the protocol is counted
and changes nothing; anything else that goes wrong ends the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from hypothesis import note

from protocol.api import VerdictReveal
from protocol.chain.cases import Vote
from protocol.chain.pool import ChainPool
from protocol.errors import NotEligible, NotFound, Rejected, TransactionReverted, VerificationFailed
from protocol.signing import Signer
from tests.integration.conftest import World
from tests.stateful.node import KeptNode

T = TypeVar("T")
REFUSALS = (TransactionReverted, Rejected, NotFound, NotEligible, VerificationFailed)
NODE_KEYS = (b"\x63", b"\x64", b"\x65")
SALT = "0x" + "0b" * 32


@dataclass
class Tally:
    """Over all runs: how often each rule did something, and why it was refused."""

    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass
class Play:
    """A world in the middle of a run."""

    world: World
    node: KeptNode
    tally: Tally
    opened: list[VerdictReveal] = field(default_factory=list)
    """Verdicts that are committed to and not revealed."""
    votes: dict[tuple[str, int], Vote] = field(default_factory=dict)
    """By case and seat: what a juror has committed to."""
    may_have_lapsed: bool = False
    """So much time has passed that a refund may take what nobody claimed."""
    is_touched: bool = True
    """Something happened since the last look."""

    @property
    def provider(self) -> Signer:
        return self.world.provider

    @property
    def nodes(self) -> list[Signer]:
        return [Signer(bytes(31) + key) for key in NODE_KEYS]

    def a_node(self, number: int) -> Signer:
        """Four times in six the one that works from the start."""
        return self.nodes[max(0, number % 6 - 3)]

    @property
    def stakers(self) -> list[Signer]:
        return [self.provider, *self.world.validators]

    def pool(self, signer: Signer | None = None) -> ChainPool:
        """The pool as `signer` sees it, who sends."""
        world = self.world
        return ChainPool(world.contracts, world.pool_id, lane=signer and world.chain.lane(signer))

    def send(self, rule: str, signer: Signer, contract: str, function: str, *arguments: Any) -> bool:
        """Whether the contract took it."""
        return self.attempt(rule, partial(self.world.send, signer, contract, function, *arguments))

    def attempt(self, rule: str, act: Callable[[], object]) -> bool:
        """Whether it was done; a refusal is noted."""
        try:
            act()
        except REFUSALS as error:
            why = error.name if isinstance(error, TransactionReverted) else type(error).__name__
            self.tally.refused[rule, why] += 1
            note(f"  {rule}: {error}")
            return False
        self.did(rule)
        note(f"  {rule}: done, block {self.world.contracts.client.head().number}")
        return True

    def did(self, what: str) -> None:
        """Something has changed, so all is looked at again."""
        self.tally.done[what] += 1
        self.is_touched = True


def pick(among: Sequence[T], number: int) -> T | None:
    """One of these by a drawn number; None where there is none."""
    return among[number % len(among)] if among else None
