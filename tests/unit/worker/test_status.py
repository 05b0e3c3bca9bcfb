"""What a provider is told of a node: earning, idle or blocked, and why; however little answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from protocol.api import SettlingView, Standing
from protocol.chain.cases import CaseRecord, CaseState
from protocol.chain.pool import EarningsRecord
from protocol.clock import SteadyClock, SystemClock
from protocol.errors import ChainError, ConfigError
from protocol.http import OTHER_HOST
from protocol.keystore import CHEAP_SCRYPT_N, create_keystore
from protocol.merkle.standard import earnings_tree
from protocol.reasons import RejectReason
from protocol.wire import ZERO_ADDRESS
from tests.documents import fitting
from tests.unit.worker.conftest import StillClock
from worker import status
from worker.activity import Activity, Obstacle
from worker.config import WorkerConfig
from worker.loop import Worker
from worker.payment import PaymentState
from worker.state_file import Process
from worker.status import NodeStatus, look
from worker.status_table import print_status, status_lines, watch_status
from worker.surroundings import surrounded
from worker.verdict import Facts, verdict_of

PROVIDER = "0x" + "77" * 20
NOW = 1_000


@dataclass
class Ledger:
    """What the chain says of node and money; tests write into it."""

    provider: str = PROVIDER
    allotment: int = 1
    claimed: int = 0
    withheld: int = 0
    roots: list[EarningsRecord] = field(default_factory=list)
    cases: dict[str, CaseRecord] = field(default_factory=dict)

    def close(self) -> None:
        pass

    def time(self) -> int:
        return NOW

    def provider_of(self, node: str) -> str:
        return self.provider

    def allotment_wei(self, node: str) -> int:
        return self.allotment

    def claimed_wei(self, account: str) -> int:
        return self.claimed

    def withheld_wei(self, account: str) -> int:
        return self.withheld

    def earnings_since(self, epoch: int, most: int = 64, claimable_at: int | None = None) -> list[EarningsRecord]:
        claimable = [r.epoch for r in self.roots if r.claimable_time is not None and r.claimable_time <= NOW]
        first = epoch if claimable_at is None else min(epoch, max(claimable, default=0))
        return [root for root in self.roots if root.epoch >= first]

    def case_of(self, submission_id: str) -> CaseRecord:
        return self.cases.get(submission_id, CaseRecord(CaseState.NONE, 0))


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def look_at(
    pool: Any, ledger: Ledger, make_config: Callable[..., WorkerConfig], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., NodeStatus]:
    """The status against the fake pool and a chain that says what a test wants."""
    create_keystore(tmp_path / "key.json", "word", secret=(3).to_bytes(32, "big"), scrypt_n=CHEAP_SCRYPT_N)
    password_file = tmp_path / "password"
    password_file.touch(mode=0o600)
    password_file.write_text("word\n")

    def looked(chain_answers: bool = True, file: Path | None = None, **settings: Any) -> NodeStatus:
        def chain(*arguments: Any) -> Any:
            if not chain_answers:
                raise ChainError("the node doesn't answer", "http://chain")
            return ledger

        monkeypatch.setattr(status, "_chain", chain)
        monkeypatch.setattr(status, "CoordinatorClient", lambda url: pool.membership().coordinator)
        return look(make_config(password_file=password_file, **settings), file=file)

    return looked


def turned(make_worker: Callable[..., Worker], pool: Any, *standings: tuple[Standing, str | None]) -> None:
    worker = make_worker()
    for standing in standings:
        worker.turn()
        pool.standings[list(pool.received)[-1]] = standing


def test_accepted_work_earns(look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any) -> None:
    turned(make_worker, pool, (Standing.ACCEPTED, None), (Standing.RECEIVED, None))
    found = look_at()
    assert (found.verdict, found.todo, found.unanswered) == ("EARNING", "", ())
    assert [row.standing for row in found.recent] == ["accepted", "received"]
    assert all(row.num_units > 0 for row in found.recent)
    assert (found.pool_version, found.local_versions) == (0, (0,))


def test_nothing_accepted_yet_is_idle(look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any) -> None:
    turned(make_worker, pool, (Standing.RECEIVED, None))
    assert look_at().verdict == "IDLE"


def test_only_refusals_block_with_the_reasons_hint(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any
) -> None:
    turned(make_worker, pool, (Standing.REJECTED, "reward_mismatch"))
    found = look_at()
    assert found.verdict == "BLOCKED"
    assert "reward_mismatch" in found.why
    assert found.todo.startswith(RejectReason.REWARD_MISMATCH.hint) and "worker explain 0x" in found.todo


def test_work_that_waits_for_its_verdict_hides_no_refusals(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any
) -> None:
    turned(make_worker, pool, (Standing.REJECTED, "toploc_mismatch"), (Standing.RECEIVED, None))
    assert look_at().verdict == "BLOCKED"


@pytest.mark.parametrize(
    ("chain", "reason"),
    [(Ledger(provider=ZERO_ADDRESS), RejectReason.NOT_REGISTERED), (Ledger(allotment=0), RejectReason.UNDERSTAKED)],
)
def test_registration_and_stake_come_first(
    look_at: Callable[..., NodeStatus], ledger: Ledger, chain: Ledger, reason: RejectReason
) -> None:
    ledger.provider, ledger.allotment = chain.provider, chain.allotment
    found = look_at()
    assert (found.verdict, found.todo) == ("BLOCKED", reason.hint)


def test_what_doesnt_answer_is_named_and_the_rest_is_shown(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any
) -> None:
    turned(make_worker, pool, (Standing.ACCEPTED, None))
    without_chain = look_at(chain_answers=False)
    assert without_chain.verdict == "BLOCKED" and "chain_url" in without_chain.todo
    assert "the worker stands still" in without_chain.why
    assert len(without_chain.unanswered) == 1
    assert without_chain.provider is None and without_chain.as_of.chain is None
    pool.outage = True
    without_both = look_at(chain_answers=False)
    assert without_both.verdict == "BLOCKED" and "coordinator_url" in without_both.todo
    assert any("coordinator" in line for line in without_both.unanswered)


def test_people_read_the_verdict_in_the_first_line(
    look_at: Callable[..., NodeStatus], ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.provider = ZERO_ADDRESS
    print_status(look_at())
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "BLOCKED: the node isn't registered"
    assert "register the node" in second


def test_people_can_copy_whole_ids(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    turned(make_worker, pool, (Standing.ACCEPTED, None))
    found = look_at()
    capsys.readouterr()
    print_status(found)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if found.recent[0].submission_id in line]
    assert "accepted" in line and f"{found.recent[0].num_units} units" in line


def test_where_the_money_of_accepted_work_stands(
    look_at: Callable[..., NodeStatus],
    make_worker: Any,
    pool: Any,
    ledger: Ledger,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Waiting for a root, claimable later, claimable, paid: each says so, in the document and in words."""
    turned(make_worker, pool, (Standing.ACCEPTED, None), (Standing.RECEIVED, None))
    settled, _ = pool.received
    pool.settlings[settled] = SettlingView(log_index=5, epoch=2, amount_wei=70)

    def said() -> tuple[list[str], str]:
        found = look_at()
        capsys.readouterr()
        print_status(found)
        return [row.payment.state.value for row in found.recent], capsys.readouterr().out

    states, text = said()
    assert states == ["waiting_for_earnings_root", "waiting_for_verdicts"]
    assert (
        "0.00000000000000007 credits earned, waiting for the earnings root" in text and "waiting for verdicts" in text
    )
    pool.earned = {2: {PROVIDER: 70}}
    ledger.roots = [EarningsRecord(2, earnings_tree(pool.earned[2]).root, NOW + 15)]
    states, text = said()
    assert states[0] == "claimable_later" and "0.00000000000000007 credits earned, claimable in 15 s" in text
    ledger.roots = [EarningsRecord(2, ledger.roots[0].root, None)]
    states, text = said()
    assert states[0] == "claimable_later" and "not claimable while a dispute over the earnings root is open" in text
    assert ", 0 claimable, " in text
    ledger.roots = [EarningsRecord(2, ledger.roots[0].root, NOW)]
    states, text = said()
    assert states[0] == "claimable" and "0.00000000000000007 credits claimable" in text
    assert "0 paid, 0.00000000000000007 claimable, 0 pending" in text and "`proofpool provider claim`" in text
    ledger.claimed = 70
    states, text = said()
    assert (
        states[0] == "paid"
        and "0.00000000000000007 credits paid" in text
        and "0.00000000000000007 earned: 0.00000000000000007 paid, 0 claimable, 0 pending, 0 withheld by cases" in text
    )


