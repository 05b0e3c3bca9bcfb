"""Which seats signed an earnings root: read from the transaction that committed it, so that nobody has to show them.

In: the chain. Out: each seat's signature; the Ledger has checked them. None where the root was committed through
another contract, whose call isn't the Ledger's.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.canonical import from_hex0x
from protocol.chain.block import Log
from protocol.chain.contracts import abi_of
from protocol.chain.pool import ChainPool
from protocol.draw import raw_draw
from protocol.errors import ChainError
from protocol.wire import EarningsAttestation, Signed

ROUND = 0
COMMIT = "commitEarnings"


@dataclass(frozen=True)
class CommittedRoot:
    """An earnings root as the Ledger has it."""

    epoch: int
    root: str
    total_wei: int


def attestations_of(pool: ChainPool, found: CommittedRoot) -> list[Signed[EarningsAttestation]]:
    """The signatures under a root that is on chain, in drawn order."""
    commit = _commit_log(pool, found)
    return [] if commit is None else _signatures(pool, found, commit.transaction_hash)


def _commit_log(pool: ChainPool, found: CommittedRoot) -> Log | None:
    """The event that committed it, newest blocks first: a root that can be disputed isn't old."""
    contracts, wanted = pool.contracts, (pool.pool_id, found.epoch, found.root)
    for logs in contracts.client.logs_back(contracts.addresses.ledger):
        for log in reversed(logs):
            event = contracts.decode(log)
            if event is None or event.name != "EarningsCommitted":
                continue
            if tuple(event.arguments[name] for name in ("pool_id", "epoch", "root")) == wanted:
                return log
    return None


def _signatures(pool: ChainPool, found: CommittedRoot, transaction_hash: str) -> list[Signed[EarningsAttestation]]:
    document = pool.contracts.client.rpc.call("eth_getTransactionByHash", transaction_hash)
    beacon = pool.epoch_beacon(found.epoch)
    if not isinstance(document, dict) or beacon is None:
        raise ChainError("the node doesn't have what it must have", f"transaction {transaction_hash}, or its beacon")
    if str(document.get("to")).lower() != pool.contracts.addresses.ledger:
        return []
    function, arguments = abi_of("ledger").decode_call(from_hex0x(str(document["input"])))
    if function != COMMIT:
        return []
    *_, draw_indexes, signatures = arguments
    seats, subject = pool.seats(), pool.earnings_id(found.epoch)
    num_seats = sum(seat.active_from_epoch <= found.epoch for seat in seats)
    drawn = [seats[raw_draw(beacon, subject, ROUND, index, num_seats)].index for index in draw_indexes]

    def said(seat: int) -> EarningsAttestation:
        return EarningsAttestation(
            pool_id=pool.pool_id, epoch=found.epoch, root=found.root, total_wei=found.total_wei, seat=seat
        )

    return [
        Signed[EarningsAttestation](message=said(seat), signature=signature)
        for seat, signature in zip(drawn, signatures, strict=True)
    ]
