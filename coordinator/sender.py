"""Stage send_outbox: the queued calls, one at a time, each exactly once, whatever is killed when.

    queued ─▶ [nonce, signed, stored] ─▶ sent ─▶ receipt ─▶ mined

In: `Outbox` rows in order. Out: mined transactions. Waits for: blocks. A turn never waits: it looks at the call
that is on its way, or starts the next one. One call is on its way at a time, so nonces leave no gap, and a
signed transaction is stored before it is sent: after a kill the same bytes are sent again, never a second one.
Whether a call has had its effect is read from contract state (`HAPPENED`), never from an error's text, so a call that
somebody else made first is done. This process is the only one that sends with the coordinator's key; where another one
does, its transactions show by the nonces that they take (`account.shared`), and nothing is lost or doubled by it.
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
from coordinator.pool import indexed_block
from coordinator.versions import is_version_sealed
from protocol.canonical import from_hex0x
from protocol.chain.block import Block, Receipt
from protocol.chain.failure import failure_of
from protocol.chain.fees import FeePolicy
from protocol.chain.transaction import SignedTransaction, Transaction
from protocol.errors import GasOverBlock, NodeRefused, TransactionReverted
from protocol.telemetry import get_logger

FEES = FeePolicy()
RESEND_SECONDS = 15.0
"""A transaction without a receipt is handed to the node again after this long, at a higher fee."""

HAPPENED: dict[str, Callable[[Coordinator, int, int | str], bool]] = {
    "epoch": is_epoch_committed,
    "seal-epoch": is_epoch_sealed,
    "seal-version": is_version_sealed,
    "earnings": are_earnings_committed,
    "answer": is_demand_closed,
}
"""By the kind of a purpose: whether the chain shows the effect for that number (an id as one), whoever caused it, as of
a block."""


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
            _mark_happened(coordinator, row)
            continue
        try:
            _start(coordinator, row)
        except (TransactionReverted, GasOverBlock) as error:
            _note_refusal(coordinator, row, str(error))
        else:
            return


def _start(coordinator: Coordinator, row: Outbox) -> None:
    """Sign, store, send. Raises TransactionReverted where the contract refuses the call as things are, GasOverBlock."""
    client, head = coordinator.chain.client, coordinator.chain.client.head()
    gas = _gas(coordinator, row, head)
    nonce = client.transaction_count(coordinator.signer.address)
    call = Transaction(client.chain_id, nonce, 0, 0, gas, coordinator.chain.address(row.contract), data=row.data)
    priced = FEES.priced(call, head.base_fee_wei)
    _hand_over(coordinator, row, priced.sign(coordinator.signer), [])


def _follow_up(coordinator: Coordinator, row: Outbox) -> None:
    """Mined, failed, displaced, or still on its way."""
    client = coordinator.chain.client
    assert row.transaction_hash is not None and row.nonce is not None
    is_nonce_used = client.transaction_count(coordinator.signer.address) > row.nonce
    receipt = _receipt(coordinator, row)
    if receipt is not None and receipt.succeeded:
        _mark_mined(coordinator, row, receipt.block_number)
    elif receipt is not None or is_nonce_used:
        # The nonce is gone without success. Whether the call is to be tried again, the contract knows.
        if _has_happened(coordinator, row):
            _mark_happened(coordinator, row)
        elif receipt is not None:
            _requeue(coordinator, row, "outbox.failed", str(failure_of(client, _stored(coordinator, row), receipt)))
        else:
            _requeue(coordinator, row, "account.shared", _SHARED.format(row.nonce, coordinator.signer.address))
    elif coordinator.clock.now() - (row.sent_time or 0) >= RESEND_SECONDS:
        _push(coordinator, row)


_SHARED = (
    "nonce {} of {} went to a transaction that isn't from here: another process sends with this account. "
    "Stop it, or give the pool a coordinator key of its own; the call is sent again, once"
)


_AHEAD = (
    "nonce {} of {} is ahead of the account's next one, {}: no block can take it, because a reorg has dropped what was "
    "before it, or the node had miscounted. The call is signed anew"
)


def _receipt(coordinator: Coordinator, row: Outbox) -> Receipt | None:
    """Of whichever version of the transaction is mined."""
    for transaction_hash in (row.transaction_hash, *reversed(row.replaced)):
        receipt = coordinator.chain.client.receipt(transaction_hash)
        if receipt is not None:
            return receipt
    return None


def _push(coordinator: Coordinator, row: Outbox) -> None:
    """Hand it over again with as much more of a fee as nodes ask of a replacement; the same bytes at the limit.

    What kept it from being mined may also be what the node said when it was signed: gas and nonce are asked for anew.
    """
    client, old = coordinator.chain.client, _stored(coordinator, row)
    num_mined = client.transaction_count(coordinator.signer.address)
    if num_mined < old.transaction.nonce:
        detail = _AHEAD.format(old.transaction.nonce, coordinator.signer.address, num_mined)
        _requeue(coordinator, row, "outbox.ahead", detail)
        return
    head = client.head()
    call = replace(old.transaction, gas_limit=_gas_now(coordinator, row, head, old.transaction.gas_limit))
    raised = FEES.raised(call, head.base_fee_wei).sign(coordinator.signer)
    replaced = row.replaced if raised == old else [*row.replaced, old.transaction_hash]
    _hand_over(coordinator, row, raised, replaced)


def _gas(coordinator: Coordinator, row: Outbox, head: Block) -> int:
    """By the node's estimate, which is believed as far as a block goes."""
    client, to = coordinator.chain.client, coordinator.chain.address(row.contract)
    gas = FEES.gas_limit(client.estimate_gas(coordinator.signer.address, to, row.data))
    head.check_gas(gas)
    return gas


