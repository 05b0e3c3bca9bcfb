"""The auditor's reports on a real coordinator and chain: what happened, and nothing of a log that was rewritten."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.db.log import Event
from protocol.canonical import canonical_json
from protocol.cli import run
from protocol.reasons import Outcome, RejectReason
from tests.integration.conftest import World
from tests.integration.served import served


@pytest.fixture
def judged(world: World) -> World:
    """One accepted submission, one dropped, one unjudged, all anchored."""
    world.accept()
    world.judge(world.submit(), Outcome.DROP, RejectReason.LOGPROB_MISMATCH)
    world.submit()
    world.close_epoch()
    return world


def report(capsys: pytest.CaptureFixture[str], name: str, url: str, *options: str) -> Any:
    assert run(["audit", name, "--coordinator", url, "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def on_chain(world: World) -> tuple[str, ...]:
    return ("--chain", world.chain.process.url, "--ledger", world.contracts.addresses.ledger)


def rewrite(world: World, event_type: str) -> None:
    """Another time in the first leaf of this type, in the database."""
    with world.coordinator.writing() as session:
        event = session.query(Event).filter(Event.type == event_type).order_by(Event.index).first()
        assert event is not None
        event.document = canonical_json(json.loads(event.document) | {"time": 1})


def test_validators_are_told_as_they_judged(judged: World, capsys: pytest.CaptureFixture[str]) -> None:
    with served(judged) as url:
        found = report(capsys, "verifiers", url, *on_chain(judged))
    rows = {row["validator"]: row for row in found["validators"]}
    assert found["log"]["anchored"]
    assert rows.keys() <= {validator.address for validator in judged.validators}
    assert sum(row["verdicts"]["accept"] for row in rows.values()) == 1
    assert sum(row["verdicts"]["drop"] for row in rows.values()) == 1
    assert found["audited"]["num_settled"] == 2
    assert found["num_overturned"] == 0
    statement = judged.client().status()
    assert sum(int(row["pay_wei"]) for row in rows.values()) < statement.earned_wei


def test_without_a_chain_the_report_says_so(judged: World, capsys: pytest.CaptureFixture[str]) -> None:
    with served(judged) as url:
        found = report(capsys, "verifiers", url)
        assert run(["audit", "verifiers", "--coordinator", url]) == 0
    assert not found["log"]["anchored"]
    assert "not anchored" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["verifiers"])
@pytest.mark.parametrize("is_on_chain", [True, False])
def test_a_rewritten_log_gives_no_report(
    judged: World, capsys: pytest.CaptureFixture[str], name: str, is_on_chain: bool
) -> None:
    rewrite(judged, "verdict.revealed")
    options = on_chain(judged) if is_on_chain else ()
    with served(judged) as url:
        assert run(["audit", name, "--coordinator", url, *options]) == 3
    answer = capsys.readouterr()
    assert not answer.out
    assert "log" in answer.err


def test_a_ledger_without_a_chain_is_no_anchor(judged: World, capsys: pytest.CaptureFixture[str]) -> None:
    with served(judged) as url:
        assert run(["audit", "verifiers", "--coordinator", url, *on_chain(judged)[2:]]) == 2
    assert "--chain" in capsys.readouterr().err
