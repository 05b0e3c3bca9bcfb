"""Wherever earnings are, the parts add up to the whole; and two sides that differ are told apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.merkle.standard import earnings_tree
from worker.provider.balance import ChainBooks, Root, balance_of, differences
from worker.provider.money_events import MoneyEvent
from worker.provider.paid_log import Credit, PaidLog

ACCOUNT, OTHER = "0x" + "aa" * 20, "0x" + "bb" * 20
AMOUNTS = st.integers(min_value=0, max_value=10**21)


def paid_log(amounts: list[int]) -> PaidLog:
    """A credit a leaf, and a payment to somebody else beside each."""
    log, total = PaidLog(ACCOUNT), 0
    for index, amount in enumerate(amounts):
        total += amount
        log.payments += [(index, ACCOUNT, amount), (index, OTHER, 7)]
        log.credits.append(Credit(index, index, "submission.accepted", f"0x{index:064x}", None, 1, amount, total))
    return log


def books(log: PaidLog, sizes: list[tuple[int, bool]], claimed: list[int], withheld: int) -> ChainBooks:
    """Roots over so many leaves; claims by cumulative amount; what a case holds."""
    roots = [
        Root(epoch, size, earnings_tree(log.earned_wei(size)).root, sum(log.earned_wei(size).values()), "0x", due)
        for epoch, (size, due) in enumerate(sizes)
    ]
    before, events = 0, list[MoneyEvent]()
    for cumulative in claimed:
        events.append(MoneyEvent("Claimed", 1, "0xc1", {"amount": cumulative - before, "cumulative": cumulative}))
        before = cumulative
    if withheld:
        events.append(MoneyEvent("EarningsHeld", 1, "0xc2", {"amount": withheld, "submission_id": "0x01"}))
    return ChainBooks(9, 9, before, withheld, (), roots, events)


@given(amounts=st.lists(AMOUNTS, max_size=8), withheld=AMOUNTS, data=st.data())
def test_the_parts_add_up_whatever_is_claimed_withheld_or_on_its_way(
    amounts: list[int], withheld: int, data: st.DataObject
) -> None:
    log = paid_log(amounts)
    newest = data.draw(st.integers(min_value=0, max_value=len(amounts)))
    due = data.draw(st.integers(min_value=0, max_value=newest))
    sizes = [(due, True), (newest, False)] if due else [(newest, False)] if newest else []
    can_claim = due and log.own_wei(due) and data.draw(st.booleans())
    found = books(log, sizes, [log.own_wei(due)] if can_claim else [], withheld)
    balance = balance_of(log, found)
    parts = balance.claimed_wei + balance.withheld_wei + balance.claimable_wei
    parts += balance.claimable_later_wei + balance.waiting_for_root_wei
    assert parts == balance.earned_wei == sum(amounts)
    assert balance.withheld_wei + balance.owing_wei == withheld
    assert balance.claimable_wei == max(0, log.own_wei(due) - found.claimed_wei - withheld)
    assert list(differences(log, found, balance)) == []


def test_each_kind_of_difference_is_named() -> None:
    log = paid_log([5, 6])
    honest = books(log, [(2, True)], [11], 0)

    def found(changed: ChainBooks, paid: PaidLog = log) -> list[str]:
        return list(differences(paid, changed, balance_of(paid, changed)))

    def but(**values: object) -> ChainBooks:
        return ChainBooks(**(vars(honest) | values))  # type: ignore[arg-type]

    assert found(honest) == []
    assert any("are claimed, its events add up to 11" in one for one in found(but(claimed_wei=10)))
    assert any("withholds 3 wei, its events add up to 0" in one for one in found(but(withheld_wei=3)))
    assert any("isn't over the log's payments" in one for one in found(honest, paid_log([5, 7])))
    assert any("isn't over the log's payments" in one for one in found(honest, paid_log([5])))
    over = books(log, [(2, True)], [11], 0)
    claim = MoneyEvent("Claimed", 1, "0xc3", {"amount": 1, "cumulative": 12})
    told = found(but(claimed_wei=12, events=[*over.events, claim]))
    assert any("by 12 wei of earnings" in one for one in told)
    assert any("the log pays 11 wei, the contracts account for 12" in one for one in told)
