"""The end of a pool and of its cases, to the wei: who has what, and `audit money` says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.api import EarningsStatement
from protocol.chain.cases import CaseState
from protocol.errors import TransactionReverted
from protocol.reasons import Outcome
from tests.integration.conftest import CREDIT, SETTLING, World
from tests.integration.test_challenge import outsider
from tests.integration.test_earnings import balance, claim, commit, propose
from tests.integration.test_jury import FINE_WEI, Bench, accused_and_appealed, bench
from verifier.audit.reports.money import audit_money
from verifier.audit.step import Report, StepState

__all__ = ["bench"]

FUNDED_WEI = 1000 * CREDIT
CLAIM_EXPIRY_SECONDS = 180 * 86_400


def closed(world: World, statement: EarningsStatement | None = None) -> None:
    """Closed, and drained: every window is over."""
    world.send(world.chain.creator, "pools", "close", world.pool_id)
    world.chain.pass_time(60 + 60 + 600 + 2 * sum(SETTLING.values()))


def refund(world: World) -> int:
    """Sent by a stranger; what the creator got by it."""
    before = balance(world, world.chain.creator.address)
    world.send(world.trainer, "pools", "refund", world.pool_id)
    return balance(world, world.chain.creator.address) - before


def audited(world: World) -> Report:
    report = audit_money(world.client(), world.contracts, world.client().pool())
    assert report.result == "ok", list(report.lines())
    said = {name: value for step in report.steps for name, value in step.values.items()}
    for name in ("earned_wei", "paid_wei", "withheld_wei", "owed_wei"):
        assert sum(getattr(one, name) for one in report.accounts) == int(said[name]), "account by account"
    for one, line in zip(report.as_json()["accounts"], report.lines(), strict=False):
        assert line.startswith(f"account {one['account']}  earned_wei {one['earned_wei']}  ")
    return report


def owed(report: Report) -> dict[str, Any]:
    return next(dict(step.values) for step in report.steps if step.name == "owed")


def held(world: World) -> int:
    return int(world.read("pools", "funds", world.pool_id))


def paid_work(world: World) -> EarningsStatement:
    world.accept()
    statement = propose(world)
    commit(world, statement)
    return statement


def test_a_drained_pool_gives_back_all_but_what_is_earned_and_ends_at_zero(world: World) -> None:
    statement = paid_work(world)
    first, *others = [row.account for row in statement.accounts]
    with pytest.raises(TransactionReverted, match="PoolNotClosing"):
        refund(world)
    closed(world)
    claim(world, statement, first)
    assert refund(world) == FUNDED_WEI - statement.total_wei
    assert (
        int(owed(audited(world))["owed_wei"])
        == held(world)
        == sum(row.cumulative_wei for row in statement.accounts if row.account != first)
    )
    for account in others:
        claim(world, statement, account)
    assert held(world) == 0 and owed(audited(world))["owed_wei"] == "0"
    with pytest.raises(TransactionReverted, match="NothingToRefund"):
        refund(world)


def test_claims_that_nobody_made_in_time_lapse(world: World) -> None:
    statement = paid_work(world)
    closed(world)
    assert refund(world) == FUNDED_WEI - statement.total_wei
    world.chain.pass_time(CLAIM_EXPIRY_SECONDS - 10)
    report = owed(audited(world))
    assert "lapsed_wei" not in report and report["owed_wei"] == str(statement.total_wei)
    world.chain.pass_time(10)
    assert refund(world) == statement.total_wei and held(world) == 0
    report = owed(audited(world))
    assert (report["owed_wei"], report["lapsed_wei"]) == ("0", str(statement.total_wei))
    with pytest.raises(TransactionReverted, match="FundsExhausted"):
        claim(world, statement, world.provider.address)


def test_funds_that_are_missing_before_claims_lapse_are_found(world: World) -> None:
    """As a contract would show them that refunds what is owed."""
    statement = paid_work(world)
    read = world.contracts.read

    def short(contract: str, function: str, *arguments: Any, **options: Any) -> Any:
        found = read(contract, function, *arguments, **options)
        return found | {"pool_funds": statement.total_wei - 1} if function == "poolOf" else found

    world.contracts.read = short  # type: ignore[method-assign]
    try:
        report = audit_money(world.client(), world.contracts, world.client().pool())
    finally:
        del world.contracts.read
    assert [step.name for step in report.steps if step.state is StepState.FAILED] == ["owed"]


def test_what_a_forger_loses_is_not_refunded_at_the_cost_of_others(bench: Bench, tmp_path: Path) -> None:
    """The case deducts `maxUnits` times the price: more than the forger has earned."""
    world, bench.eyes.outcome = bench.world, Outcome.SLASH
    case_id, challenger = world.accept(), outsider(world, tmp_path)
    challenger.challenge(case_id)
    statement = propose(world)
    assert challenger.challenge(case_id).held_earnings_wei, "by now the log shows that it was paid"
    commit(world, statement)
    bench.until(lambda: bench.state(case_id).is_over)
    earned = {row.account: row.cumulative_wei for row in statement.accounts}
    withheld = world.read("ledger", "withheld", world.pool_id, world.provider.address)
    assert bench.state(case_id) is CaseState.UPHELD and withheld > sum(earned.values())
    closed(world)
    assert refund(world) == FUNDED_WEI - statement.total_wei
    assert owed(audited(world))["withheld_wei"] == str(withheld)
    for account in earned.keys() - {world.provider.address}:
        claim(world, statement, account)
    with pytest.raises(TransactionReverted, match="NothingToClaim"):
        claim(world, statement, world.provider.address)
    audited(world)
    world.chain.pass_time(CLAIM_EXPIRY_SECONDS)
    assert refund(world) == earned[world.provider.address] and held(world) == 0
    audited(world)


def test_a_wrong_accusation_moves_its_fines_and_nothing_else(bench: Bench) -> None:
    world = bench.world
    case_id = accused_and_appealed(world)
    jurors_before, before, supply = 0, balance(world, world.provider.address), world.read("credits", "totalSupply")
    bench.seat(case_id)
    jurors = [juror.validator for juror in bench.jury(case_id).jurors]
    jurors_before = sum(balance(world, juror) for juror in jurors)
    bench.until(lambda: bench.state(case_id).is_over)
    fines = 2 * FINE_WEI
    to_provider = balance(world, world.provider.address) - before
    to_jurors = sum(balance(world, juror) for juror in jurors) - jurors_before
    burned = supply - world.read("credits", "totalSupply")
    assert to_provider == CREDIT + fines // 2, "the bond, and half of the fines"
    assert to_jurors == fines // 2 - fines // 2 % len(jurors) and burned == fines // 2 % len(jurors)
    assert world.read("ledger", "withheld", world.pool_id, world.provider.address) == 0
    assert world.read("credits", "balanceOf", world.contracts.addresses.court) == 0
    audited(world)
