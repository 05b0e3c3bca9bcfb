"""An auditor's watch over a real coordinator and chain: what is changed in the database is found."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator.checkpoints import log_signer, sign_checkpoints
from coordinator.db.chain import Epoch
from coordinator.db.log import Event
from coordinator.indexer import index_chain
from protocol.canonical import canonical_json
from protocol.chain.pool import ChainPool
from protocol.cli import run
from protocol.errors import NotEligible, VerificationFailed
from protocol.keystore import CHEAP_SCRYPT_N, write_secret
from protocol.merkle.checkpoint import open_checkpoint, sign_checkpoint
from protocol.merkle.history import event_leaf_hash
from protocol.merkle.note import KeyType, NoteKey, NoteSigner
from protocol.reasons import Outcome, RejectReason
from tests.documents import checked
from tests.integration.conftest import LOG_SECRET, Start, World, new_world
from tests.integration.served import served
from verifier.audit.log.copies import Copies
from verifier.audit.log.log_reader import heads_on_chain
from verifier.audit.step import Report, StepState
from verifier.audit.watch.alerts import Alert
from verifier.audit.watch.checkpoint import Remembered, audit_checkpoint, log_key
from verifier.audit.watch.watch import Watch
from verifier.store import open_store


@pytest.fixture(scope="module")
def world(
    start: Start,
    snapshots: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    portal: anyio.from_thread.BlockingPortal,
) -> Iterator[World]:
    """A pool where work was accepted and rejected, its last epoch anchored and signed."""
    with new_world(start, snapshots, tmp_path_factory.mktemp("watched"), portal) as world:
        world.accept()
        world.judge(world.submit(), Outcome.DROP, RejectReason.LOGPROB_MISMATCH)
        world.close_epoch()
        index_chain(world.coordinator)
        sign_checkpoints(world.coordinator)
        yield world


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_store(tmp_path / "watch")) as db:
        yield db


def watching(world: World, memory: sqlite3.Connection, **options: Any) -> Watch:
    contracts = world.contracts
    key = log_key(contracts, world.pool_id)
    copies = partial(Copies, contracts, world.pool_id)
    return Watch(memory, world.client(), ChainPool(contracts, world.pool_id), key=key, open_events=copies, **options)


def changed(world: World, lie: Callable[[Session], None]) -> Callable[[], None]:
    """Change the database; what undoes it."""
    with world.coordinator.reading() as session:
        before = [(e.index, e.type, e.subject, e.time, e.document, e.leaf_hash) for e in session.scalars(select(Event))]
    with world.coordinator.writing() as session:
        lie(session)

    def undo() -> None:
        with world.coordinator.writing() as session:
            session.query(Event).delete()
            session.add_all(
                Event(index=i, type=kind, subject=subject, time=time, document=document, leaf_hash=leaf)
                for i, kind, subject, time, document, leaf in before
            )

    return undo


def first_received(session: Session) -> Event:
    return session.scalars(select(Event).where(Event.type == "submission.received").order_by(Event.index)).first()  # type: ignore[return-value]


def rewrite(session: Session) -> None:
    event = first_received(session)
    document = json.loads(event.document)
    event.document = canonical_json(document | {"data": document["data"] | {"num_units": 10**6}})
    event.leaf_hash = event_leaf_hash(event.subject, event.document)


def back_date(session: Session) -> None:
    event = first_received(session)
    event.time -= 3600
    event.document = canonical_json(json.loads(event.document) | {"time": event.time})
    event.leaf_hash = event_leaf_hash(event.subject, event.document)


def drop(session: Session) -> None:
    """One leaf is gone, and the later ones close up."""
    gone = first_received(session)
    later = list(session.scalars(select(Event).where(Event.index > gone.index).order_by(Event.index)))
    session.delete(gone)
    session.flush()
    for event in later:
        event.index -= 1
        session.flush()


def reorder(session: Session) -> None:
    first = first_received(session)
    second = session.get_one(Event, first.index + 1)
    for name in ("type", "subject", "time", "document", "leaf_hash"):
        mine, its = getattr(first, name), getattr(second, name)
        setattr(first, name, its)
        setattr(second, name, mine)


LIES = [rewrite, back_date, drop, reorder]


def test_an_honest_log_is_followed_in_silence_and_its_times_are_in_order(
    world: World, memory: sqlite3.Connection
) -> None:
    watch = watching(world, memory)
    assert list(watch.turn()) == []
    progress, newest = watch.progress, world.epoch()
    assert newest is not None and (progress.epochs, progress.size) == (newest.epoch + 1, newest.size)
    assert progress.checkpoint_size == newest.size and progress.num_faults == 0
    assert 0 < progress.head_time <= progress.chain_time and " s old, " in progress.line()


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_in_the_database_is_found_by_who_saw_the_truth(
    world: World, memory: sqlite3.Connection, lie: Callable[[Session], None]
) -> None:
    watch = watching(world, memory)
    assert list(watch.turn()) == []
    undo = changed(world, lie)
    try:
        found = list(watch.turn())
    finally:
        undo()
    assert found and all(alert.is_fault for alert in found)
    assert {alert.kind for alert in found} & {"rewritten"}
    assert list(watch.turn()) == []


@pytest.mark.parametrize("lie", LIES)
def test_and_by_who_comes_afterwards(world: World, memory: sqlite3.Connection, lie: Callable[[Session], None]) -> None:
    undo = changed(world, lie)
    try:
        watch = watching(world, memory)
        (alert,) = watch.turn()
    finally:
        undo()
    assert alert.kind == "inconsistent" and watch.progress.epochs < world_epochs(world)


def world_epochs(world: World) -> int:
    newest = world.epoch()
    assert newest is not None
    return newest.epoch + 1


def test_the_fate_of_a_named_node_is_told(world: World, memory: sqlite3.Connection) -> None:
    alerts: list[Alert] = list(watching(world, memory, nodes=[world.node.address]).turn())
    assert any("submission.rejected" in alert.detail and "logprob_mismatch" in alert.detail for alert in alerts)


# checkpoints


def audited(world: World, note: str, remembered: tuple[str, ...] = (), **options: Any) -> Report:
    key = log_key(world.contracts, world.pool_id)
    kept = [Remembered(f"kept-{n}", open_checkpoint(old, key)) for n, old in enumerate(remembered)]
    heads = list(heads_on_chain(world.contracts, world.pool_id))
    return audit_checkpoint(note, key, world.client(), heads, kept, **options)


def failed(report: Report) -> set[str]:
    return {step.name for step in report.steps if step.state is StepState.FAILED}


def test_the_newest_checkpoint_is_signed_on_chain_and_of_one_history_with_all_before(world: World) -> None:
    client = world.client()
    olds = [client.checkpoint(epoch) for epoch in range(world_epochs(world))]
    assert client.checkpoint() == olds[-1]
    report = audited(world, client.checkpoint(), tuple(olds))
    assert report.result == "ok" and {step.state for step in report.steps} == {StepState.OK}, list(report.lines())


def test_one_that_is_older_than_the_kept_one_is_of_its_history_but_not_the_newest(world: World) -> None:
    older, kept = world.client().checkpoint(0), world.client().checkpoint(1)
    report = audited(world, older, (kept,), is_newest=False)
    assert not failed(report) and "older_by_leaves" in report.steps[-1].values, list(report.lines())
    assert failed(audited(world, older, (kept,))) == {"since kept-0"}
    undo = changed(world, rewrite)
    try:
        forged = rebuilt_checkpoint(world)
        backwards = audited(world, kept, (forged,), is_newest=False)
    finally:
        undo()
    assert failed(backwards) == {"since kept-0"}, list(backwards.lines())


@pytest.mark.parametrize("lie", LIES)
def test_an_old_checkpoint_finds_a_log_that_was_rewritten_with_its_tree(
    world: World, lie: Callable[[Session], None]
) -> None:
    """Whoever can write the database and sign anew makes another history, and has to show that it extends the old."""
    old = world.client().checkpoint(1)
    undo = changed(world, lie)
    try:
        forged = rebuilt_checkpoint(world)
        report = audited(world, forged, (old,))
    finally:
        undo()
    assert failed(report) == {"chain", "since kept-0"}, list(report.lines())


def rebuilt_checkpoint(world: World) -> str:
    """What the log's key would sign over the events as they stand in the database now."""
    from protocol.merkle.history import MemoryLog

    with world.coordinator.reading() as session:
        newest = session.scalars(select(Epoch).order_by(Epoch.epoch.desc())).first()
        assert newest is not None
        leaves = session.scalars(select(Event.leaf_hash).order_by(Event.index)).all()
    log = MemoryLog(leaves[: newest.size] + ["0x" + "00" * 32] * (newest.size - len(leaves)))
    assert world.coordinator.log_signer is not None
    return sign_checkpoint(world.coordinator.log_signer, log.size, log.root)


