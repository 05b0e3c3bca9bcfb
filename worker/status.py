"""What a provider wants to know of a node: does it earn, if not why, and what to do about it.

In: `WorkerConfig`. Out: `NodeStatus`, from the data folder, the coordinator and the chain; what doesn't
answer is listed under `unanswered` and the rest is shown.
"""

from __future__ import annotations

from contextlib import closing
from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.api import PoolInfo, Standing
from protocol.chain.deployment import connect
from protocol.chain.pool import ChainPool
from protocol.client import CoordinatorClient
from protocol.clock import SystemClock
from protocol.keystore import load_signer
from protocol.reasons import RejectReason
from protocol.wire import ZERO_ADDRESS, Address, Wei
from worker.account import Account
from worker.config import WorkerConfig
from worker.folder import Contents, contents
from worker.outbox import Outbox
from worker.payment import OPEN_CASES, PaymentState
from worker.questions import Questions
from worker.recent import RecentSubmission, account_of, case_of, seen, views_of

NUM_RECENT = 10


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeStatus(_Shape):
    """EARNING: accepted work among the last submissions. IDLE: nothing stands against it. BLOCKED: see `todo`."""

    schema_version: Literal[2] = 2
    verdict: Literal["EARNING", "IDLE", "BLOCKED"]
    why: str
    todo: str
    node: Address
    provider: Address | None
    allotment_wei: Wei | None
    min_allotment_wei: Wei | None
    claimed_wei: Wei | None
    claimable_wei: Wei | None
    withheld_wei: Wei | None
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
    account: Account | None
    recent: tuple[RecentSubmission, ...]
    unanswered: tuple[str, ...]


def look(config: WorkerConfig) -> NodeStatus:
    """The node's status now. Raises KeyFailure where its key can't be read, ConfigError for another's pool."""
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
        claimed_wei=facts.account.claimed_wei if facts.account else None,
        claimable_wei=facts.account.claimable_wei if facts.account else None,
        withheld_wei=facts.account.withheld_wei if facts.account else None,
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
        words = row.payment.words + (f"; {reason}" if reason else "")
        print(f"{row.submission_id}  {counted:<8} {row.standing:<10} {units:<11} {words}".rstrip())
        if row.payment.todo:
            print(f"  do: {row.payment.todo}")


def _rows(status: NodeStatus) -> tuple[tuple[str, str], ...]:
    stake = "unknown" if status.allotment_wei is None else f"{status.allotment_wei} wei"
    least = "" if status.min_allotment_wei is None else f", the pool asks for {status.min_allotment_wei}"
    newest = "unknown" if status.pool_version is None else f"v{status.pool_version}"
    here = ", ".join(f"v{version}" for version in status.local_versions) or "none"
    return (
        ("node", status.node),
        ("provider", status.provider or "unknown"),
        ("allotment", stake + least),
        ("paid", _wei(status.claimed_wei)),
        ("claimable", f"{_wei(status.claimable_wei)}{', by `proofpool audit claim`' if status.claimable_wei else ''}"),
        ("withheld", f"{_wei(status.withheld_wei)}, by cases"),
        ("weights", f"newest {newest}; here {here}"),
        ("at hand", f"{status.num_leases} leased, {status.num_pending} waiting to be sent"),
    )


def _wei(amount: int | None) -> str:
    return "unknown" if amount is None else f"{amount} wei"


def _facts(config: WorkerConfig) -> _Facts:
    node = load_signer(0, config.keystore, config.password_file).address
    questions = Questions()
    with closing(CoordinatorClient(config.coordinator_url)) as client:
        pool = questions.ask(lambda: client.configured_pool(config.pool_id, config.ledger))
        ledger = config.ledger or (pool.contracts.ledger if pool else None)
        chain = questions.ask(lambda: _chain(config, ledger)) if ledger else None
        provider = questions.ask(lambda: chain.provider_of(node)) if chain else None
        recent, account = _work(config, client if pool else None, chain, provider, questions)
    return _Facts(
        node=node,
        pool=pool,
        provider=None if provider == ZERO_ADDRESS else provider,
        is_registered=None if provider is None else provider != ZERO_ADDRESS,
        allotment_wei=questions.ask(lambda: chain.allotment_wei(node)) if chain else None,
        account=account,
        recent=tuple(recent),
        unanswered=questions.unanswered,
    )


def _work(
    config: WorkerConfig,
    client: CoordinatorClient | None,
    chain: ChainPool | None,
    provider: str | None,
    questions: Questions,
) -> tuple[list[RecentSubmission], Account | None]:
    """The last submissions, and the account that they are paid to."""
    answers = Outbox(config.data_dir / "outbox", config.give_up_seconds).answers()[-NUM_RECENT:]
    views = views_of(answers, client, questions) if client else {}
    account = None
    if client and chain and provider and provider != ZERO_ADDRESS:
        account = account_of(provider, list(views.values()), client, chain, questions)
    cases = [case_of(answer, client, chain, questions) for answer in answers]
    recent = [seen(a, views.get(a.submission_id), account, case) for a, case in zip(answers, cases, strict=True)]
    return recent, account


def _chain(config: WorkerConfig, ledger: str) -> ChainPool:
    contracts = connect(config.chain_url, SystemClock(), deployment=config.deployment, ledger=ledger)
    return ChainPool(contracts, config.pool_id)


def _verdict(facts: _Facts, here: Contents) -> tuple[Literal["EARNING", "IDLE", "BLOCKED"], str, str]:
    """The verdict, why, and what to do."""
    pool = facts.pool
    if facts.is_registered is False:
        return "BLOCKED", "the node isn't registered", RejectReason.NOT_REGISTERED.hint
    if pool and facts.allotment_wei is not None and facts.allotment_wei < pool.min_allotment_wei:
        why = f"{facts.allotment_wei} of {pool.min_allotment_wei} wei allotted{_slashes(facts)}"
        return "BLOCKED", why, RejectReason.UNDERSTAKED.hint
    if pool and pool.paused:
        return "IDLE", "the pool leases no tasks now", RejectReason.POOL_PAUSED.hint
    if pool is None:
        todo = "check `coordinator_url`; a running worker goes on by itself once it answers"
        return "BLOCKED", "the coordinator doesn't answer: what became of submissions isn't known", todo
    accused = [row for row in facts.recent if row.payment.state in OPEN_CASES]
    if accused:
        first = min(accused, key=lambda row: row.payment.urgency)
        todo = f"first {first.submission_id}: {first.payment.todo}"
        return "BLOCKED", f"{len(accused)} of the last submissions are accused of forgery", todo
    num_accepted = sum(row.standing == Standing.ACCEPTED for row in facts.recent)
    rejected = [row for row in facts.recent if row.reason]
    if rejected and not num_accepted:
        last = rejected[-1]
        why = f"the last {len(rejected)} that were judged were refused: {last.reason}"
        return "BLOCKED", f"{why}{_slashes(facts)}", last.hint or ""
    if num_accepted:
        return "EARNING", f"{num_accepted} of the last {len(facts.recent)} submissions accepted{_slashes(facts)}", ""
    if not here.policy_versions:
        return "IDLE", "no policy version is here yet", "start the worker, or wait for the first version"
    return "IDLE", "no submission is accepted yet", ""


def _slashes(facts: _Facts) -> str:
    """What the last submissions have cost, if anything."""
    lost = [row.payment.slashed_wei or 0 for row in facts.recent if row.payment.state is PaymentState.SLASHED]
    return f"; slashed {sum(lost)} wei in {len(lost)} case{'s' if len(lost) > 1 else ''}" if lost else ""
