"""`proofpool audit replay` of a real model's work: verdicts that hold, lies that are named, and what can't be replayed.

Coordinator, weights' origin and honest verifiers are the product's own, over HTTP. Bribed validators sign what a test
has them say.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coordinator.draws import open_draws
from coordinator.settle import settle
from protocol.api import Assignment
from protocol.canonical import canonical_hash
from protocol.forward import CausalLM
from protocol.reasons import Outcome, RejectReason
from protocol.wire import Evidence, Signed, Verdict
from tests.documents import fitting
from tests.integration.conftest import World
from tests.integration.test_forgery import RealPool, honest_model, other_model, real
from tests.integration.test_promise_commands import NOWHERE, Command, call, refusal
from tests.worlds.generated import generate
from verifier.audit.bundle.ground import chain_ground
from verifier.audit.replay.pinned import ModelSource
from verifier.audit.replay.replay import Replayer
from verifier.case import Dossier, Facts, Instruments
from verifier.judge import stamped
from verifier.pipeline import examine
from verifier.stamps import StampSeat, audit_for

__all__ = ["call", "honest_model", "other_model", "real"]


@dataclass
class Auditor:
    """Whoever runs the command, with a cache of his own."""

    real: RealPool
    call: Command
    folder: Path

    def run(self, submission_id: str, *more: str) -> tuple[int, str, str]:
        return self.call("audit", "replay", submission_id, "--cache", str(self.folder / "cache"), *more)

    def online(self, submission_id: str, *more: str) -> tuple[int, str, str]:
        world = self.real.world
        ground = ("--chain", world.chain.process.url, "--ledger", world.contracts.addresses.ledger)
        return self.run(submission_id, "--coordinator", self.real.url, *ground, *more)

    def document(self, submission_id: str, *more: str) -> tuple[int, dict[str, Any]]:
        code, out, err = self.online(submission_id, "--json", *more)
        assert err == ""
        return code, fitting("audit replay", out)

    def bundle(self, submission_id: str) -> Path:
        file = self.folder / "bundle.json"
        code, _, err = self.call("audit", "bundle", submission_id, "--out", str(file), "--coordinator", self.real.url)
        assert (code, err) == (0, "")
        return file


@pytest.fixture
def auditor(real: RealPool, call: Command, tmp_path: Path) -> Auditor:
    return Auditor(real, call, tmp_path)


def judge_honestly(real: RealPool, submission_id: str) -> None:
    """Every validator's own verifier turns until the submission is decided."""
    world = real.world
    for _ in range(12):
        world.close_epoch()
        open_draws(world.coordinator)
        for signer in world.validators:
            real.verifier(signer).turn()
        settle(world.coordinator)
        if world.standing(submission_id) != "received":
            return
    raise AssertionError("nobody decides")


def evidence_of(world: World, work: Assignment, folder: Path, twin: str | None = None) -> Evidence:
    """What a seat finds with the model in a folder; `twin` is the submission that it remembers as the same."""
    from protocol.environments.registry import environment_of
    from protocol.tokenizer import Tokenizer

    coordinator, beacon_hash = world.coordinator.signer.address, world.version(0).beacon_hash
    facts = Facts(world.domain, coordinator, beacon_hash, 0, frozenset({world.rules.rules_hash}))
    file = world.client().submission_file(work.submission_id)
    model = CausalLM.load(folder).eval()
    environment = environment_of(world.rules.environment, Tokenizer.load(folder))
    instruments = Instruments(environment, model.config, lambda: model, lambda *_: twin)
    own = StampSeat(work.beacon_hash, work.submission_id, work.round, work.seat)
    dossier = Dossier(work.submission, work.task, file, world.rules, facts)
    return stamped(examine(dossier, instruments, partial(audit_for, [own])), own, []).evidence


Say = Callable[[Callable[[Assignment], Evidence]], None]


@pytest.fixture
def say(real: RealPool, monkeypatch: pytest.MonkeyPatch) -> Say:
    """From now on every seat signs this evidence, under whatever outcome it is paid for."""
    world = real.world

    def bribe(evidence_for: Callable[[Assignment], Evidence]) -> None:
        def verdict(
            work: Assignment, outcome: Outcome, reason: RejectReason | None, _: Any
        ) -> tuple[Signed[Verdict], Evidence]:
            evidence = evidence_for(work)
            message = Verdict(
                submission_id=work.submission_id,
                pool_id=world.pool_id,
                epoch=work.epoch,
                round=work.round,
                seat=work.seat,
                outcome=outcome,
                reason=reason.code if reason else 0,
                rules_hash=work.task.message.rules_hash,
                evidence_hash=canonical_hash(evidence.as_json()),
            )
            return Signed[Verdict].by(world.seat_signer(work.seat), message, world.domain), evidence

        monkeypatch.setattr(world, "verdict", verdict)

    return bribe


