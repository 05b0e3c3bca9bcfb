"""`proofpool verifier calibrate` on the tiny model: a file that says why, the same file after an interruption."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.checks.stages import run_costly
from protocol.cli import run
from protocol.forward import CausalLM
from testnet import base_model
from verifier.calibration.document import ThresholdFile
from verifier.calibration.generate import Generation
from verifier.calibration.journal import Entry, Journal
from verifier.calibration.observe import judged, observe, sample_sizes
from verifier.calibration.options import Options
from verifier.calibration.plan import make_plan
from verifier.calibration.preview import left_out, preview
from verifier.calibration.setups import DTYPES, Generator, Judge
from verifier.calibration.subject import Subject, load_subject

BASE_MODEL = Path(base_model.__file__).parent


@pytest.fixture
def rules_file(tmp_path: Path) -> Path:
    """Submissions of four rollouts."""
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"group_size": 2, "groups_per_task": 2, "sampling": {"max_new_tokens": 16}}))
    return path


@pytest.fixture
def subject(rules_file: Path) -> Subject:
    return load_subject(BASE_MODEL, rules_file)


@pytest.fixture
def arguments(rules_file: Path) -> list[str]:
    quick = ["--rollouts", "8", "--batch-sizes", "2,4", "--deviating", "1"]
    ways = ["--generators", "torch", "--judges", "torch,torch-math"]
    return ["verifier", "calibrate", "--model", str(BASE_MODEL), "--rules", str(rules_file), *quick, *ways]


def test_a_calibration_gives_limits_with_the_data_behind_them(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "thresholds.json"
    assert run([*arguments, "--out", str(out)]) == 0
    document = ThresholdFile.model_validate_json(out.read_text())
    assert document.honest.num_rollouts == 8
    assert {pairing.generator for pairing in document.honest.pairings} == {
        "torch float32 batch 2",
        "torch float32 batch 4",
    }
    assert len({pairing.judge for pairing in document.honest.pairings}) == 2
    assert {report.deviation for report in document.deviations} >= {"int4 weights", "bfloat16 arithmetic"}
    int4 = next(report for report in document.deviations if report.deviation == "int4 weights")
    assert int4.num_refused == 1
    assert max(int4.times_reject.values()) > 10
    printed = capsys.readouterr()
    assert "8 honest rollouts" in printed.out
    assert "int4 weights" in printed.out
    assert not list(tmp_path.glob("*.unfinished"))
    assert "honest tasks: 2 of 2 done" in printed.err
    assert set(arguments) <= set(shlex.split(document.command))


def test_what_is_computed_is_said_before(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Few rollouts drop no generator: each fills its batch, and that it comes to more is said."""
    monkeypatch.setattr(Journal, "append", _interrupted_after(0, Journal.append))
    assert run([*arguments, "--rollouts", "4", "--out", str(tmp_path / "thresholds.json")]) == 130
    said = capsys.readouterr().err
    assert "8 honest rollouts in float32, by 2 generators, for 2 judges" in said
    assert "  torch float32 batch 4: 4 rollouts" in said
    assert "4 were asked for; each generator fills its batch once, in submissions of 4" in said


def test_the_command_in_the_file_can_be_pasted(rules_file: Path) -> None:
    settings = {"dtype": "float32", "num_rollouts": 8, "batch_sizes": "2,4", "generators": "", "judges": ""}
    options = Options(
        model=Path("my models/tiny"),
        rules=rules_file,
        previous=Path("it's"),
        num_deviating=1,
        seed=0,
        out=Path("a b.json"),
        **settings,  # type: ignore[arg-type]
    )
    words = shlex.split(options.command_to_resume)
    assert words[3:7] == ["--model", "my models/tiny", "--rules", str(rules_file)]
    assert words[words.index("--previous") + 1] == "it's"
    assert words[-3:] == ["--out", "a b.json", "--resume"]


def test_ways_that_this_machine_lacks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan("float32", 2, 4, [4], ["torch"], ["torch"])
    monkeypatch.setattr("verifier.calibration.preview.has_transformers", lambda: True)
    monkeypatch.setattr("verifier.calibration.preview.has_kernel", lambda kernel, dtype: True)
    assert not list(left_out(plan))
    assert not [line for line in preview(plan, 8) if "asked for" in line]
    monkeypatch.setattr("verifier.calibration.preview.has_transformers", lambda: False)
    monkeypatch.setattr("verifier.calibration.preview.has_kernel", lambda kernel, dtype: kernel != "efficient")
    transformers, efficient = left_out(plan)
    assert "isn't installed" in transformers
    assert "judge torch-efficient" in efficient