def test_of_many_roots_only_those_that_matter_are_asked_about(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any, ledger: Ledger
) -> None:
    turned(make_worker, pool, (Standing.ACCEPTED, None))
    (settled,) = pool.received
    pool.settlings[settled] = SettlingView(log_index=5, epoch=2, amount_wei=70)
    pool.earned = {epoch: {PROVIDER: 35 * epoch} for epoch in range(1, 30)}
    roots = {epoch: earnings_tree(earned).root for epoch, earned in pool.earned.items()}
    ledger.roots = [EarningsRecord(epoch, root, NOW - 20 + epoch) for epoch, root in roots.items()]
    ledger.claimed = 70
    pool.requests.clear()
    found = look_at()
    assert found.recent[0].payment.state is PaymentState.PAID
    assert found.claimable_wei == 35 * 20 - 70
    assert [request for request in pool.requests if "earnings" in request] == [
        *(f"GET /v1/earnings/{epoch}" for epoch in (2, 20, 21, 29))
    ]


def test_a_statement_that_isnt_the_chains_root_says_nothing_of_payment(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any, ledger: Ledger
) -> None:
    turned(make_worker, pool, (Standing.ACCEPTED, None))
    (settled,) = pool.received
    pool.settlings[settled] = SettlingView(log_index=5, epoch=2, amount_wei=70)
    pool.earned = {2: {PROVIDER: 7_000}}
    ledger.roots = [EarningsRecord(2, earnings_tree({PROVIDER: 70}).root, NOW)]
    found = look_at()
    assert found.recent[0].payment.state is PaymentState.ACCEPTED
    assert any("other earnings than the chain" in line for line in found.unanswered)


