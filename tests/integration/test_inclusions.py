"""Promises of inclusion on a real chain: an honest coordinator keeps and shows them, a censor pays."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select

from coordinator.db.chain import ChainEvent
from coordinator.db.log import Event
from coordinator.forced import REFUSED
from coordinator.inclusions import answer_demands
from coordinator.indexer import index_chain
from coordinator.outbox import CallState
from coordinator.sender import send_outbox
from protocol.api import SubmissionEnvelope
from protocol.chain.lane import Lane
from protocol.clock import SystemClock
from protocol.errors import NotEligible, NotFound, Rejected, UsageError, VerificationFailed
from protocol.reasons import RejectReason
from protocol.signing import Signer
from protocol.wire import Receipt, Signed, Submission
from tests.integration.conftest import COORDINATOR_BOND_WEI, CREDIT, World
from verifier.audit.court.inclusion import Promised, advance, check_missing, forced_promise, receipt_promise
from worker.force import ForcedIntake, announce, check_unpromised
from worker.outbox import Entry, Outbox

SLASH_WEI = COORDINATOR_BOND_WEI // 10


def handed_in(world: World) -> tuple[Promised, str]:
    """A submission with its receipt, and its id."""
    envelope, submission_id, file = world.pack(world.lease().message)
    receipt = world.client(world.node).submit(envelope, submission_id, file)
    return Promised(submission=envelope.submission, receipt=receipt), submission_id


def forged_receipt(world: World, promised: Promised, **changes: Any) -> Promised:
    """The same promise with other words, signed by the coordinator: what one signs that lies."""
    message = promised.receipt.message.model_copy(update=changes)
    receipt = Signed[Receipt].by(world.coordinator.signer, message, world.domain)
    return promised.model_copy(update={"receipt": receipt})


def unlogged(world: World) -> Promised:
    """A receipt for a submission that never gets into the log."""
    _, submission_id, _ = packed = world.pack(world.lease().message)
    message = Receipt(submission_id=submission_id, received_block=1, include_by_epoch=0)
    receipt = Signed[Receipt].by(world.coordinator.signer, message, world.domain)
    return Promised(submission=packed[0].submission, receipt=receipt)


def lane_of(world: World, signer: Signer) -> Lane:
    return Lane(world.contracts.client, signer, SystemClock())


def challenge(world: World, promised: Promised) -> str:
    """One step of the command, by the provider: where the demand stands then."""
    promise = receipt_promise(world.contracts, promised)
    return advance(world.contracts, lane_of(world, world.provider), promise).state


def balance(world: World, address: str) -> int:
    return int(world.read("credits", "balanceOf", address))


def bond_wei(world: World) -> int:
    return int(world.read("pools", "bondOf", world.pool_id, world.coordinator.signer.address)["amount"])


def answered(world: World) -> list[str]:
    return [purpose for purpose in world.outbox(CallState.MINED) if purpose.startswith("answer:")]


def types_of(world: World, submission_id: str) -> list[str]:
    with world.coordinator.reading() as session:
        found = session.scalars(select(Event).where(Event.subject == submission_id).order_by(Event.index))
        return [event.type for event in found]


def force(world: World, submission_id: str) -> ForcedIntake:
    """Announced by the node's key, which needs gas."""
    world.chain.lane(world.chain.creator).send(world.node.address, b"", value_wei=10**18)
    forced = announce(world.contracts, lane_of(world, world.node), world.pool_id, submission_id)
    index_chain(world.coordinator)
    return forced


@pytest.fixture(autouse=True)
def _credits(world: World) -> None:
    """The provider can pay for a demand's bond."""
    world.send(world.provider, "credits", "faucet", 3 * CREDIT)


# --- receipts ---


def test_the_coordinator_answers_a_doubted_promise_by_itself_and_has_the_bond(world: World) -> None:
    promised, _ = handed_in(world)
    with pytest.raises(NotEligible, match="isn't committed yet"):
        challenge(world, promised)
    world.close_epoch()
    assert challenge(world, promised) == "open"
    assert challenge(world, promised) == "open"
    before = balance(world, world.coordinator.signer.address)
    world.run_until(lambda: len(answered(world)) == 1, [answer_demands, send_outbox])
    assert challenge(world, promised) == "answered"
    assert balance(world, world.coordinator.signer.address) == before + CREDIT
    answer_demands(world.coordinator)
    assert not world.outbox(CallState.QUEUED)
    assert bond_wei(world) == COORDINATOR_BOND_WEI


