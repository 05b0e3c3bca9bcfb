"""A provider's money on chain: what is claimed, what cases withhold, which roots there are, and one submission's case.

In: the chain's pool, and the coordinator for the statements behind roots, which are held against them. Out: `Account`,
`Case`. Times are the chain's, in seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from protocol.chain.cases import CaseState
from protocol.chain.pool import ChainPool, EarningsRecord
from protocol.client import CoordinatorClient
from protocol.errors import VerificationFailed
from protocol.merkle.standard import earnings_tree
from protocol.wire import Wei

NO_EPOCH = 2**64 - 1
"""Behind all roots: nothing is asked about but what can be claimed, and when."""


@dataclass(frozen=True)
class Root:
    """An earnings root; `cumulative_wei` is what it gives the provider in all.

    `claimable_time` is None while a dispute holds it.
    """

    epoch: int
    claimable_time: int | None
    cumulative_wei: int

    def is_claimable(self, time: int) -> bool:
        return self.claimable_time is not None and self.claimable_time <= time


class Payout(BaseModel):
    """Earnings that can be claimed from chain time `time` on."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    amount_wei: Wei
    time: int
    in_seconds: int


@dataclass(frozen=True)
class Account:
    """The provider's side of the ledger; `roots`, oldest first, are those that were asked about, the newest too."""

    time: int
    claimed_wei: int
    withheld_wei: int
    roots: Sequence[Root]

    @property
    def claimable_wei(self) -> int:
        """What a claim would pay now, as far as the roots reach."""
        return max(0, self._proven_wei - self.claimed_wei - self.withheld_wei)

    @property
    def earned_wei(self) -> int:
        """Gross, under roots on chain."""
        return max((root.cumulative_wei for root in self.roots), default=0)

    @property
    def pending_wei(self) -> int:
        """Under a root from which nothing can be claimed yet."""
        return max(0, self.earned_wei - max(self._proven_wei, self.claimed_wei + self.withheld_wei))

    @property
    def next_payout(self) -> Payout | None:
        """What becomes claimable next, and when; None where nothing is pending, or a dispute holds all of it."""
        below = max(self._proven_wei, self.claimed_wei + self.withheld_wei)
        for root in self.roots:
            if root.claimable_time is not None and root.claimable_time > self.time and root.cumulative_wei > below:
                return Payout(
                    amount_wei=root.cumulative_wei - below,
                    time=root.claimable_time,
                    in_seconds=root.claimable_time - self.time,
                )
        return None

    @property
    def _proven_wei(self) -> int:
        return max((root.cumulative_wei for root in self.roots if root.is_claimable(self.time)), default=0)


@dataclass(frozen=True)
class Case:
    """A case at the Court: `held_wei` of the stake, `slashed_wei` of it once it is upheld."""

    state: CaseState
    held_wei: int
    slashed_wei: int
    deadline: int
    deadline_in_seconds: int


def read_account(client: CoordinatorClient, chain: ChainPool, provider: str, epochs: Collection[int]) -> Account:
    """With the first root that covers payments of each of `epochs`, and those that say what can be claimed, and when.

    What was earned hangs on the roots alone, and never on `epochs`: the newest root is always asked about.
    Raises VerificationFailed where the coordinator's statement isn't what the chain's root is over.
    """
    time = chain.time()
    records = chain.earnings_since(min(epochs, default=NO_EPOCH), claimable_at=time)
    covering = [next((record for record in records if record.epoch >= epoch), None) for epoch in epochs]
    claimable = [r for r in records if r.claimable_time is not None and r.claimable_time <= time]
    later = [r for r in records if r.claimable_time is not None and r.claimable_time > time]
    wanted = {*covering, *claimable[-1:], *later[:1], *records[-1:]}
    return Account(
        time=time,
        claimed_wei=chain.claimed_wei(provider),
        withheld_wei=chain.withheld_wei(provider),
        roots=[
            Root(record.epoch, record.claimable_time, _cumulative_wei(client, record, provider))
            for record in records
            if record in wanted
        ],
    )


def read_case(client: CoordinatorClient | None, chain: ChainPool, submission_id: str) -> Case | None:
    """None where there is no case. Without a coordinator, what was slashed is said to be all that was held."""
    found = chain.case_of(submission_id)
    if found.state is CaseState.NONE:
        return None
    jury = chain.jury_of(submission_id) if found.state.is_before_jury else None
    deadline = found.deadline if jury is None else jury.deadline
    slashed_wei = _slashed_wei(client, submission_id) if client and found.state is CaseState.UPHELD else None
    return Case(
        state=found.state,
        held_wei=found.held_wei,
        slashed_wei=found.held_wei if slashed_wei is None else slashed_wei,
        deadline=deadline,
        deadline_in_seconds=max(0, deadline - chain.time()),
    )


def _cumulative_wei(client: CoordinatorClient, record: EarningsRecord, provider: str) -> int:
    stated = {row.account: row.cumulative_wei for row in client.earnings(record.epoch).accounts}
    if not stated or earnings_tree(stated).root != record.root:
        raise VerificationFailed(
            "the coordinator states other earnings than the chain",
            f"epoch {record.epoch}, root {record.root}",
            "keep what it says; `proofpool audit money` shows where they part",
        )
    return stated.get(provider, 0)


def _slashed_wei(client: CoordinatorClient, submission_id: str) -> int | None:
    """What the Registry took, as the coordinator has seen it; less than was held where an earlier case fell."""
    amounts = [
        int(stage.values["amount"])
        for stage in client.trace(submission_id).stages
        if stage.stage == "chain" and stage.status == "Slashed"
    ]
    return amounts[-1] if amounts else None
