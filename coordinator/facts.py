"""What the chain says of one submission, as this coordinator's mirrors have it: the claims of a proof bundle.

In: a submission's row. Out: `ChainFacts`, in the form in which an auditor reads them from the chain.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from coordinator.context import Coordinator
from coordinator.db.chain import ChainEvent, Earnings, Epoch, Pool, Seat, Version
from coordinator.db.work import SubmissionRow
from protocol.bundle import CaseFact, ChainFacts, EarningsFact, HeadFact, SeatFact, VersionFact
from protocol.draw import JURY_ROUND

OPENINGS = ("Accused", "Challenged")
CASE_STATES = {
    "Accused": "accused",
    "Appealed": "appealed",
    "Challenged": "challenged",
    "CaseUpheld": "upheld",
    "CaseOverturned": "overturned",
    "CaseLapsed": "lapsed",
}


def chain_facts(
    coordinator: Coordinator, session: Session, pool: Pool, row: SubmissionRow, heads: list[Epoch]
) -> ChainFacts:
    version = session.get_one(Version, (pool.pool_id, row.policy_version))
    seats = session.scalars(select(Seat).where(Seat.pool_id == pool.pool_id).order_by(Seat.seat))
    return ChainFacts(
        chain_id=coordinator.domain.chain_id,
        contracts=coordinator.deployment.contracts,
        deployment_salt=coordinator.domain.salt,
        pool_id=pool.pool_id,
        coordinator=pool.coordinator,
        trainer=pool.trainer,
        accept_quorum=pool.accept_quorum,
        slash_quorum=pool.slash_quorum,
        reaudit_bps=pool.reaudit_bps,
        provider=row.provider,
        version=VersionFact(
            policy_version=version.policy_version,
            manifest_hash=version.manifest_hash,
            beacon_block=version.beacon_block,
            beacon_hash=version.beacon_hash,
        ),
        heads=tuple(HeadFact(epoch=e.epoch, size=e.size, root=e.root, beacon_hash=e.beacon_hash) for e in heads),
        seats=tuple(
            SeatFact(
                seat=seat.seat,
                validator=seat.validator,
                active_from_epoch=seat.active_from_epoch,
                active_until_epoch=seat.active_until_epoch,
            )
            for seat in seats
        ),
        case=_case(session, row),
        earnings=_earnings_fact(session, row.provider),
    )


def _case(session: Session, row: SubmissionRow) -> CaseFact | None:
    """What the Court's events say of the case, in order. An accusation may have taken a challenge over."""
    events = _in_order(session, ChainEvent.name.in_(CASE_STATES), ChainEvent.subject == row.submission_id)
    if not events:
        return None
    opening = [event.arguments for event in events if event.name in OPENINGS][-1]
    return CaseFact(
        state=CASE_STATES[events[-1].name],
        round=opening.get("round", JURY_ROUND),
        reason=opening["reason"],
        provider=opening["provider"],
        held_wei=opening["held_stake"],
    )


def _earnings_fact(session: Session, provider: str) -> EarningsFact | None:
    row = newest_committed(session)
    if row is None:
        return None
    claims = (event.arguments for event in _in_order(session, ChainEvent.name == "Claimed"))
    return EarningsFact(
        epoch=row.epoch,
        root=row.root,
        total_wei=row.total_wei,
        claimed_wei=sum(claim["amount"] for claim in claims if claim["account"] == provider),
    )


def newest_committed(session: Session) -> Earnings | None:
    committed = select(Earnings).where(Earnings.transaction_hash.is_not(None))
    return session.scalar(committed.order_by(Earnings.epoch.desc()).limit(1))


def _in_order(session: Session, *conditions: ColumnElement[bool]) -> list[ChainEvent]:
    found = select(ChainEvent).where(*conditions).order_by(ChainEvent.block, ChainEvent.log_index)
    return list(session.scalars(found))
