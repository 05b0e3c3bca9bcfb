"""Several ranks, in processes of their own: the same as one, re-sharded, and one of them killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from protocol.errors import RankLost
from protocol.forward import CausalLM
from protocol.weights import load_weights, save_checkpoint
from tests.unit.trainer import rank_program
from tests.unit.trainer.conftest import weights_of
from trainer.batch_file import BatchFile
from trainer.checkpoint import CheckpointStore
from trainer.crew import Crew
from trainer.learner import Learner
from trainer.ranks import ALONE, Ranks, ScaleConfig, parting

PROGRAM = Path(rank_program.__file__)
BOUND_SECONDS = 60.0
DYING = """
import os, signal, sys
from pathlib import Path
from tests.unit.trainer import rank_program
from trainer import checkpoint
from trainer.ranks import ALONE, ScaleConfig

folder, part = Path(sys.argv[1]), sys.argv[2]
setattr(checkpoint, part, lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL))
rank_program.lead(rank_program.make_crew(folder, ALONE, ScaleConfig()), folder, 2)
"""
"""Takes the step of version 2, and is killed within its save."""


@pytest.fixture
def folder(make_model: Callable[[], CausalLM], batch_file: BatchFile, tmp_path: Path) -> Path:
    """What a rank starts from."""
    model = make_model()
    save_checkpoint(tmp_path / "base", model.config, model.weights())
    batch_file.write(tmp_path / "batch")
    return tmp_path


def torchrun(num_ranks: int, folder: Path, last_version: int, **scale: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks)]
    arguments = [str(PROGRAM), str(folder), str(last_version), json.dumps(scale)]
    return subprocess.Popen(
        [*command, *arguments], stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


def finish(run: subprocess.Popen[str]) -> None:
    _, errors = run.communicate(timeout=120)
    assert run.returncode == 0, errors


def assert_near(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Figures of the same steps, to 1e-5."""
    for ours, theirs in zip(found, expected, strict=True):
        tables = {name for name, value in ours.items() if isinstance(value, dict)}
        assert tables == {"policy_lag_counts", "length_error_p50", "length_error_p90"}
        assert {name: ours[name] for name in tables} == {name: theirs[name] for name in tables}
        numbers = ({name: value for name, value in line.items() if name not in tables} for line in (ours, theirs))
        assert next(numbers) == pytest.approx(next(numbers), abs=1e-5)


def figures(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "figures.jsonl").read_text().splitlines()]


def alone(folder: Path, last_version: int) -> Crew:
    """The same program in this process."""
    crew = rank_program.make_crew(folder, ALONE, ScaleConfig())
    rank_program.lead(crew, folder, last_version)
    return crew


def copy_of(folder: Path, name: str) -> Path:
    """The same base and batch in a folder of their own."""
    other = folder / name
    other.mkdir()
    for part in (name for name in ("base", "batch", "recipe.json") if (folder / name).exists()):
        (other / part).symlink_to(folder / part)
    return other


def test_two_ranks_are_one_and_one_goes_on_from_two(folder: Path) -> None:
    """Losses and weights to 1e-5."""
    one = copy_of(folder, "one")
    expected = weights_of(alone(one, 3).learner)
    finish(torchrun(2, folder, 2))
    assert torch.allclose(weights_of(alone(folder, 3).learner), expected, atol=1e-5)
    found, straight = figures(folder), figures(one)
    assert_near(found, straight)
    assert len({row["grad_norm"] for row in straight}) == 3


@pytest.mark.slow
def test_four_ranks_go_on_from_one(folder: Path, make_learner: Callable[..., Learner]) -> None:
    one = copy_of(folder, "one")
    expected = weights_of(alone(one, 2).learner)
    alone(folder, 1)
    finish(torchrun(4, folder, 2))
    learner, store = make_learner(), CheckpointStore(folder / "checkpoints")
    store.restore(store.of(2), learner)
    assert torch.allclose(weights_of(learner), expected, atol=1e-5)
    assert_near(figures(folder), figures(one))


