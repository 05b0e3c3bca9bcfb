"""An auditor against a real chain: every step ✓ on an honest history, and each lie found.

One history for all tests here: a paid submission, a slashed one, one that just came in. Lies in the database are
told in a transaction that is undone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest
from sqlalchemy.orm import Session

from coordinator.bundle import proof_bundle
from coordinator.checkpoints import sign_checkpoints
from coordinator.db.chain import Allotment
from coordinator.db.log import Event
from coordinator.db.work import SubmissionRow, VerdictRow
from coordinator.indexer import index_chain
from protocol.bundle import ProofBundle
from protocol.canonical import canonical_json, hex0x, sha256
from protocol.chain.cases import NOT_SETTLED
from protocol.cli import run
from protocol.merkle.checkpoint import sign_checkpoint
from protocol.merkle.history import event_leaf_hash
from protocol.reasons import Cost, Outcome, RejectReason
from protocol.wire import Signed, Verdict
from tests.documents import fitting
from tests.integration.conftest import Start, World, new_world
from tests.integration.served import served
from tests.integration.test_earnings import commit, propose
from verifier.audit.bundle.ground import Ground, KnownHead, chain_ground, claims_alone, trusted_head
from verifier.audit.bundle.verify import verify_bundle
from verifier.audit.step import Report, StepState
from verifier.audit.trace import trace_lines

ELSEWHERE = "0x" + "77" * 32


@dataclass(frozen=True)
class History:
    """What happened, and what the chain says of the paid submission."""

    world: World
    paid: str
    slashed: str
    pending: str
    bundle: ProofBundle
    ground: Ground

    def audit(self, **changes: Any) -> Report:
        """The paid submission's bundle, with `changes`."""
        return verify_bundle(self.bundle.model_copy(update=changes), self.ground, self.paid)

    def audit_database(self, lie: Callable[[Session], None]) -> Report:
        """The bundle that the coordinator would serve after `lie` about the paid submission."""
        coordinator = self.world.coordinator
        with coordinator.reading() as session:
            lie(session)
            bundle = proof_bundle(coordinator, session, self.paid)
        return verify_bundle(bundle, chain_ground(bundle, self.world.contracts), self.paid)


@pytest.fixture(scope="module")
def history(
    start: Start,
    snapshots: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    portal: anyio.from_thread.BlockingPortal,
) -> Iterator[History]:
    with new_world(start, snapshots, tmp_path_factory.mktemp("history"), portal) as world:
        paid = world.accept()
        commit(world, propose(world))
        slashed = slash(world)
        pending = world.submit()
        bundle = world.client().bundle(paid)
        yield History(world, paid, slashed, pending, bundle, chain_ground(bundle, world.contracts))


def slash(world: World) -> str:
    """A submission that two seats found forged, accused and enforced at the Court."""
    submission_id = world.submit()
    world.judge(submission_id, Outcome.SLASH, RejectReason.WRONG_PROMPTS)
    assert world.standing(submission_id) == "rejected"
    accuse(world, submission_id)
    world.chain.pass_time(20)
    world.send(world.provider, "court", "enforce", submission_id)
    index_chain(world.coordinator)
    return submission_id


def accuse(world: World, submission_id: str) -> None:
    case = world.client().case(submission_id)
    entry = next(e for e in world.client().all_entries() if e.index == case.inclusion.index)
    inclusion = {
        "epoch": case.inclusion.epoch,
        "leaf_index": case.inclusion.index,
        "document": hex0x(canonical_json(entry.event)),
        "proof": case.inclusion.path,
    }
    accusation = {
        "submission": case.submission.message,
        "node_signature": case.submission.signature,
        "inclusion": inclusion,
        "settling": NOT_SETTLED,
        "verdicts": [verdict.verdict.message for verdict in case.verdicts],
        "signatures": [verdict.verdict.signature for verdict in case.verdicts],
        "draw_indexes": [verdict.draw for verdict in case.verdicts],
    }
    world.send(world.validators[0], "court", "accuse", accusation)


