"""Tasksets of the real `verifiers` package: single turns are asked, everything else is refused with its reason.

The package isn't among what development installs: `pip install 'proofpool[verifiers]'` first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.environments.base import Judgement
from protocol.environments.registry import environment_names, load_environment
from protocol.environments.verifiers import Verifiers
from protocol.errors import ConfigError
from protocol.tokenizer import Tokenizer
from testnet.base_model.vocabulary import EOS_ID, PAD_ID, make_tokenizer

SUMS = """
import verifiers.v1 as vf

class SumData(vf.TaskData):
    total: int

class SumTask(vf.Task[SumData]):
    @vf.reward
    async def is_right(self, trace) -> float:
        return float(trace.last_reply == str(self.data.total))

    @vf.reward(weight=0.0)
    async def length(self, trace) -> float:
        return float(len(trace.last_reply))
{more}

class Sums(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self):
        for number in range(40):
            yield SumTask(SumData(prompt={prompt}, total=number + number, {data}), self.config.task)
{taskset}

__all__ = ["Sums"]
"""
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
MakeTaskset = Callable[..., str]


def test_without_the_package_it_says_how_to_get_it(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "verifiers" in environment_names()
    monkeypatch.setitem(sys.modules, "verifiers.v1", None)
    with pytest.raises(ConfigError, match="needs the verifiers package") as error:
        load_environment("verifiers", {"taskset": "sums"}, tokenizer)
    assert "proofpool[verifiers]" in error.value.todo


def test_a_wrong_configuration_names_what_is_wrong(tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="configuration is wrong"):
        load_environment("verifiers", {"taskset": ""}, tokenizer)


@pytest.fixture
def make_taskset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> MakeTaskset:
    """A taskset's module, importable under its name."""
    pytest.importorskip("verifiers.v1", reason="pip install 'proofpool[verifiers]'")
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def make(more: str = "", data: str = "", taskset: str = "", prompt: str = "f'{number} + {number} ='") -> str:
        name = f"sums_{len(made)}_{abs(hash(request.node.name))}"
        made.append(name)
        (tmp_path / f"{name}.py").write_text(SUMS.format(more=more, data=data, taskset=taskset, prompt=prompt))
        return name

    return make


def environment_over(taskset: str, tokenizer: Tokenizer, **changes: Any) -> Verifiers:
    environment = load_environment("verifiers", {"taskset": taskset, **changes}, tokenizer)
    assert isinstance(environment, Verifiers)
    return environment


def test_tasks_are_problems_and_rewards_are_scores(make_taskset: MakeTaskset, tokenizer: Tokenizer) -> None:
    environment = environment_over(make_taskset(), tokenizer, is_deterministic=True)
    problem = environment.problem(3)
    total = problem.entry["task"].data.total
    assert problem.question == f"{total // 2} + {total // 2} ="
    assert environment.judge_text(problem, f"<think>0</think> {total}") == Judgement(1.0)
    assert environment.judge_text(problem, f"{total + 1}") == Judgement(0.0)
    assert environment.deterministic
    assert not environment_over(make_taskset(), tokenizer).deterministic


def test_held_back_tasks_are_never_trained_on(make_taskset: MakeTaskset, tokenizer: Tokenizer) -> None:
    environment = environment_over(make_taskset(), tokenizer, held_back_per_mille=300)
    trained = {environment.problem(index).question for index in range(environment.num_problems)}
    held_back = environment.held_back(3)
    assert len(held_back) == 3 and not trained & {problem.question for problem in held_back}
    with pytest.raises(ConfigError, match="held-back"):
        environment.held_back(41)


def test_its_version_is_in_the_hash(make_taskset: MakeTaskset, tokenizer: Tokenizer) -> None:
    taskset = make_taskset()
    environment = environment_over(taskset, tokenizer)
    assert environment.identity()["requirements"]["verifiers"].startswith("0.4")
    assert environment_over(taskset, tokenizer, num_tasks=5).environment_hash != environment.environment_hash


def test_a_tasks_own_system_prompt_is_the_systems(make_taskset: MakeTaskset) -> None:
    chatty = Tokenizer(make_tokenizer(), [EOS_ID], None, PAD_ID, TEMPLATE)
    environment = environment_over(make_taskset(data="system_prompt='Be brief.'"), chatty, chat_template=True)
    assert environment.prompt_text(environment.problem(0)).startswith("[system] Be brief.\n[user] ")


TURNS = "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}, {'role': 'user', 'content': 'c'}]"


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"more": "    NEEDS_CONTAINER = True"}, "container"),
        ({"data": "image='debian'"}, "container"),
        ({"more": "    async def setup(self, trace, runtime): ..."}, "container"),
        ({"more": "    @vf.stop\n    async def enough(self, trace) -> bool: return True"}, "several turns"),
        ({"more": "    @vf.reward\n    async def looks(self, trace, runtime) -> float: return 1.0"}, "machine"),
        ({"more": "    @classmethod\n    def toolsets(cls, config): return [object()]"}, "tools"),
        ({"taskset": "    @classmethod\n    def toolsets(cls, config): return [object()]"}, "tools"),
        ({"prompt": TURNS}, "one message"),
        ({"taskset": "    INFINITE = True"}, "num_tasks"),
        (
            {"taskset": "\nclass Several(vf.Env[vf.EnvConfig]):\n    async def run(self, task, agents): ...\n"},
            "episodes of its own",
        ),
    ],
)
def test_more_than_a_question_and_an_answer_is_refused(
    make_taskset: MakeTaskset, tokenizer: Tokenizer, tmp_path: Path, parts: dict[str, str], why: str
) -> None:
    taskset = make_taskset(**parts)
    if "Several" in parts.get("taskset", ""):
        module = tmp_path / f"{taskset}.py"
        module.write_text(module.read_text().replace('["Sums"]', '["Sums", "Several"]'))
    with pytest.raises(ConfigError) as error:
        environment_over(taskset, tokenizer)
    assert why in error.value.why


def test_a_model_as_judge_is_refused(make_taskset: MakeTaskset, tokenizer: Tokenizer) -> None:
    judged = {"task": {"judges": [{"id": "reference"}]}}
    with pytest.raises(ConfigError) as error:
        environment_over(make_taskset(), tokenizer, taskset_config=judged)
    assert "a model judges" in error.value.why


@pytest.mark.parametrize("taskset", ["no_such_taskset_at_all", "json"])
def test_what_is_no_taskset_is_named(make_taskset: MakeTaskset, tokenizer: Tokenizer, taskset: str) -> None:
    make_taskset()
    with pytest.raises(ConfigError, match="can't load the taskset"):
        environment_over(taskset, tokenizer)
