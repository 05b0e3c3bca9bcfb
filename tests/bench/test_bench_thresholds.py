"""The threshold files of SmolLM2-135M-Instruct, measured anew: our engine's rollouts, judged by us and by transformers.

In: SmolLM2 (fetched once). Out: verifier/thresholds/smollm2-135m-instruct.*.json, rewritten; commit them if they are
to hold. 200 rollouts in float32, 80 in bfloat16, of 64 tokens. Takes 25 minutes of one core:

    OMP_NUM_THREADS=1 python -m pytest -m bench -s tests/bench/test_bench_thresholds.py
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.cli import run
from tests.worlds.smollm2 import ENVIRONMENT_CONFIG, MAX_NEW_TOKENS
from verifier import thresholds
from verifier.calibration.document import ThresholdFile

FOLDER = Path(thresholds.__file__).parent
NUM_ROLLOUTS = {"float32": 200, "bfloat16": 80}
SUBMISSION = 40


@pytest.mark.bench
@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("dtype", NUM_ROLLOUTS)
def test_thresholds_of_smollm2(
    smollm2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.chdir(tmp_path)  # so that the command in the file names no folder of this machine
    rules, model = Path("smollm2.rules.json"), Path(smollm2_folder.resolve().name)
    model.symlink_to(smollm2_folder.resolve())
    environment = {"name": "reasoning_gym", "config": ENVIRONMENT_CONFIG}
    shape = {"group_size": 8, "groups_per_task": SUBMISSION // 8, "sampling": {"max_new_tokens": MAX_NEW_TOKENS}}
    rules.write_text(json.dumps({"environment": environment, **shape}))
    out = FOLDER / f"smollm2-135m-instruct.{dtype}.json"
    ways = ["--batch-sizes", f"{SUBMISSION}", "--generators", "torch", "--judges", "torch,transformers"]
    wanted = ["--dtype", dtype, "--rollouts", f"{NUM_ROLLOUTS[dtype]}", "--deviating", "1"]
    paths = ["--model", str(model), "--rules", str(rules), "--out", str(out)]
    assert run(["verifier", "calibrate", *paths, *wanted, *ways, "--resume", "--overwrite"]) == 0
    document = ThresholdFile.model_validate_json(out.read_text())
    assert document.honest.num_rollouts >= NUM_ROLLOUTS[dtype]
    int4 = next(report for report in document.deviations if report.deviation == "int4 weights")
    assert int4.num_refused == int4.num_submissions
