"""Is this checkpoint the log's, and is it of the history that I know?

In: a signed note, the pool's checkpoint key on chain, heads of the chain. Out: a `Report`. Two checkpoints that the
log's key signed and that aren't of one history prove a rewritten log to anybody, without a chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from protocol.api import EpochView
from protocol.chain.contracts import Contracts
from protocol.chain.pool import LogHead
from protocol.client import CoordinatorClient
from protocol.errors import NotEligible, VerificationFailed
from protocol.merkle.checkpoint import Checkpoint, SignedCheckpoint, open_checkpoint, origin_of
from protocol.merkle.history import verify_consistency
from protocol.merkle.note import NoteKey
from protocol.wire import ZERO_HASH
from verifier.audit.step import Report, StepState, StillOpen, Values, must_equal, must_hold, take_step


@dataclass(frozen=True)
class Remembered:
    """A checkpoint that an auditor has kept, and the file that it is in."""

    source: str
    signed: SignedCheckpoint


def log_key(contracts: Contracts, pool_id: int) -> NoteKey:
    """The key of a pool's log, from the chain. Raises NotEligible where the pool names none."""
    found = str(contracts.read("pools", "configOf", pool_id)["checkpoint_key"])
    if found == ZERO_HASH:
        raise NotEligible(
            "this pool's log has no checkpoint key", f"pool {pool_id}", "its heads are on chain only: `audit watch`"
        )
    origin = origin_of(contracts.client.chain_id, contracts.addresses.ledger, pool_id)
    return NoteKey(origin, bytes.fromhex(found.removeprefix("0x")))


def audit_checkpoint(
    note: str,
    key: NoteKey,
    client: CoordinatorClient | None,
    heads: list[LogHead] | None,
    remembered: list[Remembered],
    witnesses: tuple[NoteKey, ...] = (),
    is_newest: bool = True,
) -> Report:
    """Hold a checkpoint against the chain (`heads`; None for none) and against those that are remembered.

    The newest must extend all of these; another one may be older, and is a prefix of them then.
    """
    signed = open_checkpoint(note, key, witnesses)
    checks: dict[str, Callable[[], Values]] = {
        "signature": partial(_check_signature, signed, key, witnesses),
        "chain": partial(_check_chain, signed.checkpoint, heads),
        **{
            f"since {old.source}": partial(_check_since, old.signed.checkpoint, signed.checkpoint, client, is_newest)
            for old in remembered
        },
    }
    steps = tuple(take_step(name, check) for name, check in checks.items())
    anchor = f"key {key.key_id.hex()} of {key.name}" + ("" if heads is None else ", on chain")
    is_ahead = heads is not None and steps[1].state is StepState.OPEN
    return Report(key.name, steps, "" if is_ahead else anchor, f"{signed.checkpoint.size} leaves")


def _check_signature(signed: SignedCheckpoint, key: NoteKey, witnesses: tuple[NoteKey, ...]) -> Values:
    """The log's key signed it (else `open_checkpoint` has refused it); whoever of the witnesses did is named."""
    seen = {seen.key.name: str(seen.time) for seen in signed.witnesses}
    signers = {one.key for one in signed.witnesses}
    missing = [str(witness) for witness in witnesses if witness not in signers]
    must_hold("a witness hasn't seen this checkpoint", not missing, ", ".join(missing))
    return {"size": str(signed.checkpoint.size), "root": signed.checkpoint.root, "key": key.key_id.hex(), **seen}


def _check_chain(checkpoint: Checkpoint, heads: list[LogHead] | None) -> Values:
    """The chain has a head of that size, with that root."""
    if heads is None:
        raise StillOpen("no chain to hold it against: give --chain")
    found = next((head for head in heads if head.size == checkpoint.size), None)
    if found is None:
        if not heads or checkpoint.size > heads[-1].size:
            raise StillOpen(f"the chain's newest head has {heads[-1].size if heads else 0} leaves")
        if heads[0].epoch and checkpoint.size < heads[0].size:
            raise StillOpen(f"the chain remembers no heads below {heads[0].size} leaves")
        raise VerificationFailed("the chain has never had a head of that size", f"{checkpoint.size} leaves")
    must_equal("the chain has another root at that size", checkpoint.root, found.root)
    return {"epoch": str(found.epoch)}


def _check_since(old: Checkpoint, new: Checkpoint, client: CoordinatorClient | None, is_newest: bool) -> Values:
    """The shorter one is a prefix of the longer one, by the coordinator's proof."""
    if old.size == new.size:
        must_equal("two roots of one size: the log was rewritten", new.root, old.root)
        return {"size": str(old.size)}
    must_hold(
        "it is older than the one that is remembered",
        old.size < new.size or not is_newest,
        f"{new.size} leaves, not {old.size}",
    )
    if client is None:
        raise StillOpen("no coordinator to ask for a proof")
    short, long = sorted((old, new), key=lambda one: one.size)
    first, last = _epoch_of(short, client), _epoch_of(long, client)
    path = client.consistency(first.epoch, last.epoch).path
    must_hold(
        "the log was rewritten: these two checkpoints aren't of one history",
        verify_consistency(short.size, long.size, short.root, long.root, path),
        f"from {short.size} leaves under {short.root} to {long.size} under {long.root}",
    )
    by = "new_leaves" if old is short else "older_by_leaves"
    return {"size": str(old.size), by: str(long.size - short.size)}


def _epoch_of(checkpoint: Checkpoint, client: CoordinatorClient) -> EpochView:
    """The coordinator's epoch of that size. Raises VerificationFailed where it has none: it signed one."""
    after, size = -1, 0
    while page := client.epochs(after):
        for view in page:
            in_order = view.epoch > after and view.size > size
            must_hold("the coordinator's epochs have no order", in_order, f"{view.epoch} with {view.size} leaves")
            after, size = view.epoch, view.size
            if size >= checkpoint.size:
                must_equal("the log has no such checkpoint any more", size, checkpoint.size)
                return view
    raise VerificationFailed("the log is shorter than a checkpoint that it signed", f"{checkpoint.size} leaves")
