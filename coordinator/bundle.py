"""The proof bundle of one submission: everything that an auditor needs, from rows to one document.

In: a submission's id. Out: `ProofBundle`. What the chain says is in it as this coordinator's claim; the auditor
reads the same from the chain.
"""

from __future__ import annotations

import base64

from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator.audit import anchor_of, inclusion, log_entry
from coordinator.context import Coordinator
from coordinator.db.chain import Epoch
from coordinator.db.log import Event
from coordinator.db.work import CommitmentRow, SubmissionRow, TaskRow, VerdictRow
from coordinator.facts import chain_facts, newest_committed
from coordinator.log_nodes import LogNodes
from coordinator.pool import freshness, pool_record
from coordinator.renewals import renewal_of
from coordinator.rules import rules_document
from protocol.bundle import (
    EarningsProof,
    HeadLink,
    LoggedEvent,
    ProofBundle,
    RevealedVerdict,
)
from protocol.errors import NotFound
from protocol.merkle.history import consistency_proof
from protocol.merkle.standard import earnings_tree
from protocol.wire import Evidence, Receipt, Signed, Submission, Task, Verdict, VerdictCommitment

SETTLED = ("submission.accepted", "submission.rejected")


def proof_bundle(
    coordinator: Coordinator, session: Session, submission_id: str, size: int | None = None
) -> ProofBundle:
    """What leads to the newest head, or to the one of `size` leaves. Raises NotFound where either isn't there."""
    row = session.get(SubmissionRow, submission_id)
    if row is None:
        raise NotFound("no such submission", submission_id, "GET /v1/submissions lists them")
    task = session.get_one(TaskRow, row.task_id)
    received = _logged(session, session.get_one(Event, row.log_index))
    verdicts = _verdicts(session, submission_id)
    settled = _settled(session, submission_id)
    logged = [received, *(event for v in verdicts for event in (v.committed, v.revealed))]
    heads = _heads(session, [*logged, settled] if settled is not None else logged, size)
    pool = pool_record(session, coordinator.config.pool_id)
    return ProofBundle(
        submission=Signed[Submission].model_validate(row.signed_submission),
        task=Signed[Task].model_validate(task.signed_task),
        receipt=Signed[Receipt].model_validate(row.signed_receipt),
        rules=rules_document(session, task.rules_hash),
        file=base64.b64encode(coordinator.blobs.get(row.file_sha256)),
        received=received,
        verdicts=verdicts,
        settled=settled,
        earnings=_earnings(session, row.provider),
        links=_links(session, heads),
        chain=chain_facts(coordinator, session, pool, row, heads),
        freshness=freshness(session, coordinator.clock.now()),
        renewal=renewal_of(task),
    )


def _logged(session: Session, event: Event) -> LoggedEvent:
    is_anchored = anchor_of(session, event.index) is not None
    return LoggedEvent(entry=log_entry(event), inclusion=inclusion(session, event.index) if is_anchored else None)


def _verdicts(session: Session, submission_id: str) -> tuple[RevealedVerdict, ...]:
    rows = session.scalars(
        select(VerdictRow).where(VerdictRow.submission_id == submission_id).order_by(VerdictRow.round, VerdictRow.draw)
    )
    return tuple(_verdict(session, row) for row in rows)


def _verdict(session: Session, row: VerdictRow) -> RevealedVerdict:
    opening = row.opening
    commitment = session.get_one(CommitmentRow, (opening["commitment_epoch"], row.seat, opening["part"]))
    return RevealedVerdict(
        verdict=Signed[Verdict].model_validate(row.signed_verdict),
        evidence=Evidence.model_validate(row.evidence),
        validator=row.validator,
        draw=row.draw,
        salt=opening["salt"],
        path=tuple(opening["path"]),
        commitment=Signed[VerdictCommitment].model_validate(commitment.signed_commitment),
        committed=_logged(session, session.get_one(Event, commitment.log_index)),
        revealed=_logged(session, session.get_one(Event, row.log_index)),
    )


def _settled(session: Session, submission_id: str) -> LoggedEvent | None:
    """The decision of round 0, which pays; what a re-audit says comes after it."""
    event = session.scalar(
        select(Event).where(Event.subject == submission_id, Event.type.in_(SETTLED)).order_by(Event.index).limit(1)
    )
    return None if event is None else _logged(session, event)


def _heads(session: Session, events: list[LoggedEvent], size: int | None) -> list[Epoch]:
    """Every epoch that a proof names, the one before it (to show that it is the first), and the one to lead to."""
    anchored = select(Epoch).where(Epoch.block.is_not(None))
    wanted_last = anchored if size is None else anchored.where(Epoch.size == size)
    newest = session.scalar(wanted_last.order_by(Epoch.epoch.desc()).limit(1))
    if size is not None and newest is None:
        raise NotFound("no epoch on chain has so many leaves", str(size), "GET /v1/epochs lists them")
    named = {event.inclusion.epoch for event in events if event.inclusion is not None}
    wanted = named | {number - 1 for number in named} | ({newest.epoch} if newest else set())
    return list(session.scalars(anchored.where(Epoch.epoch.in_(wanted)).order_by(Epoch.epoch)))


def _links(session: Session, heads: list[Epoch]) -> tuple[HeadLink, ...]:
    nodes = LogNodes(session)
    return tuple(
        HeadLink(old_epoch=head.epoch, path=consistency_proof(nodes, head.size, heads[-1].size)) for head in heads[:-1]
    )


def _earnings(session: Session, provider: str) -> EarningsProof | None:
    """The provider's leaf under the newest root that is on chain."""
    row = newest_committed(session)
    totals = {account: int(amount) for account, amount in row.accounts} if row is not None else {}
    if row is None or provider not in totals:
        return None
    tree = earnings_tree(totals)
    return EarningsProof(
        account=provider,
        cumulative_wei=totals[provider],
        epoch=row.epoch,
        root=row.root,
        path=tree.proof(sorted(totals).index(provider)),
    )
