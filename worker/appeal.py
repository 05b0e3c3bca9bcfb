"""An accusation is objected to: the provider puts down the appeal bond, and a jury decides.

In: `WorkerConfig`, the id of an accused submission, the key of who answers for it: the node's provider, or the
validator of a seat that accepted it and is named in the case. Out: `Appeal`. Everything that the Court would refuse is
said here first: a refused transaction costs gas.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.amount import format_amount
from protocol.chain.cases import CaseRecord, CaseState
from protocol.chain.contracts import Contracts
from protocol.chain.deployment import connect
from protocol.chain.journal import FILE_NAME, Journal
from protocol.chain.lane import Lane
from protocol.chain.pool import ChainPool
from protocol.clock import SystemClock
from protocol.errors import NotEligible, TransactionReverted
from protocol.keyring import find_key
from protocol.keystore import load_signer
from protocol.wire import Address, Hash32, UInt64, Wei
from worker.config import WorkerConfig
from worker.force import ledger_of


class Appeal(BaseModel):
    """A case before a jury. `deadline` is the appeal's, `jury_deadline` the jury's present one: chain seconds.

    `sent` says whether this call appealed; else somebody had before.
    """

    model_config = ConfigDict(frozen=True)
    schema_version: Literal[1] = 1
    submission_id: Hash32
    appellant: Address
    bond_wei: Wei
    deadline: UInt64
    jury_deadline: UInt64
    sent: bool


def appeal(
    config: WorkerConfig, submission_id: str, keystore: Path | None = None, password_file: Path | None = None
) -> Appeal:
    """With the node's key where no other is named. Raises NotEligible, KeyFailure, ChainError."""
    clock = SystemClock()
    keystore = None if keystore is None else find_key(keystore)
    contracts = connect(config.chain_url, clock, deployment=config.deployment, ledger=ledger_of(config))
    # A wallet of its own keeps its journal beside it; the node's is where its worker keeps it.
    with closing(contracts.client.rpc):
        signer = load_signer(
            contracts.client.chain_id,
            keystore or config.keystore,
            password_file or (None if keystore else config.password_file),
        )
        with closing(_journal(config, keystore)) as journal:
            lane = Lane(contracts.client, signer, clock, journal=journal)
            return object_to(contracts, lane, config.pool_id, submission_id)


def object_to(contracts: Contracts, lane: Lane, pool_id: int, submission_id: str) -> Appeal:
    """Appeal, once. Raises NotEligible where the Court would refuse this account, TransactionReverted."""
    pool = ChainPool(contracts, pool_id, lane=lane)
    case = pool.case_of(submission_id)
    if case.state is CaseState.APPEALED:
        return _appeal(contracts, pool, submission_id, case, is_sent=False)
    bond_to_pay(contracts, pool, submission_id, case, lane.address)
    try:
        pool.appeal(submission_id)
    except TransactionReverted as error:
        if error.name in ("TooLate", "WrongState"):  # the bond's approval was mined first, and took its time
            raise _too_late(case, pool.time()) from error
        raise
    return _appeal(contracts, pool, submission_id, case, is_sent=True)


def bond_to_pay(contracts: Contracts, pool: ChainPool, submission_id: str, case: CaseRecord, sender: str) -> int:
    """What an appeal takes, in wei. Raises NotEligible where the Court would refuse this account's."""
    _check_accused(submission_id, case)
    _check_appellant(pool, submission_id, case, sender)
    _check_time(case, pool.time())
    bond_wei, balance_wei = pool.jury_terms().appeal_bond_wei, int(contracts.read("credits", "balanceOf", sender))
    if balance_wei < bond_wei:
        have, want = format_amount(balance_wei), format_amount(bond_wei)
        why = f"{have} of {want} credits, until chain time {case.deadline}"
        raise NotEligible("an appeal takes a bond", why, f"send credits to {sender}")
    return bond_wei


def jury_deadline_of(pool: ChainPool, submission_id: str) -> int:
    """In chain seconds; 0 where no jury is called."""
    jury = pool.jury_of(submission_id)
    return 0 if jury is None else jury.deadline


def _check_accused(submission_id: str, case: CaseRecord) -> None:
    if case.state is CaseState.NONE:
        raise NotEligible(
            "there is nothing to appeal", f"nobody has accused {submission_id}", "copy an id from `worker status`"
        )
    if case.state is CaseState.CHALLENGED:
        raise NotEligible("a challenge takes no appeal", "a jury decides it anyway", "wait for the jury")
    if case.state.is_over:
        raise NotEligible("the case is over", f"it is {case.state.name.lower()}", "nothing can be done any more")


def _check_appellant(pool: ChainPool, submission_id: str, case: CaseRecord, sender: str) -> None:
    provider = pool.provider_of(case.node)
    implicated = pool.implicated_of(submission_id)
    seats = pool.seats() if implicated else ()
    accused = {provider, *(seats[index].validator for index in implicated)}
    if sender not in accused:
        raise NotEligible(
            "only who is accused can appeal",
            f"{sender} isn't {' or '.join(sorted(accused))}",
            "name the provider's key with --keystore",
        )


def _check_time(case: CaseRecord, now: int) -> None:
    if now >= case.deadline:
        raise _too_late(case, now)


def _too_late(case: CaseRecord, now: int) -> NotEligible:
    return NotEligible(
        "the appeal period is over",
        f"it ended at chain time {case.deadline}, {max(0, now - case.deadline)} s ago",
        "nothing can be done any more: anybody may enforce the accusation",
    )


def _appeal(contracts: Contracts, pool: ChainPool, submission_id: str, case: CaseRecord, *, is_sent: bool) -> Appeal:
    bond = contracts.read("court", "bondOf", submission_id)
    return Appeal(
        submission_id=submission_id,
        appellant=bond["owner"],
        bond_wei=bond["amount"],
        deadline=case.deadline,
        jury_deadline=jury_deadline_of(pool, submission_id),
        sent=is_sent,
    )


def _journal(config: WorkerConfig, keystore: Path | None) -> Journal:
    return Journal(config.data_dir / FILE_NAME) if keystore is None else Journal.beside(keystore)
