"""A dry run tells everything, asks only what is public, and writes nothing."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from protocol import api
from protocol.cli import run
from protocol.client import CoordinatorClient
from protocol.config import load_config
from protocol.environments.registry import load_environment
from protocol.errors import ConfigError
from protocol.rules import EnvironmentRules, Rules
from protocol.tokenizer import Tokenizer
from protocol.weights import ModelConfig
from protocol.wire import ZERO_ADDRESS, ZERO_HASH
from testnet.plan import BASE_MODEL
from tests.documents import fitting
from trainer.batch_file import BatchFile
from trainer.checkpoint import CheckpointStore
from trainer.config import TrainerConfig
from trainer.dry_run import DryRun, dry_run, lines
from trainer.learner import Learner
from trainer.machine import check_pool, check_tokenizer, rules_hindrances

Serve = Callable[..., None]


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., TrainerConfig]:
    def make(**changes: Any) -> TrainerConfig:
        (tmp_path / "key.json").touch()
        settings = {
            "coordinator_url": "http://127.0.0.1:1",
            "chain_url": "http://127.0.0.1:1",
            "ledger": ZERO_ADDRESS,
            "keystore": tmp_path / "key.json",
            "base_model": BASE_MODEL,
            "data_dir": tmp_path / "data",
            "origin_dir": tmp_path / "origin",
        }
        return TrainerConfig.model_validate(settings | changes)

    return make


@pytest.fixture
def serve(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """A coordinator that answers what anybody may ask."""
    freshness = api.Freshness(head_block=1, indexed_block=1, chain_time=1, lag_seconds=0)

    def start(**changes: Any) -> None:
        numbers = dict.fromkeys(("pool_id", "chain_id", "accept_quorum", "slash_quorum", "confirmations", "epoch"), 1)
        prices = dict.fromkeys(("price_wei", "verify_price_wei", "min_allotment_wei"), "1")
        contracts = dict.fromkeys(("credits", "registry", "pools", "ledger", "court", "jury"), ZERO_ADDRESS)
        settings: dict[str, Any] = {
            **numbers,
            **prices,
            "contracts": api.ContractAddresses(**contracts),
            "freshness": freshness,
            "deployment_salt": ZERO_HASH,
            "coordinator": ZERO_ADDRESS,
            "trainer": ZERO_ADDRESS,
            "rules_hash": rules.rules_hash,
            "model_hash": ZERO_HASH,
            "max_async": 2,
            "policy_version": 0,
            "shardcast_urls": (),
            "paused": False,
        }
        pool = api.PoolInfo(**settings | changes)
        empty = dict.fromkeys(
            ("num_by_standing", "num_by_reaudit", "disputed_stamps", "outbox", "num_by_use"), dict[str, int]()
        )
        status = {name: value for name, value in empty.items() if name in api.Status.model_fields} | {
            "freshness": freshness,
            "epoch": 1,
            "committed_epochs": 1,
            "log_size": 1,
            "log_root": ZERO_HASH,
            "policy_version": 0,
            "num_pending_groups": 5,
            "earned_wei": "0",
            "claimed_wei": "0",
        }
        answers = {
            "/v1/pool": pool,
            f"/v1/rules/{rules.rules_hash}": rules,
            "/v1/status": api.Status.model_validate(status),
        }

        def answer(request: httpx.Request) -> httpx.Response:
            assert request.method == "GET" and "Authorization" not in request.headers
            return httpx.Response(200, content=answers[request.url.path].model_dump_json())

        client = partial(CoordinatorClient, transport=httpx.MockTransport(answer))
        monkeypatch.setattr("trainer.dry_run.CoordinatorClient", client)

    return start


def told(found: DryRun) -> str:
    return "\n".join(lines(found))


def test_it_says_what_a_step_would_pull(config: Callable[..., TrainerConfig], serve: Serve) -> None:
    serve()
    found = dry_run(config(), 1)
    assert found.pull.reached
    assert (found.pull.group_size, found.pull.max_new_tokens, found.pull.num_pending_groups) == (4, 12, 5)
    assert (found.starts_from, found.next_step, found.oldest_version) == (None, 1, 0)
    assert found.warnings == ()
    assert "groups of 4 rollouts of up to 12 tokens, policy version 0 or newer" in told(found)


def test_it_says_so_where_the_coordinator_doesnt_answer(config: Callable[..., TrainerConfig], tmp_path: Path) -> None:
    found = dry_run(config(), 1)
    assert not found.pull.reached and found.oldest_version is None
    assert "the coordinator can't be asked" in told(found)
    assert [path.name for path in tmp_path.iterdir()] == ["key.json"]


def test_another_pool_than_the_configured_one_is_an_error(config: Callable[..., TrainerConfig], serve: Serve) -> None:
    serve(pool_id=7)
    with pytest.raises(ConfigError, match="another pool"):
        dry_run(config(), 1)


def test_it_starts_where_a_run_would_and_leaves_that_alone(
    config: Callable[..., TrainerConfig], serve: Serve, make_learner: Callable[..., Learner], tmp_path: Path
) -> None:
    serve(policy_version=1)
    store = CheckpointStore(tmp_path / "data" / "checkpoints")
    for version in range(3):
        store.save(make_learner(), version, None, tmp_path)
    newest, earlier = dry_run(config(), 1), dry_run(config(resume=1), 1)
    assert (newest.starts_from, newest.next_step, newest.oldest_version) == (2, 3, 0)
    assert (earlier.starts_from, earlier.next_step) == (1, 2)
    assert list(store.versions()) == [0, 1, 2]
    with pytest.raises(ConfigError, match="no checkpoint of policy version 9"):
        dry_run(config(resume=9), 1)
    with pytest.raises(ConfigError, match="can't start anew"):
        dry_run(config(resume="anew"), 1)


@pytest.mark.parametrize(
    ("pool", "settings", "warning"),
    [
        ({"policy_version": 3}, {}, "the pool has policy version 3 already"),
        ({"paused": True}, {}, "the pool is paused"),
        ({}, {"recipe": {"max_tokens": 11}}, "a bin to themselves"),
    ],
)
def test_what_would_go_wrong_is_said(
    config: Callable[..., TrainerConfig], serve: Serve, pool: dict[str, Any], settings: dict[str, Any], warning: str
) -> None:
    serve(**pool)
    assert warning in told(dry_run(config(**settings), 1))


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({"keystore": "/none"}, "there is no keystore at /none"),
        ({"password_file": "/none"}, "there is no password file at /none"),
        ({"ledger": None}, "no contracts are named: neither `deployment` nor `ledger` is set"),
        ({"deployment": "/none"}, "a deployment file can't be read: /none"),
        ({"scale": {"device": "cuda"}}, "sees no GPU here"),
        ({"tracker": "trackio"}, "the tracker trackio isn't installed: pip install 'proofpool[trackio]'"),
        ({"evaluation": {"evaluate_every": 1, "engine": "vllm"}}, "proofpool[vllm]"),
    ],
)
def test_what_this_machine_lacks_is_said_and_nothing_where_it_is_there(
    config: Callable[..., TrainerConfig],
    settings: dict[str, Any],
    warning: str,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve()
    monkeypatch.setattr("trainer.machine.find_spec", lambda module: None)
    monkeypatch.setattr("protocol.engines.vllm.library.found", lambda: None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert dry_run(config(), 1).warnings == ()
    assert warning in told(dry_run(config(**settings), 1))


def test_an_address_that_is_taken_is_said_and_a_free_one_isnt(config: Callable[..., TrainerConfig]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert f"metrics_address {address} can't be listened on now" in told(
            dry_run(config(metrics_address=address), 1)
        )
    assert "metrics_address" not in "".join(dry_run(config(metrics_address=address), 1).warnings)


def test_weights_that_are_missing_or_anothers_are_said_without_loading_them(
    config: Callable[..., TrainerConfig], tmp_path: Path
) -> None:
    folder = shutil.copytree(BASE_MODEL, tmp_path / "model")
    assert not dry_run(config(base_model=folder), 1).warnings
    shape = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(shape | {"num_hidden_layers": shape["num_hidden_layers"] + 1}))
    assert "these weights belong to another model" in told(dry_run(config(base_model=folder), 1))
    (folder / "model.safetensors").unlink()
    assert "can't read weights from" in told(dry_run(config(base_model=folder), 1))


def test_a_tokenizer_that_is_another_models_or_missing_is_said_and_no_run_begins_with_it(
    config: Callable[..., TrainerConfig], tmp_path: Path
) -> None:
    folder = shutil.copytree(BASE_MODEL, tmp_path / "model")
    model = ModelConfig.load(folder)
    check_tokenizer(folder, model)
    small = model.model_copy(update={"vocab_size": 20})
    with pytest.raises(ConfigError, match="tokenizer is another model's") as refused:
        check_tokenizer(folder, small)
    assert "tokens 0 to 19" in refused.value.why
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match="can't load the tokenizer"):
        check_tokenizer(folder, model)
    assert "can't load the tokenizer" in told(dry_run(config(base_model=folder), 1))


def test_a_data_folder_of_another_pool_is_said_and_no_run_goes_on_with_it(
    config: Callable[..., TrainerConfig],
    make_learner: Callable[..., Learner],
    batch_file: BatchFile,
    tmp_path: Path,
) -> None:
    """It would acknowledge and publish there what belongs to the pool that the checkpoint is of."""
    store = CheckpointStore(tmp_path / "data" / "checkpoints")
    base = store.save(make_learner(), 0, None, BASE_MODEL)
    check_pool(store, 2)  # neither published nor trained: it is nobody's yet
    store.save(make_learner(), 1, batch_file, BASE_MODEL, base)
    check_pool(store, 1)
    with pytest.raises(ConfigError, match="data folder is another pool's") as refused:
        check_pool(store, 2)
    assert "trained for pool 1, pool_id is 2" in refused.value.why
    assert "data folder is another pool's" in told(dry_run(config(pool_id=2), 1))
    assert "data folder is another pool's" not in told(dry_run(config(), 1))


def test_an_environment_that_isnt_the_pools_is_said(config: Callable[..., TrainerConfig], rules: Rules) -> None:
    """As another tokenizer makes it."""
    tokenizer = Tokenizer.load(BASE_MODEL)
    name, settings = "reasoning_gym", {"dataset": "chain_sum"}
    found = load_environment(name, settings, tokenizer).environment_hash
    for environment_hash, told_of in ((found, ""), (ZERO_HASH, f"{found} against {ZERO_HASH}")):
        environment = EnvironmentRules(name=name, config=settings, environment_hash=environment_hash)
        pools = rules.model_copy(update={"environment": environment})
        warnings = "".join(rules_hindrances(config(), pools))
        assert told_of in warnings and bool(warnings) == bool(told_of)


def test_held_back_problems_that_there_arent_are_said(
    config: Callable[..., TrainerConfig], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Environment:
        def held_back(self, count: int) -> list[None]:
            if count > 3:
                raise ConfigError("there aren't so many held-back problems", f"3 of {count} were found")
            return [None] * count

    serve()
    monkeypatch.setattr("trainer.machine.environment_of", lambda rules, tokenizer: Environment())
    few, many = ({"evaluate_every": every, "num_held_back": count} for every, count in ((1, 3), (1, 4)))
    assert dry_run(config(evaluation=few), 1).warnings == ()
    assert "there aren't so many held-back problems: 3 of 4" in told(dry_run(config(evaluation=many), 1))
    assert dry_run(config(evaluation=many | {"evaluate_every": 0}), 1).warnings == ()


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"metrics_address": "nonsense"}, "metrics_address"),
        ({"metrics_address": "127.0.0.1:70000"}, "metrics_address"),
        ({"poll_seconds": 1e-9}, "poll_seconds"),
        ({"poll_seconds": 1e300}, "poll_seconds"),
        ({"num_threads": 10**9}, "num_threads"),
        ({"keep_checkpoints": 10**12}, "keep_checkpoints"),
        ({"evaluation": {"num_held_back": 10**9}}, "evaluation.num_held_back"),
        ({"evaluation": {"max_batch": 10**9}}, "evaluation.max_batch"),
        ({"scale": {"rank_timeout_seconds": 1e300}}, "scale.rank_timeout_seconds"),
        ({"scale": {"peak_flops": float("inf")}}, "scale.peak_flops"),
        ({"recipe": {"learning_rate": float("inf")}}, "recipe.learning_rate"),
        ({"recipe": {"optimizer_steps": 10**9}}, "recipe.optimizer_steps"),
        ({"recipe": {"objective": {"kl_coefficient": float("inf")}}}, "recipe.objective.kl_coefficient"),
        ({"recipe": {"lora": {"rank": 10**9}}}, "recipe.lora.rank"),
    ],
)
def test_what_no_run_could_use_is_no_configuration(
    config: Callable[..., TrainerConfig], settings: dict[str, Any], key: str
) -> None:
    given = config(metrics_address="[::1]:9464").model_dump(mode="json") | settings
    with pytest.raises(ConfigError, match=f"wrong at `{key}`"):
        load_config(TrainerConfig, "trainer", None, {}, given)


def test_the_command_prints_it_for_people_and_as_its_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["trainer", "init", "--recipe", "tiny", "--out", str(tmp_path)]) == 0
    monkeypatch.setenv("PROOFPOOL_TRAINER_BASE_MODEL", str(BASE_MODEL))
    monkeypatch.setenv("PROOFPOOL_TRAINER_COORDINATOR_URL", "http://127.0.0.1:1")
    capsys.readouterr()
    command = ["trainer", "run", "--config", str(tmp_path / "trainer.toml"), "--dry-run"]
    assert run([*command, "--num-ranks", "4"]) == 0
    printed = capsys.readouterr().out
    assert "recipe.learning_rate = 0.0001" in printed and "each of 4 ranks: 856,960 parameters" in printed
    assert run([*command, "--json"]) == 0
    document = fitting("trainer run", capsys.readouterr().out)
    assert document["config"]["recipe"]["optimizer_steps"] == 4
    assert document["host_bytes"] == sum(part["num_bytes"] for part in document["memory"]["parts"])
    assert run([*command[:-1], "--json"]) == 2
    assert "belongs to --dry-run" in capsys.readouterr().err
    with (tmp_path / "trainer.toml").open("a") as file:
        file.write("\n[scales]\n")
    assert run(command) == 2
    assert "no setting `scales`" in capsys.readouterr().err