def test_a_kept_promise_is_not_demanded_where_its_log_is_asked_first(world: World) -> None:
    world.close_epoch()
    kept, broken = (receipt_promise(world.contracts, one) for one in (handed_in(world)[0], unlogged(world)))
    world.close_epoch()
    asked, lane = world.client(), lane_of(world, world.provider)
    with pytest.raises(VerificationFailed, match="the log has it as promised"):
        advance(world.contracts, lane, kept, asked)
    check_missing(world.contracts, asked, replace(kept, epoch=kept.epoch - 1))
    assert advance(world.contracts, lane, broken, asked).state == "open"
    assert advance(world.contracts, lane, kept).state == "open", "whoever insists may"
    assert advance(world.contracts, lane, kept, asked).state == "open", "what is demanded goes its way"


def test_what_is_settled_is_too_late_to_demand(world: World) -> None:
    promised, _ = handed_in(world)
    world.close_epoch()
    world.chain.pass_time(100_000)
    before = world.contracts.client.transaction_count(world.provider.address)
    with pytest.raises(NotEligible, match="too late to demand"):
        challenge(world, promised)
    assert world.contracts.client.transaction_count(world.provider.address) == before, "nothing was approved"


def test_a_broken_promise_is_enforced_after_its_deadline_and_stops_leasing(world: World) -> None:
    promised = unlogged(world)
    world.close_epoch()
    before = balance(world, world.provider.address)
    assert challenge(world, promised) == "open"
    answer_demands(world.coordinator)
    assert not world.outbox(CallState.QUEUED)
    world.chain.pass_time(16)
    assert challenge(world, promised) == "broken"
    assert balance(world, world.provider.address) == before + CREDIT
    assert bond_wei(world) == COORDINATOR_BOND_WEI - SLASH_WEI
    index_chain(world.coordinator)
    with pytest.raises(Rejected, match="pool_paused"):
        world.lease()


def test_an_answer_that_comes_too_late_for_the_chain_is_given_up(world: World) -> None:
    promised, _ = handed_in(world)
    world.close_epoch()
    assert challenge(world, promised) == "open"
    index_chain(world.coordinator)
    answer_demands(world.coordinator)
    world.chain.pass_time(16)
    send_outbox(world.coordinator)
    assert challenge(world, promised) == "broken"
    world.run_until(lambda: not world.outbox(CallState.QUEUED), [send_outbox])
    assert bond_wei(world) == COORDINATOR_BOND_WEI - SLASH_WEI


def test_a_receipt_for_something_else_or_by_somebody_else_binds_nobody(world: World) -> None:
    promised, submission_id = handed_in(world)
    world.close_epoch()
    other = promised.submission.message.model_copy(update={"counter": 99})
    swapped = promised.model_copy(update={"submission": Signed[Submission].by(world.node, other, world.domain)})
    with pytest.raises(VerificationFailed, match="for another submission"):
        challenge(world, swapped)
    strange = Signed[Receipt].by(world.node, promised.receipt.message, world.domain)
    with pytest.raises(NotEligible, match="nobody answers"):
        challenge(world, promised.model_copy(update={"receipt": strange}))
    assert challenge(world, forged_receipt(world, promised, received_block=0)) == "open"


# --- forced intake ---


def test_a_forced_submission_that_comes_is_received_as_ever(world: World) -> None:
    envelope, submission_id, file = world.pack(world.lease().message)
    forced = force(world, submission_id)
    assert forced.include_by_epoch == 1
    again = announce(world.contracts, lane_of(world, world.node), world.pool_id, submission_id)
    assert (again.include_by_epoch, again.transaction_hash) == (1, None)
    world.client(world.node).submit(envelope, submission_id, file)
    for _ in range(2):
        world.close_epoch()
    assert REFUSED not in types_of(world, submission_id)
    assert demand_forced(world, submission_id) == "open"
    world.run_until(lambda: len(answered(world)) == 1, [answer_demands, send_outbox])
    assert demand_forced(world, submission_id) == "answered"


