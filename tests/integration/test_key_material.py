"""No key and no password turns up where it must not: searched for in all that commands and a worker leave."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from protocol import keystore
from protocol.cli import run
from protocol.clock import SystemClock
from protocol.keystore import CHEAP_SCRYPT_N
from protocol.signing import Signer
from testnet.chain.process import python_environment
from tests.integration.conftest import CREDIT, World
from tests.integration.served import served

NODE = bytes(31) + b"\x63"
"""Of the world's node. Most of it is zeros, so it is searched for as a whole."""
COLD = bytes(range(101, 133))
NEW_NODE = bytes(range(161, 193))
PASSWORD = "battery-staple-7f3a"
WRONG = "another-word-91cc"


def spellings(secret: bytes) -> Iterator[bytes]:
    """How a key may be written down, as a whole and in part."""
    text = secret.hex()
    yield from (
        secret,
        text.encode(),
        text.upper().encode(),
        base64.b64encode(secret),
        json.dumps(list(secret)).encode(),
    )
    if secret[0]:
        yield from (str(int.from_bytes(secret, "big")).encode(), repr(secret).encode())
        yield from (text[:20].encode(), text[-20:].encode())


SECRETS = [spelling for secret in (COLD, NEW_NODE, NODE) for spelling in spellings(secret)]
SECRETS += [PASSWORD.encode(), WRONG.encode()]


