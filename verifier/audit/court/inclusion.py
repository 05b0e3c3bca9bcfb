"""A promise of inclusion is doubted: the coordinator shows the leaf on chain, or pays.

    none ─ demand, with a bond ─▶ open ─┬─▶ answered   the coordinator showed it, and has the bond
                                        └─▶ broken     after the deadline: the coordinator pays

In: a receipt with its submission, or the id of a submission that was forced in; the chain; an account with credits.
Out: one step further, and where that leads. Asked again later it goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from protocol.chain.contracts import Contracts, Read, encode
from protocol.chain.lane import Lane
from protocol.client import CoordinatorClient
from protocol.errors import NotEligible, NotFound, TransactionReverted, VerificationFailed
from protocol.merkle.history import verify_inclusion
from protocol.signing import recover
from protocol.wire import Address, Hash32, Receipt, Signed, Submission, UInt64, Wei
from verifier.audit.bundle.history import check_entry


class DemandState(IntEnum):
    """Where a demand stands (Inclusions.DemandState)."""

    NONE = 0
    OPEN = 1
    ANSWERED = 2
    BROKEN = 3


class Promised(BaseModel):
    """What is read of a worker's answer file or a proof bundle: a submission and the receipt for it."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    submission: Signed[Submission]
    receipt: Signed[Receipt]


class DemandReport(BaseModel):
    """A demand as the chain has it now: the demander's bond, and what it holds of the coordinator's, while it is open.

    `deadline` in chain seconds; `todo` says what comes next, if anything.
    """

    model_config = ConfigDict(frozen=True)
    demand_id: Hash32
    submission_id: Hash32
    coordinator: Address
    state: str
    deadline: UInt64
    bond_wei: Wei
    held_wei: Wei
    todo: str


@dataclass(frozen=True)
class Promise:
    """What can be demanded: by which epoch, of whom, and the call that does it."""

    demand_id: str
    pool_id: int
    submission_id: str
    coordinator: str
    epoch: int
    call: tuple[Any, ...]


def receipt_promise(contracts: Contracts, promised: Promised) -> Promise:
    """The promise of a receipt. Raises VerificationFailed where it is for another submission, SignatureInvalid."""
    submission, receipt = promised.submission.message, promised.receipt.message
    submission_id = submission.id(contracts.domain)
    if receipt.submission_id != submission_id:
        raise VerificationFailed("the receipt is for another submission", f"{receipt.submission_id}, {submission_id}")
    return Promise(
        demand_id=receipt.id(contracts.domain),
        pool_id=submission.pool_id,
        submission_id=submission_id,
        coordinator=recover(receipt.digest(contracts.domain), promised.receipt.signature),
        epoch=receipt.include_by_epoch,
        call=("demandInclusion", submission, receipt, promised.receipt.signature),
    )


def forced_promise(contracts: Contracts, pool_id: int, submission_id: str, coordinator: str | None) -> Promise:
    """The promise of a forced intake, by the pool's present coordinator where none is named.

    Raises NotFound, TransactionReverted for a pool that was never made.
    """
    promised, present = contracts.read_all(
        [Read("ledger", "forcedIntake", (pool_id, submission_id)), Read("pools", "coordinatorOf", (pool_id,))]
    )
    if not promised:
        contracts.read("pools", "configOf", pool_id)
        raise NotFound(
            "nobody forced this submission in",
            f"{submission_id} in pool {pool_id}",
            "give the receipt's file, or force it in with `proofpool provider force-intake`",
        )
    accused = coordinator or present
    return Promise(
        demand_id=contracts.read("ledger", "forcedDemandId", pool_id, submission_id, accused),
        pool_id=pool_id,
        submission_id=submission_id,
        coordinator=accused,
        epoch=promised - 1,
        call=("demandForced", pool_id, submission_id, accused),
    )


def advance(
    contracts: Contracts, lane: Lane, promise: Promise, client: CoordinatorClient | None = None
) -> DemandReport:
    """One step further: demand, or enforce what was not answered in time. A first step asks `client` for the leaf.

    Raises NotEligible, TransactionReverted, VerificationFailed where the coordinator has it as promised.
    """
    demand = contracts.read("ledger", "demandOf", promise.demand_id)
    if demand["state"] == DemandState.NONE:
        _check_demandable(contracts, lane, promise)
        if client is not None:
            check_missing(contracts, client, promise)
        _demand(contracts, lane, promise)
    elif demand["state"] == DemandState.OPEN and contracts.client.head().timestamp >= demand["deadline"]:
        contracts.send(lane, "ledger", "enforceInclusion", promise.demand_id)
    return _report(contracts, promise)