def test_an_accusation_and_a_slash_are_told_with_what_can_be_done(
    look_at: Callable[..., NodeStatus],
    make_worker: Any,
    pool: Any,
    ledger: Ledger,
    capsys: pytest.CaptureFixture[str],
) -> None:
    turned(make_worker, pool, (Standing.REJECTED, "toploc_mismatch"))
    (forged,) = pool.received
    pool.settlings[forged] = SettlingView(log_index=5, epoch=2, amount_wei=0)
    found = look_at()
    assert found.recent[0].payment.state is PaymentState.DROPPED
    assert "slash" not in found.why
    ledger.cases[forged] = CaseRecord(CaseState.ACCUSED, NOW + 12, held_wei=500)
    found = look_at()
    assert (found.verdict, found.recent[0].payment.state) == ("BLOCKED", PaymentState.ACCUSED)
    assert found.recent[0].payment.held_wei == 500
    assert "accused" in found.why and "appeal" in found.todo and "12 s from now" in found.todo
    capsys.readouterr()
    print_status(found)
    assert "accused, 0.0000000000000005 credits of the stake are held; toploc_mismatch: " in capsys.readouterr().out
    ledger.cases[forged] = CaseRecord(CaseState.UPHELD, NOW, held_wei=500)
    pool.slashes[forged] = 450
    found = look_at()
    assert found.recent[0].payment.state is PaymentState.SLASHED
    assert found.why.endswith("; slashed 0.00000000000000045 credits in 1 case")
    print_status(found)
    assert "slashed, 0.00000000000000045 credits of the stake; toploc_mismatch: " in capsys.readouterr().out
    ledger.allotment = 0
    assert look_at().why == "0 of 0.000000000000000001 credits allotted; slashed 0.00000000000000045 credits in 1 case"


def test_of_several_accusations_the_one_whose_appeal_ends_first_is_told(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any, ledger: Ledger
) -> None:
    rejected = (Standing.REJECTED, "toploc_mismatch")
    turned(make_worker, pool, rejected, rejected, rejected)
    over, soon, later = pool.received
    ledger.cases[over] = CaseRecord(CaseState.ACCUSED, NOW - 1, held_wei=500)
    ledger.cases[soon] = CaseRecord(CaseState.ACCUSED, NOW + 5, held_wei=500)
    ledger.cases[later] = CaseRecord(CaseState.ACCUSED, NOW + 9, held_wei=500)
    found = look_at()
    assert found.why == "3 of the last submissions are accused of forgery"
    assert found.todo.startswith(f"first {soon}: ")
    assert "`proofpool provider appeal`" in found.todo and found.todo.endswith("5 s from now")


