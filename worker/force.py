"""A submission that the coordinator doesn't take in is announced on chain: the log must then say what became of it.

In: `WorkerConfig`, the id of a submission that lies in this node's outbox, or did. Out: the epoch by which the log
answers. The file is handed in as ever: the running worker does that.
"""

from __future__ import annotations

from contextlib import closing
from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.amount import format_amount
from protocol.chain.contracts import Contracts
from protocol.chain.deployment import connect
from protocol.chain.journal import FILE_NAME, Journal
from protocol.chain.lane import Lane
from protocol.client import CoordinatorClient
from protocol.clock import SystemClock
from protocol.errors import NotEligible, UsageError
from protocol.keystore import load_signer
from protocol.wire import ZERO_ADDRESS, Hash32, UInt64
from worker.config import WorkerConfig
from worker.outbox import Outbox


class ForcedIntake(BaseModel):
    """By the end of `include_by_epoch` the log has received the submission, or says why it is refused.

    `transaction_hash` is None where it was forced in before.
    """

    model_config = ConfigDict(frozen=True)
    schema_version: Literal[1] = 1
    submission_id: Hash32
    include_by_epoch: UInt64
    transaction_hash: Hash32 | None


def force_intake(config: WorkerConfig, submission_id: str) -> ForcedIntake:
    """Raises UsageError for what this node never made or has a receipt for, NotEligible, ChainError."""
    outbox = outbox_of(config)
    check_unpromised(outbox, submission_id)
    clock = SystemClock()
    contracts = connect(config.chain_url, clock, deployment=config.deployment, ledger=ledger_of(config))
    with closing(contracts.client.rpc), closing(Journal(config.data_dir / FILE_NAME)) as journal:
        signer = load_signer(contracts.client.chain_id, config.keystore, config.password_file)
        lane = Lane(contracts.client, signer, clock, journal=journal)
        forced = announce(contracts, lane, config.pool_id, submission_id)
        for entry in outbox.refused():
            if entry.submission_id == submission_id:
                outbox.hand_in_again(entry)
        return forced


def outbox_of(config: WorkerConfig) -> Outbox:
    return Outbox(config.data_dir / "outbox", config.give_up_seconds)


def check_unpromised(outbox: Outbox, submission_id: str) -> None:
    """Raises UsageError where there is nothing to force."""
    answer = next((one for one in outbox.answers() if one.submission_id == submission_id), None)
    if answer is not None and answer.receipt is not None:
        why = f"its receipt promises epoch {answer.receipt.message.include_by_epoch}"
        command = f"proofpool audit challenge-inclusion {outbox.answer_file(answer.task_id)}"
        raise UsageError("the coordinator has taken it in", why, f"where the log lacks it by then: `{command}`")
    if answer is None and all(entry.submission_id != submission_id for entry in outbox.pending()):
        raise UsageError(
            "this node has made no such submission", submission_id, "copy an id from `proofpool worker status`"
        )


def announce(contracts: Contracts, lane: Lane, pool_id: int, submission_id: str) -> ForcedIntake:
    """Post the id, once. Raises NotEligible where the contract would refuse this node."""
    if (promised := promised_epoch(contracts, pool_id, submission_id)) is not None:
        return ForcedIntake(submission_id=submission_id, include_by_epoch=promised, transaction_hash=None)
    check_eligible(contracts, lane.address, pool_id)
    receipt = contracts.send(lane, "ledger", "forceIntake", pool_id, submission_id)
    epoch = next(event.arguments["epoch"] for event in contracts.events(receipt) if event.name == "IntakeForced")
    return ForcedIntake(submission_id=submission_id, include_by_epoch=epoch, transaction_hash=receipt.transaction_hash)


def promised_epoch(contracts: Contracts, pool_id: int, submission_id: str) -> int | None:
    """By whose end the log must answer for a forced submission; None where it isn't forced in."""
    promised = contracts.read("ledger", "forcedIntake", pool_id, submission_id)
    return promised - 1 if promised else None


def check_eligible(contracts: Contracts, node: str, pool_id: int) -> None:
    """Raises NotEligible for a node whose announcement the Ledger would refuse."""
    if contracts.read("registry", "providerOf", node) == ZERO_ADDRESS:
        todo = "`proofpool provider register` takes it in; or use its keystore"
        raise NotEligible("the node isn't registered", node, todo)
    allotted, least = (
        contracts.read("registry", "allotment", node, pool_id),
        contracts.read("pools", "minAllotmentOf", pool_id),
    )
    if allotted < least:
        why = f"{format_amount(allotted)} of {format_amount(least)} credits"
        todo = "`proofpool provider stake` lets more stand behind it"
        raise NotEligible("too little is allotted to this node", why, todo)


def ledger_of(config: WorkerConfig) -> str | None:
    """The configured one; where there is neither it nor a deployment file, the one that the coordinator names."""
    if config.ledger is not None or config.deployment is not None:
        return config.ledger
    with closing(CoordinatorClient(config.coordinator_url)) as client:
        return client.pool().contracts.ledger
