"""What happened to a hash, in the same words for everybody, and the history as a table; a changed log gives neither."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from coordinator.db.log import Event
from coordinator.indexer import index_chain
from coordinator.log import append
from protocol.canonical import canonical_json, hex0x, sha256
from protocol.cli import run
from protocol.client import CoordinatorClient
from protocol.merkle.history import event_leaf_hash
from protocol.reasons import Outcome, RejectReason
from protocol.wire import ZERO_HASH
from tests.documents import checked, fitting
from tests.integration.conftest import Start, World, new_world
from tests.integration.served import served
from tests.integration.test_challenge import outsider
from tests.integration.test_court_stories import add_nodes, condemned, enforce
from tests.integration.test_inclusions import force
from tests.unit.verifier.audit.reports.test_export import read
from verifier.audit.reports.row_files import Format

DROPPED = RejectReason.LOGPROB_MISMATCH
STATUSES = {
    "paid": "accepted",
    "dropped": "rejected",
    "slashed": "slashed",
    "accused": "accused",
    "challenged": "before_jury",
    "forced": "refused",
    "trained": "accepted",
    "pending": "pending",
    "lease": "leased",
}
REASONS = {
    "dropped": DROPPED,
    "slashed": RejectReason.TOPLOC_MISMATCH,
    "accused": RejectReason.TOPLOC_MISMATCH,
    "challenged": RejectReason.TOPLOC_MISMATCH,
    "forced": RejectReason.FILE_MISSING,
}


@dataclass(frozen=True)
class Past:
    """A served pool, and the hash of each thing that happened in it."""

    world: World
    url: str
    hashes: dict[str, str]

    @property
    def chain(self) -> list[str]:
        return ["--chain", self.world.chain.process.url, "--ledger", self.world.contracts.addresses.ledger]


@pytest.fixture(scope="module")
def past(
    start: Start,
    snapshots: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    portal: anyio.from_thread.BlockingPortal,
) -> Iterator[Past]:
    folder = tmp_path_factory.mktemp("past")
    with new_world(start, snapshots, folder, portal) as world:
        hashes = {"trained": world.accept()}
        hashes["batch"] = train(world, 1)
        hashes["framed"] = world.accept()
        train(world, 2)
        cheat, careless, suspect = add_nodes(world, 3)
        hashes["paid"] = world.accept()
        hashes["dropped"] = world.submit()
        world.judge(hashes["dropped"], Outcome.DROP, DROPPED)
        hashes["slashed"] = condemned(world, cheat)
        enforce(world, hashes["slashed"])
        index_chain(world.coordinator)
        hashes["accused"] = condemned(world, careless)
        hashes["challenged"] = world.accept(suspect)
        outsider(world, folder).challenge(hashes["challenged"])
        hashes["forced"] = "0x" + "0f" * 32
        force(world, hashes["forced"])
        index_chain(world.coordinator)
        for _ in range(3):
            world.close_epoch()
        hashes["pending"] = world.submit()
        hashes["lease"] = world.lease().message.id(world.domain)
        with served(world) as url:
            yield Past(world, url, hashes)


def train(world: World, step: int) -> str:
    """The root of the step's batch, once it is taken."""
    offer = world.client(world.trainer).lease_batch(step)
    assert offer is not None
    world.client(world.trainer).acknowledge_batch(offer.number)
    return offer.groups_root


