"""A pool whose coordinator is silent goes on: the log that validators hold is what counts, and they say so.

    checked log ─▶ AttestedEpoch ─▶ commitEpochAttested ─▶ AttestedEarnings ─▶ commitEarnings ─▶ claims

In: the log as this verifier has checked it, the chain. Out: documents that each validator signs for its own seats; they
are handed around as files, and put together by whoever commits. All make the same document: the epoch adds its own
leaf to the last head and nothing else, with the time of that head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from protocol.api import LogEntry, ProviderEarnings
from protocol.canonical import JsonValue, canonical_json, hex0x, sha256
from protocol.chain.contracts import Contracts
from protocol.chain.pool import ChainPool, LogHead
from protocol.errors import NotEligible, VerificationFailed
from protocol.merkle.history import Frontier, Node, NodeAddress, consistency_proof, event_leaf_hash_of
from protocol.merkle.standard import earnings_tree
from protocol.signing import Signer
from protocol.wire import (
    PROTOCOL_VERSION,
    ZERO_HASH,
    EarningsAttestation,
    EpochAttestation,
    Hash32,
    SchemaVersion,
    Signed,
    UInt64,
    Wei,
)
from verifier.attest import check_payments, check_reaudits
from verifier.chain import NUM_HEADS_ON_CHAIN
from verifier.history import History

MAX_ATTESTATIONS = 1024
MAX_ACCOUNTS = 2**20
CLOSED = "epoch.closed"


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    schema_version: SchemaVersion = PROTOCOL_VERSION
    pool_id: UInt64
    epoch: UInt64
    root: Hash32


class AttestedEpoch(_Document):
    """A head that seats hold: `size` leaves under `root`, `proof` from the last head (RFC 9162)."""

    kind: Literal["attested-epoch"] = "attested-epoch"
    size: UInt64
    proof: Annotated[tuple[Hash32, ...], Field(max_length=66)]
    attestations: Annotated[tuple[Signed[EpochAttestation], ...], Field(max_length=MAX_ATTESTATIONS)]


class AttestedEarnings(_Document):
    """Gross cumulative earnings of all accounts up to `epoch`, as seats recomputed them from the log.

    Claims need no attestations: a coordinator's statement (`GET /v1/earnings`) is one without any.
    """

    kind: Literal["attested-earnings"] = "attested-earnings"
    total_wei: Wei
    accounts: Annotated[tuple[ProviderEarnings, ...], Field(max_length=MAX_ACCOUNTS)]
    attestations: Annotated[tuple[Signed[EarningsAttestation], ...], Field(max_length=MAX_ATTESTATIONS)] = ()

    def earned_wei(self) -> dict[str, int]:
        return {row.account: row.cumulative_wei for row in self.accounts}


def check_silent(contracts: Contracts, pool_id: int) -> None:
    """Raises NotEligible while the coordinator may still commit by itself."""
    silent_time, now = contracts.read("ledger", "silentTime", pool_id), contracts.client.head().timestamp
    if now >= silent_time:
        return
    if silent_time >= 2**64:
        why, todo = "it has committed no epoch yet", "nothing is anchored that could be saved"
    else:
        why, todo = f"chain time {now}, silent from {silent_time} on", f"wait {silent_time - now} s, then try again"
    raise NotEligible("the pool's coordinator isn't silent for long enough", why, todo)


def follow(history: History, pool: ChainPool, read_entries: Callable[[int, int], Sequence[LogEntry]]) -> None:
    """Take over the anchored heads that are missing: those that seats committed follow from the one before.

    `read_entries` gives what the coordinator committed; raises VerificationFailed where log and chain differ.
    """
    for head in pool.heads(max(history.num_epochs, pool.num_epochs() - NUM_HEADS_ON_CHAIN)):
        is_own = _is_by_seats(history, pool, head)
        history.follow([head], _closing_entries(pool, head) if is_own else read_entries)


def attest_epoch(history: History, pool: ChainPool, signer: Signer) -> AttestedEpoch:
    """The open epoch, signed for every seat of `signer` that it may draw.

    Raises NotEligible without such a seat, or where the checked log doesn't reach the last head.
    """
    epoch = pool.num_epochs()
    if history.num_epochs != epoch:
        raise NotEligible(
            "this verifier doesn't hold the whole log",
            f"checked up to {history.num_epochs} of {epoch} epochs",
            "take the files of validators that hold it",
        )
    size, root, proof = _extended(history, closing_entry(pool, epoch, history.size))
    messages = [
        EpochAttestation(pool_id=pool.pool_id, epoch=epoch, size=size, root=root, seat=seat)
        for seat in _own_seats(pool, signer, epoch)
    ]
    attestations = tuple(Signed[EpochAttestation].by(signer, message, pool.domain) for message in messages)
    return AttestedEpoch(
        pool_id=pool.pool_id, epoch=epoch, root=root, size=size, proof=proof, attestations=attestations
    )


def attest_earnings(history: History, pool: ChainPool, signer: Signer) -> AttestedEarnings:
    """Earnings up to the last anchored epoch, signed for every seat of `signer` that was active in it.

    Where nothing was earned since the newest root on chain, that root's, unsigned: there is nothing to commit, and
    claims need the accounts. Raises VerificationFailed where the log pays what nothing earns, or the root isn't the
    log's; NotEligible where nothing was ever earned.
    """
    epoch = pool.num_epochs() - 1
    newest, known = pool.contracts.read("ledger", "newestEarnings", pool.pool_id)
    checked_epoch = newest if known["root"] != ZERO_HASH else -1
    check_payments(epoch, history.payments, pool, checked_epoch)
    check_reaudits(epoch, history.payments, pool, checked_epoch)
    if epoch <= checked_epoch or sum(history.payments.earnings(epoch).values()) <= known["total"]:
        return _committed(history, pool, newest, known["root"])
    stated = _stated(history, pool, epoch)
    messages = [
        EarningsAttestation(pool_id=pool.pool_id, epoch=epoch, root=stated.root, total_wei=stated.total_wei, seat=seat)
        for seat in _own_seats(pool, signer, epoch)
    ]
    signed = tuple(Signed[EarningsAttestation].by(signer, message, pool.domain) for message in messages)
    return stated.model_copy(update={"attestations": signed})


def _committed(history: History, pool: ChainPool, epoch: int, root: str) -> AttestedEarnings:
    """The accounts of the newest root on chain."""
    if root == ZERO_HASH:
        raise NotEligible("nothing is earned", f"up to epoch {pool.num_epochs() - 1}", "there is nothing to claim")
    if (stated := _stated(history, pool, epoch)).root != root:
        raise VerificationFailed(
            "the earnings on chain aren't those of the log",
            f"epoch {epoch}: {root} on chain, {stated.root} from the log",
            "`proofpool audit dispute-earnings` while it can't be claimed from",
        )
    return stated


def _stated(history: History, pool: ChainPool, epoch: int) -> AttestedEarnings:
    """What the log pays up to this epoch."""
    earned = {account: amount for account, amount in sorted(history.payments.earnings(epoch).items()) if amount}
    return AttestedEarnings(
        pool_id=pool.pool_id,
        epoch=epoch,
        root=earnings_tree(earned).root,
        total_wei=sum(earned.values()),
        accounts=tuple(ProviderEarnings(account=one, cumulative_wei=amount) for one, amount in earned.items()),
    )


def closing_entry(pool: ChainPool, epoch: int, index: int) -> LogEntry:
    """The leaf that an epoch by seats adds; its time is the last head's."""
    time = int(pool.contracts.read("ledger", "epochOf", pool.pool_id, epoch - 1)["time"])
    event: dict[str, JsonValue] = {
        "schema_version": PROTOCOL_VERSION,
        "index": index,
        "type": CLOSED,
        "subject": ZERO_HASH,
        "time": time,
        "data": {"epoch": epoch, "by": "seats"},
    }
    event_hash = hex0x(sha256(canonical_json(event)))
    return LogEntry(
        index=index,
        subject=ZERO_HASH,
        event_hash=event_hash,
        leaf_hash=event_leaf_hash_of(ZERO_HASH, event_hash),
        event=event,
    )