def test_a_finished_file_is_only_replaced_when_told_to(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "thresholds.json"
    out.write_text("finished")
    for flags in ([], ["--resume"]):
        assert run([*arguments, "--out", str(out), *flags]) == 2
        assert "--overwrite" in capsys.readouterr().err
    assert out.read_text() == "finished"
    assert run([*arguments, "--out", str(tmp_path)]) == 2
    monkeypatch.setattr(Journal, "append", _interrupted_after(0, Journal.append))
    assert run([*arguments, "--out", str(out), "--overwrite"]) == 130
    assert out.read_text() == "finished"
    monkeypatch.undo()
    assert run([*arguments, "--out", str(out), "--overwrite"]) == 2  # not what an interrupted run has measured either
    assert "wasn't finished" in capsys.readouterr().err
    assert run([*arguments, "--out", str(out), "--resume"]) == 0
    assert ThresholdFile.model_validate_json(out.read_text()).honest.num_rollouts == 8


def test_interrupted_and_resumed_it_gives_the_same_file(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, parted = tmp_path / "whole.json", tmp_path / "parted.json"
    assert run([*arguments, "--out", str(whole)]) == 0
    append = Journal.append
    for num_entries, num_kept in ((3, 3), (2, 5)):  # within the honest part, and among the deviations
        monkeypatch.setattr(Journal, "append", _interrupted_after(num_entries, append))
        assert run([*arguments, "--out", str(parted), "--resume"]) == 130
        assert not parted.exists()
        *_, kept, command, interrupted = capsys.readouterr().err.splitlines()
        assert (kept, interrupted) == (
            f"{num_kept} measurements are kept in {parted}.unfinished; go on with:",
            "interrupted",
        )
    monkeypatch.setattr(Journal, "append", append)
    assert run([*arguments, "--out", str(parted)]) == 2  # not without being told to
    assert "wasn't finished" in capsys.readouterr().err
    assert run([*arguments, "--out", str(parted), "--seed", "1", "--resume"]) == 2
    assert run(shlex.split(command)[1:]) == 0  # as it was printed
    assert parted.read_bytes() == whole.read_bytes()


def _interrupted_after(num_entries: int, append: Callable[[Journal, Entry], None]) -> Callable[[Journal, Entry], None]:
    written = []

    def interrupted(journal: Journal, entry: Entry) -> None:
        if len(written) == num_entries:
            raise KeyboardInterrupt
        written.append(entry)
        append(journal, entry)

    return interrupted


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--model", "/no/such/folder"], "no such model folder"),
        (["--dtype", "float8"], "no such precision"),
        (["--batch-sizes", "one"], "whole numbers"),
        (["--batch-sizes", "0"], "nothing to calibrate"),
        (["--rollouts", "0"], "nothing to calibrate"),
        (["--generators", "gpu"], "can't compute that way"),
        (["--deviating", "0"], "no deviation"),
        (["--rules", "/no/such/rules"], "can't be read as rules"),
    ],
)
def test_what_cant_be_used_is_said_in_words(
    arguments: list[str], tmp_path: Path, wrong: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--out", str(tmp_path / "out.json"), *wrong]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()


def test_a_folder_without_a_model_and_rules_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verifier", "calibrate", "--model", str(tmp_path)]) == 2
    for content in ("[]", "nonsense", '{"environment": {"name": "reasoning_gym"}}', '{"unknown": 1}'):
        (tmp_path / "rules.json").write_text(content)
        assert run(["verifier", "calibrate", "--model", str(BASE_MODEL), "--rules", str(tmp_path / "rules.json")]) == 2
    assert "rules" in capsys.readouterr().err


def test_observations_are_the_checks_own_numbers(subject: Subject) -> None:
    judge = Judge("torch", "bfloat16")
    case = Generation(subject).task(3, Generator("torch", "float32", max_batch=4))
    model = CausalLM.load(BASE_MODEL, DTYPES[judge.dtype]).eval()
    found = judged(case, model, judge)
    observation = observe(case, found)
    values = {result.check: result.value for result in run_costly(case, model).results}
    assert observation.toploc_exp_mismatch_share == values["toploc_exponents"] > 0
    assert observation.toploc_mantissa_mean == values["toploc_mantissas"] > 0
    assert observation.sampling_margin_mean == values["sampling_margin"]
    assert observation.sampling_margin_max == values["sampling_margin_max"]
    assert observation.logprob_error_mean == values["logprobs"] > 0
    alone = [observe(case, found.only(index)) for index in range(4)]
    assert sum(one.num_tokens for one in alone) == observation.num_tokens
    assert max(one.logprob_error_max for one in alone) == observation.logprob_error_max


def test_a_submission_follows_from_its_number_and_the_seed(subject: Subject) -> None:
    def tokens(number: int, seed: int = 0) -> list[list[int]]:
        case = Generation(subject, seed).task(number, Generator("torch", "float32", max_batch=4))
        return [rollout.output_tokens.tolist() for rollout in case.rollouts]

    assert tokens(1) == tokens(1)
    assert tokens(1) != tokens(2)
    assert tokens(1) != tokens(1, seed=1)


def test_sizes_of_samples() -> None:
    assert sample_sizes(64) == [1, 2, 4, 8, 16, 32, 64]
    assert sample_sizes(12) == [1, 2, 4, 8, 12]
    assert sample_sizes(1) == [1]