@pytest.mark.slow
def test_adapters_on_two_ranks_are_those_of_one_and_one_goes_on(folder: Path) -> None:
    (folder / "recipe.json").write_text(json.dumps({"lora": {"rank": 3}}))
    one = copy_of(folder, "one")
    expected = weights_of(alone(one, 3).learner)
    finish(torchrun(2, folder, 2))
    assert torch.allclose(weights_of(alone(folder, 3).learner), expected, atol=1e-5)
    assert_near(figures(folder), figures(one))
    published = [load_weights(root / "checkpoints" / "2" / "model") for root in (folder, one)]
    for name, tensor in published[0].items():
        assert torch.allclose(tensor, published[1][name], atol=1e-2)  # bf16


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_bfloat16_keeps_float32_masters(folder: Path, num_ranks: int, make_learner: Callable[..., Learner]) -> None:
    """Near the float32 run, not the same, and with masters that bfloat16 couldn't hold."""
    one = copy_of(folder, "one")
    straight = alone(one, 1)
    finish(torchrun(num_ranks, folder, 1, compute_dtype="bfloat16", recompute_activations=True))
    learner, store = make_learner(), CheckpointStore(folder / "checkpoints")
    store.restore(store.of(1), learner)
    found, expected = weights_of(learner), weights_of(straight.learner)
    assert not torch.equal(found, expected) and torch.allclose(found, expected, atol=5e-3)
    assert not torch.equal(found, found.bfloat16().float())
    assert figures(folder)[0]["entropy"] == pytest.approx(figures(one)[0]["entropy"], abs=0.02)


@pytest.mark.parametrize(
    ("part", "reached"),
    [
        pytest.param("save", 1, marks=pytest.mark.slow),
        ("write_weights", 1),
        pytest.param("_write_rest", 1, marks=pytest.mark.slow),
        pytest.param("sync_folder", 2, marks=pytest.mark.slow),
    ],
)
def test_killed_in_the_middle_of_a_save_it_goes_on_to_the_bit(folder: Path, part: str, reached: int) -> None:
    """The process ends where it stands, at the first thing of a kind that a save does; nothing cleans up after it."""
    one = copy_of(folder, "one")
    expected = weights_of(alone(one, 3).learner)
    alone(folder, 1)
    run = subprocess.run([sys.executable, "-c", DYING, str(folder), part], capture_output=True, text=True, timeout=120)
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert (folder / "checkpoints" / ".2.staging").exists() == (reached == 1)
    store = CheckpointStore(folder / "checkpoints")
    assert list(store.versions()) == list(range(reached + 1))
    crew = alone(folder, 3)
    assert torch.equal(weights_of(crew.learner), expected)
    assert list(store.versions()) == [0, 1, 2, 3]
    assert not (folder / "checkpoints" / ".2.staging").exists()


def test_a_rank_that_is_found_gone_at_the_parting_is_told_like_any_and_other_faults_are_not() -> None:
    """It may die while the first one waits for a batch, when nothing is exchanged."""
    parts: list[object] = []

    class Gone(Ranks):
        def tell(self, order: object) -> None:
            parts.append(order)
            raise RuntimeError(words)

    words = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1"
    with pytest.raises(RankLost, match="another rank of this trainer is gone"), parting(Gone()):
        pass
    words = "a fault of ours"
    with pytest.raises(RuntimeError, match="a fault of ours"), parting(Gone()):
        pass
    assert len(parts) == 2


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_the_run_with_an_error_and_a_checkpoint(folder: Path, victim: int) -> None:
    run = torchrun(2, folder, 10_000)
    try:
        wait_until(lambda: (folder / "checkpoints" / "2").exists(), run)
        os.kill(int((folder / f"pid.{victim}").read_text()), signal.SIGKILL)
        _, errors = run.communicate(timeout=BOUND_SECONDS)
    finally:
        run.kill()
    assert run.returncode != 0
    assert "error: another rank of this trainer is gone" in errors
    assert "goes on from the newest checkpoint" in errors
    store = CheckpointStore(folder / "checkpoints")
    reached = store.versions()[-1]
    assert reached >= 2
    alone(folder, reached + 1)
    assert store.versions()[-1] == reached + 1


def wait_until(is_so: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    while not is_so():
        assert run.poll() is None, run.communicate()[1]
        time.sleep(0.05)
