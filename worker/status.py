"""What a provider wants to know of a node: does it earn, if not why, and what to do about it.

In: `WorkerConfig`. Out: `NodeStatus`, from the data folder, the coordinator and the chain. Who doesn't answer is listed
under `unanswered`; what was last known of it is shown, with the time that it is of (`worker/remembered.py`). It takes
no password. For people: `worker/status_table.py`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.api import PoolInfo, Standing, SubmissionView
from protocol.chain.deployment import connect
from protocol.chain.pool import ChainPool
from protocol.client import CoordinatorClient
from protocol.clock import Clock, SystemClock
from protocol.doctor import installed_version
from protocol.keyring import find_key, stated_address
from protocol.keystore import load_signer
from protocol.wire import ZERO_ADDRESS, Address, Hash32, Wei
from worker.account import Account, Payout
from worker.activity import Obstacle
from worker.config import WorkerConfig
from worker.folder import Contents, contents, owner_of
from worker.outbox import Answer, Outbox
from worker.payment import PaymentState
from worker.questions import Questions
from worker.recent import RecentSubmission, account_of, case_of, seen, views_of
from worker.remembered import AsOf, recall, remember
from worker.state_file import Process, process_of
from worker.verdict import Facts, Verdict, verdict_of

NUM_RECENT = 10
NUM_JUDGED = 10
"""How many judged submissions the verdict goes by."""
MAX_LOOKED = 50
"""How far back they are looked for, past those that wait for verdicts."""
JUDGED = (Standing.ACCEPTED, Standing.REJECTED)


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ProcessStatus(_Shape):
    """The worker process. Unix seconds of its machine; None where nothing was written by it.

    `written_time` is its last sign of life; `tokens_per_second` an average over ten minutes.
    """

    is_running: bool
    pid: int | None
    started_time: float | None
    written_time: float | None
    phase: str | None
    waiting: tuple[Obstacle, ...]
    tokens_per_second: float | None


class LastSubmission(_Shape):
    """`settled_time` is when its verdict was logged, in chain seconds; None until then, or where nobody says."""

    submission_id: Hash32
    standing: str
    reason: str | None
    received_time: int | None
    settled_time: int | None


class NodeStatus(_Shape):
    """EARNING: accepted work among the last that were judged. IDLE: nothing stands against it. BLOCKED: see `todo`.

    Money is the provider's, of all its nodes: `earned_wei` gross under roots on chain, of which `claimed_wei` are paid,
    `claimable_wei` can be claimed, `withheld_wei` cases withhold, and `pending_wei` wait for their root's window;
    `unrooted_wei` of the node's last submissions wait for a root and come on top. `lag` counts policy versions that
    aren't here yet. `num_accepted` of the last `num_judged` that were judged, at most ten, were accepted,
    `num_unjudged` later ones wait for verdicts; `accepted_time` is when the newest acceptance that was ever seen here
    was logged, in chain seconds.
    """

    schema_version: Literal[4] = 4
    verdict: Literal["EARNING", "IDLE", "BLOCKED"]
    why: str
    todo: str
    time: float
    version: str
    node: Address
    process: ProcessStatus
    provider: Address | None
    allotment_wei: Wei | None
    min_allotment_wei: Wei | None
    earned_wei: Wei | None
    claimed_wei: Wei | None
    claimable_wei: Wei | None
    withheld_wei: Wei | None
    pending_wei: Wei | None
    unrooted_wei: Wei | None
    next_payout: Payout | None
    rules_hash: Hash32 | None
    pool_version: int | None
    local_versions: tuple[int, ...]
    lag: int | None
    num_leases: int
    num_pending: int
    num_judged: int
    num_accepted: int
    num_unjudged: int
    accepted_time: int | None
    last_submission: LastSubmission | None
    recent: tuple[RecentSubmission, ...]
    as_of: AsOf
    unanswered: tuple[str, ...]

    @property
    def accepted_share(self) -> float | None:
        """Of the last submissions that were judged; None where none was."""
        return self.num_accepted / self.num_judged if self.num_judged else None


def look(config: WorkerConfig, clock: Clock | None = None, file: Path | None = None) -> NodeStatus:
    """The node's status now; commands to paste name `file`, the configuration's.

    Raises KeyFailure where nothing says who the node is, ConfigError for another's pool.
    """
    node, questions, now = node_of(config), Questions(), (clock or SystemClock()).now
    here, process = contents(config.data_dir), process_of(config.data_dir)
    with ExitStack() as stack:
        client = stack.enter_context(closing(CoordinatorClient(config.coordinator_url)))
        pool = questions.ask(lambda: client.configured_pool(config.pool_id, config.ledger))
        ledger = config.ledger or (pool.contracts.ledger if pool else None)
        chain = questions.ask(lambda: stack.enter_context(closing(_chain(config, ledger)))) if ledger else None
        provider = questions.ask(lambda: chain.provider_of(node)) if chain else None
        allotment_wei = questions.ask(lambda: chain.allotment_wei(node)) if chain else None
        work = _Work(config, client if pool else None, chain, provider, questions)
    is_chain_silent = ledger is not None and allotment_wei is None
    with_config = f" --config {shlex.quote(str(file))}" if file else ""
    known = (work.judged, work.num_unjudged, is_chain_silent, with_config)
    facts = Facts(pool, provider, allotment_wei, work.recent, here, process, *known)
    answered = AsOf(coordinator=now() if pool else None, chain=now() if provider else None)
    found = _put_together(node, facts, work, verdict_of(facts, now()), answered, questions.unanswered, now())
    complete = recall(config.data_dir, found)
    remember(config.data_dir, complete)
    return complete


def node_of(config: WorkerConfig) -> str:
    """Whose data folder this is, or what the keystore states; last, the key itself. Raises KeyFailure."""
    known = owner_of(config.data_dir) or stated_address(find_key(config.keystore))
    return known or load_signer(0, config.keystore, config.password_file).address


class _Work:
    """The last submissions, and the account that they are paid to, as far as anybody answers."""

    def __init__(
        self,
        config: WorkerConfig,
        client: CoordinatorClient | None,
        chain: ChainPool | None,
        provider: str | None,
        questions: Questions,
    ) -> None:
        looked = Outbox(config.data_dir / "outbox", config.give_up_seconds).answers(newest=MAX_LOOKED)
        answers = looked[-NUM_RECENT:]
        views = views_of(answers, client, questions) if client else {}
        self.account: Account | None = None
        if client and chain and provider and provider != ZERO_ADDRESS:
            self.account = account_of(provider, list(views.values()), client, chain, questions)
        earlier = _earlier(looked[:-NUM_RECENT], list(views.values()), client, questions) if client else []
        cases = [case_of(answer, client, chain, questions) for answer in answers]
        self.recent = tuple(
            seen(answer, views.get(answer.submission_id), self.account, case)
            for answer, case in zip(answers, cases, strict=True)
        )
        rows = [*(seen(answer, view, self.account, None) for answer, view in earlier), *self.recent]
        self.judged = tuple(row for row in rows if row.standing in JUDGED)[-NUM_JUDGED:]
        self.num_unjudged = sum(row.payment.state is PaymentState.WAITING_FOR_VERDICTS for row in rows)
        self.unrooted = [row.payment for row in rows if row.payment.state is PaymentState.WAITING_FOR_EARNINGS_ROOT]
        newest = _newest_accepted([*(view for _, view in earlier), *views.values()])
        self.accepted_time = questions.ask(partial(_settled_time, client, newest)) if client and newest else None
        view = views.get(self.recent[-1].submission_id) if self.recent else None
        self.received_time = view.received_time if view else None
        self.settled_time = questions.ask(partial(_settled_time, client, view)) if client and view else None

    @property
    def last(self) -> LastSubmission | None:
        if not self.recent:
            return None
        row = self.recent[-1]
        return LastSubmission(
            submission_id=row.submission_id,
            standing=row.standing,
            reason=row.reason,
            received_time=self.received_time,
            settled_time=self.settled_time,
        )

    @property
    def unrooted_wei(self) -> int | None:
        if self.account is None:
            return None
        return sum(payment.amount_wei or 0 for payment in self.unrooted)


def _earlier(
    answers: Sequence[Answer], views: Sequence[SubmissionView], client: CoordinatorClient, questions: Questions
) -> list[tuple[Answer, SubmissionView]]:
    """Those before `views`, oldest first, until enough are judged: verdicts may lag by more than a few submissions."""
    found: list[tuple[Answer, SubmissionView]] = []
    num_judged = sum(view.standing in JUDGED for view in views)
    for answer in reversed(answers):
        if num_judged >= NUM_JUDGED:
            break
        for view in views_of([answer], client, questions).values():
            found.insert(0, (answer, view))
            num_judged += view.standing in JUDGED
    return found


def _newest_accepted(views: Sequence[SubmissionView]) -> SubmissionView | None:
    accepted = [(view.settling.log_index, view) for view in views if view.settling and view.settling.amount_wei]
    return max(accepted, key=lambda one: one[0], default=(0, None))[1]


def _settled_time(client: CoordinatorClient, view: SubmissionView) -> int | None:
    if view.settling is None:
        return None
    (entry, *_) = client.entries(view.settling.log_index, 1)
    return int(entry.event["time"])


def _put_together(
    node: str, facts: Facts, work: _Work, verdict: Verdict, answered: AsOf, unanswered: tuple[str, ...], now: float
) -> NodeStatus:
    pool, account, here = facts.pool, work.account, facts.here
    return NodeStatus(
        verdict=verdict.verdict,
        why=verdict.why,
        todo=verdict.todo,
        time=now,
        version=installed_version("proofpool"),
        node=node,
        process=_process(facts.process),
        provider=None if facts.provider == ZERO_ADDRESS else facts.provider,
        allotment_wei=facts.allotment_wei,
        min_allotment_wei=pool.min_allotment_wei if pool else None,
        earned_wei=account.earned_wei if account else None,
        claimed_wei=account.claimed_wei if account else None,
        claimable_wei=account.claimable_wei if account else None,
        withheld_wei=account.withheld_wei if account else None,
        pending_wei=account.pending_wei if account else None,
        unrooted_wei=work.unrooted_wei,
        next_payout=account.next_payout if account else None,
        rules_hash=pool.rules_hash if pool else None,
        pool_version=pool.policy_version if pool else None,
        local_versions=here.policy_versions,
        lag=_lag(pool, here),
        num_leases=here.num_leases,
        num_pending=here.num_pending,
        num_judged=len(work.judged),
        num_accepted=sum(row.standing == Standing.ACCEPTED for row in work.judged),
        num_unjudged=work.num_unjudged,
        accepted_time=work.accepted_time,
        last_submission=work.last,
        recent=facts.recent,
        as_of=answered,
        unanswered=unanswered,
    )


def _lag(pool: PoolInfo | None, here: Contents) -> int | None:
    if pool is None or pool.policy_version is None:
        return None
    return max(0, pool.policy_version - max(here.policy_versions, default=-1))


def _process(process: Process) -> ProcessStatus:
    state = process.state
    return ProcessStatus(
        is_running=process.is_running,
        pid=state.pid if state and process.is_running else None,
        started_time=state.started_time if state else None,
        written_time=state.written_time if state else None,
        phase=state.phase if state else None,
        waiting=state.waiting if state and process.is_running else (),
        tokens_per_second=state.tokens_per_second if state else None,
    )


def _chain(config: WorkerConfig, ledger: str) -> ChainPool:
    contracts = connect(config.chain_url, SystemClock(), deployment=config.deployment, ledger=ledger)
    return ChainPool(contracts, config.pool_id)
