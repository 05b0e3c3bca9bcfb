"""From a coordinator's address to a node that may work: init, doctor, register, doctor again, on a real chain."""

from __future__ import annotations

import json
import socket
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from protocol.cli import run
from protocol.clock import SystemClock
from protocol.config import load_config
from protocol.keystore import CHEAP_SCRYPT_N
from protocol.lock import FolderLock
from tests.documents import checked, fitting
from tests.integration.conftest import World
from tests.integration.served import served
from tests.integration.test_promise_commands import CREATOR, Keys, keys
from worker import init as init_module
from worker.config import WorkerConfig

__all__ = ["keys"]
NOWHERE = "http://127.0.0.1:9"


@dataclass
class Machine:
    """A machine that has nothing yet, and the address of a pool."""

    world: World
    url: str
    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def chain(self) -> str:
        return self.world.chain.process.url

    @property
    def config(self) -> Path:
        return self.folder / "worker.toml"

    def call(self, *arguments: str) -> tuple[int, str, str]:
        self.capsys.readouterr()
        code = run(list(arguments))
        printed = self.capsys.readouterr()
        return code, checked(arguments, printed.out), printed.err

    def init(self, *more: str) -> tuple[int, str, str]:
        where = ("--coordinator", self.url, "--chain", self.chain, "--out", str(self.config))
        return self.call("worker", "init", *where, *more)

    def doctor(self) -> tuple[int, dict[str, Any]]:
        code, out, _ = self.call("worker", "doctor", "--config", str(self.config), "--json")
        found = fitting("worker doctor", out)["findings"]
        return code, {finding["check"]: finding for finding in found}


@pytest.fixture
def machine(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Machine]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROOFPOOL_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("PROOFPOOL_PASSWORD", "word")
    monkeypatch.setattr(init_module, "STRONG_SCRYPT_N", CHEAP_SCRYPT_N)
    with served(world) as url:
        yield Machine(world, url, tmp_path, capsys)


def test_a_configuration_comes_from_the_pool_and_is_complete(machine: Machine) -> None:
    code, out, _ = machine.init("--json")
    found = json.loads(out)
    assert code == 0 and found["made_key"] and found["consent_file"] is None
    config = load_config(WorkerConfig, "worker", machine.config, environment={})
    assert (config.pool_id, config.ledger) == (machine.world.pool_id, machine.world.contracts.addresses.ledger)
    assert config.keystore == machine.folder / "keys" / "node.json" and config.keystore.stat().st_mode & 0o777 == 0o600
    assert any("worker consent" in line for line in found["next"])
    commented = [line.removeprefix("# ") for line in machine.config.read_text().splitlines() if line.startswith("# ")]
    settings = tomllib.loads("\n".join(line for line in commented if " = " in line).replace('"…"', '"x"'))
    assert set(settings) < set(WorkerConfig.model_fields), "what stands there as a comment is a setting"


def test_nothing_is_overwritten(machine: Machine) -> None:
    machine.config.write_text("mine")
    code, _, err = machine.init()
    assert code == 2 and "there is a file already" in err
    assert machine.config.read_text() == "mine" and not (machine.folder / "keys" / "node.json").exists()


def test_a_key_that_is_there_is_taken(machine: Machine) -> None:
    first = json.loads(machine.init("--json")[1])
    machine.config.unlink()
    again = json.loads(machine.init("--json")[1])
    assert (again["made_key"], again["node"]) == (False, first["node"])


@pytest.mark.parametrize(
    ("flag", "code"), [("--coordinator", 5), ("--chain", 5), ("--engine", 2), ("--provider", 2), ("--keystore", 4)]
)
def test_what_doesnt_answer_or_hold_writes_nothing(machine: Machine, flag: str, code: int) -> None:
    open_to_all = machine.folder / "open.json"
    open_to_all.write_text("{}")
    wrong = {"--engine": "abacus", "--provider": "0x12", "--keystore": str(open_to_all)}.get(flag, NOWHERE)
    assert machine.init(flag, wrong)[0] == code
    assert not machine.config.exists()


def test_who_cant_be_asked_is_told_what_to_give(machine: Machine) -> None:
    code, _, err = machine.call("worker", "init", "--chain", machine.chain, "--json")
    assert code == 2 and "give --coordinator" in err