@dataclass
class Home:
    """A machine with keys; `places` are where the secrets have to be."""

    world: World
    folder: Path

    def __post_init__(self) -> None:
        for name, word in (("password", PASSWORD), ("wrong", WRONG)):
            self._secret(name, word.encode() + b"\n")
        for name, secret in (("cold", COLD), ("node", NEW_NODE), ("world-node", NODE)):
            self._secret(f"raw-{name}", secret.hex().encode() + b"\n")
        self.places = set(self.folder.iterdir())
        self.keys = self.folder / "keys"

    def _secret(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)

    def word(self, name: str = "password") -> list[str]:
        return ["--password-file", str(self.folder / name)]

    def chain(self) -> list[str]:
        return ["--chain", self.world.chain.process.url, "--ledger", self.world.contracts.addresses.ledger]

    def key(self, name: str) -> list[str]:
        return ["--keystore", str(self.keys / f"{name}.json")]

    def worker_config(self, url: str, password: str = "password") -> Path:
        values = {
            "coordinator_url": url,
            "chain_url": self.world.chain.process.url,
            "pool_id": self.world.pool_id,
            "keystore": str(self.keys / "world-node.json"),
            "password_file": str(self.folder / password),
            "data_dir": str(self.folder / "data"),
        }
        file = self.folder / f"worker-{password}.toml"
        file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
        return file

    def found(self, *printed: bytes) -> list[str]:
        """Where a secret turns up that must not: files, and what was printed."""
        texts = {str(path): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        texts = {path: text for path, text in texts.items() if Path(path) not in self.places}
        texts |= {f"output {number}": text for number, text in enumerate(printed)}
        return [place for place, text in texts.items() if any(secret in text for secret in SECRETS)]


@pytest.fixture
def home(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("PROOFPOOL_KEYS", str(tmp_path / "keys"))
    monkeypatch.setattr(keystore, "STRONG_SCRYPT_N", CHEAP_SCRYPT_N)
    for name in ("PROOFPOOL_PASSWORD", "PROOFPOOL_PRIVATE_KEY"):
        monkeypatch.delenv(name, raising=False)
    world.send(Signer(COLD), "credits", "faucet", 100 * CREDIT) if _has_gas(world, COLD) else None
    return Home(world, tmp_path)


def _has_gas(world: World, secret: bytes) -> bool:
    from protocol.chain.faucet import add_gas

    add_gas(world.contracts.client, Signer(secret).address, 10**18, SystemClock())
    return True


def imports(home: Home) -> list[list[str]]:
    return [
        ["key", "import", name, "--from", str(home.folder / f"raw-{name}"), *home.word()]
        for name in ("cold", "node", "world-node")
    ]


def well(home: Home) -> list[list[str]]:
    """Commands that succeed, in an order in which they do."""
    consent, provider = str(home.folder / "consent.json"), Signer(COLD).address
    cold = [*home.chain(), *home.key("cold"), *home.word(), "--pool", str(home.world.pool_id)]
    return [
        ["key", "new", "fresh", *home.word()],
        ["key", "list"],
        [
            *("worker", "consent", "--provider", provider, "--out", consent),
            *(*home.chain(), *home.key("node"), *home.word()),
        ],
        ["provider", "register", consent, *cold, "--dry-run"],
        ["provider", "register", consent, *cold],
        ["provider", "stake", "1", *cold, "--json"],
        ["provider", "nodes", *cold],
        ["provider", "unstake", "1", "--node", Signer(NEW_NODE).address, *cold],
        ["provider", "withdraw", "1", *cold],
        ["provider", "revoke", Signer(NEW_NODE).address, *cold],
    ]


def badly(home: Home) -> list[list[str]]:
    """Commands that fail, each in another place."""
    cold = [*home.key("cold"), "--pool", str(home.world.pool_id)]
    broken = home.keys / "broken.json"
    broken.touch(mode=0o600)
    broken.write_text((home.keys / "cold.json").read_text()[:-20])
    config = str(home.worker_config("http://127.0.0.1:9", "wrong"))
    raw = str(home.folder / "raw-cold")
    return [
        ["key", "new", "cold", *home.word()],
        ["key", "import", "again", "--from", str(home.keys / "cold.json"), *home.word(), "--from-password-file", raw],
        ["key", "export", "cold", "--out", str(home.folder / "out"), "--yes", *home.word("wrong")],
        ["key", "export", "cold", "--show", "--yes", *home.word()],
        ["provider", "stake", "1", *home.chain(), *cold, *home.word("wrong")],
        ["provider", "stake", "1", *home.chain(), "--keystore", str(broken), *home.word()],
        ["provider", "stake", "1", *home.chain(), "--keystore", raw, *home.word()],
        ["provider", "stake", "1000000", *home.chain(), *cold, *home.word()],
        ["provider", "stake", "1", "--chain", "http://127.0.0.1:9", *home.chain()[2:], *cold, *home.word()],
        ["provider", "claim", str(home.folder / "password"), *home.chain(), *cold, *home.word()],
        ["provider", "authorize", raw, *home.chain(), *cold, *home.word()],
        ["worker", "consent", "--provider", Signer(COLD).address, "--config", config],
        ["worker", "status", "--config", config],
    ]


def test_commands_that_succeed_or_fail_show_no_key_and_no_password(
    home: Home, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    printed = list[bytes]()

    def called(commands: Sequence[list[str]], *debug: str) -> list[int]:
        codes = []
        for command in commands:
            codes.append(run([*debug, *command]))
            printed.extend(capfdbinary.readouterr())
        return codes

    assert set(called(imports(home))) == {0}
    assert set(called(well(home))) == {0}
    codes = called(badly(home), "--debug")
    assert 0 not in codes and {2, 4, 5, 6} <= set(codes), codes
    assert sum(b"Traceback" in text for text in printed) >= len(codes) - 1
    assert home.found(*printed) == []


def test_what_is_searched_for_would_be_found(home: Home) -> None:
    for secret in SECRETS:
        assert home.found(b"log: " + secret + b"\n") == ["output 0"]
        (home.folder / "leak.log").write_bytes(b"x" + secret)
        assert home.found() == [str(home.folder / "leak.log")]
        (home.folder / "leak.log").unlink()
    assert home.found() == []


@pytest.mark.slow
def test_neither_a_worker_nor_a_command_at_work_has_a_secret_in_its_process_log_or_folders(home: Home) -> None:
    for command in imports(home):
        assert run(command) == 0
    with served(home.world) as url:
        config = home.worker_config(url)
        log = home.folder / "worker.log"
        with log.open("wb") as out:
            worker = spawn(["worker", "run", "--config", str(config), "--log-format", "json"], out)
            try:
                until(lambda: b"worker.started" in log.read_bytes() or worker.poll() is not None)
                assert worker.poll() is None, log.read_text()
                seen = [*process_of(worker)]
                home.world.contracts.client.rpc.call("evm_setAutomine", False)
                stake = ["provider", "stake", "1", *home.chain(), *home.key("cold"), *home.word(), "--json"]
                before = home.world.contracts.client.transaction_count(Signer(COLD).address)
                command_log = home.folder / "command.log"
                with command_log.open("wb") as command_out:
                    sender = spawn(stake, command_out)
                    until(lambda: sent(home.world) > before or sender.poll() is not None)
                    assert sender.poll() is None, command_log.read_text()
                    seen += process_of(sender)
                    sender.send_signal(signal.SIGKILL)
                    sender.wait()
            finally:
                home.world.contracts.client.rpc.call("evm_setAutomine", True)
                worker.send_signal(signal.SIGTERM)
                worker.wait(60)
    assert (home.folder / "data" / "config.json").exists(), "the resolved configuration is written"
    assert list(home.keys.glob("*.sqlite3*")), "what the command had sent is in its journal"
    assert all(seen) and home.found(*seen) == []


def spawn(arguments: list[str], out: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "protocol.cli", *arguments]
    return subprocess.Popen(command, stdout=out, stderr=out, env=python_environment())  # type: ignore[call-overload,no-any-return]


def process_of(process: subprocess.Popen[bytes]) -> list[bytes]:
    """What other programs see of it."""
    folder = Path("/proc") / str(process.pid)
    return [(folder / name).read_bytes() for name in ("cmdline", "environ", "status")]


def sent(world: World) -> int:
    return world.contracts.client.transaction_count(Signer(COLD).address, "pending")


def until(holds: object) -> None:
    clock, never = SystemClock(), threading.Event()
    for _ in range(3000):
        if holds():  # type: ignore[operator]
            return
        clock.wait(never, 0.02)
    raise AssertionError("it doesn't come to hold")
