"""Promises of inclusion, and whether the log keeps them.

    receipt, signed      the submission's `submission.received` leaf is under the promised epoch's head
    forced intake        that, or its `submission.refused` leaf

In: receipts of whoever holds some (a worker's outbox, bundles); `chain.IntakeForced` events. Out: what became of each.
A receipt for what the log doesn't have is known to its holder alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from protocol.api import LogEntry
from protocol.errors import SignatureInvalid, UsageError
from protocol.signing import SigningDomain, recover
from protocol.wire import Address, Hash32, Receipt, Signed, Submission
from verifier.audit.document import read_document
from verifier.audit.log.event_data import ChainCopy, Readings, Reorged, kind_of

COORDINATOR_ROLE = "0"
"""Pools.Role.Coordinator, as the log has it."""


class Kept(StrEnum):
    """What became of a promise."""

    KEPT = "kept"
    OPEN = "open"
    """The promised epoch isn't anchored yet."""
    LATE = "late"
    MISSING = "missing"
    FOREIGN = "foreign"
    """Whoever signed the receipt was never the pool's coordinator, or it is for another submission."""

    @property
    def is_broken(self) -> bool:
        return self in (Kept.LATE, Kept.MISSING)


class HeldReceipt(BaseModel):
    """What is read of a worker's answer file or a proof bundle; a worker keeps refusals as well."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    submission: Signed[Submission] | None = None
    receipt: Signed[Receipt] | None = None


class _Forced(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    node: Address
    submission_id: Hash32
    epoch: int


@dataclass(frozen=True, order=True)
class Promise:
    """By `epoch`, of `node`. `kind` is receipt or forced; `found_epoch` None where the log has no such leaf."""

    epoch: int
    submission_id: str
    node: str
    kind: str
    state: Kept
    found_epoch: int | None = None


class Promises:
    """Example: `promises.note(epoch, entry)` for each event, then `promises.found(num_epochs, domain)`."""

    def __init__(self, receipts: Sequence[HeldReceipt] = (), coordinators: Iterable[str] = ()) -> None:
        self._receipts = [(held.submission, held.receipt) for held in receipts if held.submission and held.receipt]
        self._received: dict[str, int] = {}
        self._refused: dict[str, int] = {}
        self._forced: list[tuple[int, _Forced]] = []
        self._coordinators = set(coordinators)
        self.readings = Readings()

    def note(self, epoch: int, entry: LogEntry) -> None:
        """Take in one event. The first leaf about a submission counts."""
        kind = kind_of(entry)
        if kind == "submission.received":
            self._received.setdefault(entry.subject, epoch)
        elif kind == "submission.refused":
            self._refused.setdefault(entry.subject, epoch)
        elif kind == "chain.reorged":
            if (reorged := self.readings.read(Reorged, entry)) is not None:
                self._forced = [one for one in self._forced if one[0] <= reorged.fork_block]
        elif kind in ("chain.IntakeForced", "chain.PoolCreated", "chain.KeyChanged"):
            self._note_copy(kind, entry)

    def found(self, num_epochs: int, domain: SigningDomain) -> tuple[Promise, ...]:
        """Every promise, the earliest first, held against a log of so many anchored epochs."""
        receipts = (self._of_receipt(*held, num_epochs, domain) for held in self._receipts)
        forced = (self._of_forced(one, num_epochs) for _, one in self._forced)
        return tuple(sorted({*receipts, *forced}, key=lambda one: (one.epoch, one.submission_id, one.kind, one.state)))

    def _note_copy(self, kind: str, entry: LogEntry) -> None:
        if (copy := self.readings.read(ChainCopy, entry)) is None:
            return
        if kind == "chain.IntakeForced":
            self._note_forced(copy)
            return
        named = copy.arguments if kind == "chain.KeyChanged" else copy.arguments.get("config")
        if isinstance(named, dict) and named.get("role", COORDINATOR_ROLE) == COORDINATOR_ROLE:
            self._coordinators.add(str(named.get("key") if kind == "chain.KeyChanged" else named.get("coordinator")))

    def _note_forced(self, copy: ChainCopy) -> None:
        try:
            self._forced.append((copy.block, _Forced.model_validate(copy.arguments)))
        except ValidationError:
            self.readings.num_unreadable += 1

    def _of_receipt(
        self, submission: Signed[Submission], receipt: Signed[Receipt], num_epochs: int, domain: SigningDomain
    ) -> Promise:
        message, promised = submission.message, receipt.message
        found = self._received.get(promised.submission_id)
        is_its = promised.submission_id == message.id(domain) and _signer(receipt, domain) in self._coordinators
        state = _state(promised.include_by_epoch, found, num_epochs) if is_its else Kept.FOREIGN
        return Promise(promised.include_by_epoch, promised.submission_id, message.node, "receipt", state, found)

    def _of_forced(self, forced: _Forced, num_epochs: int) -> Promise:
        epochs = [
            told[forced.submission_id] for told in (self._received, self._refused) if forced.submission_id in told
        ]
        found = min(epochs, default=None)
        state = _state(forced.epoch, found, num_epochs)
        return Promise(forced.epoch, forced.submission_id, forced.node, "forced", state, found)


def read_receipts(paths: Iterable[Path]) -> list[HeldReceipt]:
    """Of files, and of folders (a worker's outbox) whose answers are receipts. Raises UsageError."""
    return [held for path in paths for held in (_of_folder(path) if path.is_dir() else [_of_file(path)])]


def _of_folder(folder: Path) -> Iterator[HeldReceipt]:
    for path in sorted(folder.glob("*.answer.json")):
        held = read_document(path, HeldReceipt, _WHAT, _TODO)
        if held.receipt is not None and held.submission is not None:
            yield held


def _of_file(path: Path) -> HeldReceipt:
    held = read_document(path, HeldReceipt, _WHAT, _TODO)
    if held.receipt is None or held.submission is None:
        raise UsageError(f"this is not {_WHAT}", f"{path} has not both", _TODO)
    return held


_WHAT = "a submission with its receipt"
_TODO = "give a worker's DATA/outbox, one of its TASK.answer.json, or a file of `proofpool audit bundle`"


def _signer(receipt: Signed[Receipt], domain: SigningDomain) -> str:
    try:
        return recover(receipt.message.digest(domain), receipt.signature)
    except SignatureInvalid:
        return ""


def _state(promised: int, found: int | None, num_epochs: int) -> Kept:
    if found is not None and found <= promised:
        return Kept.KEPT
    if promised >= num_epochs:
        return Kept.OPEN
    return Kept.MISSING if found is None else Kept.LATE


def promise_json(promise: Promise) -> dict[str, Any]:
    return {
        "kind": promise.kind,
        "submission_id": promise.submission_id,
        "node": promise.node,
        "epoch": promise.epoch,
        "state": promise.state.value,
        "found_epoch": promise.found_epoch,
    }
