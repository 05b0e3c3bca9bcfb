"""The commands around a coordinator's promises and its silence, as people and scripts call them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.cli import run
from protocol.keystore import CHEAP_SCRYPT_N, create_keystore
from testnet.chain.genesis import dev_secrets
from tests.documents import checked
from tests.integration.conftest import COORDINATOR_BOND_WEI, CREDIT, NUM_VALIDATORS, World
from tests.integration.test_bond import new_pool
from tests.integration.test_inclusions import handed_in
from tests.integration.test_takeover import SILENCE, WINDOWS, Mirror
from worker.outbox import Entry, Outbox

CREATOR, COORDINATOR, _, PROVIDER, *VALIDATORS = dev_secrets(4 + NUM_VALIDATORS)
NODE = bytes(31) + b"\x63"
NOWHERE = "http://127.0.0.1:9"
UNBONDING = 601

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command: its exit code, what it prints, and what it complains of."""

    def made(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        printed = capsys.readouterr()
        return code, checked(arguments, printed.out), printed.err

    return made


class Keys:
    """Keystores and configuration files in a folder."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        self._folder = folder
        self._password = folder / "password"
        self._password.touch(mode=0o600)
        self._password.write_text("word\n")

    def keystore(self, secret: bytes) -> Path:
        path = self._folder / f"{secret.hex()[:8]}-{secret.hex()[-8:]}.json"
        if not path.exists():
            create_keystore(path, "word", secret=secret, scrypt_n=CHEAP_SCRYPT_N)
        return path

    def options(self, secret: bytes) -> list[str]:
        """Of a command that sends a transaction."""
        world = self._world
        where = ["--chain", world.chain.process.url, "--ledger", world.contracts.addresses.ledger]
        return [*where, "--keystore", str(self.keystore(secret)), "--password-file", str(self._password), "--json"]

    def config(self, name: str, secret: bytes, data_dir: Path, **more: object) -> str:
        """A configuration file of a role whose coordinator doesn't answer."""
        values = {
            "chain_url": self._world.chain.process.url,
            "ledger": self._world.contracts.addresses.ledger,
            "pool_id": self._world.pool_id,
            "keystore": str(self.keystore(secret)),
            "password_file": str(self._password),
            "data_dir": str(data_dir),
            **more,
        }
        path = self._folder / f"{name}.toml"
        path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
        return str(path)


@pytest.fixture
def keys(world: World, tmp_path: Path) -> Keys:
    return Keys(world, tmp_path)


def document(answer: tuple[int, str, str]) -> dict[str, Any]:
    """What a command with --json printed; it must have succeeded."""
    code, out, err = answer
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    assert found["schema_version"] == 1
    return found


def refusal(answer: tuple[int, str, str]) -> tuple[int, list[str]]:
    """Exit code and the lines of an error: what, why, what to do."""
    code, _, err = answer
    return code, [line.split(":", 1)[0].strip() for line in err.splitlines()]


def test_a_coordinator_bonds_what_is_missing_once(world: World, keys: Keys, call: Command, tmp_path: Path) -> None:
    pool_id = new_pool(world)
    config = keys.config("coordinator", COORDINATOR, tmp_path / "data", pool_id=pool_id)
    assert refusal(call("coordinator", "bond", "--config", config)) == (6, ["error", "why", "do"])
    world.send(world.chain.creator, "credits", "mint", world.coordinator.signer.address, COORDINATOR_BOND_WEI)
    done = document(call("coordinator", "bond", "--config", config, "--json"))
    assert (done["added_wei"], done["bonded_wei"]) == (str(COORDINATOR_BOND_WEI), str(COORDINATOR_BOND_WEI))
    assert document(call("coordinator", "bond", "--config", config, "--json"))["added_wei"] == "0"
    assert refusal(call("coordinator", "unbond", "--config", config)) == (6, ["error", "why", "do"])
    code, out, _ = call("coordinator", "bond", "--config", config)
    assert code == 0 and out.startswith(f"bonded {COORDINATOR_BOND_WEI} of {COORDINATOR_BOND_WEI} wei")


def test_a_replaced_coordinator_takes_its_bond_back(world: World, keys: Keys, call: Command, tmp_path: Path) -> None:
    config = keys.config("coordinator", COORDINATOR, tmp_path / "data")
    world.send(world.chain.creator, "pools", "revokeKey", world.pool_id, 0)
    assert refusal(call("coordinator", "unbond", "--config", config)) == (6, ["error", "why", "do"])
    world.chain.pass_time(UNBONDING)
    done = document(call("coordinator", "unbond", "--config", config, "--json"))
    assert (done["added_wei"], done["bonded_wei"]) == (str(-COORDINATOR_BOND_WEI), "0")
    assert world.read("credits", "balanceOf", world.coordinator.signer.address) == COORDINATOR_BOND_WEI
    assert refusal(call("coordinator", "unbond", "--config", config)) == (6, ["error", "why", "do"])


def test_a_receipts_file_is_all_that_a_demand_takes(world: World, keys: Keys, call: Command, tmp_path: Path) -> None:
    world.send(world.provider, "credits", "faucet", CREDIT)
    promised, submission_id = handed_in(world)
    file = tmp_path / "answer.json"
    file.write_text(promised.model_dump_json())
    command = ("audit", "challenge-inclusion", str(file), *keys.options(PROVIDER))
    assert refusal(call(*command)) == (6, ["error", "why", "do"])
    world.close_epoch()
    found = document(call(*command))
    assert (found["state"], found["submission_id"], found["bond_wei"]) == ("open", submission_id, str(CREDIT))
    assert str(found["deadline"]) in found["todo"]
    world.chain.pass_time(16)
    assert document(call(*command))["state"] == "broken"


def test_what_cannot_be_demanded_is_a_usage_error(world: World, keys: Keys, call: Command, tmp_path: Path) -> None:
    options = keys.options(PROVIDER)
    no_receipt = tmp_path / "nothing.json"
    no_receipt.write_text("{}")
    for subject in (str(no_receipt), str(tmp_path / "missing.json"), "0x" + "11" * 32):
        assert refusal(call("audit", "challenge-inclusion", subject, *options)) == (2, ["error", "why", "do"])
    unforced = ("audit", "challenge-inclusion", "0x" + "11" * 32, "--pool", str(world.pool_id), *options)
    assert refusal(call(*unforced)) == (1, ["error", "why", "do"])
    code, _, complaint = call("audit", "challenge-inclusion", "0x" + "11" * 32, "--pool", "99", *options)
    assert (code, "there is no such pool on this chain" in complaint) == (5, True)


def test_a_provider_forces_a_submission_in_while_its_coordinator_is_away(
    world: World, keys: Keys, call: Command, tmp_path: Path
) -> None:
    world.chain.lane(world.chain.creator).send(world.node.address, b"", value_wei=10**18)
    world.send(world.provider, "credits", "faucet", CREDIT)
    signed = world.lease()
    envelope, submission_id, file = world.pack(signed.message)
    entry = Entry(task_id=signed.message.id(world.domain), task=signed, submission_id=submission_id, envelope=envelope)
    Outbox(tmp_path / "data" / "outbox", 60).put(entry, file)
    config = keys.config("worker", NODE, tmp_path / "data", coordinator_url=NOWHERE)
    unknown = ("provider", "force-intake", "0x" + "22" * 32, "--config", config)
    assert refusal(call(*unknown)) == (2, ["error", "why", "do"])
    assert refusal(call(*unknown, "--dry-run")) == (2, ["error", "why", "do"])
    shown = ("provider", "force-intake", submission_id, "--config", config, "--dry-run")
    would = document(call(*shown, "--json"))
    assert [(one["function"], one["transaction_hash"]) for one in would["transactions"]] == [("forceIntake", None)]
    assert (would["provider"], would["dry_run"]) == (world.node.address, True) and would["transactions"][0]["gas"] > 0
    assert would["notes"] == ["the log must answer by the end of epoch 1, if epoch 0 is still open"]
    assert not world.read("ledger", "forcedIntake", world.pool_id, submission_id)
    forced = document(call("provider", "force-intake", submission_id, "--config", config, "--json"))
    assert forced["include_by_epoch"] == 1 and forced["transaction_hash"]
    code, out, _ = call("provider", "force-intake", submission_id, "--config", config)
    assert code == 0 and out.startswith("forced in before: the log must answer by the end of epoch 1")
    code, out, _ = call(*shown)
    assert code == 0 and "would send no transaction" in out and "forced in before" in out
    for _ in range(2):
        world.close_epoch()
    demand = ("audit", "challenge-inclusion", submission_id, "--pool", str(world.pool_id), *keys.options(PROVIDER))
    assert document(call(*demand))["state"] == "open"


def test_validators_take_over_by_files_and_an_account_is_paid(
    world: World, keys: Keys, call: Command, tmp_path: Path
) -> None:
    world.accept()
    for _ in range(2):
        world.close_epoch()
    configs = []
    for number, (secret, signer) in enumerate(zip(VALIDATORS, world.validators, strict=True)):
        Mirror(world, signer, tmp_path / str(number)).follow(world)
        configs.append(keys.config(f"verifier-{number}", secret, tmp_path / str(number), coordinator_url=NOWHERE))

    def attest(what: str) -> list[str]:
        files = [str(tmp_path / f"{what}-{number}.json") for number in range(len(configs))]
        for file, config in zip(files, configs, strict=True):
            document(call("audit", f"attest-{what}", "--config", config, "--out", file, "--json"))
        return files

    early = ("audit", "attest-epoch", "--config", configs[0], "--out", str(tmp_path / "early.json"))
    assert refusal(call(*early)) == (6, ["error", "why", "do"])
    world.chain.pass_time(SILENCE)
    world.chain.mine(3)
    epochs = attest("epoch")
    assert refusal(call("audit", "commit-epoch", epochs[0], *keys.options(CREATOR))) == (6, ["error", "why", "do"])
    committed = document(call("audit", "commit-epoch", *epochs, *keys.options(CREATOR)))
    world.chain.mine(3)
    earnings = attest("earnings")
    assert document(call("audit", "commit-earnings", *earnings, *keys.options(CREATOR)))["epoch"] == committed["epoch"]
    world.chain.pass_time(WINDOWS)
    account = world.provider.address
    before = world.read("credits", "balanceOf", account)
    paid = document(call("audit", "claim", earnings[0], "--account", account, *keys.options(CREATOR)))
    assert world.read("credits", "balanceOf", account) == before + int(paid["amount_wei"]) > before
    assert refusal(call("audit", "claim", epochs[0], "--account", account, *keys.options(CREATOR))) == (
        2,
        ["error", "why", "do"],
    )