@pytest.fixture
def command(past: Past, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs a command against the served coordinator: its exit code and stdout."""

    def call(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run([*arguments, "--coordinator", past.url])
        return code, checked(arguments, capsys.readouterr().out)

    return call


@pytest.mark.parametrize("name", STATUSES)
def test_trace_show_and_the_api_say_the_same_word_for_word(
    past: Past, name: str, command: Callable[..., tuple[int, str]]
) -> None:
    subject = past.hashes[name]
    with closing(CoordinatorClient(past.url)) as client:
        api = client.trace(subject).what_happened
    assert api.status == STATUSES[name] and api.reason == REASONS.get(name)
    if name in REASONS:
        assert f"{REASONS[name].value} ({REASONS[name].hint})" in api.sentence
    code, shown = command("audit", "show", subject, *past.chain)
    assert code == 0
    traced = command("trace", subject)[1]
    assert shown.splitlines()[-1] == traced.splitlines()[-1] == api.sentence
    documents = [json.loads(command(*words, "--json")[1]) for words in (("trace", subject), ("audit", "show", subject))]
    assert [document["what_happened"] for document in documents] == [api.model_dump()] * 2


def test_what_a_node_reads_of_its_refused_work_is_the_reason_of_the_log(past: Past) -> None:
    for name in ("dropped", "slashed", "accused"):
        assert past.world.client().submission(past.hashes[name]).reason == REASONS[name]


def test_each_leaf_is_anchored_or_says_that_it_isnt_yet(past: Past, command: Callable[..., tuple[int, str]]) -> None:
    found = json.loads(command("audit", "show", past.hashes["slashed"], *past.chain, "--complete", "--json")[1])
    assert found["result"] == "ok" and {leaf["state"] for leaf in found["leaves"]} == {"ok"}
    types = [leaf["event"]["type"] for leaf in found["leaves"]]
    assert types[:2] == ["task.leased", "submission.received"]
    assert {"verdict.revealed", "submission.rejected"} <= set(types)
    assert {"chain.Accused", "chain.Slashed", "chain.CaseUpheld"} <= set(types)
    epochs = [leaf["epoch"] for leaf in found["leaves"]]
    assert epochs == sorted(epochs) and found["left_out"] == []
    fresh = json.loads(command("audit", "show", past.hashes["pending"], *past.chain, "--json")[1])
    assert {leaf["state"] for leaf in fresh["leaves"]} == {"open"} and fresh["result"] == "ok"
    lines = command("audit", "show", past.hashes["trained"], *past.chain)[1].splitlines()
    assert lines[0].startswith("✓ leaf ") and any("batch.consumed" in line for line in lines)
    assert f"node {past.world.node.address}" in lines[0]
    assert "for toploc_mismatch" in command("audit", "show", past.hashes["slashed"])[1]


def test_without_a_chain_it_is_consistent_and_not_anchored(past: Past, command: Callable[..., tuple[int, str]]) -> None:
    code, shown = command("audit", "show", past.hashes["paid"])
    lines = shown.splitlines()
    assert code == 0 and lines[0].startswith("· leaf ") and lines[-2].startswith("consistent, not anchored")


def test_a_batch_and_weights_can_be_shown_too(past: Past, command: Callable[..., tuple[int, str]]) -> None:
    code, shown = command("audit", "show", past.hashes["batch"], *past.chain)
    assert code == 0 and shown.splitlines()[-1].startswith("Consumed: batch ")
    manifest_hash = past.world.version(0).manifest_hash
    code, shown = command("audit", "show", manifest_hash.upper().replace("0X", "0x"), *past.chain)
    assert code == 0 and shown.splitlines()[-1].startswith("Published: policy version 0 ")


def test_what_cant_be_a_subject_and_what_nothing_is_about_are_refused(
    past: Past, command: Callable[..., tuple[int, str]]
) -> None:
    assert command("audit", "show", "0x12")[0] == 2
    assert command("audit", "show", "0x" + "00" * 32)[0] == 2
    assert command("audit", "show", past.hashes["paid"], "--ledger", "0x" + "11" * 20)[0] == 2
    assert command("audit", "show", "0x" + "99" * 32) == (1, "")
    assert command("trace", "0x" + "99" * 32) == (1, "")


def tampered(past: Past, change: Callable[[Session, Event], None], name: str, event_type: str) -> Any:
    """Until it is called again, the log is another."""
    with past.world.coordinator.writing() as session:
        event = session.query(Event).filter(Event.subject == past.hashes[name], Event.type == event_type).one()
        kept = {column.name: getattr(event, column.name) for column in Event.__table__.columns}
        change(session, event)

    def undo() -> None:
        with past.world.coordinator.writing() as session:
            session.execute(update(Event).where(Event.index == kept["index"]).values(**kept))

    return undo


def rewrite(session: Session, event: Event, *, carefully: bool) -> None:
    document = json.loads(event.document)
    document["data"]["reason"] = "stale_policy"
    event.document = canonical_json(document)
    if carefully:
        event.leaf_hash = event_leaf_hash(event.subject, event.document)


@pytest.mark.parametrize("carefully", [False, True])
def test_a_rewritten_reason_is_found_and_no_story_is_told(
    past: Past, command: Callable[..., tuple[int, str]], carefully: bool
) -> None:
    undo = tampered(past, lambda s, e: rewrite(s, e, carefully=carefully), "dropped", "submission.rejected")
    try:
        code, shown = command("audit", "show", past.hashes["dropped"], *past.chain)
        assert code == 3 and "can't be told" in shown.splitlines()[-1]
        # Whoever rewrites the leaf's hash as well takes its neighbours' proofs away: there is no other copy of it.
        wrong = [line for line in shown.splitlines() if line.startswith("✗")]
        assert any("submission.rejected" in line for line in wrong) and (carefully or len(wrong) == 1)
        document = json.loads(command("audit", "show", past.hashes["dropped"], *past.chain, "--json")[1])
        assert document["what_happened"] is None and document["result"] == "failed"
    finally:
        undo()
    assert command("audit", "show", past.hashes["dropped"], *past.chain)[0] == 0


def log_copies(past: Past, subject: str, *copies: dict[str, Any]) -> None:
    """The coordinator logs them about `subject`, and has them anchored."""
    with past.world.coordinator.writing() as session:
        for copy in copies:
            about = ZERO_HASH if copy["type"] == "chain.reorged" else subject
            append(session, copy["type"], about, copy["time"], copy["data"])
    past.world.close_epoch()


def copies_of(past: Past, name: str) -> list[dict[str, Any]]:
    found = past.world.client().entries(0, subject=past.hashes[name])
    return [entry.event for entry in found if entry.event["type"].startswith("chain.")]


def test_a_slash_that_the_chain_never_had_is_found(past: Past, command: Callable[..., tuple[int, str]]) -> None:
    accused, *_, upheld = (event for event in copies_of(past, "slashed") if event["type"] != "chain.AllotmentHeld")
    victim = past.hashes["framed"]
    assert command("audit", "show", victim, *past.chain)[0] == 0
    lies = {
        "about something else": upheld,
        "no such event": upheld | {"data": upheld["data"] | {"log_index": 77}},
        "another block": upheld | {"data": upheld["data"] | {"block_hash": "0x" + "77" * 32}},
        "another event there": upheld | {"time": upheld["time"] + 1},
        "something else": accused | {"data": accused["data"] | {"arguments": {"reason": "64"}}},
    }
    for what, lie in lies.items():
        log_copies(past, victim, lie)
        assert past.world.client().trace(victim).what_happened.status != "accepted", "the coordinator's own account"
        code, shown = command("audit", "show", victim, *past.chain)
        *_, line = [line for line in shown.splitlines() if line.startswith("✗")]
        assert code == 3 and what in line, line
        assert "can't be told" in shown.splitlines()[-1]


def test_a_slash_that_the_log_calls_void_and_the_chain_has_is_found(
    past: Past, command: Callable[..., tuple[int, str]]
) -> None:
    slashed = past.hashes["slashed"]
    copies = copies_of(past, "slashed")
    fork = {"type": "chain.reorged", "time": 1, "data": {"fork_block": copies[0]["data"]["block"] - 1}}
    log_copies(past, slashed, fork)
    assert past.world.client().trace(slashed).what_happened.status == "rejected"
    code, shown = command("audit", "show", slashed, *past.chain)
    assert code == 3 and shown.count("voids an event that the chain has") == len(copies)
    for name in ("slashed", "accused", "challenged"):
        log_copies(past, past.hashes[name], *copies_of(past, name))
    assert command("audit", "show", slashed, *past.chain)[0] == 0, "the chain has gone back, and the log says so"


def test_a_leaf_that_is_left_out_is_found_by_reading_the_whole_log(
    past: Past, command: Callable[..., tuple[int, str]]
) -> None:
    """The index answers without it; in the log it stands where the chain has it."""
    from coordinator import audit

    served_entries = audit.log_entries

    def without(session: Session, start: int, limit: int, subject: str | None = None, kind: str | None = None) -> Any:
        found = served_entries(session, start, limit, subject, kind)
        is_asked = subject is not None or kind is not None
        return [entry for entry in found if not is_asked or entry.event["type"] != "submission.rejected"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "log_entries", without)
        code, shown = command("audit", "show", past.hashes["dropped"], *past.chain)
        assert code == 0 and "--complete looks for" in shown
        code, shown = command("audit", "show", past.hashes["dropped"], *past.chain, "--complete")
        assert code == 3 and "were left out" in shown.splitlines()[-1]
        assert command("audit", "show", past.hashes["paid"], *past.chain, "--complete")[0] == 0


@pytest.mark.parametrize("row_format", ["csv", "jsonl", "parquet"])
def test_the_whole_history_is_exported_once_it_is_all_checked(
    past: Past, tmp_path: Path, capsys: pytest.CaptureFixture[str], row_format: str
) -> None:
    file = tmp_path / "log"
    command = ["audit", "export", "--coordinator", past.url, "--out", str(file), "--format", row_format]
    assert run([*command, *past.chain, "--json"]) == 0
    summary = fitting("audit export", capsys.readouterr().out)
    head = past.world.epoch()
    assert head is not None and summary["head"] == {"epoch": head.epoch, "size": head.size, "root": head.root}
    assert summary["anchored"] and summary["num_rows"] == summary["num_leaves"] == head.size
    assert summary["sha256"] == hex0x(sha256(file.read_bytes()))
    rows = read(file, Format(row_format))
    entries = [entry for entry in past.world.client().all_entries() if entry.index < head.size]
    assert [(row.leaf_hash, json.loads(row.data)) for row in rows] == [
        (entry.leaf_hash, entry.event["data"]) for entry in entries
    ]
    assert {row.reason for row in rows if row.subject == past.hashes["slashed"]} == {None, "toploc_mismatch"}
    undo = tampered(
        past, lambda session, event: rewrite(session, event, carefully=True), "dropped", "submission.rejected"
    )
    try:
        (other := tmp_path / "other").mkdir()
        command[command.index(str(file))] = str(other / "log")
        assert run([*command, *past.chain]) == 3 and list(other.iterdir()) == []
    finally:
        undo()


def test_an_export_without_a_chain_says_that_nothing_is_anchored(
    past: Past, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, node = tmp_path / "log.jsonl", past.world.node.address
    command = ["audit", "export", "--coordinator", past.url, "--out", str(file), "--format", "jsonl"]
    assert run([*command, "--json", "--node", node.upper().replace("0X", "0x"), "--type", "submission.*"]) == 0
    said = capsys.readouterr()
    assert "not anchored" in said.err and not json.loads(said.out)["anchored"]
    assert {(row.node, row.type.partition(".")[0]) for row in read(file, Format.JSONL)} == {(node, "submission")}
    assert run(command) == 0 and str(file) in capsys.readouterr().out


@pytest.mark.parametrize(
    "option", ["--node 0x12", "--subject 0x12", "--ledger 0x12", "--format xml", "--since-epoch -1"]
)
def test_an_export_of_nonsense_is_refused(past: Past, tmp_path: Path, option: str) -> None:
    command = ["audit", "export", "--coordinator", past.url, "--out", str(tmp_path / "log"), "--format", "csv"]
    assert run([*command, *option.split()]) == 2 and list(tmp_path.iterdir()) == []