def test_what_honest_verifiers_said_holds_with_its_stamps(real: RealPool, honest_model: Path, auditor: Auditor) -> None:
    submission_id = real.submit(honest_model)
    judge_honestly(real, submission_id)
    code, found = auditor.document(submission_id)
    assert (code, found["result"], found["standing"], found["command"]) == (0, "ok", "accepted", None)
    assert found["anchor"].startswith("chain ")
    assert found["here"]["num_audited"] == found["here"]["num_rollouts"] > 0
    for verdict in found["verdicts"]:
        assert (verdict["agreement"], verdict["stamp"], verdict["faults"]) == ("agrees", "holds", [])
        assert verdict["stamp_difference"] < 0.001
        differences = [check["difference"] for check in verdict["checks"] if check["difference"] is not None]
        assert len(differences) > 10 and max(map(abs, differences)) < 0.001
        assert any(check["here"]["margin"] is not None for check in verdict["checks"])
    code, out, err = auditor.online(submission_id)
    assert (code, err) == (0, "") and "✓ round 0, seat" in out and "agrees; stamp: holds" in out


def test_a_false_acceptance_names_who_gave_it_and_how_to_challenge_it(
    real: RealPool, honest_model: Path, other_model: Path, auditor: Auditor, say: Say
) -> None:
    """These seats run the forger's own weights: every number is as good as an honest one's."""
    say(lambda work: evidence_of(real.world, work, other_model))
    submission_id = real.accept(other_model)
    liars = {view.validator for view in real.world.client().submission(submission_id).verdicts}
    code, found = auditor.document(submission_id)
    assert (code, found["result"], found["here"]["outcome"]) == (3, "failed", "slash")
    assert {verdict["validator"] for verdict in found["verdicts"]} == set(found["contradicted"]) == liars
    for verdict in found["verdicts"]:
        assert (verdict["agreement"], verdict["stamp"], verdict["is_close"]) == ("contradicted", "doesn't hold", False)
        assert (verdict["outcome"], verdict["outcome_here"]) == ("accept", "slash")
    assert found["here"]["first_token"] or found["here"]["first_chunk"]
    assert found["command"].startswith(f"proofpool audit challenge {submission_id} --coordinator {real.url} --chain ")
    code, out, _ = auditor.online(submission_id)
    assert code == 3 and "first " in out and found["command"] in out
    said, _, named = out.rstrip().splitlines()[-1].partition("; contradicted: ")
    assert said.startswith("failed (anchored: ") and set(named.split(", ")) == liars


def test_a_false_slash_names_who_gave_it_and_how_to_appeal(
    real: RealPool, honest_model: Path, other_model: Path, auditor: Auditor, say: Say
) -> None:
    say(lambda work: evidence_of(real.world, work, other_model))
    submission_id = real.submit(honest_model)
    real.world.judge(submission_id, Outcome.SLASH, RejectReason.TOPLOC_MISMATCH)
    code, found = auditor.document(submission_id)
    assert (code, found["result"], found["here"]["outcome"], found["standing"]) == (3, "failed", "accept", "rejected")
    assert {verdict["agreement"] for verdict in found["verdicts"]} == {"contradicted"}
    assert found["command"] == f"proofpool provider appeal {submission_id} --config worker.toml"


def test_invented_numbers_are_named_though_the_outcome_is_right(
    real: RealPool, honest_model: Path, auditor: Auditor, say: Say
) -> None:
    def invented(work: Assignment) -> Evidence:
        true = evidence_of(real.world, work, honest_model)
        checks = tuple(
            check.model_copy(update={"value": 0.9 * check.reject_threshold})
            if check.check == "toploc_mantissas" and check.reject_threshold
            else check
            for check in true.checks
        )
        return true.model_copy(update={"checks": checks, "work_stamp": (-3.0,) * 16, "num_units": 1})

    say(invented)
    submission_id = real.accept(honest_model)
    code, found = auditor.document(submission_id)
    assert (code, found["result"], found["command"]) == (3, "failed", None)
    for verdict in found["verdicts"]:
        assert (verdict["agreement"], verdict["stamp"]) == ("agrees", "doesn't hold")
        assert [check["check"] for check in verdict["checks"] if check["is_far"]] == ["toploc_mantissas"]
        told = " / ".join(verdict["faults"])
        assert "num_units 1" in told and "numbers that no machine gives" in told and "isn't of this model" in told