def _gas_now(coordinator: Coordinator, row: Outbox, head: Block, gas_limit: int) -> int:
    """What the call takes now; as before where it would fail, such as after itself in the node's pending block."""
    try:
        return _gas(coordinator, row, head)
    except (TransactionReverted, GasOverBlock):
        return gas_limit


def _stored(coordinator: Coordinator, row: Outbox) -> SignedTransaction:
    """The newest version, as it was sent."""
    assert row.raw is not None
    return SignedTransaction.parse(row.raw, coordinator.signer.address)


def _hand_over(coordinator: Coordinator, row: Outbox, signed: SignedTransaction, replaced: list[str]) -> None:
    """Store the transaction, then give it to the node. What the node says against it shows at the next look."""
    _store(
        coordinator,
        row,
        state=CallState.SENT,
        nonce=signed.transaction.nonce,
        raw=from_hex0x(signed.raw),
        transaction_hash=signed.transaction_hash,
        replaced=replaced,
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


def _requeue(coordinator: Coordinator, row: Outbox, event: str, detail: str) -> None:
    get_logger().warning(event, purpose=row.purpose, transaction_hash=row.transaction_hash, detail=detail)
    values = dict.fromkeys(("nonce", "raw", "transaction_hash", "sent_time"))
    _store(coordinator, row, state=CallState.QUEUED, replaced=[], refusal=detail, **values)


def _mark_mined(coordinator: Coordinator, row: Outbox, block: int | None) -> None:
    _store(coordinator, row, state=CallState.MINED, block=block)
    get_logger().info("outbox.mined", purpose=row.purpose, transaction_hash=row.transaction_hash, block=block)


def _mark_happened(coordinator: Coordinator, row: Outbox) -> None:
    """Done by whomever. Until a confirmed block shows it, its block is the head, and it is looked for again in that."""
    with coordinator.reading() as session:
        indexed = indexed_block(session)
    is_confirmed = indexed is None or _has_happened(coordinator, row, indexed)
    _mark_mined(coordinator, row, None if is_confirmed else coordinator.chain.client.head().number)


def _store(coordinator: Coordinator, row: Outbox, **values: object) -> None:
    with coordinator.writing() as session:
        stored = session.get_one(Outbox, row.id)
        for name, value in values.items():
            setattr(stored, name, value)


def _has_happened(coordinator: Coordinator, row: Outbox, block: int | str = "latest") -> bool:
    kind, number = row.purpose.split(":")[:2]
    return HAPPENED[kind](coordinator, int(number, 0), block)
