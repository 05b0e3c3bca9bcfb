"""Files of 100 MB and bombs: each ends in a verdict, soon and within 2 GiB, measured in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest
import torch

from protocol.forward import CausalLM
from protocol.tokenizer import Tokenizer
from testnet import task
from tests.fuzz.judge_file import Judgement
from tests.fuzz.large_files import LARGE_FILES, RULES, LargeFile
from tests.unit.verifier.verifier_world import BASE_MODEL, World, make_rules

MAX_MIB = 2048


@pytest.fixture(scope="module")
def large_world() -> World:
    """The testnet's model in a pool that takes files of 200 MB."""
    torch.set_num_threads(1)
    environment = task.testnet_environment(Tokenizer.load(BASE_MODEL))
    return World(make_rules(environment, **RULES), environment, BASE_MODEL, CausalLM.load(BASE_MODEL).eval())


@pytest.fixture(scope="module")
def verifier() -> Iterator[subprocess.Popen[str]]:
    """A process that judges folders."""
    command = [sys.executable, "-m", "tests.fuzz.judge_file"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdin=PIPE, stdout=PIPE, text=True) as process:
        yield process


@pytest.mark.slow
@pytest.mark.parametrize("large", LARGE_FILES, ids=lambda large: large.name)
def test_a_large_file_costs_seconds_and_bounded_memory(
    large_world: World, verifier: subprocess.Popen[str], tmp_path: Path, large: LargeFile
) -> None:
    dossier = large.make(large_world)
    assert len(dossier.file) < 1.1e8
    (tmp_path / "file").write_bytes(dossier.file)
    for name, document in (("submission", dossier.submission), ("task", dossier.task), ("rules", dossier.rules)):
        (tmp_path / f"{name}.json").write_text(document.model_dump_json())
    assert verifier.stdin is not None and verifier.stdout is not None
    verifier.stdin.write(f"{tmp_path}\n")
    verifier.stdin.flush()
    judgement = Judgement(**json.loads(verifier.stdout.readline()))
    print(f"{large.name}: {len(dossier.file) / 1e6:.1f} MB, {judgement}")
    assert (judgement.reason, judgement.outcome != "accept") == (large.reason.value, True), judgement.detail
    assert judgement.peak_mib <= MAX_MIB
    (tmp_path / "file").unlink()
