"""What a provider wants to know of a node: does it earn, if not why, and what to do about it.

In: `WorkerConfig`. Out: `NodeStatus`, from the data folder, the coordinator and the chain; what doesn't
answer is listed under `unanswered` and the rest is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from protocol.api import PoolInfo, Standing
from protocol.chain.contracts import Contracts
from protocol.chain.pool import ChainPool
from protocol.client import CoordinatorClient
from protocol.clock import SystemClock
from protocol.errors import ProofpoolError
from protocol.keystore import load_signer
from protocol.reasons import RejectReason
from protocol.wire import ZERO_ADDRESS, Address, Hash32, Wei
from worker.config import WorkerConfig
from worker.folder import Contents, contents
from worker.outbox import Answer, Outbox

NUM_RECENT = 10
T = TypeVar("T")


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RecentSubmission(_Shape):
    """One of the last submissions. `standing` is the coordinator's, or `refused` where it wasn't taken in.

    `num_units` is None where the coordinator doesn't say.
    """

    submission_id: Hash32
    policy_version: int
    counter: int
    standing: str
    num_units: int | None
    reason: str | None
    hint: str | None


class NodeStatus(_Shape):
    """EARNING: accepted work among the last submissions. IDLE: nothing stands against it. BLOCKED: see `todo`."""

    schema_version: Literal[1] = 1
    verdict: Literal["EARNING", "IDLE", "BLOCKED"]
    why: str
    todo: str
    node: Address
    provider: Address | None
    allotment_wei: Wei | None
    min_allotment_wei: Wei | None
    pool_version: int | None
    local_versions: tuple[int, ...]
    num_leases: int
    num_pending: int
    recent: tuple[RecentSubmission, ...]
    unanswered: tuple[str, ...]


class _Facts(_Shape):
    """What could be learnt; None where nobody answered."""

    node: Address
    pool: PoolInfo | None
    provider: Address | None
    is_registered: bool | None
    allotment_wei: int | None
    recent: tuple[RecentSubmission, ...]
    unanswered: tuple[str, ...]


def look(config: WorkerConfig) -> NodeStatus:
    """The node's status now. Raises KeyFailure where its key can't be read."""
    facts = _facts(config)
    here = contents(config.data_dir)
    verdict, why, todo = _verdict(facts, here)
    return NodeStatus(
        verdict=verdict,
        why=why,
        todo=todo,
        node=facts.node,
        provider=facts.provider,
        allotment_wei=facts.allotment_wei,
        min_allotment_wei=facts.pool.min_allotment_wei if facts.pool else None,
        pool_version=facts.pool.policy_version if facts.pool else None,
        local_versions=here.policy_versions,
        num_leases=here.num_leases,
        num_pending=here.num_pending,
        recent=facts.recent,
        unanswered=facts.unanswered,
    )


def print_status(status: NodeStatus) -> None:
    """For people: the verdict in the first line; ids are whole, to be copied into `proofpool trace`."""
    print(f"{status.verdict} {status.why}")
    if status.todo:
        print(f"  do: {status.todo}")
    for silent in status.unanswered:
        print(f"  no answer: {silent}")
    for name, value in _rows(status):
        print(f"{name:<10} {value}")
    for row in status.recent:
        reason = "" if row.reason is None else f"{row.reason}: {row.hint}"
        units = "" if row.num_units is None else f"{row.num_units} units"
        counted = f"v{row.policy_version} #{row.counter}"
        print(f"{row.submission_id}  {counted:<8} {row.standing:<9} {units:<11} {reason}".rstrip())


def _rows(status: NodeStatus) -> tuple[tuple[str, str], ...]:
    stake = "unknown" if status.allotment_wei is None else f"{status.allotment_wei} wei"
    least = "" if status.min_allotment_wei is None else f", the pool asks for {status.min_allotment_wei}"
    newest = "unknown" if status.pool_version is None else f"v{status.pool_version}"
    here = ", ".join(f"v{version}" for version in status.local_versions) or "none"
    return (
        ("node", status.node),
        ("provider", status.provider or "unknown"),
        ("allotment", stake + least),
        ("weights", f"newest {newest}; here {here}"),
        ("at hand", f"{status.num_leases} leased, {status.num_pending} waiting to be sent"),
    )


def _facts(config: WorkerConfig) -> _Facts:
    node = load_signer(0, config.keystore, config.password_file).address
    client = CoordinatorClient(config.coordinator_url)
    unanswered: list[str] = []
    pool = _asked(client.pool, unanswered)
    answers = Outbox(config.data_dir / "outbox", config.give_up_seconds).answers()[-NUM_RECENT:]
    recent = [_recent(answer, client if pool else None, unanswered) for answer in answers]
    client.close()
    ledger = config.ledger or (pool.contracts.ledger if pool else None)
    chain = _asked(lambda: _chain(config, ledger), unanswered) if ledger else None
    provider = _asked(lambda: chain.provider_of(node), unanswered) if chain else None
    return _Facts(
        node=node,
        pool=pool,
        provider=None if provider == ZERO_ADDRESS else provider,
        is_registered=None if provider is None else provider != ZERO_ADDRESS,
        allotment_wei=_asked(lambda: chain.allotment_wei(node), unanswered) if chain else None,
        recent=tuple(recent),
        unanswered=tuple(dict.fromkeys(unanswered)),
    )


def _asked(question: Callable[[], T], unanswered: list[str]) -> T | None:
    """The answer, or None and a line in `unanswered`: a status must not fail where one of its sources does."""
    try:
        return question()
    except ProofpoolError as error:
        unanswered.append(f"{error.what}: {error.why}")
        return None


def _chain(config: WorkerConfig, ledger: str) -> ChainPool:
    return ChainPool(Contracts.connect(config.chain_url, ledger, SystemClock()), config.pool_id)


def _recent(answer: Answer, client: CoordinatorClient | None, unanswered: list[str]) -> RecentSubmission:
    """A submission as the coordinator sees it now, or as it was answered."""
    view = None
    if client is not None and answer.receipt is not None:
        view = _asked(lambda: client.submission(answer.submission_id), unanswered)
    reason = answer.refusal.value if answer.refusal else view.reason if view else None
    return RecentSubmission(
        submission_id=answer.submission_id,
        policy_version=answer.policy_version,
        counter=answer.counter,
        standing="refused" if answer.refusal else view.standing.value if view else "received",
        num_units=view.num_units if view else None,
        reason=reason,
        hint=RejectReason(reason).hint if reason else None,
    )


def _verdict(facts: _Facts, here: Contents) -> tuple[Literal["EARNING", "IDLE", "BLOCKED"], str, str]:
    """The verdict, why, and what to do."""
    pool = facts.pool
    if facts.is_registered is False:
        return "BLOCKED", "the node isn't registered", RejectReason.NOT_REGISTERED.hint
    if pool and facts.allotment_wei is not None and facts.allotment_wei < pool.min_allotment_wei:
        return "BLOCKED", f"{facts.allotment_wei} of {pool.min_allotment_wei} allotted", RejectReason.UNDERSTAKED.hint
    if pool and pool.paused:
        return "IDLE", "the pool leases no tasks now", RejectReason.POOL_PAUSED.hint
    if pool is None:
        todo = "check `coordinator_url`; a running worker goes on by itself once it answers"
        return "BLOCKED", "the coordinator doesn't answer: what became of submissions isn't known", todo
    num_accepted = sum(row.standing == Standing.ACCEPTED for row in facts.recent)
    rejected = [row for row in facts.recent if row.reason]
    if rejected and not num_accepted:
        last = rejected[-1]
        return "BLOCKED", f"the last {len(rejected)} that were judged were refused: {last.reason}", last.hint or ""
    if num_accepted:
        return "EARNING", f"{num_accepted} of the last {len(facts.recent)} submissions accepted", ""
    if not here.policy_versions:
        return "IDLE", "no policy version is here yet", "start the worker, or wait for the first version"
    return "IDLE", "no submission is accepted yet", ""