def failed(report: Report) -> set[str]:
    return {step.name for step in report.steps if step.state is StepState.FAILED}


def still_open(report: Report) -> set[str]:
    return {step.name for step in report.steps if step.state is StepState.OPEN}


def test_a_paid_submission_checks_out_from_bytes_to_money(history: History) -> None:
    report = history.audit()
    assert report.result == "ok" and report.exit_code == 0
    assert not failed(report) and not still_open(report), list(report.lines())
    assert all(line.startswith("✓") for line in list(report.lines())[:-2])


def test_a_slashed_submission_checks_out_with_its_case(history: History) -> None:
    world = history.world
    bundle = world.client().bundle(history.slashed)
    report = verify_bundle(bundle, chain_ground(bundle, world.contracts), history.slashed)
    assert report.result == "ok" and still_open(report) <= {"earnings", "decision", "re-audit"}, list(report.lines())
    steps = {step.name: step for step in report.steps}
    assert steps["slash"].values["case"] == "upheld" and int(steps["slash"].values["held_wei"]) > 0
    assert steps["payment"].values["amount_wei"] == "0"
    with world.coordinator.reading() as session:
        allotment = session.get_one(Allotment, (world.node.address, world.pool_id))
    assert allotment.amount_wei == world.read("registry", "allotment", world.node.address, world.pool_id)
    assert allotment.held_wei == 0


def test_what_hasnt_happened_yet_is_open_and_not_wrong(history: History) -> None:
    bundle = history.world.client().bundle(history.pending)
    report = verify_bundle(bundle, chain_ground(bundle, history.world.contracts), history.pending)
    assert report.result == "ok" and not failed(report)
    assert {"receipt", "inclusion", "verdicts", "decision", "payment"} <= still_open(report)


def test_a_bundle_alone_is_consistent_and_a_known_head_anchors_it(history: History) -> None:
    bundle = ProofBundle.model_validate_json(history.bundle.model_dump_json())
    alone = verify_bundle(bundle, claims_alone(bundle), history.paid)
    assert alone.result == "consistent, not anchored" and alone.exit_code == 0
    head = bundle.chain.heads[-1]
    known = verify_bundle(bundle, trusted_head(bundle, KnownHead(head.epoch, head.size, head.root)), history.paid)
    assert known.result == "ok"
    head = bundle.chain.heads[0]
    older = verify_bundle(bundle, trusted_head(bundle, KnownHead(head.epoch, head.size, head.root)), history.paid)
    assert older.result == "consistent, not anchored" and "heads" in still_open(older)
    head = bundle.chain.heads[-1]
    wrong = verify_bundle(bundle, trusted_head(bundle, KnownHead(head.epoch, head.size, ELSEWHERE)), history.paid)
    assert failed(wrong) == {"heads"}


def test_a_bundle_of_a_pool_that_isnt_on_chain_is_no_network_problem(history: History) -> None:
    elsewhere = history.bundle.chain.model_copy(update={"pool_id": 77})
    bundle = history.bundle.model_copy(update={"chain": elsewhere})
    report = verify_bundle(bundle, chain_ground(bundle, history.world.contracts), history.paid)
    assert report.result == "failed" and "isn't on chain" in report.steps[0].why


@pytest.mark.parametrize("leaf_too", [False, True])
@pytest.mark.parametrize("which", ["received", "settled", "committed", "revealed"])
def test_an_event_rewritten_in_the_database_is_found(history: History, which: str, leaf_too: bool) -> None:
    owner = history.bundle if which in ("received", "settled") else history.bundle.verdicts[0]

    def rewrite(session: Session) -> None:
        event = session.get_one(Event, getattr(owner, which).entry.index)
        event.document = canonical_json(json.loads(event.document) | {"time": event.time + 1})
        if leaf_too:
            event.leaf_hash = event_leaf_hash(event.subject, event.document)

    report = history.audit_database(rewrite)
    assert report.result == "failed" and report.exit_code == 3
    assert failed(report) & {"log event", "inclusion", "decision", "commitments", "verdicts"}


