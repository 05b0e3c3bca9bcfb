"""Earnings are claimed: by the newest root that can be, in every pool for which there is a statement behind it.

    roots on chain ─ newest claimable ─▶ the statement behind it ─▶ proof ─▶ Ledger.claim ─▶ wallet

In: a `Wallet`, a source of statements a pool. Out: a plan, and `PoolEarnings`: what is claimable, what is withheld by
which case, when the rest can be claimed. Claims are cumulative: the newest root pays all that earlier ones would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from pydantic import BaseModel, ConfigDict

from protocol.amount import format_amount
from protocol.chain.contracts import Read
from protocol.chain.pool import ChainPool, EarningsRecord
from protocol.earnings import StatedEarnings
from protocol.errors import NotEligible, ProofpoolError, Unreachable, VerificationFailed
from protocol.events import utc
from protocol.wire import Address, Hash32, UInt64, Wei
from worker.provider.earnings_source import EarningsSource
from worker.provider.money_events import Withheld, account_events, withheld_by
from worker.provider.plan import Call, Effect, Plan, wallet_credits
from worker.provider.report import ProviderReport
from worker.provider.wallet import Wallet

MOST_LATER_LINES = 2
"""More payouts than these are said in one line for people."""


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class WithheldEarnings(_Shape):
    """What a case keeps back. `state` is the case's; `until` its present deadline, None where it is over."""

    submission_id: Hash32
    amount_wei: Wei
    state: str
    until: UInt64 | None


class LaterEarnings(_Shape):
    """What a newer root adds; `claimable_time` is None while a dispute holds it."""

    epoch: UInt64
    amount_wei: Wei
    claimable_time: UInt64 | None


class PoolEarnings(_Shape):
    """A pool's earnings of the account, before this command. `claimable_wei` is what it claims, by the root of `epoch`.

    `withheld_wei` counts for all earnings: those of later roots too. `token` is what the pool pays in.
    """

    pool_id: UInt64
    token: Address
    epoch: UInt64 | None
    earned_wei: Wei
    claimed_wei: Wei
    withheld_wei: Wei
    claimable_wei: Wei
    withheld: tuple[WithheldEarnings, ...]
    later: tuple[LaterEarnings, ...]
    faults: tuple[str, ...]


class ClaimReport(ProviderReport):
    """The document of `provider claim`."""

    earnings: tuple[PoolEarnings, ...]


def plan_claim(
    wallet: Wallet, sources: Sequence[EarningsSource], first_block: Callable[[], int]
) -> tuple[Plan, tuple[PoolEarnings, ...]]:
    """`first_block` is asked for where cases are looked for, from it on.

    Raises NotEligible where nothing can be claimed; what a source says wrongly, or not, where that is why."""
    found = [_of_pool(wallet, source, first_block) for source in sources]
    calls, effects = list[Call](), list[Effect]()
    for earnings, stated in found:
        if earnings.claimable_wei and stated is not None:
            words = f"claim {format_amount(earnings.claimable_wei)} credits of pool {earnings.pool_id}"
            calls.append(Call("ledger", "claim", stated.claim_of(wallet.address), words))
            read = Read("ledger", "claimed", (earnings.pool_id, wallet.address))
            effects.append(Effect("claimed", read, earnings.claimable_wei, pool_id=earnings.pool_id))
    pools = tuple(earnings for earnings, _ in found)
    notes = tuple(line for earnings in pools for line in lines_of(earnings))
    if not calls:
        raise _nothing(pools, notes, [error for source in sources for error in source.errors])
    own = wallet.contracts.address("credits")
    effects.insert(0, wallet_credits(wallet, sum(one.claimable_wei for one in pools if one.token == own)))
    due = [one.claimable_time for earnings in pools for one in earnings.later if one.claimable_time is not None]
    return Plan(tuple(calls), tuple(effects), notes, min(due, default=None)), pools


def lines_of(earnings: PoolEarnings) -> list[str]:
    """What isn't paid now, and why; for people."""
    pool = f"pool {earnings.pool_id}"
    lines = [f"{pool}: {line}" for line in _later_lines(earnings.later)]
    for case in earnings.withheld:
        until = "" if case.until is None else f" until {utc(case.until)}"
        amount = format_amount(case.amount_wei)
        lines.append(f"{pool}: {amount} withheld by the case of {case.submission_id} ({case.state}{until})")
    return [*lines, *(f"{pool}: {fault}" for fault in earnings.faults)]


