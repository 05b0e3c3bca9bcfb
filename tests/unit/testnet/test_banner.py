"""The banner: how to join a run is a command line that works, and the one of the page for newcomers."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.main import get_command

from testnet.accounts import Accounts
from testnet.banner import banner, facts
from worker.commands import app

PAGE = Path(__file__).parents[3] / "docs" / "providers.md"
URL, NODE = "http://127.0.0.1:8700", "http://127.0.0.1:8545"


@dataclass(frozen=True)
class Deployed:
    ledger: str = "0x" + "11" * 20


@pytest.fixture
def run() -> Any:
    """As much of a run as a banner speaks of."""
    return SimpleNamespace(
        plan=SimpleNamespace(seed=7),
        node=SimpleNamespace(name="anvil", url=NODE),
        genesis=SimpleNamespace(chain_id=31337, pool_id=1, contracts=Deployed()),
        site=SimpleNamespace(coordinator_url=URL, relay_url="http://127.0.0.1:8701"),
        accounts=Accounts.of(7, 1, 1, ("forged-proof",)),
        run_dir=Path("runs/7"),
    )


def join_line(run: Any) -> list[str]:
    """The words of the command that the banner names, as a shell reads them."""
    _, _, rest = banner(run).partition("  join it ")
    command = re.match(r"(?:.*\\\n)*.*", rest)
    assert command is not None
    return shlex.split(command[0].replace("\\\n", ""))


def options(words: list[str]) -> dict[str, str]:
    return dict(zip(words[::2], words[1::2], strict=True))


def test_the_line_to_join_by_is_a_command_that_is_understood(run: Any) -> None:
    words = join_line(run)
    place = words.index("init")
    assert words[place - 1] == "worker"
    parsed = get_command(app).commands["init"].make_context("init", words[place + 1 :]).params  # type: ignore[attr-defined]
    assert (parsed["coordinator"], parsed["chain"], parsed["provider"]) == (URL, NODE, "ADDRESS")


def test_it_is_the_newcomers_page_line_with_the_runs_addresses(run: Any) -> None:
    (line,) = re.findall(r"^    proofpool worker init (.*)$", PAGE.read_text("utf-8"), re.M)[:1]
    words = join_line(run)
    names = {"URL": URL, "NODE": NODE, "ADDRESS": "ADDRESS"}
    assert options(words[words.index("init") + 1 :]) == {
        option: names[name] for option, name in options(shlex.split(line)).items()
    }
    assert "key new provider" in banner(run), "where ADDRESS comes from"


def test_keys_of_a_testnet_are_told_to_be_worthless_and_cheaters_named(run: Any) -> None:
    text, found = banner(run), facts(run)
    assert "keys and credits are worthless" in text
    (cheater,) = found["cheats"]
    (line,) = [line for line in text.splitlines() if line.strip().startswith(cheater)]
    assert line.endswith("cheats: forged-proof")
    honest = [name for name in found["accounts"] if name.startswith("worker") and name != cheater]
    assert honest and all(f"  {name} " in text for name in honest) and text.count("cheats: ") == 1
