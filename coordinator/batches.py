"""Accepted groups for the trainer: one batch a step, leased until it is acknowledged.

In: pending groups. Out: a signed offer, a parquet file of exactly its rows, and in the end consumed groups.

Which groups: those young enough for the step (`policy_version >= step - 1 - max_async`), in the order of their
intake epochs, and within an epoch in the order of keccak256(beacon(epoch) ‖ submission id ‖ uint32 group).
The beacon didn't exist when the epoch was anchored, so nobody, the coordinator included, can choose who comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from coordinator import log
from coordinator.batch_file import BatchFile, batch_file
from coordinator.context import Coordinator
from coordinator.db.chain import Epoch, Version
from coordinator.db.work import BatchRow, GroupRow, SubmissionRow, TaskRow
from coordinator.leftovers import leave_leftovers, leftovers
from coordinator.pool import chain_time, pool_record
from coordinator.use import move
from protocol.api import BatchOffer, GroupRef, Standing, Use
from protocol.batches import GroupKey, groups_root
from protocol.canonical import from_hex0x, keccak256
from protocol.errors import NotFound, Rejected
from protocol.reasons import RejectReason
from protocol.wire import Batch, Signed

LEASED, CONSUMED, REFUSED = "leased", "consumed", "refused"


@dataclass(frozen=True)
class Candidate:
    """A pending group and what its place in the order depends on."""

    submission_id: str
    group: int
    epoch: int
    beacon_hash: str
    rules_hash: str

    @property
    def key(self) -> GroupKey:
        return (self.submission_id, self.group)

    @property
    def rank(self) -> tuple[int, bytes]:
        words = from_hex0x(self.beacon_hash) + from_hex0x(self.submission_id) + self.group.to_bytes(4, "big")
        return (self.epoch, keccak256(words))


def lease_batch(coordinator: Coordinator, step: int) -> BatchOffer | None:
    """The batch of optimizer step `step`: the same one until it is acknowledged; None while groups are wanting."""
    with coordinator.reading() as session:
        if (known := _offered(session, step)) is not None:
            return known
        _check_step(session, coordinator.config.pool_id, step)
        max_async = pool_record(session, coordinator.config.pool_id).max_async
        oldest_version = step - 1 - max_async
        chosen = choose(_candidates(session, oldest_version), coordinator.config.groups_per_step)
        has_leftovers = bool(leftovers(session, oldest_version))
    if has_leftovers:
        with coordinator.writing() as session:
            leave_leftovers(session, oldest_version, max_async)
    if not chosen:
        return None
    keys = [candidate.key for candidate in chosen]
    file = batch_file(coordinator, keys, chosen[0].rules_hash, groups_root(keys))
    file_sha256 = coordinator.blobs.put(file.data)
    with coordinator.writing() as session:
        # Another request for this step may have been quicker; for no other step can there be one.
        return _offered(session, step) or _keep(coordinator, session, step, keys, file, file_sha256)


def choose(candidates: Sequence[Candidate], num_groups: int) -> list[Candidate]:
    """The first `num_groups` by rank that share rules, of the rules that come first and have as many; none without.

    What was made under earlier rules and isn't enough for a batch holds up none of the later ones.
    """
    in_order = sorted(candidates, key=lambda candidate: candidate.rank)
    for rules_hash in dict.fromkeys(candidate.rules_hash for candidate in in_order):
        alike = [candidate for candidate in in_order if candidate.rules_hash == rules_hash]
        if len(alike) >= num_groups:
            return alike[:num_groups]
    return []


def acknowledge_batch(coordinator: Coordinator, number: int) -> None:
    """The trainer has durably taken the step: the groups are consumed. Doing so twice is doing so once.

    Raises NotFound, and Rejected for a batch that it has refused.
    """
    with coordinator.writing() as session:
        batch = batch_row(session, number)
        if batch.state == CONSUMED:
            return
        check_leased(batch)
        batch.state = CONSUMED
        for group in session.scalars(select(GroupRow).where(GroupRow.batch == number)):
            move(group, Use.CONSUMED)
        root = BatchOffer.model_validate(batch.offer).groups_root
        log.append(session, "batch.consumed", root, chain_time(session), {"number": batch.number, "step": batch.step})


def batch_row(session: Session, number: int) -> BatchRow:
    """Raises NotFound where no such batch was ever leased."""
    row = session.get(BatchRow, number)
    if row is None:
        raise NotFound("no such batch", str(number), "GET /v1/batches lists them")
    return row


def check_leased(batch: BatchRow) -> None:
    """Raises Rejected for a batch whose end is there already."""
    if batch.state != LEASED:
        raise Rejected(RejectReason.VALUE_OUT_OF_BOUNDS, "state of the batch", value=batch.state, threshold=LEASED)


def batch_page(session: Session, after: int, limit: int) -> list[BatchOffer]:
    """Offers by number, past `after`."""
    rows = session.scalars(select(BatchRow).where(BatchRow.number > after).order_by(BatchRow.number).limit(limit))
    return [BatchOffer.model_validate(row.offer) for row in rows]


def _offered(session: Session, step: int) -> BatchOffer | None:
    row = session.scalar(select(BatchRow).where(BatchRow.step == step, BatchRow.state != REFUSED))
    return None if row is None else BatchOffer.model_validate(row.offer)


def next_step(session: Session, pool_id: int) -> int:
    """The step that the next batch is for; a refused batch leaves its step to a successor."""
    if (last := _last(session)) is not None:
        return last.step + (last.state != REFUSED)
    newest = session.scalar(select(func.max(Version.policy_version)).where(Version.pool_id == pool_id))
    return 1 + (newest or 0)


def _last(session: Session) -> BatchRow | None:
    return session.scalar(select(BatchRow).order_by(BatchRow.number.desc()).limit(1))


def _check_step(session: Session, pool_id: int, step: int) -> None:
    """Steps follow each other, and the next one comes when the last batch is acknowledged."""
    last = _last(session)
    if last is not None and last.state == LEASED:
        raise Rejected(RejectReason.LEASE_LIMIT, f"batch {last.number} of step {last.step} isn't acknowledged")
    if step != (expected := next_step(session, pool_id)):
        raise Rejected(RejectReason.VALUE_OUT_OF_BOUNDS, "next step", value=str(step), threshold=str(expected))


def _candidates(session: Session, oldest_version: int) -> list[Candidate]:
    rows = session.execute(
        select(GroupRow.submission_id, GroupRow.group, SubmissionRow.epoch, Epoch.beacon_hash, TaskRow.rules_hash)
        .join(SubmissionRow, SubmissionRow.submission_id == GroupRow.submission_id)
        .join(Epoch, Epoch.epoch == SubmissionRow.epoch)
        .join(TaskRow, TaskRow.task_id == SubmissionRow.task_id)
        .where(
            GroupRow.use == Use.PENDING,
            GroupRow.policy_version >= oldest_version,
            SubmissionRow.standing == Standing.ACCEPTED,  # not while it is challenged
            Epoch.beacon_hash.is_not(None),
        )
    )
    return [Candidate(key, group, epoch, beacon or "", rules) for key, group, epoch, beacon, rules in rows]


def _keep(
    coordinator: Coordinator, session: Session, step: int, keys: Sequence[GroupKey], file: BatchFile, file_sha256: str
) -> BatchOffer:
    """The batch's row, its groups' use, and its event."""
    offer = _offer(coordinator, session, step, keys, file, file_sha256)
    for key in keys:
        group = session.get_one(GroupRow, key)
        move(group, Use.BATCHED)
        group.batch = offer.number
    log.append(
        session,
        "batch.leased",
        offer.groups_root,
        chain_time(session),
        {
            "number": offer.number,
            "step": step,
            "file_sha256": file_sha256,
            "groups": [[submission_id, group] for submission_id, group in keys],
        },
    )
    session.add(
        BatchRow(
            number=offer.number,
            step=step,
            offer=offer.model_dump(mode="json"),
            file_sha256=file_sha256,
            state=LEASED,
            deadline=offer.deadline,
        )
    )
    return offer


def _offer(
    coordinator: Coordinator, session: Session, step: int, keys: Sequence[GroupKey], file: BatchFile, file_sha256: str
) -> BatchOffer:
    last = session.scalar(select(func.max(BatchRow.number)))
    message = Batch(
        pool_id=coordinator.config.pool_id,
        number=0 if last is None else last + 1,
        step=step,
        groups_root=groups_root(keys),
    )
    return BatchOffer(
        pool_id=message.pool_id,
        number=message.number,
        step=step,
        groups=tuple(GroupRef(submission_id=submission_id, group=group) for submission_id, group in keys),
        groups_root=message.groups_root,
        rules_hash=file.rules_hash,
        signature=Signed[Batch].by(coordinator.signer, message, coordinator.domain).signature,
        file_sha256=file_sha256,
        num_rollouts=file.num_rollouts,
        num_tokens=file.num_tokens,
        deadline=chain_time(session) + coordinator.config.batch_seconds,
    )
