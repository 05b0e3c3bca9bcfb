"""The auditor's reports on a real coordinator and chain: what happened, and nothing of a log that was rewritten."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from coordinator.db.log import Event
from coordinator.indexer import index_chain
from coordinator.tasks import expire_leases
from protocol.api import LogEntry
from protocol.canonical import canonical_json, hex0x, sha256
from protocol.chain.pool import LogHead
from protocol.cli import run
from protocol.client import CoordinatorClient
from protocol.environments.reasoning_gym import load
from protocol.environments.registry import BUILT_IN
from protocol.errors import Rejected, VerificationFailed
from protocol.merkle.history import MemoryLog, event_leaf_hash_of
from protocol.reasons import Outcome, RejectReason
from protocol.wire import Receipt, Signed
from tests.documents import fitting
from tests.integration.conftest import World
from tests.integration.served import served
from verifier.audit.fairness.promises import HeldReceipt
from verifier.audit.fairness.reading import read_fairness
from verifier.audit.log.checked_log import anchored_log


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
    return fitting(f"audit {name}", capsys.readouterr().out)


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


@pytest.mark.parametrize("name", ["verifiers", "fairness"])
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


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that the world's rules name."""
    module = ModuleType("sums")
    module.load = lambda config, tokenizer: load({"dataset": "chain_sum"}, tokenizer)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sums", module)
    monkeypatch.setitem(BUILT_IN, "sums", "sums")


def lose_leases(world: World) -> None:
    """One handed back, one refused, one that expires."""
    task = world.lease()
    with pytest.raises(Rejected):
        world.lease(policy_version=9)
    world.client(world.node).return_task(task.message.id(world.domain))
    world.lease()
    world.chain.pass_time(100)
    index_chain(world.coordinator)
    expire_leases(world.coordinator)


def test_leases_are_told_as_they_ended(
    judged: World, sums: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lose_leases(judged)
    judged.close_epoch()
    held = tmp_path / "bundle.json"
    submissions = judged.client().submissions()
    held.write_text(judged.client().bundle(submissions[0].submission_id).model_dump_json())
    with served(judged) as url:
        found = report(capsys, "fairness", url, *on_chain(judged), "--files", "--receipts", str(held))
    (provider,) = found["providers"]
    account = provider["account"]
    ends = ("received", "expired", "abandoned", "reorged", "open")
    assert [account[f"num_{end}"] for end in ends] == [3, 1, 1, 0, 0]
    assert account["judgements"] == {"waiting": 1, "accepted": 1, "rejected": 1, "disputed": 0, "challenged": 0}
    assert account["rejected"] == {"logprob_mismatch": 1}
    assert account["num_units"] == sum(view.num_units for view in submissions)
    assert (provider["provider"], provider["nodes"][0]["node"]) == (judged.provider.address, judged.node.address)
    assert (found["num_underived"], found["num_foreign"], found["num_unexplained"]) == (0, 0, 0)
    assert found["unreadable"]["num_unreadable"] == 0
    assert account["measures"]["num_terms"]["lost"] > 0
    assert found["files"] == {"read": 3}
    assert account["rewards"]["mean"] == 0.5
    assert found["refused"]["leases"] == {judged.node.address: {"stale_policy": 1}}
    assert found["promises"]["num_by_state"] == {"kept": 1}


def test_a_broken_promise_ends_with_exit_code_3(
    judged: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A receipt, signed by the coordinator, for what it never logged."""
    bundle = judged.client().bundle(judged.client().submissions()[0].submission_id)
    message = bundle.submission.message.model_copy(update={"counter": 99})
    promised = Receipt(submission_id=message.id(judged.domain), received_block=1, include_by_epoch=0)
    receipt = Signed[Receipt].by(judged.coordinator.signer, promised, judged.domain)
    submission = bundle.submission.model_copy(update={"message": message})
    held = tmp_path / "0x01.answer.json"
    held.write_text(HeldReceipt(submission=submission, receipt=receipt).model_dump_json())
    with served(judged) as url:
        options = ("--coordinator", url, *on_chain(judged), "--receipts", str(tmp_path))
        assert run(["audit", "fairness", *options]) == 3
    assert f"missing  {promised.submission_id}  receipt, epoch 0" in capsys.readouterr().out


def test_a_log_with_another_beacon_than_the_chain_gives_no_report(
    judged: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole log, rewritten and told by a coordinator that anchors it to nothing; the chain knows better."""
    with served(judged) as url, closing(CoordinatorClient(url)) as client:
        log = anchored_log(client, client.pool(), judged.contracts)
        entries = [entry.model_copy(deep=True) for entry in client.all_entries()]
        for entry in entries:
            if entry.event["type"] == "chain.VersionSealed":
                entry.event["data"]["arguments"]["beacon_hash"] = "0x" + "0b" * 32
        lie = replace(log, read_entries=lambda start, limit: relogged(entries)[start : start + limit])
        anchored = replace(lie, heads=[LogHead(0, len(entries), root_over(entries))])
        with pytest.raises(VerificationFailed, match="another beacon"):
            read_fairness(client, anchored)


def relogged(entries: list[LogEntry]) -> list[LogEntry]:
    """Entries that hash to what they say."""
    made = []
    for entry in entries:
        event_hash = hex0x(sha256(canonical_json(entry.event)))
        leaf = event_leaf_hash_of(entry.subject, event_hash)
        made.append(entry.model_copy(update={"event_hash": event_hash, "leaf_hash": leaf}))
    return made


def root_over(entries: list[LogEntry]) -> str:
    tree = MemoryLog()
    for entry in relogged(entries):
        tree.append(entry.leaf_hash)
    return tree.root


def test_a_ledger_without_a_chain_is_no_anchor(judged: World, capsys: pytest.CaptureFixture[str]) -> None:
    with served(judged) as url:
        assert run(["audit", "verifiers", "--coordinator", url, *on_chain(judged)[2:]]) == 2
    assert "--chain" in capsys.readouterr().err