def test_who_looked_at_nothing_is_named(real: RealPool, honest_model: Path, auditor: Auditor) -> None:
    """The evidence of the tests' usual validators: one check, no stamp, another seed."""
    submission_id = real.accept(honest_model)
    code, found = auditor.document(submission_id)
    assert code == 3
    for verdict in found["verdicts"]:
        told = " / ".join(verdict["faults"])
        assert (verdict["agreement"], verdict["stamp"]) == ("agrees", "missing")
        assert "seed" in told and "leaves out schema" in told and "its work stamp is missing" in told


def test_another_model_is_said_to_be_one_and_nobody_is_blamed(
    real: RealPool, honest_model: Path, other_model: Path, auditor: Auditor
) -> None:
    submission_id = real.accept(honest_model)
    code, out, err = auditor.online(submission_id, "--model", str(other_model))
    assert (code, out) == (2, "") and "another model" in err and "0x" in err
    assert not any(signer.address in err for signer in real.world.validators)
    assert auditor.online(submission_id, "--model", str(honest_model))[0] == 3


def test_a_watch_judges_again_and_names_who_looked_at_nothing(
    real: RealPool, honest_model: Path, auditor: Auditor
) -> None:
    """One honest submission and one that nobody looked at, both settled; the watch draws all of the pool's."""
    world = real.world
    honest = real.submit(honest_model)
    judge_honestly(real, honest)
    unseen = real.accept(honest_model)
    world.close_epoch()
    where = ("--coordinator", real.url, "--chain", world.chain.process.url, "--cache", str(auditor.folder / "cache"))
    watch = ("audit", "watch", "--once", "--json", "--state", str(auditor.folder / "state"), *where)
    code, out, _ = auditor.call(*watch, "--replay", "1")
    *alerts, checked = map(json.loads, out.splitlines())
    found = [alert for alert in alerts if alert["kind"] == "replay"]
    assert code == 3 and checked["num_replayed"] >= 2
    assert honest not in {alert["subject"] for alert in found} and all(alert["is_fault"] for alert in found)
    about = [alert for alert in found if alert["subject"] == unseen]
    validators = {view.validator for view in world.client().submission(unseen).verdicts}
    assert {alert["detail"].partition(":")[0] for alert in about} == validators


def test_weights_that_nobody_has_are_a_network_error(
    real: RealPool, honest_model: Path, auditor: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission_id, coordinator = real.accept(honest_model), real.world.coordinator
    silent = coordinator.config.model_copy(update={"shardcast_urls": (NOWHERE,)})
    with monkeypatch.context() as patched:
        patched.setattr(coordinator, "config", silent)
        answer = auditor.online(submission_id)
        assert refusal(answer) == (5, ["error", "why", "do"])
        assert "version 0 can't be had" in answer[2] and "--model DIR" in answer[2]
    assert auditor.online(submission_id)[0] == 3
    with monkeypatch.context() as patched:
        patched.setattr(coordinator, "config", silent)
        assert auditor.online(submission_id)[0] == 3, "from the cache"


def test_offline_a_bundle_and_a_model_are_enough(real: RealPool, honest_model: Path, auditor: Auditor) -> None:
    submission_id = real.submit(honest_model)
    judge_honestly(real, submission_id)
    file = auditor.bundle(submission_id)
    offline = ("--bundle", str(file), "--model", str(honest_model), "--coordinator", NOWHERE)
    code, out, err = auditor.run(submission_id, *offline)
    assert (code, err) == (0, "") and out.rstrip().endswith("\nconsistent, not anchored")
    head = json.loads(file.read_bytes())["chain"]["heads"][-1]
    trusted = f"{head['epoch']}:{head['size']}:{head['root']}"
    code, out, _ = auditor.run(submission_id, *offline, "--trusted-head", trusted)
    assert code == 0 and "\nok (anchored: head of epoch" in out
    earlier = json.loads(file.read_bytes())["chain"]["heads"][0]
    trusted = f"{earlier['epoch']}:{earlier['size']}:{earlier['root']}"
    code, out, _ = auditor.run(submission_id, *offline, "--trusted-head", trusted)
    assert code == 0 and out.rstrip().endswith("\nconsistent, not anchored"), "the verdicts came after that head"
    assert auditor.run(submission_id, "--bundle", str(file), "--coordinator", NOWHERE)[0] == 5


def test_evidence_that_doesnt_hold_is_nobodys_verdict(
    real: RealPool, honest_model: Path, auditor: Auditor, tmp_path: Path
) -> None:
    """A bundle whose verdict somebody else has changed isn't held against the validator."""
    submission_id = real.accept(honest_model)
    document = json.loads(auditor.bundle(submission_id).read_bytes())
    document["verdicts"][0]["evidence"]["num_units"] += 1
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(document))
    offline = ("--bundle", str(changed), "--model", str(honest_model))
    code, out, err = auditor.run(submission_id, *offline)
    assert (code, out) == (3, "") and "the evidence itself doesn't hold: verdicts" in err
    assert not any(signer.address in err for signer in real.world.validators)


