"""The threshold files, measured anew; commit them if they are to hold.

In: the testnet's model, SmolLM2-135M-Instruct (fetched once). Out: verifier/thresholds/*.json, rewritten. The testnet's
model on everything that this machine computes with: 2,048 rollouts in float32, in bfloat16 as many as its rare tail
needs. SmolLM2: 200 rollouts of 64 tokens in float32, 80 in bfloat16, judged by us and by transformers. What was
interrupted goes on. Takes about an hour of one core:

    OMP_NUM_THREADS=1 python -m pytest -m bench -s tests/bench/test_bench_thresholds.py      # -k testnet, -k smollm2
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.cli import run
from tests.worlds.honest import BASE_MODEL
from tests.worlds.smollm2 import ENVIRONMENT_CONFIG, MAX_NEW_TOKENS
from verifier import thresholds
from verifier.calibration.document import ThresholdFile

FOLDER = Path(thresholds.__file__).parent
ROOT = FOLDER.parents[1]
TESTNET_ROLLOUTS = {"float32": 2_048, "bfloat16": 32_768}
TESTNET_WAYS = {
    "float32": [],
    "bfloat16": [
        *("--generators", "torch-wide,torch-math,transformers,torch-float32"),
        *("--judges", "torch-wide,torch-float32,torch"),
    ],
}
"""In bfloat16 those that don't take hours: plain matrix products are five times as slow without units for them."""
SMOLLM2_ROLLOUTS = {"float32": 200, "bfloat16": 80}
SUBMISSION = 40


@pytest.mark.bench
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("dtype", TESTNET_ROLLOUTS)
def test_thresholds_of_the_testnets_model(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.chdir(ROOT)
    about = ["--model", f"{BASE_MODEL.relative_to(ROOT)}", "--deviating", "2"]
    measured("testnet", dtype, [*about, *TESTNET_WAYS[dtype]], TESTNET_ROLLOUTS[dtype])


@pytest.mark.bench
@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("dtype", SMOLLM2_ROLLOUTS)
def test_thresholds_of_smollm2(
    smollm2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.chdir(tmp_path)  # so that the command in the file names no folder of this machine
    rules, model = Path("smollm2.rules.json"), Path(smollm2_folder.resolve().name)
    model.symlink_to(smollm2_folder.resolve())
    environment = {"name": "reasoning_gym", "config": ENVIRONMENT_CONFIG}
    shape = {"group_size": 8, "groups_per_task": SUBMISSION // 8, "sampling": {"max_new_tokens": MAX_NEW_TOKENS}}
    rules.write_text(json.dumps({"environment": environment, **shape}))
    ways = ["--batch-sizes", f"{SUBMISSION}", "--generators", "torch", "--judges", "torch,transformers"]
    about = ["--model", str(model), "--rules", str(rules), "--deviating", "1"]
    measured("smollm2-135m-instruct", dtype, [*about, *ways], SMOLLM2_ROLLOUTS[dtype])


def measured(name: str, dtype: str, options: list[str], num_rollouts: int) -> None:
    """Write the file of this name and precision, as the command does."""
    out = FOLDER / f"{name}.{dtype}.json"
    wanted = ["--dtype", dtype, "--rollouts", f"{num_rollouts}", "--out", str(out)]
    assert run(["verifier", "calibrate", *options, *wanted, "--resume", "--overwrite"]) == 0
    document = ThresholdFile.model_validate_json(out.read_text())
    assert document.honest.num_rollouts >= num_rollouts
    int4 = next(report for report in document.deviations if report.deviation == "int4 weights")
    assert int4.num_refused == int4.num_submissions
