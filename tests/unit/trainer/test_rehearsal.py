"""A rehearsal trains on exactly the versions that its lag says, and evaluation and filter measure what they say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from protocol.clock import SystemClock
from protocol.engines.base import generate
from protocol.engines.torch import TorchEngine
from protocol.environments.base import Environment, Tier
from protocol.environments.registry import load_environment
from protocol.errors import ConfigError, MalformedFile, ProofpoolError, UsageError
from protocol.lock import FolderLock
from protocol.progress import Steps, Unseen
from protocol.rules import EnvironmentRules, LengthRules, Rules, SamplingRules
from protocol.tokenizer import Tokenizer
from protocol.weights import load_weights
from protocol.wire import ZERO_HASH
from testnet.plan import BASE_MODEL
from testnet.task import ENVIRONMENT_CONFIG, ENVIRONMENT_NAME
from trainer.evaluation import pass_counts, pass_rates
from trainer.filter_run import MEASURED, REPORT, filter_run
from trainer.learner import RecipeConfig
from trainer.lora import LoraConfig
from trainer.problem_filter import FilterPlan, FilterReport, TierBounds, report_of, with_tiers
from trainer.rehearsal import RehearsalConfig, rehearse

UNSEEN = Unseen()
FEW_PROBLEMS = {**ENVIRONMENT_CONFIG, "num_problems": 200}


@pytest.fixture(scope="module")
def environment() -> Environment:
    return load_environment(ENVIRONMENT_NAME, FEW_PROBLEMS, Tokenizer.load(BASE_MODEL))


@pytest.fixture
def small_rules(rules: Rules, environment: Environment, tmp_path: Path) -> Path:
    """A pool whose tasks are two groups of four."""
    chosen = EnvironmentRules(name=ENVIRONMENT_NAME, config=FEW_PROBLEMS, environment_hash=environment.environment_hash)
    changed = rules.model_copy(update={"environment": chosen, "sampling": SamplingRules(max_new_tokens=24)})
    file = tmp_path / "rules.json"
    file.write_text(changed.model_dump_json())
    return file


@pytest.fixture
def run(small_rules: Path, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Rehearse, and give the lines of metrics.jsonl."""

    def make(
        name: str, lora: LoraConfig | None = None, progress: Steps = UNSEEN, **settings: Any
    ) -> list[dict[str, Any]]:
        recipe = RecipeConfig(learning_rate=1e-4, warmup_steps=0, optimizer_steps=1, grad_norm_clip=1.0, lora=lora)
        config = RehearsalConfig(
            base_model=BASE_MODEL,
            data_dir=tmp_path / name,
            recipe=recipe,
            **{"rules": small_rules, "groups_per_step": 2, "num_held_back": 4, **settings},
        )
        rehearse(config, TorchEngine(max_batch=8), SystemClock(), progress)
        return [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]

    return make


def test_each_batch_is_exactly_the_lag_behind(run: Callable[..., list[dict[str, Any]]], tmp_path: Path) -> None:
    lines = run("lagging", num_steps=4, lag=2, drop_flat_groups=False)
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    # Versions 0, 0, 0 and 1 feed the steps that start from versions 0, 1, 2 and 3.
    assert [line["mean_policy_lag"] for line in lines[1:]] == [0, 1, 2, 2]
    assert [line["max_policy_lag"] for line in lines[1:]] == [0, 1, 2, 2]
    assert sorted(folder.name for folder in (tmp_path / "lagging" / "versions").iterdir()) == ["2", "3", "4"]
    assert [("held_back_average" in line) for line in lines] == [True, False, False, False, True]


