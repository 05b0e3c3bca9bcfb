"""`proofpool provider statement`: each credit leads to its work and its money, and the sum is the contracts'."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from protocol.api import LogEntry
from protocol.client import CoordinatorClient
from protocol.reasons import Outcome
from tests.integration.conftest import PRICE_WEI, World
from tests.integration.served import served
from tests.integration.test_challenge import outsider
from tests.integration.test_earnings import claim, commit, propose
from tests.integration.test_jury import Bench, bench
from tests.integration.test_promise_commands import Command, call, refusal
from tests.integration.test_provider_claim import WINDOWS

__all__ = ["bench", "call"]


class Reader:
    """A provider without a key, who asks a coordinator and the chain."""

    def __init__(self, world: World, call: Command, url: str) -> None:
        self._call = call
        self._options = ["--chain", world.chain.process.url, "--ledger", world.contracts.addresses.ledger]
        self._options += ["--pool", str(world.pool_id), "--provider", world.provider.address]
        self.coordinator = ["--coordinator", url]

    def run(self, *arguments: str, served: bool = True) -> tuple[int, str, str]:
        return self._call("provider", "statement", *self._options, *(self.coordinator if served else ()), *arguments)

    def document(self, *arguments: str, served: bool = True) -> dict[str, Any]:
        code, out, err = self.run("--json", *arguments, served=served)
        found: dict[str, Any] = json.loads(out)
        assert (code, err, found["differences"]) == (0, "", [])
        parts = ("claimed", "withheld", "claimable", "claimable_later", "waiting_for_root")
        balance = {name: int(found["balance"][f"{name}_wei"]) for name in (*parts, "earned", "owing")}
        assert sum(balance[name] for name in parts) == balance["earned"]
        return found | {"balance": balance}


def one_of_each(world: World) -> list[str]:
    """Three accepted submissions: one is paid, one under a root that can't be claimed from yet, one under none."""
    found = [world.accept()]
    statement = propose(world)
    commit(world, statement)
    world.chain.pass_time(WINDOWS)
    claim(world, statement, world.provider.address)
    found.append(world.accept())
    commit(world, propose(world))
    return [*found, world.accept()]


def test_each_credit_leads_to_its_work_and_its_money(world: World, call: Command, tmp_path: Path) -> None:
    submissions = one_of_each(world)
    with served(world) as url:
        reader = Reader(world, call, url)
        found = reader.document()
        printed = reader.run()[1]
        rows = list(csv.DictReader(io.StringIO(reader.run("--csv")[1])))
        log = tmp_path / "log.jsonl"
        where = ["--chain", world.chain.process.url, "--coordinator", url]
        assert call("audit", "export", "--out", str(log), "--format", "jsonl", *where)[0] == 0
    credits = [line for line in found["lines"] if line["kind"] == "credit"]
    assert [line["submission_id"] for line in credits] == submissions
    assert [line["state"] for line in credits] == ["claimed", "claimable_later", "waiting_for_root"]
    for line in credits:
        view = world.client().submission(line["submission_id"])
        assert (line["node"], int(line["amount_wei"])) == (world.node.address, view.num_units * PRICE_WEI)
        validators = {one.validator for one in view.verdicts}
        assert {one["validator"] for one in line["verdicts"]} == validators and validators
        assert view.settling is not None and line["log_index"] == view.settling.log_index
    check_transactions(world, found)
    amounts = [int(line["amount_wei"]) for line in credits]
    balance = found["balance"]
    assert (balance["claimed"], balance["claimable_later"], balance["waiting_for_root"]) == tuple(amounts)
    assert [line["kind"] for line in found["lines"]].count("claim") == 1
    assert int(found["closing_wei"]) == amounts[1] + amounts[2]
    assert [row["transaction_hash"] for row in rows] == [line["transaction_hash"] or "" for line in found["lines"]]
    assert [row["amount_wei"] for row in rows] == [line["amount_wei"] for line in found["lines"]]
    assert all(one in printed for one in submissions) and "the log and the contracts agree" in printed
    by_file = Reader(world, call, url).document("--log", str(log), served=False)
    anchored = [line for line in found["lines"] if line["submission_id"] != submissions[-1]]
    assert by_file["lines"] == anchored, "the log is exported up to its newest head"


def check_transactions(world: World, found: dict[str, Any]) -> None:
    """What a line names really did that."""
    kinds = {
        "anchor_transaction": "EpochCommitted",
        "root_transaction": "EarningsCommitted",
        "transaction_hash": "Claimed",
    }
    for line in found["lines"]:
        for name, event in kinds.items():
            if line[name] is not None:
                receipt = world.contracts.client.receipt(line[name])
                assert receipt is not None and receipt.succeeded
                assert event in [one.name for one in world.contracts.events(receipt)]
    credit = found["lines"][0]
    assert all(credit[name] is not None for name in kinds)