def test_a_witness_that_is_wanted_must_have_seen_it(world: World) -> None:
    witness = NoteSigner("witness.example", bytes(32))
    key = NoteKey(witness.key.name, witness.key.public_key, KeyType.COSIGNATURE)
    note = world.client().checkpoint()
    assert failed(audited(world, note, witnesses=(key,))) == {"signature"}
    seen = audited(world, witness.cosign(note, 1_700_000_000), witnesses=(key,))
    assert not failed(seen) and seen.steps[0].values["witness.example"] == "1700000000"


def test_another_keys_checkpoint_is_none(world: World) -> None:
    real = world.coordinator.log_signer
    assert real is not None
    note = sign_checkpoint(NoteSigner(real.key.name, LOG_SECRET[::-1]), 4, "0x" + "77" * 32)
    with pytest.raises(VerificationFailed, match="hasn't signed"):
        audited(world, note)


def test_a_pools_log_is_signed_by_its_own_key_or_the_coordinator_does_not_start(world: World, tmp_path: Path) -> None:
    """Also not without a key: auditors wait for what the pool has promised on chain."""
    password = tmp_path / "password"
    password.write_text("of no value")
    password.chmod(0o600)
    files = {"right": LOG_SECRET, "wrong": LOG_SECRET[::-1]}
    for name, secret in files.items():
        write_secret(tmp_path / name, "of no value", secret, scrypt_n=CHEAP_SCRYPT_N)

    def opened(keystore: Path | None) -> NoteSigner | None:
        config = world.coordinator.config.model_copy(
            update={"checkpoint_keystore": keystore, "password_file": password}
        )
        return log_signer(config, world.contracts)

    signer = opened(tmp_path / "right")
    assert signer is not None and signer.key == log_key(world.contracts, world.pool_id)
    with pytest.raises(NotEligible, match="isn't the key"):
        opened(tmp_path / "wrong")
    with pytest.raises(NotEligible, match="none is configured"):
        opened(None)