def test_what_nobody_has_judged_yet_is_judged_here(real: RealPool, honest_model: Path, auditor: Auditor) -> None:
    submission_id = real.submit(honest_model)
    real.world.close_epoch()
    real.world.close_epoch()
    code, found = auditor.document(submission_id)
    assert (code, found["result"], found["standing"], found["verdicts"]) == (0, "ok", None, [])
    assert found["here"]["outcome"] == "accept"


def test_whoever_watches_replays_one_after_the_other_with_one_model(
    real: RealPool, honest_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def servers() -> tuple[str, ...]:
        asked.append(1)
        return real.world.coordinator.config.shardcast_urls

    replayer = Replayer(ModelSource(None, servers, tmp_path / "cache"))
    for _ in range(2):
        submission_id = real.submit(honest_model)
        judge_honestly(real, submission_id)
        bundle = real.world.client().bundle(submission_id)
        found = replayer.replay(bundle, chain_ground(bundle, real.world.contracts), submission_id)
        assert (found.result, found.exit_code) == ("ok", 0) and all(verdict.holds for verdict in found.verdicts)
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    assert len(asked) == 1 and capsys.readouterr() == ("", "")


def test_a_duplicate_is_confirmed_by_the_twin_that_it_names(
    real: RealPool, honest_model: Path, auditor: Auditor, say: Say
) -> None:
    """The same completions, handed in for a second task with another reward."""
    world, first = real.world, real.world.lease()
    rows = generate(world.rules, real.environment, honest_model, first.message)
    client = world.client(world.node)
    twin_envelope, twin, twin_file = world.pack(first.message, rows)
    client.submit(twin_envelope, twin, twin_file)
    again = [replace(row, task_reward=0.5) for row in rows]
    envelope, submission_id, file = world.pack(world.lease().message, again)
    client.submit(envelope, submission_id, file)
    say(lambda work: evidence_of(world, work, honest_model, twin))
    world.judge(submission_id, Outcome.DROP, RejectReason.DUPLICATE)
    code, found = auditor.document(submission_id)
    assert (code, found["result"]) == (0, "ok")
    assert {(v["agreement"], v["stamp"], v["reason_here"]) for v in found["verdicts"]} == {
        ("agrees", "none due", "duplicate")
    }
    offline = ("--bundle", str(auditor.bundle(submission_id)), "--model", str(honest_model))
    code, out, _ = auditor.run(submission_id, *offline)
    assert code == 0 and "· round 0" in out and "not replayable" in out


def test_who_calls_a_duplicate_what_is_none_is_named(
    real: RealPool, honest_model: Path, auditor: Auditor, say: Say
) -> None:
    other, submission_id = real.submit(honest_model), real.submit(honest_model)
    say(lambda work: evidence_of(real.world, work, honest_model, other))
    real.world.judge(submission_id, Outcome.DROP, RejectReason.DUPLICATE)
    code, found = auditor.document(submission_id)
    assert (code, found["here"]["outcome"]) == (3, "accept")
    assert {verdict["agreement"] for verdict in found["verdicts"]} == {"contradicted"}