def test_a_rehearsal_repeats_itself_and_another_seed_does_not(run: Callable[..., list[dict[str, Any]]]) -> None:
    def without_time(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]

    first, again, other = (run(name, num_steps=1, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert without_time(first) == without_time(again)
    assert without_time(first) != without_time(other)


def test_adapters_are_rehearsed_and_each_version_has_them_merged(
    run: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    lines = run("adapters", lora=LoraConfig(rank=2, targets=("q_proj",)), num_steps=1, lag=1)
    assert lines[1]["grad_norm"] > 0
    before, after = (load_weights(tmp_path / "adapters" / "versions" / version) for version in ("0", "1"))
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert changed and all(name.endswith("q_proj.weight") for name in changed)


def test_groups_without_variance_are_replaced_and_counted(run: Callable[..., list[dict[str, Any]]]) -> None:
    kept, dropped = (run(name, num_steps=1, drop_flat_groups=drop)[1] for name, drop in (("kept", False), ("d", True)))
    assert kept["num_rollouts"] == dropped["num_rollouts"] == 8
    assert (kept["num_dropped_groups"], kept["num_generated_rollouts"]) == (0, 8)
    assert dropped["num_generated_rollouts"] == 8 + 4 * dropped["num_dropped_groups"]
    assert dropped["grad_norm"] > 0


def test_what_a_task_has_beyond_the_batch_is_surplus_and_not_what_the_batch_took(
    run: Callable[..., list[dict[str, Any]]],
) -> None:
    lines = run("surplus", num_steps=2, groups_per_step=3, drop_flat_groups=False)[1:]  # tasks of 2 groups of 4
    assert [line["num_surplus_groups"] for line in lines] == [1, 1]
    assert [line["num_generated_rollouts"] for line in lines] == [12, 24]


class Told:
    """Progress, as it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def doing(self, what: str) -> None:
        self.lines.append(what)

    still = doing

    def step(self) -> None:
        self.lines.append("done")


def test_a_task_without_variance_ends_the_rehearsal_and_says_so(
    run: Callable[..., list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.rehearsal.reward_of", lambda *args: 0.0)
    told = Told()
    with pytest.raises(ProofpoolError) as raised:
        run("flat", num_steps=1, num_held_back=0, max_rollouts=20, progress=told)
    assert "24 rollouts of version 0 gave 0 of 2: in 6 of 6 groups" in raised.value.why
    assert told.lines == ["step 1", *(f"step 1: 0 of 2 groups, {n} dropped without variance" for n in (2, 4, 6))]
    monkeypatch.setattr("trainer.rehearsal.DEFAULT_BATCHES", 2)
    with pytest.raises(ProofpoolError, match="too few groups"):
        run("by_default", num_steps=1, num_held_back=0)
    lines = run("all", num_steps=1, num_held_back=0, max_rollouts=1, drop_flat_groups=False, progress=(told := Told()))
    assert lines[1]["num_generated_rollouts"] == 8
    assert told.lines == ["step 1", "step 1: 2 of 2 groups, 0 dropped without variance", "done"]


def test_rules_may_be_undecided_where_nobody_judges(
    run: Callable[..., list[dict[str, Any]]], small_rules: Path, tmp_path: Path
) -> None:
    document = json.loads(small_rules.read_text())
    del document["thresholds"], document["environment"]["environment_hash"]
    partial = tmp_path / "partial.json"
    partial.write_text(json.dumps(document))

    def weights(name: str) -> list[float]:
        return [line["grad_norm"] for line in run(name, rules=tmp_path / f"{name}.json", num_steps=1)[1:]]

    assert weights("partial") == weights("rules")
    partial.write_text(json.dumps(document | {"group_size": "many"}))
    with pytest.raises(ConfigError, match="the rules can't be used"):
        run("wrong", rules=partial, num_steps=1)


def test_a_folder_with_a_run_is_not_written_over(run: Callable[..., list[dict[str, Any]]], tmp_path: Path) -> None:
    run("once", num_steps=1)
    files = [tmp_path / "once" / name for name in ("metrics.jsonl", "config.json")]
    before = [file.read_bytes() for file in files]
    with pytest.raises(UsageError, match="has a run already"):
        run("once", num_steps=1, seed=7)
    assert [file.read_bytes() for file in files] == before


def test_two_rehearsals_dont_share_a_folder(run: Callable[..., list[dict[str, Any]]], tmp_path: Path) -> None:
    with FolderLock(tmp_path / "both", "rehearsal"), pytest.raises(ConfigError, match="another rehearsal"):
        run("both", num_steps=1)
    assert len(run("both", num_steps=1)) == 2


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    engine = TorchEngine(max_batch=16)
    engine.load(BASE_MODEL)
    return engine


def test_passes_of_a_problem_do_not_depend_on_its_company(
    engine: TorchEngine, environment: Environment, rules: Rules
) -> None:
    asked = rules.model_copy(update={"sampling": SamplingRules(max_new_tokens=24)})
    problems = [environment.problem(index) for index in range(6)]

    def count(*places: int) -> list[int]:
        return pass_counts(engine, environment, [problems[place] for place in places], asked, 3, seed=5)

    together = count(0, 1, 2, 3, 4, 5)
    assert [count(place)[0] for place in range(6)] == together
    assert 0 < sum(together) < 18
    rates = pass_rates(together, 3)
    assert rates.average == pytest.approx(sum(together) / 18)
    assert rates.at_least_once == sum(found > 0 for found in together) / 6 >= rates.average


def test_problems_are_asked_for_a_target_length_where_workers_prompts_have_one(
    rules: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {**FEW_PROBLEMS, "length_suffix": " {target}"}
    environment = load_environment(ENVIRONMENT_NAME, config, Tokenizer.load(BASE_MODEL))
    prompts: list[list[int]] = []
    monkeypatch.setattr(
        "trainer.evaluation.generate",
        lambda _, requests: prompts.extend(request.input_tokens.tolist() for request in requests) or [],
    )
    problems = [environment.problem(index) for index in range(12)]

    def asked(*targets: int) -> list[list[int]]:
        prompts.clear()
        changed = rules.model_copy(update={"lengths": LengthRules(targets=targets)})
        pass_counts(None, environment, problems, changed, 2, seed=5)  # type: ignore[arg-type]
        return prompts[:]

    possible = [[environment.prompt(problem, target) for target in (8, 16)] for problem in problems]
    found = asked(8, 16)
    assert found[::2] == found[1::2]  # all samples of a problem have the same
    chosen = [choices.index(prompt) for choices, prompt in zip(possible, found[::2], strict=True)]
    assert set(chosen) == {0, 1} and found == asked(8, 16)
    assert asked()[::2] == [environment.prompt(problem) for problem in problems]


def test_the_filter_keeps_what_lies_between_its_limits_and_goes_on_where_it_was(
    small_rules: Path,
    engine: TorchEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("trainer.problem_filter.CHUNK_PROBLEMS", 4)

    def told() -> list[str]:
        return re.findall("[0-9]+ of [0-9]+ done", capsys.readouterr().err)

    def keep(out: str, **changes: Any) -> Any:
        settings = {"first": 3, "num_problems": 8, "num_samples": 4, "seed": 0, "limits": (0.25, 0.5)} | changes
        return filter_run(engine, BASE_MODEL, small_rules, tmp_path / out, **settings)

    report = keep("whole")
    assert report.indexes == tuple(3 + i for i, passes in enumerate(report.passes) if passes in (1, 2))
    assert len(report.passes) == 8
    assert told() == ["0 of 2 done", "2 of 2 done"]
    assert json.loads((tmp_path / "whole" / REPORT).read_text())["indexes"] == list(report.indexes)

    calls = []
    monkeypatch.setattr(
        "trainer.problem_filter.pass_counts", lambda *args: calls.append(len(args[2])) or pass_counts(*args)
    )
    assert keep("whole", limits=(0.0, 1.0)).indexes == tuple(range(3, 11))  # other limits cost nothing
    assert calls == [] and told() == ["2 of 2 done"] * 2
    measured = tmp_path / "whole" / MEASURED
    measured.write_bytes(measured.read_bytes()[:-3])  # killed within the second line
    assert keep("whole").passes == report.passes
    assert calls == [4] and told() == ["1 of 2 done", "2 of 2 done"]
    assert keep("whole", num_problems=10).passes[:8] == report.passes  # and more problems cost what they add
    assert calls == [4, 2] and told() == ["2 of 3 done", "3 of 3 done"]


def report_of_passes(*passes: int) -> FilterReport:
    """Of problems 10, 11, … with four samples each; all are kept."""
    plan = FilterPlan(environment_hash=ZERO_HASH, model_sha256="", first=10, num_samples=4, seed=0)
    return report_of(plan, passes, 0.0, 1.0)


def test_kept_problems_are_put_into_the_first_tier_that_holds_them() -> None:
    bounds = [TierBounds.parse("0.25:0.5:3"), TierBounds.parse("0.5:0.75:1")]
    found = with_tiers(report_of_passes(1, 2, 3, 4, 0, 3), bounds).tiers
    assert found == (Tier(weight=3, only=(10, 11)), Tier(weight=1, only=(12, 15)))
    with pytest.raises(UsageError, match="no problem"):
        with_tiers(report_of_passes(1, 1), bounds)


@pytest.mark.parametrize("flag", ["", "0.1:0.2", "0.1:0.2:0", "0.1:2:1", "a:b:c", "0:1:1:1", "0.5:0.1:1"])
def test_what_is_no_tier_is_refused(flag: str) -> None:
    with pytest.raises(UsageError, match="no tier"):
        TierBounds.parse(flag)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"num_problems": 201}, "aren't so many"),
        ({"limits": (0.6, 0.5)}, "no problem can be kept"),
        ({"seed": 1}, "measured something else"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    small_rules: Path, engine: TorchEngine, tmp_path: Path, changes: dict[str, Any], match: str
) -> None:
    settings: dict[str, Any] = {"first": 0, "num_problems": 1, "num_samples": 1, "seed": 0, "limits": (0.0, 1.0)}
    filter_run(engine, BASE_MODEL, small_rules, tmp_path, **settings)
    with pytest.raises(UsageError, match=match):
        filter_run(engine, BASE_MODEL, small_rules, tmp_path, **settings | changes)


def test_an_engine_is_left_idle(engine: TorchEngine) -> None:
    assert not engine.has_work
    assert list(generate(engine, [])) == []


def test_the_filter_takes_a_base_model_in_several_files(
    small_rules: Path, engine: TorchEngine, tmp_path: Path, in_parts: Callable[[Path], Path]
) -> None:
    settings: dict[str, Any] = {"first": 0, "num_problems": 4, "num_samples": 2, "seed": 0, "limits": (0.0, 1.0)}
    model = in_parts(BASE_MODEL)
    one, several = (
        filter_run(engine, folder, small_rules, tmp_path / name, **settings)
        for folder, name in ((BASE_MODEL, "one"), (model, "several"))
    )
    assert one.passes == several.passes and one.plan.model_sha256 != several.plan.model_sha256
    next(model.glob("model-*")).unlink()
    with pytest.raises(MalformedFile, match="parts of a model's weights are missing"):
        filter_run(engine, model, small_rules, tmp_path / "lost", **settings)
