"""The command line: a file judged by hand, and how a verifier stands while others are down."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from protocol.cli import run
from protocol.rollouts import Rollout
from protocol.rules import AuditRules, Rules
from protocol.wire import Signed
from tests.documents import fitting
from tests.unit.verifier.verifier_world import COORDINATOR, DOMAIN, NODE, World, make_rules
from verifier.history import History
from verifier.reaudits import Reaudits
from verifier.store import open_store
from verifier.verdicts import KeptVerdict, Verdicts


@dataclass
class Files:
    """A rollout file with all that judging it by hand takes."""

    world: World
    folder: Path

    def check(self, rollouts: list[Rollout], *flags: str, rules: Rules | None = None, counter: int = 0) -> int:
        self.write("rollouts.parquet", self.world.dossier(rollouts, counter).file)
        return run([*self.arguments(rules), *flags])

    def arguments(self, rules: Rules | None = None) -> list[str]:
        """Of a check against task 0."""
        task = Signed.by(COORDINATOR, self.world.task(), DOMAIN)
        self.write("task.json", task.model_dump_json().encode())
        self.write("rules.json", (rules or self.world.rules).model_dump_json().encode())
        self.write("pool.json", self.world.pool().model_dump_json().encode())
        arguments = ["verifier", "check", str(self.folder / "rollouts.parquet")]
        for name in ("task", "rules", "pool"):
            arguments += [f"--{name}", str(self.folder / f"{name}.json")]
        return [*arguments, "--model", str(self.world.folder)]

    def write(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)


@pytest.fixture
def files(world: World, tmp_path: Path) -> Files:
    return Files(world, tmp_path)


def test_a_good_file_is_accepted(files: Files, honest: list[Rollout], capsys: pytest.CaptureFixture[str]) -> None:
    assert files.check(honest) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "accept" and printed[-1] == "audited by the model: 32 of 32 rollouts"
    assert all(line.startswith("✓") for line in printed[1:-1])


def test_a_forged_file_ends_with_3_and_its_reason(
    files: Files, honest: list[Rollout], capsys: pytest.CaptureFixture[str]
) -> None:
    assert files.check([replace(r, task_reward=1.0 - r.task_reward) for r in honest]) == 3
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if line.startswith("✗")]
    assert line.split()[1:3] == ["rewards", "reward_mismatch"] and "slash: reward_mismatch" in printed


def test_json_is_one_document(files: Files, honest: list[Rollout], capsys: pytest.CaptureFixture[str]) -> None:
    assert files.check(honest, "--json") == 0
    found = fitting("verifier check", capsys.readouterr().out)
    assert [c["check"] for c in found["checks"]][:4] == ["schema", "content", "bounds", "prompts"]
    assert found["content_hash"] and found["signed_content_hash"] is None


def test_a_file_of_another_task_is_not_judged_by_this_one(
    files: Files, honest: list[Rollout], capsys: pytest.CaptureFixture[str]
) -> None:
    assert files.check(honest, counter=1) == 3
    printed = capsys.readouterr().out
    assert printed.startswith("drop: file_mismatch") and files.world.task(1).id(DOMAIN) in printed


def test_a_task_that_the_pools_coordinator_has_not_signed_judges_nothing(
    files: Files, honest: list[Rollout], capsys: pytest.CaptureFixture[str]
) -> None:
    files.write("rollouts.parquet", files.world.dossier(honest).file)
    arguments = files.arguments()
    files.write("task.json", Signed.by(NODE, files.world.task(), DOMAIN).model_dump_json().encode())
    assert run(arguments) == 3
    assert "error: " in capsys.readouterr().err


def test_what_is_missing_is_named(files: Files, honest: list[Rollout], capsys: pytest.CaptureFixture[str]) -> None:
    file = str(files.folder / "rollouts.parquet")
    files.write("rollouts.parquet", files.world.dossier(honest).file)
    assert run(["verifier", "check", file, "--model", str(files.folder)]) == 2
    said = capsys.readouterr().err
    assert "there is no --task, --rules, --pool" in said and "--coordinator URL" in said
    assert run([*files.arguments(), "--model", "/no/such/folder"]) == 2
    assert "no such model folder" in capsys.readouterr().err


def test_what_is_no_rollout_file_is_refused_before_anything_heavy_is_loaded(files: Files) -> None:
    files.write("rollouts.parquet", b"PAR1 nonsense PAR1")
    program = (
        "import json, sys\nfrom protocol.cli import run\n"
        "code = run(json.loads(sys.argv[1]))\n"
        "print(code, [m for m in ('torch', 'reasoning_gym', 'numba') if m in sys.modules])"
    )
    checked = files.arguments()
    for arguments in (checked, ["worker", "verify", *checked[2:]]):
        command = [sys.executable, "-c", program, json.dumps(arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("drop: schema_invalid"), done.stderr
        assert done.stdout.splitlines()[-1] == "3 []"


def test_the_rollouts_of_a_draw_are_audited(
    files: Files, honest: list[Rollout], capsys: pytest.CaptureFixture[str]
) -> None:
    sampled = make_rules(files.world.environment, audit=AuditRules(policy="sampled", share=0.25))
    files = replace(files, world=replace(files.world, rules=sampled))
    draw = ["--beacon", "0x" + "be" * 32, "--submission-id", "0x" + "5b" * 32]
    assert files.check(honest, *draw, "--json", rules=sampled) == 0
    assert json.loads(capsys.readouterr().out)["num_audited"] == 8
    assert files.check(honest, "--json", rules=sampled) == 0
    assert json.loads(capsys.readouterr().out)["num_audited"] == 32


def test_half_a_draw_is_a_usage_error(files: Files, honest: list[Rollout]) -> None:
    assert files.check(honest, "--beacon", "0x" + "be" * 32) == 2


def test_rules_of_another_task_are_a_usage_error(
    files: Files, honest: list[Rollout], capsys: pytest.CaptureFixture[str]
) -> None:
    other = files.world.rules.model_copy(update={"max_file_bytes": 1})
    assert files.check(honest, rules=other) == 2
    assert "aren't the task's" in capsys.readouterr().err


def config_file(folder: Path) -> Path:
    file = folder / "verifier.toml"
    file.write_text(
        'coordinator_url = "http://127.0.0.1:1"\nchain_url = "http://127.0.0.1:1"\npool_id = 1\n'
        f'keystore = "{folder}/key.json"\ndata_dir = "{folder}/data"\n'
    )
    return file


def test_status_speaks_though_nobody_answers(
    tmp_path: Path,
    make_verdict,
    capsys: pytest.CaptureFixture[str],  # type: ignore[no-untyped-def]
) -> None:
    db = open_store(tmp_path / "data")
    kept: KeptVerdict = make_verdict(1)
    Verdicts(db).keep(kept, "0x" + "0a" * 20, None)
    db.close()
    assert run(["verifier", "status", "--config", str(config_file(tmp_path)), "--json"]) == 6
    found = fitting("verifier status", capsys.readouterr().out)
    assert found["verdicts"] == {"accept": 1} and found["num_unrevealed"] == 1
    assert found["headline"].startswith("BLOCKED") and "doesn't answer" in found["problem"]


def test_an_unknown_setting_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = config_file(tmp_path)
    file.write_text(file.read_text() + "nonsense = 1\n")
    assert run(["verifier", "run", "--config", str(file)]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_starting_loads_neither_torch_nor_web3() -> None:
    """They cost seconds; the first two come with the first submission, the others never."""
    program = (
        "import sys, verifier.process\n"
        "heavy = ('torch', 'reasoning_gym', 'web3', 'transformers', 'fastapi', 'sqlalchemy')\n"
        "sys.exit(str([m for m in heavy if m in sys.modules]) if any(m in sys.modules for m in heavy) else 0)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_status_says_that_others_dispute_a_stamp_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, submission_id = "0x" + "0a" * 20, "0x" + "5b" * 32
    db = open_store(tmp_path / "data")
    reaudits = Reaudits(db, History(db).payments)
    reaudits.remember_validator(own)
    vote = (submission_id, 0, own, "0x" + "0b" * 20, False)
    db.execute("INSERT INTO stamp_vote VALUES (?, ?, ?, ?, ?)", vote)
    db.close()
    monkeypatch.setattr("verifier.status._from_coordinator", lambda config: (0, None))
    assert run(["verifier", "status", "--config", str(config_file(tmp_path))]) == 0
    said = capsys.readouterr().out
    assert said.startswith("DISPUTED: other seats dispute 1 of this validator's work stamps")
    assert "re-audits: 0 due, 0 drawn, 0 agreed, 0 disagreed, 0 undecided" in said