# commands


@dataclass(frozen=True)
class Answer:
    exit_code: int
    lines: list[str]

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def audit(world: World, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Answer]]:
    """`proofpool audit …` against the world's coordinator and chain."""
    with served(world) as url:

        def call(command: str, *options: str, chain: bool = True) -> Answer:
            ground = ("--chain", world.contracts.client.rpc.url) if chain else ()
            arguments = ["audit", command, "--coordinator", url, *ground, *options]
            exit_code = run(arguments)
            return Answer(exit_code, checked(arguments, capsys.readouterr().out).splitlines())

        yield call


def test_a_watch_looks_once_and_ends(audit: Callable[..., Answer], world: World, tmp_path: Path) -> None:
    state = ("--state", str(tmp_path / "state"), "--once", "--json")
    answer = audit("watch", *state)
    assert answer.exit_code == 0 and [line["event"] for line in answer.documents] == ["checked"]
    undo = changed(world, rewrite)
    try:
        found = audit("watch", *state)
    finally:
        undo()
    assert found.exit_code == 3
    assert [line["event"] for line in found.documents] == ["alert", "checked"]
    assert found.documents[0]["kind"] == "rewritten" and found.documents[0]["is_fault"]


def test_a_checkpoint_is_kept_and_holds_later(audit: Callable[..., Answer], tmp_path: Path) -> None:
    kept = tmp_path / "kept.note"
    first = audit("checkpoint", "--out", str(kept))
    assert first.exit_code == 0 and first.lines[0].startswith("log key: proofpool/")
    key = first.lines[0].removeprefix("log key: ")
    later = audit("checkpoint", "--since", str(kept), "--json")
    assert later.exit_code == 0 and json.loads("".join(later.lines))["result"] == "ok"
    without_chain = audit("checkpoint", "--note", str(kept), "--log-key", key, chain=False)
    assert without_chain.exit_code == 0
    watched = audit("watch", "--state", str(tmp_path / "state"), "--once", "--checkpoint", str(kept))
    assert watched.exit_code == 0


