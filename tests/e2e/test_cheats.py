"""`proofpool testnet up` with every kind of cheat at once, as a user runs it: what it prints, does and leaves."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from protocol.cli import run as run_command
from testnet.accounts import Accounts
from testnet.hints import offline_commands, program
from testnet.plan import CHEATS, Plan
from testnet.profile import STAKE
from testnet.summary import Summary
from verifier.audit.bundle.evidence import read_bundle
from verifier.audit.bundle.ground import claims_alone
from verifier.audit.replay.pinned import ModelSource
from verifier.audit.replay.replay import Replayer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.xdist_group("e2e")]

NUM_STEPS, NUM_WORKERS, NUM_VERIFIERS = 2, 2, 2
ASKED_FOR = """seed steps accepted rejected rejected_by_reason honest_rejected slashed cheaters reward_first reward_last
policy_version ledger_root credits_paid_wei credits_owed_wei audit first_accept_seconds wall_seconds run_dir"""
REASONS = {
    "wrong-model": {"toploc_mismatch", "sampling_mismatch"},
    "forged-proof": {"proof_malformed", "toploc_mismatch"},
    "false-reward": {"reward_mismatch"},
    "cherry-pick": {"sampling_mismatch"},
}


@dataclass(frozen=True)
class Done:
    """A run that is over."""

    exit_code: int
    stdout: str
    stderr: str
    run_dir: Path
    history: Any

    @property
    def summary(self) -> Summary:
        return Summary.model_validate_json(self.stdout)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, read_history: Callable[[Path], Any]) -> Done:
    run_dir = tmp_path_factory.mktemp("cheats") / "run"
    command = [sys.executable, "-m", "protocol.cli", "testnet", "up", "--json", "--run-dir", str(run_dir)]
    command += ["--steps", str(NUM_STEPS), "--workers", str(NUM_WORKERS), "--verifiers", str(NUM_VERIFIERS)]
    for kind in CHEATS:
        command += ["--cheat", kind]
    environment = os.environ | {"PROOFPOOL_TESTNET_GROUPS_PER_STEP": "8"}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (run_dir / "events.jsonl").exists(), ended.stderr
    return Done(ended.returncode, ended.stdout, ended.stderr, run_dir, read_history(run_dir))


@pytest.fixture(scope="module")
def accounts() -> Accounts:
    return Accounts.of(0, NUM_WORKERS, NUM_VERIFIERS, tuple(CHEATS))


def test_the_run_does_what_it_should_and_says_so_in_one_document(done: Done) -> None:
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert set(ASKED_FOR.split()) <= set(document)
    assert all(done.summary.checks.values())
    assert (done.summary.steps, done.summary.policy_version, done.summary.audit) == (NUM_STEPS, NUM_STEPS, "ok")
    assert json.loads((done.run_dir / "summary.json").read_text()) == document
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", CHEATS)
def test_a_cheat_is_rejected_from_its_first_submission_on_and_slashed(
    done: Done, accounts: Accounts, kind: str
) -> None:
    (cheater,) = [provider for provider in accounts.cheaters if provider.cheat == kind]
    rejected = done.history.by(cheater.node.address, "submission.rejected")
    assert rejected
    assert {event["data"]["reason"] for event in rejected} <= REASONS[kind]
    assert not done.history.by(cheater.node.address, "submission.accepted")
    assert not any(cheater.owner.address == account for e in rejected for account, _ in e["data"]["payments"])
    slashed = [e["data"]["arguments"] for e in done.history.of("chain.Slashed")]
    amounts = [int(slash["amount"]) for slash in slashed if slash["provider"] == cheater.owner.address]
    assert amounts[0] == STAKE // 10


def test_only_cheats_are_slashed_and_only_cheats_rejected(done: Done, accounts: Accounts) -> None:
    assert sorted(done.summary.slashed) == sorted(done.summary.cheaters)
    assert done.summary.cheaters == [cheater.owner.address for cheater in accounts.cheaters]
    honest = [provider.node.address for provider in accounts.providers if provider.cheat is None]
    for node in honest:
        assert done.history.by(node, "submission.accepted")
        assert not done.history.by(node, "submission.rejected")
    assert done.summary.honest_rejected == 0


def test_no_task_is_lost(done: Done) -> None:
    leased = [event["subject"] for event in done.history.of("task.leased")]
    ended = [event["data"]["task_id"] for event in done.history.of("submission.accepted", "submission.rejected")]
    given_back = [event["subject"] for event in done.history.of("task.abandoned")]
    assert sorted(leased) == sorted(ended + given_back)
    assert done.summary.expired == 0


def test_the_credits_are_those_of_the_log_up_to_the_head_on_chain(done: Done) -> None:
    heads = [e["data"]["arguments"] for e in done.history.of("chain.EpochCommitted")]
    (size,) = [int(head["size"]) for head in heads if head["root"] == done.summary.ledger_root]
    summary = done.summary
    assert int(summary.credits_paid_wei) + int(summary.credits_owed_wei) == done.history.payments_wei(size)
    assert int(summary.credits_paid_wei) > 0


def test_kept_bundles_are_checked_offline_by_the_printed_commands(
    done: Done, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = done.summary
    assert len(summary.audited) >= 1 + len(CHEATS)
    lines = offline_commands(summary.audited, done.run_dir / "bundles", summary.trusted_head)
    for line in lines:
        assert run_command(arguments(line)) == 0
        assert "ok (anchored" in capsys.readouterr().out
    epoch, size, _ = summary.trusted_head.split(":")
    assert run_command([*arguments(lines[0])[:-1], f"{epoch}:{size}:0x{'00' * 32}"]) == 3
    assert "✗ heads" in capsys.readouterr().out


def test_kept_bundles_are_replayed_and_every_verdict_agrees(done: Done) -> None:
    """The model that two verifiers ran over honest work and every kind of cheat, once more in this process."""
    weights, verdicts = done.run_dir / "data" / "verifier-0" / "weights", []
    for submission_id in done.summary.audited:
        bundle = read_bundle(done.run_dir / "bundles" / f"{submission_id}.json")
        source = ModelSource(weights / f"v{bundle.submission.message.policy_version}", lambda: ())
        found = Replayer(source).replay(bundle, claims_alone(bundle), submission_id)
        assert (found.result, found.remedy) == ("consistent, not anchored", None)
        verdicts += found.verdicts
    assert {(one.agreement, one.holds) for one in verdicts} == {("agrees", True)}
    assert {one.stamp for one in verdicts} == {"holds", "none due"}


def arguments(line: str) -> list[str]:
    return shlex.split(line)[len(shlex.split(program())) :]


def test_the_run_folder_keeps_what_happened(done: Done) -> None:
    assert Plan.model_validate_json((done.run_dir / "config.json").read_text()).cheats == tuple(CHEATS)
    steps = [json.loads(line)["step"] for line in (done.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, NUM_STEPS + 1))
    assert [event["index"] for event in done.history.events] == list(range(len(done.history.events)))
    assert {path.stem for path in (done.run_dir / "logs").iterdir()} >= {"coordinator", "trainer", "worker-5"}


def test_nothing_is_left_running(done: Done, left_behind: Callable[[Path], list[str]]) -> None:
    assert not left_behind(done.run_dir)