@pytest.mark.parametrize("changes", [{"pool_id": 2}, {"ledger": "0x" + "99" * 20}])
def test_another_pools_coordinator_is_no_status(look_at: Callable[..., NodeStatus], changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="serves another"):
        look_at(**changes)


def test_a_case_is_told_without_a_coordinator(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any, ledger: Ledger, make_config: Any
) -> None:
    turned(make_worker, pool, (Standing.REJECTED, "toploc_mismatch"))
    (forged,) = pool.received
    ledger.cases[forged] = CaseRecord(CaseState.UPHELD, NOW, held_wei=500)
    pool.outage = True
    found = look_at(ledger="0x" + "11" * 20)
    assert found.recent[0].payment.state is PaymentState.SLASHED
    assert found.recent[0].payment.slashed_wei == 500


def test_what_was_last_known_is_shown_with_its_time(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any, ledger: Ledger
) -> None:
    turned(make_worker, pool, (Standing.ACCEPTED, None))
    (settled,) = pool.received
    pool.settlings[settled] = SettlingView(log_index=5, epoch=2, amount_wei=70)
    pool.earned = {2: {PROVIDER: 70}}
    ledger.roots = [EarningsRecord(2, earnings_tree(pool.earned[2]).root, NOW + 15)]
    known = look_at()
    assert known.next_payout is not None and known.next_payout.in_seconds == 15
    assert (known.earned_wei, known.pending_wei, known.lag) == (70, 70, 0)
    assert known.last_submission is not None and known.last_submission.settled_time == 6
    pool.outage = True
    found = look_at(chain_answers=False)
    assert (found.provider, found.allotment_wei, found.earned_wei, found.pool_version) == (PROVIDER, 1, 70, 0)
    assert [row.payment.state for row in found.recent] == [PaymentState.CLAIMABLE_LATER]
    assert found.as_of == known.as_of and found.time > known.time
    text = "\n".join(status_lines(found.model_copy(update={"time": known.time + 90})))
    assert "the coordinator's part is of " in text and "1 min 30 s ago" in text and "the chain's part is of " in text