def check_missing(contracts: Contracts, client: CoordinatorClient, promise: Promise) -> None:
    """Raises VerificationFailed where the coordinator shows the leaf as promised: a demand would only cost its bond."""
    try:
        index = client.submission(promise.submission_id).log_index
        proof, entries = client.inclusion(index), client.entries(index, 1)
        if not entries or entries[0].index != index or proof.epoch > promise.epoch:
            return
        check_entry(entries[0], "submission.received", promise.submission_id)
    except (NotFound, VerificationFailed):
        return
    head = contracts.read("ledger", "epochOf", promise.pool_id, proof.epoch)
    if verify_inclusion(entries[0].leaf_hash, index, head["size"], proof.path, head["root"]):
        raise VerificationFailed(
            "the log has it as promised",
            f"leaf {index} of epoch {proof.epoch}, promised by epoch {promise.epoch}",
            "nothing is sent: whoever shows that on chain would have the bond",
        )


def _check_demandable(contracts: Contracts, lane: Lane, promise: Promise) -> None:
    num_epochs, is_liable, config, balance_wei = contracts.read_all(
        [
            Read("ledger", "epochCount", (promise.pool_id,)),
            Read("pools", "answersFor", (promise.pool_id, promise.coordinator, promise.epoch)),
            Read("pools", "configOf", (promise.pool_id,)),
            Read("credits", "balanceOf", (lane.address,)),
        ]
    )
    if num_epochs <= promise.epoch:
        raise NotEligible(
            "the promised epoch isn't committed yet", f"epoch {promise.epoch}, open is {num_epochs}", "wait for it"
        )
    if not is_liable:
        raise NotEligible(
            "nobody answers for this promise",
            f"{promise.coordinator} wasn't the coordinator of epoch {promise.epoch}",
            "name the one that was with --answerable",
        )
    if balance_wei < (bond_wei := config["challenge_bond"]):
        raise NotEligible(
            "a demand takes a bond", f"{balance_wei} of {bond_wei} wei", f"send credits to {lane.address}"
        )


def _demand(contracts: Contracts, lane: Lane, promise: Promise) -> None:
    function, *arguments = promise.call
    _check_in_time(contracts, lane, encode("ledger", function, *arguments))
    bond_wei = contracts.read("pools", "configOf", promise.pool_id)["challenge_bond"]
    contracts.send(lane, "credits", "approve", contracts.addresses.pools, bond_wei)
    contracts.send(lane, "ledger", function, *arguments)


def _check_in_time(contracts: Contracts, lane: Lane, call: bytes) -> None:
    """Raises NotEligible for what is settled; other refusals, such as of a bond that isn't approved, aren't meant."""
    try:
        contracts.client.call(contracts.addresses.ledger, call, sender=lane.address)
    except TransactionReverted as error:
        if error.name == "DemandTooLate":
            why = f"it could be demanded until chain time {error.arguments[0]}"
            raise NotEligible("it is too late to demand this", why, "nothing can be done any more") from error


def _report(contracts: Contracts, promise: Promise) -> DemandReport:
    demand, hold = contracts.read_all(
        [Read("ledger", "demandOf", (promise.demand_id,)), Read("pools", "holdOf", (promise.demand_id,))]
    )
    todo = {
        DemandState.OPEN: f"run this again after chain time {demand['deadline']}, if it isn't answered by then",
        DemandState.ANSWERED: "nothing: the log has it, and the bond is the coordinator's",
        DemandState.BROKEN: "nothing: the bond is back, with as much again where the coordinator's allowed it",
    }
    return DemandReport(
        demand_id=promise.demand_id,
        submission_id=promise.submission_id,
        coordinator=promise.coordinator,
        state=DemandState(demand["state"]).name.lower(),
        deadline=demand["deadline"],
        bond_wei=hold["deposit"],
        held_wei=hold["amount"],
        todo=todo[DemandState(demand["state"])],
    )