@pytest.mark.slow
def test_a_period_has_its_lines_and_opens_with_what_was_left(world: World, call: Command) -> None:
    one_of_each(world)
    with served(world) as url:
        reader = Reader(world, call, url)
        whole = reader.document()
        middle = next(line["time"] for line in whole["lines"] if line["kind"] == "claim")
        moment = datetime.fromtimestamp(middle, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        before, after = reader.document("--to", moment), reader.document("--from", moment)
        assert before["lines"] + after["lines"] == whole["lines"]
        assert before["closing_wei"] == after["opening_wei"] != "0"
        assert after["closing_wei"] == whole["closing_wei"]
        assert before["balance"] == after["balance"] == whole["balance"]
        last = datetime.fromtimestamp(whole["lines"][-1]["time"], UTC).strftime("%Y-%m-%d")
        assert reader.document("--to", last)["lines"] == whole["lines"], "a day that ends is within"
        for wrong in (["--from", "yesterday"], ["--from", moment, "--to", moment], ["--csv", "--json"]):
            assert refusal(reader.run(*wrong))[0] == 2
        assert refusal(reader.run(served=False))[0] == 2, "no log"


def without(entries: list[LogEntry], kind: str) -> list[LogEntry]:
    """The last payment is left out, changed by a wei, or made to somebody else."""
    paying = [entry for entry in entries if entry.event["type"] == "submission.accepted"]
    if not paying:
        return entries
    last = paying[-1]
    if kind == "missing":
        return [entry for entry in entries if entry is not last]
    event = json.loads(json.dumps(last.event))
    payment = event["data"]["payments"][-1]
    if kind == "changed":
        payment[1] = str(int(payment[1]) + 1)
    else:
        payment[0] = "0x" + "12" * 20
    return [entry if entry is not last else last.model_copy(update={"event": event}) for entry in entries]


@pytest.mark.parametrize(
    "kind",
    ["changed", pytest.param("missing", marks=pytest.mark.slow), pytest.param("diverted", marks=pytest.mark.slow)],
)
def test_a_log_that_the_chain_contradicts_is_named(
    world: World, call: Command, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    world.accept()
    commit(world, propose(world))
    honest = CoordinatorClient.entries
    changed = lambda client, *a, **k: without(honest(client, *a, **k), kind)  # noqa: E731
    with served(world) as url:
        reader = Reader(world, call, url)
        reader.document()
        monkeypatch.setattr(CoordinatorClient, "entries", changed)
        code, out, err = reader.run("--json")
        assert code == 3 and "isn't over the log's payments" in err
        assert len(json.loads(out)["differences"]) == 1
        code, out, _ = reader.run()
        assert code == 3 and "DIFFER" in out


def test_what_no_log_says_is_refused(
    world: World, call: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world.accept()
    with served(world) as url:
        reader = Reader(world, call, url)
        for text in ("{}", "[]", "no", '{"type": "submission.accepted", "index": 1}'):
            (tmp_path / "log").write_text(text)
            assert refusal(reader.run("--log", str(tmp_path / "log")))[0] == 2, text
        assert refusal(reader.run("--log", str(tmp_path / "none")))[0] == 2
        honest = CoordinatorClient.entries

        def repeating(client: CoordinatorClient, start: int, *arguments: Any, **more: Any) -> list[LogEntry]:
            return honest(client, 0, *arguments, **more)

        monkeypatch.setattr(CoordinatorClient, "entries", repeating)
        assert refusal(reader.run())[0] == 3


@pytest.mark.slow
def test_what_a_case_takes_is_on_the_statement(bench: Bench, call: Command, tmp_path: Path) -> None:
    world, bench.eyes.outcome = bench.world, Outcome.SLASH
    case_id, challenger = world.accept(), outsider(world, tmp_path)
    challenger.challenge(case_id)
    statement = propose(world)
    challenger.challenge(case_id)
    commit(world, statement)
    with served(world) as url:
        held = Reader(world, call, url).document()
        bench.until(lambda: bench.state(case_id).is_over)
        after = Reader(world, call, url).document()
    assert [line["kind"] for line in held["lines"]] == ["credit", "held"]
    assert {line["submission_id"] for line in held["lines"]} == {case_id}
    assert held["balance"]["withheld"] == held["balance"]["earned"] and held["balance"]["owing"] > 0
    assert [line["kind"] for line in after["lines"]] == ["credit", "held", "deducted"]
    assert after["balance"] == held["balance"]