def _later_lines(later: Sequence[LaterEarnings]) -> Iterator[str]:
    """Each payout, or where there are many the first, the last and their sum: `--json` has them all."""
    if len(later) > MOST_LATER_LINES:
        total, first, last = format_amount(sum(one.amount_wei for one in later)), later[0], later[-1]
        begin = f"the first {format_amount(first.amount_wei)} {_when(first)}"
        epochs = f"earnings of epochs {first.epoch} to {last.epoch}"
        yield f"{total} more in {len(later)} payouts: {begin}, the last {_when(last)} ({epochs})"
        return
    for one in later:
        yield f"{format_amount(one.amount_wei)} more can be claimed {_when(one)} (earnings of epoch {one.epoch})"


def _when(later: LaterEarnings) -> str:
    return "once a dispute is over" if later.claimable_time is None else f"from {utc(later.claimable_time)} on"


def _of_pool(
    wallet: Wallet, source: EarningsSource, first_block: Callable[[], int]
) -> tuple[PoolEarnings, StatedEarnings | None]:
    pool = ChainPool(wallet.contracts, source.pool_id)
    config = wallet.read("pools", "configOf", source.pool_id)
    time, records = wallet.time(), pool.earnings_since(0)
    is_due = [record.claimable_time is not None and record.claimable_time <= time for record in records]
    due = [record for record, can in zip(records, is_due, strict=True) if can]
    stated = _newest_known(source, due)
    claimed, withheld = pool.claimed_wei(wallet.address), pool.withheld_wei(wallet.address)
    earned = 0 if stated is None else stated.earned_wei.get(wallet.address, 0)
    later = _later(wallet, source, [r for r, can in zip(records, is_due, strict=True) if not can], earned)
    cases = _cases(wallet, source.pool_id, first_block()) if withheld else []
    found = PoolEarnings(
        pool_id=source.pool_id,
        token=config["token"],
        epoch=None if stated is None else stated.epoch,
        earned_wei=earned,
        claimed_wei=claimed,
        withheld_wei=withheld,
        claimable_wei=max(0, earned - claimed - withheld),
        withheld=tuple(_case(one) for one in cases),
        later=later,
        faults=tuple(dict.fromkeys(f"{error.what}: {error.why}" for error in source.errors)),
    )
    return found, stated


def _newest_known(source: EarningsSource, due: Sequence[EarningsRecord]) -> StatedEarnings | None:
    """Of the roots that can be claimed from, the newest behind which there is a statement."""
    return next((stated for record in reversed(due) if (stated := source.find(record)) is not None), None)


def _later(
    wallet: Wallet, source: EarningsSource, records: Sequence[EarningsRecord], earned_wei: int
) -> tuple[LaterEarnings, ...]:
    known = [(record, stated) for record in records if (stated := source.find(record)) is not None]
    totals = [earned_wei, *(stated.earned_wei.get(wallet.address, 0) for _, stated in known)]
    return tuple(
        LaterEarnings(epoch=record.epoch, amount_wei=after - before, claimable_time=record.claimable_time)
        for (record, _), (before, after) in zip(known, pairwise(totals), strict=True)
        if after > before
    )


def _cases(wallet: Wallet, pool_id: int, first_block: int) -> list[Withheld]:
    head = wallet.contracts.client.head().number
    return withheld_by(wallet, pool_id, account_events(wallet, pool_id, wallet.address, first_block, head))


def _case(withheld: Withheld) -> WithheldEarnings:
    return WithheldEarnings(
        submission_id=withheld.submission_id,
        amount_wei=withheld.amount_wei,
        state=withheld.state.name.lower(),
        until=None if withheld.state.is_over else withheld.deadline,
    )


def _nothing(pools: Sequence[PoolEarnings], notes: Sequence[str], errors: Sequence[ProofpoolError]) -> ProofpoolError:
    """Why nothing can be claimed: what keeps it from being known comes first, a contradiction before a silence."""
    for kind in (VerificationFailed, Unreachable):
        if (error := next((one for one in errors if isinstance(one, kind)), None)) is not None:
            return error
    paid = sum(earnings.claimed_wei for earnings in pools)
    why = "; ".join([f"{format_amount(paid)} are claimed", *notes])
    return NotEligible("there is nothing to claim", why, "`proofpool provider statement` shows all that was earned")
