"""`proofpool environments …`: which there are, what one asks, and what it makes of an answer."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import BaseModel, ConfigDict

from protocol.errors import ConfigError, UsageError
from protocol.plain import plain

if TYPE_CHECKING:
    from protocol.environments.base import Environment

app = typer.Typer(no_args_is_help=True, help="List environments, show their problems, try answers.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="One of `proofpool environments list`.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="TOML or JSON file with its configuration, or rules that name it; else defaults."),
]
Model = Annotated[Path, typer.Option("--base-model", help="A model folder: its tokenizer, and its chat template.")]
Number = Annotated[int, typer.Option("--problem", min=0, help="Which problem, by its number.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1


class KnownEnvironment(BaseModel):
    """One that rules can name. `package`: the distribution that brings it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    package: str


class EnvironmentList(_Document):
    """The document of `environments list`."""

    environments: tuple[KnownEnvironment, ...]


class ShownProblem(_Document):
    """The document of `environments show`: a problem as a model is asked it."""

    environment: str
    environment_hash: str
    num_problems: int
    problem_id: str
    task_type: str
    prompt: str
    num_prompt_tokens: int
    difficulty: dict[str, float]


class TriedAnswer(_Document):
    """The document of `environments try`: what is read as the answer (null: none), and what it is worth."""

    environment: str
    problem_id: str
    answer: str | None
    score: float
    reward: float
    other: float | None
    certain: bool


@app.command("list")
def list_environments(as_json: Json = False) -> None:
    """The environments that are installed here, built in or by other packages."""
    from protocol.environments.registry import environment_packages

    known = [KnownEnvironment(name=name, package=package) for name, package in environment_packages().items()]
    if as_json:
        print(EnvironmentList(environments=tuple(known)).model_dump_json())
        return
    for one in known:
        print(f"{one.name:<16} {one.package}")


@app.command()
def show(
    name: Name,
    base_model: Model,
    config: ConfigFile = None,
    problem: Number = 0,
    target_length: Annotated[int | None, typer.Option(min=0, help="Tokens that the prompt asks for.")] = None,
    as_json: Json = False,
) -> None:
    """A problem's prompt, to the letter that a model sees, and what the environment says of it."""
    from protocol.environments.base import NO_TARGET_LENGTH

    environment = _loaded(name, config, base_model)
    asked = environment.problem(problem)
    target = NO_TARGET_LENGTH if target_length is None else target_length
    shown = ShownProblem(
        environment=name,
        environment_hash=environment.environment_hash,
        num_problems=environment.num_problems,
        problem_id=asked.problem_id,
        task_type=asked.task_type,
        prompt=environment.prompt_text(asked, target),
        num_prompt_tokens=len(environment.prompt(asked, target)),
        difficulty=environment.difficulty(asked),
    )
    if as_json:
        print(shown.model_dump_json())
        return
    print("\n".join(plain(line) for line in shown.prompt.split("\n")))
    difficulty = ", ".join(f"{key} {value:g}" for key, value in shown.difficulty.items())
    print(
        f"{shown.problem_id}, {shown.task_type}, {problem} of {shown.num_problems}, {shown.num_prompt_tokens} tokens"
        + (f", {difficulty}" if difficulty else ""),
        file=sys.stderr,
    )


@app.command("try")
def try_answer(
    name: Name, base_model: Model, config: ConfigFile = None, problem: Number = 0, as_json: Json = False
) -> None:
    """Reads a completion on stdin: what is taken for its answer, and what that is worth."""
    environment = _loaded(name, config, base_model)
    asked = environment.problem(problem)
    text = sys.stdin.read()
    judgement = environment.judge_text(asked, text)
    tried = TriedAnswer(
        environment=name,
        problem_id=asked.problem_id,
        answer=environment.answer(text),
        score=judgement.score,
        reward=environment.reward_of(judgement).score,
        other=judgement.other,
        certain=judgement.certain,
    )
    if as_json:
        print(tried.model_dump_json())
        return
    print(f"answer  {'none found' if tried.answer is None else plain(tried.answer)}")
    print(f"score   {tried.score:g}")
    print(f"reward  {tried.reward:g}")
    if not tried.certain:
        other = "" if tried.other is None else f": {tried.other:g} is as right"
        print(f"certain no, at the border of a time limit{other}")


def _loaded(name: str, config: Path | None, base_model: Path) -> Environment:
    from protocol.environments.registry import load_environment
    from protocol.tokenizer import Tokenizer

    return load_environment(name, {} if config is None else _configuration(name, config), Tokenizer.load(base_model))


def _configuration(name: str, file: Path) -> dict[str, Any]:
    """The configuration itself, or `config` of what names an environment, as rules do."""
    try:
        text = file.read_text(encoding="utf-8")
        document = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{file} can't be read", str(error), "give TOML, or JSON in a file ending in .json"
        ) from error
    if not isinstance(document, dict):
        raise ConfigError(f"{file} has no configuration", f"it holds a {type(document).__name__}")
    named = document.get("environment", document)
    if not isinstance(named, dict) or "name" not in named:
        return document
    if named["name"] != name:
        raise UsageError(f"{file} is of another environment", f"{named['name']}, not {name}")
    return dict(named.get("config", {}))