def test_a_doctor_says_what_lacks_until_nothing_does(
    machine: Machine, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 6 while only registration and stake lack; 0 once the provider has registered the node."""
    # Requests are signed at this machine's time, and would be expired at the one that tests hand in.
    monkeypatch.setattr(machine.world.coordinator, "clock", SystemClock())
    provider = machine.world.chain.creator
    machine.world.send(provider, "credits", "mint", provider.address, 100 * 10**18)
    assert machine.init("--provider", provider.address)[0] == 0
    code, found = machine.doctor()
    assert code == 6, found
    assert {check for check, finding in found.items() if finding["status"] == "error"} == {"registration", "stake"}
    assert f"provider register {machine.folder}/consent.json --coordinator " in found["registration"]["fix"]
    assert "worker consent" not in found["registration"]["fix"], "it is made"
    assert "0 of " in found["stake"]["detail"] and found["stake"]["fix"].count("provider stake") == 1
    assert found["requests"]["status"] == "ok"
    assert found["clock"]["status"] == "ok" and found["keystore"]["status"] == "ok"
    where = ("--coordinator", machine.url, *keys.options(CREATOR)[:2], *keys.options(CREATOR)[4:])
    code, out, err = machine.call("provider", "register", "consent.json", *where)
    assert code == 0, err
    machine.world.mine()
    code, found = machine.doctor()
    assert code == 0, found
    assert provider.address in found["registration"]["detail"]
    code, out, _ = machine.call("worker", "status", "--config", str(machine.config), "--json")
    assert (code, json.loads(out)["why"]) == (0, "the worker isn't running")
    with FolderLock(machine.folder / "worker-data", "worker"):
        found = json.loads(machine.call("worker", "status", "--config", str(machine.config), "--json")[1])
    assert found["process"]["is_running"] and found["why"] == "no policy version is here yet"


def test_another_address_of_the_same_coordinator_is_found_before_any_lease(machine: Machine) -> None:
    assert machine.init()[0] == 0
    machine.world.mine()
    port = machine.url.rpartition(":")[2]
    machine.config.write_text(machine.config.read_text().replace(machine.url, f"http://localhost.localdomain:{port}"))
    with pytest.MonkeyPatch.context() as patch:
        _resolve_here(patch)
        code, found = machine.doctor()
    wrong = found["requests"]
    assert code == 1 and wrong["status"] == "error" and "for another host" in wrong["detail"]
    assert "set `coordinator_url` to one of these hosts" in wrong["fix"] and machine.url[7:] in wrong["fix"]
    assert "worker consent" in found["registration"]["fix"], "none is made"


def _resolve_here(patch: pytest.MonkeyPatch) -> None:
    """Every name is this machine."""
    real = socket.getaddrinfo
    patch.setattr(socket, "getaddrinfo", lambda host, *more, **options: real("127.0.0.1", *more, **options))


def test_the_consents_end_is_said_and_no_consent_is_overwritten(machine: Machine) -> None:
    provider = machine.world.chain.creator.address
    code, out, _ = machine.init("--provider", provider)
    assert code == 0 and "consent.json: good until 20" in out
    consent = machine.folder / "consent.json"
    before = consent.read_bytes()
    again = ("worker", "consent", "--config", str(machine.config), "--provider", provider, "--out")
    code, _, err = machine.call(*again, str(consent))
    assert code == 2 and "there is a file already" in err and consent.read_bytes() == before
    code, _, err = machine.call(*again, str(machine.folder / "other.json"))
    assert code == 0 and "good until 20" in err and (machine.folder / "other.json").exists()


def test_a_doctor_names_who_doesnt_answer_and_goes_on(machine: Machine) -> None:
    assert machine.init()[0] == 0
    machine.world.mine()  # the node is in sync
    text = machine.config.read_text()
    machine.config.write_text(text.replace(machine.url, NOWHERE))
    code, found = machine.doctor()
    assert (
        code == 1 and found["coordinator"]["status"] == "error" and "is it running there" in found["coordinator"]["fix"]
    )
    assert found["chain"]["status"] == "ok" and found["registration"]["status"] == "error"
    machine.config.write_text(text.replace(machine.chain, NOWHERE))
    code, found = machine.doctor()
    assert code == 1 and (found["chain"]["status"], found["coordinator"]["status"]) == ("error", "ok")
    assert "registration" not in found