class _Extended:
    """The checked log with one more leaf, of which nothing is kept."""

    def __init__(self, history: History, completed: Sequence[Node]) -> None:
        self._history = history
        self._completed = {NodeAddress(node.level, node.position): node.node_hash for node in completed}

    def read(self, addresses: Sequence[NodeAddress]) -> list[str]:
        return [self._completed.get(address) or self._history.read([address])[0] for address in addresses]


def _extended(history: History, entry: LogEntry) -> tuple[int, str, tuple[str, ...]]:
    """Size and root of the log with this leaf, and the proof that the last head is a prefix of it."""
    frontier = Frontier.load(history, history.size)
    nodes = _Extended(history, frontier.append(entry.leaf_hash))
    return frontier.size, frontier.root, consistency_proof(nodes, history.size, frontier.size)


def _is_by_seats(history: History, pool: ChainPool, head: LogHead) -> bool:
    if head.epoch == 0 or head.size != history.size + 1:
        return False
    return _extended(history, closing_entry(pool, head.epoch, history.size))[1] == head.root


def _closing_entries(pool: ChainPool, head: LogHead) -> Callable[[int, int], Sequence[LogEntry]]:
    return lambda start, _: [closing_entry(pool, head.epoch, start)]


def _own_seats(pool: ChainPool, signer: Signer, epoch: int) -> list[int]:
    seats = [s.index for s in pool.seats() if s.validator == signer.address and s.is_active(epoch)]
    if not seats:
        raise NotEligible(
            "this key holds no seat that the epoch may draw", f"{signer.address}, epoch {epoch}", "nothing is signed"
        )
    return seats


def refuse_entries(start: int, limit: int) -> Sequence[LogEntry]:
    """For who has no coordinator to ask. Raises VerificationFailed."""
    raise VerificationFailed(
        "the log isn't here as far as it is anchored",
        f"leaf {start} is missing, and no coordinator answers",
        "take the files of validators that hold it",
    )