def test_a_first_look_knows_what_the_worker_saw_while_others_answered(
    look_at: Callable[..., NodeStatus],
    make_worker: Any,
    pool: Any,
    ledger: Ledger,
    make_config: Callable[..., WorkerConfig],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    turned(make_worker, pool, (Standing.ACCEPTED, None))
    (settled,) = pool.received
    pool.settlings[settled] = SettlingView(log_index=5, epoch=2, amount_wei=70)
    monkeypatch.setattr(status, "_chain", lambda *arguments: ledger)
    monkeypatch.setattr(status, "CoordinatorClient", lambda url: pool.membership().coordinator)
    clock = StillClock()
    with surrounded(make_config(), Activity(clock, "0.1.0"), SystemClock(), SteadyClock()):
        while not (tmp_path / "data" / "process" / "last_known.json").exists():
            assert "lookout" in {thread.name for thread in threading.enumerate()}
    pool.outage = True
    found = look_at(chain_answers=False)
    assert (found.num_judged, found.num_accepted, found.accepted_time) == (1, 1, 6)
    assert (found.provider, found.pool_version) == (PROVIDER, 0)


def test_nothing_is_remembered_of_another_node(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any, make_config: Any, tmp_path: Any
) -> None:
    turned(make_worker, pool, (Standing.ACCEPTED, None))
    known = look_at()
    file = tmp_path / "data" / "process" / "last_known.json"
    file.write_text(known.model_copy(update={"node": "0x" + "66" * 20}).model_dump_json())
    pool.outage = True
    found = look_at(chain_answers=False)
    assert (found.provider, found.pool_version, found.as_of.coordinator) == (None, None, None)
    assert "the chain's part is unknown" in "\n".join(status_lines(found))


def test_what_it_takes_is_no_password(look_at: Callable[..., NodeStatus], tmp_path: Any) -> None:
    (tmp_path / "password").unlink()
    assert look_at().node == look_at().node


def test_a_worker_that_doesnt_run_earns_nothing(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any, stop_all: Callable[[], None]
) -> None:
    turned(make_worker, pool, (Standing.ACCEPTED, None))
    assert (look_at().verdict, look_at().process.is_running) == ("EARNING", True)
    stop_all()
    found = look_at()
    assert (found.verdict, found.why) == ("IDLE", "the worker isn't running")
    assert "worker run" in found.todo


def test_a_document_is_what_its_schema_says(look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any) -> None:
    turned(make_worker, pool, (Standing.ACCEPTED, None), (Standing.REJECTED, "toploc_mismatch"))
    assert fitting("worker status", look_at().model_dump_json())["num_judged"] == 2


@pytest.mark.parametrize("as_json", [True, False])
def test_a_watch_looks_again_and_again(
    make_status: Callable[..., NodeStatus], as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = [make_status(num_leases=1), make_status(num_leases=2)]

    def look_once() -> NodeStatus:
        if not seen:
            raise KeyboardInterrupt
        return seen.pop(0)

    with pytest.raises(KeyboardInterrupt):
        watch_status(look_once, 0.0, as_json=as_json)
    lines = capsys.readouterr().out.splitlines()
    if as_json:
        assert [fitting("worker status", line)["num_leases"] for line in lines] == [1, 2]
    else:
        assert sum(line == "EARNING: 1 of the last 1 that were judged accepted" for line in lines) == 2


def test_who_waits_says_for_what_and_since_when(make_status: Callable[..., NodeStatus]) -> None:
    obstacle = {
        "obstacle": "the coordinator doesn't answer",
        "why": "GET /v1/pool\x1b[2J",
        "todo": "is it running there?",
        "since_time": 1_000_000.0 - 40,
        "told_time": 1_000_000.0,
    }
    times = {"started_time": 1_000_000.0 - 3700, "written_time": 1_000_000.0}
    process = {"is_running": True, "pid": 7, "phase": "working", "tokens_per_second": 12.34, **times}
    lines = list(status_lines(make_status(process={**process, "waiting": (obstacle,)})))
    (waits,) = [line for line in lines if line.startswith("waiting")]
    assert waits.split(maxsplit=1)[1] == (
        "the coordinator doesn't answer: GET /v1/pool?[2J, since 40 s; do: is it running there?"
    )
    (runs,) = [line for line in lines if line.startswith("process")]
    assert "pid 7" in runs and "1 h 1 min" in runs and "12.3 tokens/s over the last ten minutes" in runs
    young = {**process, "started_time": 1_000_000.0 - 60}
    assert any(
        "12.3 tokens/s since then" in line for line in status_lines(make_status(process={**young, "waiting": ()}))
    )
    stopped = make_status(process={**process, "is_running": False, "phase": "stopped", "waiting": ()})
    assert any("not running; its last sign of life was 0 s ago" in line for line in status_lines(stopped))


def test_what_is_earned_hangs_on_no_window_of_recent_work(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any, ledger: Ledger
) -> None:
    """Submissions that are settled after the newest root leave what was earned alone, and come on top."""
    pool.earned = {1: {PROVIDER: 50}, 2: {PROVIDER: 70}}
    roots = {epoch: earnings_tree(earned).root for epoch, earned in pool.earned.items()}
    ledger.roots = [EarningsRecord(1, roots[1], NOW), EarningsRecord(2, roots[2], NOW + 15)]
    ledger.claimed = 20
    before = look_at()
    assert (before.earned_wei, before.claimable_wei, before.pending_wei, before.unrooted_wei) == (70, 30, 20, 0)
    turned(make_worker, pool, (Standing.ACCEPTED, None))
    (settled,) = pool.received
    pool.settlings[settled] = SettlingView(log_index=5, epoch=3, amount_wei=9)
    after = look_at()
    assert (after.earned_wei, after.claimable_wei, after.pending_wei, after.unrooted_wei) == (70, 30, 20, 9)
    assert after.next_payout == before.next_payout and after.unanswered == ()


def test_verdicts_that_lag_hide_no_acceptances(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "NUM_RECENT", 1)
    monkeypatch.setattr(status, "NUM_JUDGED", 1)
    accepted, waits = (Standing.ACCEPTED, None), (Standing.RECEIVED, None)
    turned(make_worker, pool, (Standing.REJECTED, "toploc_mismatch"), accepted, waits, waits)
    pool.settlings[list(pool.received)[1]] = SettlingView(log_index=5, epoch=2, amount_wei=70)
    found = look_at()
    assert (found.verdict, found.why) == ("EARNING", "1 of the last 1 that were judged accepted, 2 wait for verdicts")
    assert (found.accepted_share, found.num_unjudged, found.accepted_time, len(found.recent)) == (1.0, 2, 6, 1)
    text = "\n".join(status_lines(found.model_copy(update={"time": 126.0})))
    newest = "the newest was accepted at 1970-01-01 00:00:06 UTC, 2 min ago"
    assert f"100%: 1 of the last 1 that were judged, 2 wait for verdicts; {newest}" in text
    monkeypatch.setattr(status, "MAX_LOOKED", 2)
    later = look_at()
    assert (later.verdict, later.why) == ("IDLE", "none of the last submissions is judged yet, 2 wait for verdicts")
    assert later.accepted_time == 6, "it was seen in an earlier look"


def test_a_coordinator_that_falls_silent_takes_nothing_known_away(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any, ledger: Ledger
) -> None:
    turned(make_worker, pool, (Standing.ACCEPTED, None), (Standing.RECEIVED, None))
    settled, _ = pool.received
    pool.settlings[settled] = SettlingView(log_index=5, epoch=2, amount_wei=70)
    pool.earned = {2: {PROVIDER: 70}}
    ledger.roots = [EarningsRecord(2, earnings_tree(pool.earned[2]).root, NOW + 15)]
    known = look_at(ledger="0x" + "11" * 20)
    pool.earned = {2: {PROVIDER: 71}}
    in_part = look_at(ledger="0x" + "11" * 20)
    assert in_part.unanswered and in_part.earned_wei == 70
    assert in_part.as_of.coordinator == known.as_of.coordinator
    pool.outage = True
    for _ in range(2):
        found = look_at(ledger="0x" + "11" * 20)
        assert (found.earned_wei, found.next_payout) == (70, known.next_payout)
        assert (found.accepted_share, found.num_unjudged) == (1.0, 1)
        assert [row.payment.state for row in found.recent] == [row.payment.state for row in known.recent]
        assert found.as_of.coordinator == known.as_of.coordinator and found.last_submission == known.last_submission


@pytest.fixture
def make_facts(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Facts]:
    """What a look found, of a worker that waits for something."""
    seen: list[Facts] = []
    monkeypatch.setattr(status, "verdict_of", lambda facts, now: (seen.append(facts), verdict_of(facts, now))[1])
    turned(make_worker, pool, (Standing.RECEIVED, None))
    look_at()

    def make(*waiting: Obstacle) -> Facts:
        state = Activity(StillClock(), "0.1.0").state().model_copy(update={"waiting": waiting, "written_time": 1.0})
        return replace(seen[0], process=Process(is_running=True, state=state))

    return make


def test_a_url_that_the_coordinator_isnt_called_by_blocks_with_the_hosts_that_it_is(
    make_facts: Callable[..., Facts],
) -> None:
    """Through a tunnel or a proxy each signed request is refused: it is made out to another host."""
    refused = Obstacle(
        obstacle="refused: signature_invalid",
        why=f"{OTHER_HOST}: 'tunnel:9000', not one of ['10.0.0.1:8700', 'pool.example']",
        todo="",
        since_time=0.0,
        told_time=0.0,
    )
    found = verdict_of(make_facts(refused), 1.0)
    assert found.verdict == "BLOCKED" and "tunnel:9000" in found.why
    assert "`coordinator_url`" in found.todo and "10.0.0.1:8700, pool.example;" in found.todo
    other = refused.model_copy(update={"why": "the request expired"})
    assert verdict_of(make_facts(other), 1.0).verdict == "IDLE"


def test_commands_to_paste_name_the_configuration(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any, ledger: Ledger, stop_all: Callable[[], None]
) -> None:
    turned(make_worker, pool, (Standing.REJECTED, "toploc_mismatch"))
    (forged,) = pool.received
    command = f"`proofpool worker explain {forged} --config 'my worker.toml'`"
    assert look_at(file=Path("my worker.toml")).todo.endswith(command)
    ledger.cases[forged] = CaseRecord(CaseState.UPHELD, NOW, held_wei=500)
    pool.slashes[forged] = 450
    ledger.allotment = 0
    assert look_at().todo.startswith("find the cause before you stake more: `proofpool worker explain 0x")
    ledger.cases.clear()
    assert "find the cause" not in look_at().todo
    ledger.allotment = 1
    pool.standings[forged] = (Standing.ACCEPTED, None)
    stop_all()
    assert look_at(file=Path("worker.toml")).todo == "start it: `proofpool worker run --config worker.toml`"