def test_a_forged_checkpoint_is_not_kept(audit: Callable[..., Answer], world: World, tmp_path: Path) -> None:
    signer = world.coordinator.log_signer
    assert signer is not None
    forged, out = tmp_path / "forged.note", tmp_path / "out.note"
    forged.write_text(sign_checkpoint(signer, 4, "0x" + "77" * 32))
    answer = audit("checkpoint", "--note", str(forged), "--out", str(out), "--since", str(forged))
    assert answer.exit_code == 3 and not out.exists()


def test_what_cannot_be_asked_is_a_usage_error(audit: Callable[..., Answer], tmp_path: Path) -> None:
    assert audit("checkpoint", chain=False).exit_code == 2
    assert audit("checkpoint", "--since", str(tmp_path / "nothing")).exit_code == 2
    assert audit("watch", "--state", str(tmp_path), "--once", "--node", "0x12").exit_code == 2
    (tmp_path / "not.note").write_bytes(b"\xff\xfe")
    assert audit("checkpoint", "--note", str(tmp_path / "not.note")).exit_code == 2
    (tmp_path / "some.md").write_text("# A title\n\nand a text\n")
    assert audit("checkpoint", "--since", str(tmp_path / "some.md")).exit_code == 2
    assert audit("checkpoint", "--log-key", "some+key", chain=False).exit_code == 2
    assert audit("checkpoint", "--witness", "some+key").exit_code == 2


def test_a_false_signature_is_said_with_its_file(
    audit: Callable[..., Answer], world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    false = tmp_path / "false.note"
    false.write_text("x" + world.client().checkpoint())
    with served(world) as url:
        call = ["audit", "checkpoint", "--coordinator", url, "--chain", world.contracts.client.rpc.url]
        assert run([*call, "--since", str(false)]) == 3
    assert str(false) in capsys.readouterr().err


def test_nothing_is_signed_before_the_chain_has_it(world: World) -> None:
    with world.coordinator.reading() as session:
        for epoch in session.scalars(select(Epoch)):
            assert (epoch.checkpoint is not None) == (epoch.block is not None)


def test_a_kept_checkpoint_is_replaced_only_by_one_of_its_history(
    audit: Callable[..., Answer], world: World, tmp_path: Path
) -> None:
    kept, signer = tmp_path / "kept.note", world.coordinator.log_signer
    assert signer is not None
    kept.write_text(world.client().checkpoint(1))
    assert audit("checkpoint", "--out", str(kept)).exit_code == 0
    assert kept.read_text() == world.client().checkpoint()
    for other, exit_code in ((sign_checkpoint(signer, 2, "0x" + "77" * 32), 3), ("no note", 2)):
        kept.write_text(other)
        assert audit("checkpoint", "--out", str(kept)).exit_code == exit_code
        assert kept.read_text() == other
