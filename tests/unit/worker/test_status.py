"""What a provider is told of a node: earning, idle or blocked, and why; however little answers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.api import Standing
from protocol.errors import ChainError
from protocol.keystore import CHEAP_SCRYPT_N, create_keystore
from protocol.reasons import RejectReason
from protocol.wire import ZERO_ADDRESS
from worker import status
from worker.config import WorkerConfig
from worker.loop import Worker
from worker.status import NodeStatus, look, print_status

PROVIDER = "0x" + "77" * 20


@pytest.fixture
def look_at(
    pool: Any, make_config: Callable[..., WorkerConfig], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., NodeStatus]:
    """The status against the fake pool and a chain that says what a test wants."""
    create_keystore(tmp_path / "key.json", "word", secret=(3).to_bytes(32, "big"), scrypt_n=CHEAP_SCRYPT_N)
    password_file = tmp_path / "password"
    password_file.touch(mode=0o600)
    password_file.write_text("word\n")

    def looked(provider: str = PROVIDER, allotment_wei: int = 1, chain_answers: bool = True) -> NodeStatus:
        def chain(*arguments: Any) -> Any:
            if not chain_answers:
                raise ChainError("the node doesn't answer", "http://chain")
            return SimpleNamespace(provider_of=lambda node: provider, allotment_wei=lambda node: allotment_wei)

        monkeypatch.setattr(status, "_chain", chain)
        monkeypatch.setattr(status, "CoordinatorClient", lambda url: pool.membership().coordinator)
        return look(make_config(password_file=password_file))

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
    assert found.todo == RejectReason.REWARD_MISMATCH.hint


def test_work_that_waits_for_its_verdict_hides_no_refusals(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any
) -> None:
    turned(make_worker, pool, (Standing.REJECTED, "toploc_mismatch"), (Standing.RECEIVED, None))
    assert look_at().verdict == "BLOCKED"


@pytest.mark.parametrize(
    ("chain", "reason"),
    [({"provider": ZERO_ADDRESS}, RejectReason.NOT_REGISTERED), ({"allotment_wei": 0}, RejectReason.UNDERSTAKED)],
)
def test_registration_and_stake_come_first(
    look_at: Callable[..., NodeStatus], chain: dict[str, Any], reason: RejectReason
) -> None:
    found = look_at(**chain)
    assert (found.verdict, found.todo) == ("BLOCKED", reason.hint)


def test_what_doesnt_answer_is_named_and_the_rest_is_shown(
    look_at: Callable[..., NodeStatus], make_worker: Any, pool: Any
) -> None:
    turned(make_worker, pool, (Standing.ACCEPTED, None))
    without_chain = look_at(chain_answers=False)
    assert without_chain.verdict == "EARNING"
    assert len(without_chain.unanswered) == 1
    assert without_chain.provider is None
    pool.outage = True
    without_both = look_at(chain_answers=False)
    assert [row.standing for row in without_both.recent] == ["received"]
    assert without_both.pool_version is None
    assert without_both.verdict == "BLOCKED" and "coordinator_url" in without_both.todo
    assert any("coordinator" in line for line in without_both.unanswered)


def test_people_read_the_verdict_in_the_first_line(
    look_at: Callable[..., NodeStatus], capsys: pytest.CaptureFixture[str]
) -> None:
    print_status(look_at(provider=ZERO_ADDRESS))
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "BLOCKED the node isn't registered"
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
