"""Earnings: from payments in the log to tokens in an account, to the wei."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from coordinator.db.chain import Earnings, Epoch
from coordinator.db.log import Event
from coordinator.db.work import Account
from coordinator.earnings import cumulative_payments, earnings_id, propose_earnings
from coordinator.indexer import index_chain
from coordinator.log import append
from coordinator.outbox import CallState
from coordinator.sender import send_outbox
from protocol.api import EarningsStatement
from protocol.canonical import JsonValue
from protocol.chain.pool import ChainPool, EarningsRecord
from protocol.errors import ProofpoolError, TransactionReverted
from protocol.merkle.standard import earnings_tree
from protocol.signing import Signer
from protocol.wire import EarningsAttestation, Signed
from tests.integration.conftest import PRICE_WEI, World, number_hash
from verifier.audit.reports.money import audit_money
from verifier.audit.step import StepState


def propose(world: World) -> EarningsStatement:
    """A statement over everything that is settled."""
    world.close_epoch()
    world.close_epoch()
    propose_earnings(world.coordinator)
    statement = world.client().newest_earnings()
    assert statement is not None
    return statement


def attestation(world: World, statement: EarningsStatement, seat: int, **changes: object) -> EarningsAttestation:
    values = {
        "pool_id": world.pool_id,
        "epoch": statement.epoch,
        "root": statement.root,
        "total_wei": statement.total_wei,
        "seat": seat,
    }
    return EarningsAttestation(**(values | changes))  # type: ignore[arg-type]


def attest(world: World, statement: EarningsStatement) -> None:
    for seat, validator in enumerate(world.validators):
        message = attestation(world, statement, seat)
        world.client().attest_earnings(Signed[EarningsAttestation].by(validator, message, world.domain))


def commit(world: World, statement: EarningsStatement) -> None:
    """Attested by all seats, sent and indexed."""
    attest(world, statement)
    world.run_until(lambda: row_of(world, statement.epoch).transaction_hash is not None, [send_outbox])


def row_of(world: World, epoch: int) -> Earnings:
    with world.coordinator.reading() as session:
        return session.get_one(Earnings, epoch)


def claim(world: World, statement: EarningsStatement, account: str) -> None:
    totals = {row.account: row.cumulative_wei for row in statement.accounts}
    proof = earnings_tree(totals).proof(sorted(totals).index(account))
    world.send(world.chain.creator, "ledger", "claim", world.pool_id, statement.epoch, account, totals[account], proof)


def balance(world: World, account: str) -> int:
    return int(world.read("credits", "balanceOf", account))


def audit(world: World) -> str:
    return audit_money(world.client(), world.contracts, world.client().pool()).result


def test_accepted_work_becomes_tokens_to_the_wei(world: World) -> None:
    submission_id = world.accept()
    view = world.client().submission(submission_id)
    statement = propose(world)
    earned = {row.account: row.cumulative_wei for row in statement.accounts}
    assert earned[world.provider.address] == view.num_units * PRICE_WEI
    with world.coordinator.reading() as session:
        assert earned == {row.address: row.cumulative_wei for row in session.scalars(select(Account))}
    assert audit(world) == "ok"
    commit(world, statement)
    with pytest.raises(TransactionReverted, match="NotClaimableYet"):
        claim(world, statement, world.provider.address)
    world.chain.pass_time(1000)
    before = balance(world, world.provider.address)
    claim(world, statement, world.provider.address)
    assert balance(world, world.provider.address) - before == earned[world.provider.address]
    index_chain(world.coordinator)
    status = world.client().status()
    assert status.claimed_wei == earned[world.provider.address]
    assert status.earned_wei - status.claimed_wei == sum(earned.values()) - earned[world.provider.address]
    assert audit(world) == "ok"


def test_statements_are_cumulative_and_claims_pay_the_difference(world: World) -> None:
    world.accept()
    first = propose(world)
    commit(world, first)
    world.accept()
    second = propose(world)
    assert second.total_wei > first.total_wei and second.epoch > first.epoch
    commit(world, second)
    world.chain.pass_time(1000)
    before = balance(world, world.provider.address)
    for statement in (first, second):
        claim(world, statement, world.provider.address)
    totals = {row.account: row.cumulative_wei for row in second.accounts}
    assert balance(world, world.provider.address) - before == totals[world.provider.address]
    assert audit(world) == "ok"


def test_a_statement_built_on_the_last_one_equals_one_from_the_whole_log(world: World) -> None:
    world.accept()
    commit(world, propose(world))
    world.accept()
    second = propose(world)
    with world.coordinator.reading() as session:
        whole = cumulative_payments(session, session.get_one(Epoch, second.epoch), None, 0)
    assert whole == {row.account: row.cumulative_wei for row in second.accounts}


def test_nothing_new_is_nothing_proposed(world: World) -> None:
    world.close_epoch()
    world.close_epoch()
    propose_earnings(world.coordinator)
    assert world.client().newest_earnings() is None
    world.accept()
    statement = propose(world)
    commit(world, statement)
    assert propose(world) == statement


def test_a_commit_survives_a_restart_between_attestation_and_sending(world: World) -> None:
    world.accept()
    statement = propose(world)
    attest(world, statement)
    world.restart()
    attest(world, statement)
    assert world.outbox(CallState.QUEUED) == [f"earnings:{statement.epoch}"]
    world.run_until(lambda: row_of(world, statement.epoch).transaction_hash is not None, [send_outbox])
    found = world.read("ledger", "earningsOf", world.pool_id, statement.epoch)
    assert (found["root"], found["total"]) == (statement.root, statement.total_wei)
    assert found["claimable_time"] == row_of(world, statement.epoch).claimable_time
    record = EarningsRecord(statement.epoch, statement.root, found["claimable_time"])
    pool = ChainPool(world.contracts, world.pool_id)
    assert pool.earnings_since(0) == pool.earnings_since(statement.epoch) == [record]
    assert pool.earnings_since(statement.epoch + 1) == pool.earnings_since(0, most=0) == []
    for time in (0, found["claimable_time"]):
        assert pool.earnings_since(2**64 - 1, claimable_at=time) == [record], "whatever is asked for"


def test_attestations_count_only_if_a_seat_signed_this_statement(world: World) -> None:
    world.accept()
    statement = propose(world)
    owner, stranger = world.validators[0], world.provider

    def send(message: EarningsAttestation, signer: Signer = owner) -> None:
        world.client().attest_earnings(Signed[EarningsAttestation].by(signer, message, world.domain))

    wrong = [
        (attestation(world, statement, 0), stranger),
        (attestation(world, statement, 0, root="0x" + "77" * 32), owner),
        (attestation(world, statement, 0, total_wei=statement.total_wei + 1), owner),
        (attestation(world, statement, 0, epoch=statement.epoch + 1), owner),
        (attestation(world, statement, 99), owner),
    ]
    for message, signer in wrong:
        with pytest.raises(ProofpoolError):
            send(message, signer)
    assert row_of(world, statement.epoch).signatures == {}
    assert f"earnings:{statement.epoch}" not in world.outbox(CallState.QUEUED)


def test_the_id_that_attesting_seats_are_drawn_for_is_the_contracts(world: World) -> None:
    assert earnings_id(world.pool_id, 12) == world.read("ledger", "earningsId", world.pool_id, 12)


def test_money_that_doesnt_add_up_is_found(world: World) -> None:
    world.accept()
    statement = propose(world)
    commit(world, statement)
    assert audit(world) == "ok"
    with world.coordinator.writing() as session:
        row = session.get_one(Earnings, statement.epoch)
        row.accounts = [[account, str(int(amount) + 1)] for account, amount in row.accounts]
    assert audit(world) == "failed"


@pytest.mark.parametrize("event_type", ["group.unused", "submission.accepted"])
def test_a_payment_that_nothing_earns_is_found_though_it_is_anchored(world: World, event_type: str) -> None:
    with world.coordinator.writing() as session:
        payments: list[JsonValue] = [[world.trainer.address, str(10**18)]]
        append(session, event_type, number_hash(5), 1, {"num_units": 1, "payments": payments})
    world.close_epoch()
    report = audit_money(world.client(), world.contracts, world.client().pool())
    assert [step.name for step in report.steps if step.state is StepState.FAILED] == ["payments"]
    assert report.exit_code == 3


def test_entries_that_are_held_back_or_changed_are_found(world: World) -> None:
    world.accept()
    with world.coordinator.writing() as session:
        event = session.get_one(Event, 3)
        event.document = event.document.replace(b'"time":', b'"time":1')
    report = audit_money(world.client(), world.contracts, world.client().pool())
    assert "log" in [step.name for step in report.steps if step.state is StepState.FAILED]
