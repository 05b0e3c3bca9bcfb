"""How each command around keys and money ends: its exit code, row by row, and three lines for an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol import keystore
from protocol.cli import run
from protocol.keystore import CHEAP_SCRYPT_N
from protocol.signing import Signer
from tests.integration.conftest import CREDIT, World
from tests.integration.served import served
from tests.integration.test_earnings import commit, propose
from tests.integration.test_promise_commands import PROVIDER, Command, Keys, call, keys
from tests.integration.test_provider_claim import WINDOWS
from tests.integration.test_provider_commands import NEW_NODE, NEWCOMER

__all__ = ["call", "keys"]

NOWHERE = "http://127.0.0.1:9"
NOBODY = "0x" + "12" * 20


class Counter:
    """Command lines of the table: what each row needs is made once."""

    def __init__(self, world: World, keys: Keys, folder: Path, coordinator: str) -> None:
        self.folder = folder
        self.pool = ["--pool", str(world.pool_id)]
        self.known = [*keys.options(PROVIDER), *self.pool]
        self.newcomer = [*keys.options(NEWCOMER), *self.pool]
        self.new_node = keys.options(NEW_NODE)
        self.away = ["--chain", NOWHERE, *self.known[2:]]
        self.locked = [*self.known[:-3], "--json", *self.pool]
        place = self.locked.index("--password-file")
        self.locked[place + 1] = str(folder / "wrong")
        self.keyless = [*self.known[:4], "--provider", world.provider.address, *self.pool]
        self.coordinator = ["--coordinator", coordinator]
        self.node = world.node.address
        self.provider = Signer(NEWCOMER).address
        self.consent = str(folder / "consent.json")
        self.word = ["--password-file", str(folder / "password")]


Row = tuple[int, Callable[[Counter], list[str]]]
ROWS: list[Row] = [
    (0, lambda c: ["key", "new", "one", *c.word]),
    (2, lambda c: ["key", "new", "o/ne", *c.word]),
    (4, lambda c: ["key", "new", "one", *c.word]),
    (2, lambda c: ["key", "import", "two"]),
    (4, lambda c: ["key", "import", "two", "--from", c.consent, *c.word]),
    (0, lambda c: ["key", "list"]),
    (2, lambda c: ["key", "export", "one", *c.word]),
    (4, lambda c: ["key", "export", "one", "--yes", "--out", str(c.folder / "raw"), "--password-file", c.consent]),
    (0, lambda c: ["key", "export", "one", "--yes", "--out", str(c.folder / "raw"), *c.word]),
    (0, lambda c: ["worker", "consent", "--provider", c.provider, "--out", c.consent, *c.new_node]),
    (2, lambda c: ["worker", "consent", "--provider", "me", *c.new_node]),
    (5, lambda c: ["worker", "consent", "--provider", c.provider, "--chain", NOWHERE, *c.new_node[2:]]),
    (2, lambda c: ["provider", "register", *c.newcomer]),
    (3, lambda c: ["provider", "authorize", str(c.folder / "false.json"), *c.newcomer]),
    (6, lambda c: ["provider", "authorize", c.consent, *c.known]),
    (6, lambda c: ["provider", "register", c.consent, "--stake", "1000", *c.newcomer]),
    (0, lambda c: ["provider", "register", c.consent, *c.newcomer, "--dry-run"]),
    (0, lambda c: ["provider", "register", c.consent, *c.newcomer]),
    (2, lambda c: ["provider", "stake", "-1", *c.known]),
    (4, lambda c: ["provider", "stake", "1", *c.locked]),
    (5, lambda c: ["provider", "stake", "1", *c.away]),
    (6, lambda c: ["provider", "stake", "1", "--node", NOBODY, *c.known]),
    (6, lambda c: ["provider", "stake", "1", "--node", NOBODY, *c.known, "--dry-run"]),
    (0, lambda c: ["provider", "stake", "1", *c.newcomer]),
    (2, lambda c: ["provider", "unstake", "1", *c.known]),
    (6, lambda c: ["provider", "unstake", "51", "--node", c.node, *c.known]),
    (0, lambda c: ["provider", "unstake", "1", "--node", c.node, *c.known]),
    (6, lambda c: ["provider", "withdraw", "1000", *c.known]),
    (0, lambda c: ["provider", "withdraw", "1", *c.newcomer]),
    (0, lambda c: ["provider", "nodes", *c.keyless]),
    (5, lambda c: ["provider", "nodes", *c.away]),
    (6, lambda c: ["provider", "revoke", NOBODY, *c.known]),
    (0, lambda c: ["provider", "revoke", c.node, *c.known, "--dry-run"]),
    (2, lambda c: ["provider", "claim", *c.known]),
    (5, lambda c: ["provider", "claim", *c.known, "--coordinator", NOWHERE]),
    (3, lambda c: ["provider", "claim", str(c.folder / "untrue.json"), *c.known]),
    (6, lambda c: ["provider", "claim", *c.newcomer, *c.coordinator]),
    (0, lambda c: ["provider", "claim", *c.known, *c.coordinator]),
    (6, lambda c: ["provider", "claim", *c.known, *c.coordinator]),
    (2, lambda c: ["provider", "statement", *c.keyless]),
    (2, lambda c: ["provider", "statement", *c.keyless, *c.coordinator, "--from", "then"]),
    (5, lambda c: ["provider", "statement", *c.keyless, "--coordinator", NOWHERE]),
    (3, lambda c: ["provider", "statement", *c.keyless, "--log", str(c.folder / "short.jsonl")]),
    (0, lambda c: ["provider", "statement", *c.keyless, *c.coordinator]),
    (2, lambda c: ["provider", "appeal", "0x12", *c.word]),
    (2, lambda c: ["provider", "force-intake", "0x12"]),
]


@pytest.fixture
def counter_of(world: World, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Counter]:
    """With earnings that can be claimed, a consent that was changed, a statement that isn't true, half a log."""
    monkeypatch.setenv("PROOFPOOL_KEYS", str(tmp_path / "keys"))
    monkeypatch.setattr(keystore, "STRONG_SCRYPT_N", CHEAP_SCRYPT_N)
    world.send(Signer(NEWCOMER), "credits", "faucet", 100 * CREDIT)
    world.accept()
    statement = propose(world)
    commit(world, statement)
    world.chain.pass_time(WINDOWS)
    (tmp_path / "untrue.json").write_text(statement.model_copy(update={"total_wei": 1}).model_dump_json())
    (tmp_path / "short.jsonl").write_text("")
    (tmp_path / "wrong").touch(mode=0o600)
    (tmp_path / "wrong").write_text("wrong\n")
    return lambda url: Counter(world, keys, tmp_path, url)