def test_a_forced_submission_that_never_comes_is_refused_in_the_promised_epoch(world: World) -> None:
    _, submission_id, _ = world.pack(world.lease().message)
    force(world, submission_id)
    world.close_epoch()
    assert REFUSED not in types_of(world, submission_id)
    world.close_epoch()
    assert types_of(world, submission_id).count(REFUSED) == 1
    assert refusal(world, submission_id)["reason"] == RejectReason.FILE_MISSING.value
    world.close_epoch()
    assert types_of(world, submission_id).count(REFUSED) == 1
    assert demand_forced(world, submission_id) == "open"
    world.run_until(lambda: len(answered(world)) == 1, [answer_demands, send_outbox])
    assert demand_forced(world, submission_id) == "answered"


def test_the_log_says_why_a_forced_submission_is_refused(world: World) -> None:
    envelope, submission_id, file = world.pack(world.lease().message)
    force(world, submission_id)
    with pytest.raises(Rejected, match="file_mismatch"):
        world.client(world.node).submit(damaged(envelope), submission_id, file)
    for _ in range(2):
        world.close_epoch()
    assert refusal(world, submission_id)["reason"] == RejectReason.FILE_MISMATCH.value


def test_a_coordinator_that_passes_a_forced_submission_over_pays(world: World) -> None:
    _, submission_id, _ = world.pack(world.lease().message)
    force(world, submission_id)
    with world.coordinator.writing() as session:
        session.execute(delete(ChainEvent).where(ChainEvent.name == "IntakeForced"))
    for _ in range(2):
        world.close_epoch()
    assert demand_forced(world, submission_id) == "open"
    answer_demands(world.coordinator)
    world.chain.pass_time(16)
    assert demand_forced(world, submission_id) == "broken"
    assert bond_wei(world) == COORDINATOR_BOND_WEI - SLASH_WEI


def test_what_nobody_forced_or_a_node_never_made_is_told_before_it_costs_gas(world: World, tmp_path: Path) -> None:
    envelope, submission_id, _ = world.pack(task := world.lease().message)
    with pytest.raises(NotFound, match="nobody forced"):
        demand_forced(world, submission_id)
    with pytest.raises(NotEligible, match="isn't registered"):
        announce(world.contracts, lane_of(world, world.trainer), world.pool_id, submission_id)
    outbox = Outbox(tmp_path / "outbox", 60)
    with pytest.raises(UsageError, match="no such submission"):
        check_unpromised(outbox, submission_id)
    signed = world.client(world.node).open_tasks()[0]
    entry = Entry(task_id=task.id(world.domain), task=signed, submission_id=submission_id, envelope=envelope)
    outbox.put(entry, b"file")
    check_unpromised(outbox, submission_id)
    receipt = Receipt(submission_id=submission_id, received_block=1, include_by_epoch=4)
    outbox.close(entry, receipt=Signed[Receipt].by(world.coordinator.signer, receipt, world.domain))
    (file,) = (tmp_path / "outbox").glob("*.answer.json")
    with pytest.raises(UsageError, match="has taken it in") as refused:
        check_unpromised(outbox, submission_id)
    assert f"challenge-inclusion {file}`" in refused.value.todo
    assert Promised.model_validate_json(file.read_bytes()).submission == envelope.submission


def demand_forced(world: World, submission_id: str) -> str:
    promise = forced_promise(world.contracts, world.pool_id, submission_id, None)
    return advance(world.contracts, lane_of(world, world.provider), promise).state


def refusal(world: World, submission_id: str) -> dict[str, Any]:
    with world.coordinator.reading() as session:
        event = session.scalars(select(Event).where(Event.subject == submission_id, Event.type == REFUSED)).one()
        data: dict[str, Any] = json.loads(event.document)["data"]
        return data


def damaged(envelope: SubmissionEnvelope) -> SubmissionEnvelope:
    return envelope.model_copy(update={"file_sha256": "0x" + "00" * 32})