def test_a_verdict_turned_round_in_the_database_is_found(history: History) -> None:
    """Even with a signature of the same validator, who hadn't committed to this one."""
    revealed = history.bundle.verdicts[0]
    message = revealed.verdict.message.model_copy(update={"outcome": int(Outcome.DROP), "reason": 36})
    forged = Signed[Verdict].by(history.world.validator(revealed.validator), message, history.world.domain)

    def turn_round(session: Session) -> None:
        row = session.query(VerdictRow).filter(VerdictRow.submission_id == history.paid).one()
        row.signed_verdict = forged.model_dump(mode="json")

    assert {"commitments", "decision"} <= failed(history.audit_database(turn_round))


def test_a_verdict_without_its_seats_signature_is_found(history: History) -> None:
    revealed = history.bundle.verdicts[0]
    forged = Signed[Verdict].by(history.world.node, revealed.verdict.message, history.world.domain)
    assert "verdicts" in failed(history.audit(verdicts=(revealed.model_copy(update={"verdict": forged}),)))


def test_a_seat_that_wasnt_drawn_is_found(history: History) -> None:
    revealed = history.bundle.verdicts[0]
    assert "draws" in failed(history.audit(verdicts=(revealed.model_copy(update={"draw": revealed.draw + 1}),)))


def test_a_verdict_shown_twice_is_found(history: History) -> None:
    assert "verdicts" in failed(history.audit(verdicts=history.bundle.verdicts * 2))


def test_a_provider_swapped_in_the_database_is_found(history: History) -> None:
    def swap(session: Session) -> None:
        session.get_one(SubmissionRow, history.paid).provider = history.world.trainer.address

    assert history.audit_database(swap).result == "failed"


def test_another_file_is_found(history: History) -> None:
    other = history.world.client().bundle(history.slashed).file
    assert "digest" in failed(history.audit(file=other))
    assert "digest" in failed(history.audit(file=history.bundle.file[:-20]))


def test_another_id_is_found(history: History) -> None:
    report = verify_bundle(history.bundle, history.ground, ELSEWHERE)
    assert {"digest", "receipt", "log event", "verdicts"} <= failed(report)


@pytest.mark.parametrize("data", [[], "x", {"payments": 7}, {"payments": [["a"]]}, {"payments": [["a", "b"]]}, {}])
def test_events_of_any_shape_are_answers_and_no_crash(history: History, data: object) -> None:
    for which in ("received", "settled"):
        logged = getattr(history.bundle, which)
        entry = logged.entry.model_copy(update={"event": logged.entry.event | {"data": data}})
        assert failed(history.audit(**{which: logged.model_copy(update={"entry": entry})}))
    revealed = history.bundle.verdicts[0]
    entry = revealed.committed.entry.model_copy(update={"event": {"data": data, "type": 3}})
    committed = revealed.committed.model_copy(update={"entry": entry})
    assert "commitments" in failed(history.audit(verdicts=(revealed.model_copy(update={"committed": committed}),)))


def test_claims_that_arent_the_chains_are_found(history: History) -> None:
    claims = history.bundle.chain
    other_key = claims.model_copy(update={"coordinator": history.world.provider.address})
    assert "deployment" in failed(history.audit(chain=other_key))
    heads = tuple(head.model_copy(update={"root": ELSEWHERE}) for head in claims.heads)
    assert "heads" in failed(history.audit(chain=claims.model_copy(update={"heads": heads})))


def test_an_earnings_leaf_that_isnt_under_the_root_is_found(history: History) -> None:
    assert history.bundle.earnings is not None
    more = history.bundle.earnings.model_copy(update={"cumulative_wei": history.bundle.earnings.cumulative_wei + 1})
    assert failed(history.audit(earnings=more)) == {"earnings"}


