"""Stage answer_demands: whoever doubts a promise of inclusion is shown the leaf, on chain and in time.

In: `InclusionDemanded` events that name this coordinator. Out: queued `answerInclusion` calls, each with the event's
document and its path to the promised head. What the log doesn't show can't be answered: it is left to be enforced.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator.context import Coordinator
from coordinator.db.chain import ChainEvent, Epoch
from coordinator.db.log import Event
from coordinator.forced import RECEIVED, REFUSED
from coordinator.log_nodes import LogNodes
from coordinator.outbox import is_queued, queue_calls
from protocol.canonical import hex0x
from protocol.chain.contracts import encode
from protocol.merkle.history import inclusion_proof

OPEN = 1
"""Inclusions.DemandState."""
CLOSING = ("InclusionAnswered", "PromiseBroken")


def answer_demands(coordinator: Coordinator) -> None:
    """Queue an answer to every open demand that has one."""
    with coordinator.reading() as session:
        calls = {}
        for demand in _open_demands(session, coordinator.signer.address):
            purpose = f"answer:{demand.arguments['demand_id']}"
            if not is_queued(session, purpose) and (answer := _answer(session, demand)) is not None:
                calls[purpose] = answer
    queue_calls(coordinator, "ledger", calls)


def is_demand_closed(coordinator: Coordinator, demand: int, block: int | str) -> bool:
    """Whether the chain has the answer to this demand (its id as a number) as of a block, or takes none any more."""
    found = coordinator.chain.read("ledger", "demandOf", hex0x(demand.to_bytes(32, "big")), block=block)
    return int(found["state"]) != OPEN


def _open_demands(session: Session, coordinator: str) -> Sequence[ChainEvent]:
    closed = {
        event.arguments["demand_id"]
        for event in session.scalars(select(ChainEvent).where(ChainEvent.name.in_(CLOSING)))
    }
    demanded = session.scalars(select(ChainEvent).where(ChainEvent.name == "InclusionDemanded").order_by(ChainEvent.id))
    return [
        event
        for event in demanded
        if event.arguments["coordinator"] == coordinator and event.arguments["demand_id"] not in closed
    ]


def _answer(session: Session, demand: ChainEvent) -> bytes | None:
    """The call that shows the promised leaf; None where the log has none under the promised head."""
    arguments = demand.arguments
    epoch = session.get(Epoch, arguments["epoch"])
    kinds = (RECEIVED, REFUSED) if arguments["is_forced"] else (RECEIVED,)
    leaf = session.scalar(
        select(Event).where(Event.subject == demand.subject, Event.type.in_(kinds)).order_by(Event.index).limit(1)
    )
    if epoch is None or leaf is None or leaf.index >= epoch.size:
        return None
    proof = inclusion_proof(LogNodes(session), leaf.index, epoch.size)
    return encode("ledger", "answerInclusion", arguments["demand_id"], leaf.index, hex0x(leaf.document), proof)
