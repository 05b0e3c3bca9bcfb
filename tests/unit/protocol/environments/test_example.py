"""The example of examples/environments: installed as a stranger installs it, and a task done with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from protocol.checks.case import Case, Terms
from protocol.checks.prompts import check as check_prompts
from protocol.checks.rewards import check as check_rewards
from protocol.environments.registry import environment_names, environment_of, environment_packages, load_environment
from protocol.errors import ConfigError
from protocol.prompts import task_prompts
from protocol.reasons import Outcome
from protocol.rollouts import FileHeader, Rollout
from protocol.rules import EnvironmentRules, Rules
from protocol.tokenizer import Tokenizer
from testnet.base_model.vocabulary import make_tokenizer
from tests.worlds.bytes_model import make_bytes_tokenizer
from verifier.thresholds import default_thresholds

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "environments" / "roman"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that pip has put the package into, on this process's path."""
    folder = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "roman"
    subprocess.run(["cp", "-r", str(EXAMPLE), str(source)], check=True)  # a build writes beside what it builds
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
        + ["--disable-pip-version-check", "--target", str(folder), str(source)],
        check=True,
        timeout=200,
    )
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("proofpool_roman", None)


@pytest.fixture
def bytes_tokenizer() -> Tokenizer:
    """One that has a token for every text."""
    return Tokenizer(make_bytes_tokenizer(), [0], None, None)


def test_an_environment_of_another_package(installed: Path, bytes_tokenizer: Tokenizer) -> None:
    assert "roman" in environment_names()
    assert environment_packages()["roman"] == "proofpool-roman"
    environment = load_environment("roman", {"largest": 1999, "reward": "score"}, bytes_tokenizer)
    problem = environment.problem(1_598)
    assert (problem.problem_id, problem.entry["answer"]) == ("roman:1776", "MDCCLXXVI")
    tokens = bytes_tokenizer.encode("<think>seventeen hundred and …</think> MDCCLXXVI")
    assert environment.reward(problem, tokens) == 1.0
    assert environment.reward(problem, bytes_tokenizer.encode("MDCCLXXV")) == 0.0
    assert environment.reward(problem, bytes_tokenizer.encode("IVXXLCCDM")) == 0.5
    asked = {environment.problem(index).question for index in range(environment.num_problems)}
    assert len(asked) == 1_800 and not asked & {problem.question for problem in environment.held_back(100)}
    with pytest.raises(ConfigError, match="configuration is wrong"):
        load_environment("roman", {"largest": 4_000}, bytes_tokenizer)


def test_rules_name_it_and_another_configuration_is_refused(installed: Path, bytes_tokenizer: Tokenizer) -> None:
    environment = load_environment("roman", {}, bytes_tokenizer)
    rules = EnvironmentRules(name="roman", config={}, environment_hash=environment.environment_hash)
    assert environment_of(rules, bytes_tokenizer).environment_hash == environment.environment_hash
    with pytest.raises(ConfigError, match="isn't the pool's"):
        environment_of(rules.model_copy(update={"config": {"largest": 100}}), bytes_tokenizer)


def test_the_command_line_knows_it(installed: Path, tmp_path: Path) -> None:
    make_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"eos_token_id": 1}')
    done = subprocess.run(
        [sys.executable, "-m", "protocol.cli", "environments", "try", "roman", "--base-model", str(tmp_path)]
        + ["--problem", "7", "--json"],
        input="VIII",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    assert json.loads(done.stdout)["score"] == 1.0


def test_a_workers_task_in_it_passes_a_verifier_and_a_false_claim_is_slashed(
    installed: Path, bytes_tokenizer: Tokenizer
) -> None:
    ours = load_environment("roman", {}, bytes_tokenizer)
    named = EnvironmentRules(name="roman", config={}, environment_hash=ours.environment_hash)
    rules = Rules(environment=named, thresholds=default_thresholds(), group_size=1, groups_per_task=4)
    seed = b"7" * 32
    prompts = task_prompts(rules, ours, seed)
    answers = [prompt.problem.entry["answer"] for prompt in prompts[:3]] + ["no idea"]
    rollouts = [
        Rollout(
            input_tokens=prompt.tokens,
            output_tokens=(tokens := np.array(bytes_tokenizer.encode(answer), dtype=np.int32)),
            output_logprobs=np.zeros(len(tokens), dtype=np.float32),
            task_reward=ours.reward(prompt.problem, tokens.tolist()),
            proofs=b"",
            step=0,
            problem_id=prompt.problem_id,
            task_type=prompt.task_type,
            target_length=prompt.target_length,
            finish_reason="length",
        )
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    assert [rollout.task_reward for rollout in rollouts] == [1.0, 1.0, 1.0, 0.0]
    theirs = environment_of(named, bytes_tokenizer)
    terms = Terms(rules, theirs, Mock(), seed, policy_version=0, max_units=rules.max_units)
    header = FileHeader(task_id="0x" + "00" * 32, group_size=1, sampling=rules.sampling)
    for check in (check_prompts, check_rewards):
        assert check(Case(terms, header, tuple(rollouts))).outcome == Outcome.ACCEPT
    rollouts[3] = replace(rollouts[3], task_reward=1.0)
    assert check_rewards(Case(terms, header, tuple(rollouts))).outcome == Outcome.SLASH