def test_the_command_checks_a_bundle_and_answers_with_its_exit_code(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bundle.json"
    command = ["audit", "verify", history.paid, "--bundle", str(file)]
    chain = ["--chain", history.world.chain.process.url]
    file.write_text(history.bundle.model_dump_json())
    assert run([*command, *chain, "--json"]) == 0
    document = fitting("audit verify", capsys.readouterr().out)
    assert document["result"] == "ok" and {step["state"] for step in document["steps"]} == {"ok"}
    assert run(command) == 0
    assert "consistent, not anchored" in capsys.readouterr().out
    changed = json.loads(file.read_text())
    changed["settled"]["entry"]["event"]["data"]["amount_wei"] = "1"
    file.write_text(json.dumps(changed))
    assert run([*command, *chain]) == 3
    assert "✗" in capsys.readouterr().out
    assert run([*command, "--trusted-head", "1:2"]) == 2
    file.write_text("{}")
    assert run(command) == 2


def test_a_checkpoint_that_somebody_kept_anchors_a_bundle(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one that isn't the newest, if the bundle is made to lead to it."""
    world, kept, file = history.world, tmp_path / "kept.note", tmp_path / "bundle.json"
    sign_checkpoints(world.coordinator)
    last = max(head.epoch for head in history.bundle.chain.heads)
    kept.write_text(world.client().checkpoint(last))
    world.close_epoch()
    index_chain(world.coordinator)
    with served(world) as url:
        about = ["audit", "bundle", history.paid, "--coordinator", url, "--out", str(file)]
        assert run([*about, "--trusted-head", str(kept)]) == 0
        capsys.readouterr()
        assert run(["audit", "verify", history.paid, "--bundle", str(file), "--trusted-head", str(kept)]) == 0
        assert f"\nok (anchored: head of epoch {last}; " in capsys.readouterr().out
        assert run(["audit", "verify", history.paid, "--coordinator", url, "--trusted-head", str(kept)]) == 0
        assert "\nok (anchored: head of epoch" in capsys.readouterr().out
    assert world.coordinator.log_signer is not None
    kept.write_text(sign_checkpoint(world.coordinator.log_signer, 5, ELSEWHERE))
    assert run(["audit", "verify", history.paid, "--bundle", str(file), "--trusted-head", str(kept)]) == 3
    kept.write_text(kept.read_text().replace("proofpool/31337", "proofpool/31338"))
    assert run(["audit", "verify", history.paid, "--bundle", str(file), "--trusted-head", str(kept)]) == 3
    kept.write_text("no note")
    assert run(["audit", "verify", history.paid, "--bundle", str(file), "--trusted-head", str(kept)]) == 2


def test_a_trace_names_every_stage(history: History) -> None:
    world = history.world
    trainer = world.client(world.trainer)
    offer = trainer.lease_batch(1)
    assert offer is not None
    trainer.acknowledge_batch(offer.number)
    world.publish(1)
    found = trainer.trace(history.paid)
    by_stage = {stage.stage: stage for stage in found.stages}
    assert list(by_stage) == ["task", "submission", "verdict", "batch", "step", "weights", "chain"]
    assert (by_stage["batch"].id, by_stage["batch"].status) == (offer.groups_root, "consumed")
    assert by_stage["weights"].id == world.version(1).manifest_hash
    assert by_stage["chain"].status == "EpochCommitted"
    entries = {entry.index: entry for entry in trainer.all_entries()}
    for stage in found.stages:
        assert all(sha256(canonical_json(entries[i].event)).hex() in entries[i].event_hash for i in stage.log_indexes)
    assert any(line.startswith("weights") for line in trace_lines(found))
    slashed = [stage for stage in trainer.trace(history.slashed).stages if stage.stage == "chain"]
    assert [stage.status for stage in slashed] == [
        "EpochCommitted",
        "AllotmentHeld",
        "Accused",
        "Slashed",
        "CaseUpheld",
    ]
    assert RejectReason(slashed[2].values["reason"]).cost is Cost.SLASH, "by its name, not by its number"
