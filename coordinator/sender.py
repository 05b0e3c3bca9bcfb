"""Stage send_outbox: the queued calls, one at a time, each exactly once, whatever is killed when.

    queued ─▶ [nonce, signed, stored] ─▶ sent ─▶ receipt ─▶ mined

In: `Outbox` rows in order. Out: mined transactions. Waits for: blocks. A turn never waits: it looks at the call
that is on its way, or starts the next one. One call is on its way at a time, so nonces leave no gap, and a
signed transaction is stored before it is sent: after a kill the same bytes are sent again, never a second one.
Whether a call has had its effect is read from contract state (`HAPPENED`), never from an error's text, so a call that
somebody else made first is done. This process is the only one that sends with the coordinator's key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlalchemy import select

from coordinator.context import Coordinator
from coordinator.db.log import Outbox
from coordinator.earnings import are_earnings_committed
from coordinator.epochs import is_epoch_committed, is_epoch_sealed
from coordinator.inclusions import is_demand_closed
from coordinator.outbox import CallState
from coordinator.versions import is_version_sealed
from protocol.canonical import from_hex0x
from protocol.chain.transaction import SignedTransaction, Transaction
from protocol.errors import NodeRefused, TransactionReverted
from protocol.telemetry import get_logger

GWEI = 10**9
TIP_WEI = GWEI
MAX_FEE_WEI = 500 * GWEI
GAS_MARGIN = 1.3
RESEND_SECONDS = 15.0
"""A transaction without a receipt is handed to the node again after this long."""

HAPPENED: dict[str, Callable[[Coordinator, int], bool]] = {
    "epoch": is_epoch_committed,
    "seal-epoch": is_epoch_sealed,
    "seal-version": is_version_sealed,
    "earnings": are_earnings_committed,
    "answer": is_demand_closed,
}
"""By the kind of a purpose: whether the chain shows the effect for that number (an id as one), whoever caused it."""


def send_outbox(coordinator: Coordinator) -> None:
    """Follow up the call on its way; where there is none, send the first that the contracts take."""
    with coordinator.reading() as session:
        rows = session.scalars(select(Outbox).where(Outbox.state != CallState.MINED).order_by(Outbox.id)).all()
    sent = [row for row in rows if row.state == CallState.SENT]
    if sent:
        _follow_up(coordinator, sent[0])
    else:
        _start_first(coordinator, rows)


def _start_first(coordinator: Coordinator, queued: Sequence[Outbox]) -> None:
    """A refused call stays queued and is tried again: it must not keep the others from being sent."""
    for row in queued:
        if _has_happened(coordinator, row):
            _mark_mined(coordinator, row, None)
            continue
        try:
            _start(coordinator, row)
        except TransactionReverted as error:
            _note_refusal(coordinator, row, str(error))
        else:
            return


def _start(coordinator: Coordinator, row: Outbox) -> None:
    """Sign, store, send. Raises TransactionReverted where the contract refuses the call as things stand."""
    client = coordinator.chain.client
    to = coordinator.chain.address(row.contract)
    gas = client.estimate_gas(coordinator.signer.address, to, row.data)
    fee = min(_market_fee_wei(coordinator), MAX_FEE_WEI)
    call = Transaction(
        chain_id=client.chain_id,
        nonce=client.transaction_count(coordinator.signer.address),
        max_priority_fee_wei=min(TIP_WEI, fee),
        max_fee_wei=fee,
        gas_limit=int(gas * GAS_MARGIN),
        to=to,
        data=row.data,
    )
    _hand_over(coordinator, row, call.sign(coordinator.signer))


def _follow_up(coordinator: Coordinator, row: Outbox) -> None:
    """Mined, failed, displaced, or still on its way."""
    client = coordinator.chain.client
    assert row.transaction_hash is not None and row.nonce is not None
    is_nonce_used = client.transaction_count(coordinator.signer.address) > row.nonce
    receipt = client.receipt(row.transaction_hash)
    block = None if receipt is None else receipt.block_number
    if receipt is not None and receipt.succeeded:
        _mark_mined(coordinator, row, block)
    elif receipt is not None or is_nonce_used:
        # The nonce is gone without this transaction's success: another version of it was mined, somebody else was
        # faster, or the call is to be tried again.
        if _has_happened(coordinator, row):
            _mark_mined(coordinator, row, block)
        else:
            _requeue(coordinator, row)
    elif coordinator.clock.now() - (row.sent_time or 0) >= RESEND_SECONDS:
        _hand_over(coordinator, row, _raised(coordinator, row).sign(coordinator.signer))


def _raised(coordinator: Coordinator, row: Outbox) -> Transaction:
    """The stored transaction with 12.5 % more of a fee, as nodes ask of a replacement; unchanged at the limit."""
    assert row.raw is not None
    old = Transaction.parse(row.raw)
    fee = max(-(-old.max_fee_wei * 9 // 8), _market_fee_wei(coordinator))
    if fee > MAX_FEE_WEI:
        return old
    return replace(old, max_fee_wei=fee, max_priority_fee_wei=-(-old.max_priority_fee_wei * 9 // 8))


def _market_fee_wei(coordinator: Coordinator) -> int:
    """Twice the base fee and a tip: it stays valid for six full blocks."""
    return int(2 * coordinator.chain.client.head().base_fee_wei) + TIP_WEI


def _hand_over(coordinator: Coordinator, row: Outbox, signed: SignedTransaction) -> None:
    """Store the transaction, then give it to the node. What the node says against it shows at the next look."""
    _store(
        coordinator,
        row,
        state=CallState.SENT,
        nonce=signed.transaction.nonce,
        raw=from_hex0x(signed.raw),
        transaction_hash=signed.transaction_hash,
        sent_time=coordinator.clock.now(),
    )
    try:
        coordinator.chain.client.send_raw(signed.raw)
    except NodeRefused as error:
        get_logger().warning("outbox.not_taken", purpose=row.purpose, detail=str(error))
    else:
        get_logger().info("outbox.sent", purpose=row.purpose, transaction_hash=signed.transaction_hash)


def _note_refusal(coordinator: Coordinator, row: Outbox, refusal: str) -> None:
    """Said once, however often it is tried."""
    if refusal != row.refusal:
        _store(coordinator, row, refusal=refusal)
        get_logger().warning("outbox.refused", purpose=row.purpose, detail=refusal)


def _requeue(coordinator: Coordinator, row: Outbox) -> None:
    get_logger().warning("outbox.failed", purpose=row.purpose, transaction_hash=row.transaction_hash)
    _store(coordinator, row, state=CallState.QUEUED, nonce=None, raw=None, transaction_hash=None, sent_time=None)


def _mark_mined(coordinator: Coordinator, row: Outbox, block: int | None) -> None:
    _store(coordinator, row, state=CallState.MINED, block=block)
    get_logger().info("outbox.mined", purpose=row.purpose, transaction_hash=row.transaction_hash, block=block)


def _store(coordinator: Coordinator, row: Outbox, **values: object) -> None:
    with coordinator.writing() as session:
        stored = session.get_one(Outbox, row.id)
        for name, value in values.items():
            setattr(stored, name, value)


def _has_happened(coordinator: Coordinator, row: Outbox) -> bool:
    kind, number = row.purpose.split(":")[:2]
    return HAPPENED[kind](coordinator, int(number, 0))