def test_each_command_ends_with_the_code_of_the_table(
    world: World, counter_of: Callable[[str], Counter], call: Command
) -> None:
    with served(world) as url:
        counter = counter_of(url)
        for expected, line in ROWS:
            arguments = line(counter)
            if "false.json" in " ".join(arguments):
                _change(counter)
            code, out, err = call(*arguments)
            words = " ".join(arguments)
            assert code == expected, f"{words}\n{err}"
            if code in (0, 3) and "statement" in arguments:
                continue
            if code:
                usage = code == 2 and err.startswith("Usage:")
                assert usage or re.search(r"^error: .+\n  why: .+\n  do:  .+\n\Z", err, re.M), f"{words}\n{err}"
                assert out == "" and "Traceback" not in err, words


def _change(counter: Counter) -> None:
    """The consent with another deadline."""
    text = Path(counter.consent).read_text()
    (counter.folder / "false.json").write_text(re.sub(r'("deadline": ?)(\d+)', r"\g<1>99999999999", text))


def test_an_interrupted_command_ends_with_130(
    world: World, keys: Keys, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from protocol.chain.lane import Lane

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    world.send(world.provider, "credits", "faucet", CREDIT)
    monkeypatch.setattr(Lane, "send", interrupted)
    assert run(["provider", "stake", "1", *keys.options(PROVIDER)]) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")
