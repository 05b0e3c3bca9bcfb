"""The documents say what the code says: generated parts are fresh, and pages name everything they promise to name."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.api import Standing
from protocol.cli import COMMANDS, load_command
from protocol.reasons import RejectReason

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
READ_BY_USERS = [*PAGES, ROOT / "README.md", ROOT / "AGENTS.md"]
PRODUCT = ("contracts", "protocol", "coordinator", "worker", "verifier", "trainer", "testnet")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"\bproofpool ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)?)")
SETTLED_OR_NOT = (
    Standing.RECEIVED,
    Standing.ACCEPTED,
    Standing.REJECTED,
    Standing.DISPUTED,
    Standing.CHALLENGED,
)
LEVELS = ("debug", "info", "warning", "error", "exception")
LOGGERS = ("get_logger()", "log")
TEST = re.compile(r"(?:def|function) (test\w+)\(")
CALL = re.compile(r"\bproofpool ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)?)([^`#]*)")
FLAG = re.compile(r"(?<= )--[a-z][a-z-]*")
EVENT = re.compile(r"(task|submission|draw|verdict|reaudit|stamp|batch|group|weights|epoch|earnings|chain)\.[a-z_]+")


@pytest.fixture
def generators(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports the modules beside docs/generate.py, by name."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module


def test_generated_references_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_vectors_are_what_the_code_gives(generators: Any) -> None:
    assert (ROOT / "docs" / "vectors.json").read_text() == generators("vectors").vectors(), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_generated_parts_of_a_page_are_fresh(page: Path, generators: Any) -> None:
    assert page.read_text() == generators("reference").with_generated_parts(page.read_text()), "run `make docs`"


def test_a_stale_part_is_renewed_and_an_unknown_one_is_an_error(generators: Any) -> None:
    renew = generators("reference").with_generated_parts
    assert "`duplicate`" in renew("<!-- generated: reasons -->\nold\n<!-- end -->")
    with pytest.raises(KeyError):
        renew("<!-- generated: no such part -->\n<!-- end -->")


def test_each_reason_is_in_the_protocol() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text()
    assert [one for one in RejectReason if f"| `{one.value}` | {one.code} |" not in page] == []


def test_a_provider_is_told_what_each_reason_means() -> None:
    page = (ROOT / "docs" / "worker.md").read_text()
    assert [one.value for one in RejectReason if f"`{one.value}`" not in page] == []


def test_each_event_is_in_the_protocol() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text()
    named = {text for file in _sources("coordinator") for text in _texts(file) if EVENT.fullmatch(text)}
    named = {text for text in named if not text.endswith("_id")} | {f"submission.{one}" for one in SETTLED_OR_NOT}
    assert {"task.expired", "verdict.revealed"} <= named
    assert sorted(event for event in named if f"`{event}`" not in page) == []


def test_the_types_of_events_are_those_of_the_protocols_table() -> None:
    from protocol.events import TYPES

    table = (ROOT / "docs" / "protocol.md").read_text().partition("### Events")[2].partition("`door.refused` has")[0]
    listed = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(TYPES) == sorted(set(listed) - {"chain.<Event>"})


def test_each_endpoint_is_in_the_coordinators_page() -> None:
    from coordinator.api.app import create_app

    page = (ROOT / "docs" / "coordinator.md").read_text()
    endpoints = {
        f"{method.upper()} {path}"
        for path, methods in create_app(None).openapi()["paths"].items()
        for method in methods
    }
    assert "POST /v1/tasks" in endpoints
    assert sorted(endpoint for endpoint in endpoints if f"`{endpoint}`" not in page) == []


def test_each_setting_is_in_its_page() -> None:
    missing = [
        f"{role}: {name}"
        for role, names in _settings()
        for name in names
        if f"`{name}`" not in (ROOT / "docs" / f"{role}.md").read_text()
    ]
    assert missing == []


@pytest.mark.parametrize("role", ["coordinator", "worker", "verifier", "trainer"])
def test_each_line_that_a_role_logs_is_explained_in_its_page(role: str) -> None:
    page = (ROOT / "docs" / f"{role}.md").read_text()
    logged = {name for file in _sources(role) for name in _logged(file)}
    assert logged
    assert sorted(name for name in logged if f"`{name}`" not in page) == []


@pytest.mark.parametrize("page", READ_BY_USERS, ids=lambda page: page.name)
def test_each_link_leads_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not _resolves(page, link)]
    assert broken == []


@pytest.mark.parametrize("page", READ_BY_USERS, ids=lambda page: page.name)
def test_each_command_exists(page: Path) -> None:
    named = {found for code in _code(page.read_text()) for found in COMMAND.findall(code)}
    assert sorted(words for words in named if not _is_command(words)) == []


@pytest.mark.parametrize("page", READ_BY_USERS, ids=lambda page: page.name)
def test_each_flag_of_a_command_exists(page: Path) -> None:
    missing = [
        (words, flag)
        for code in _code(page.read_text())
        for words, rest in CALL.findall(code)
        for flag in FLAG.findall(rest)
        if flag not in _flags(words, rest)
    ]
    assert missing == []


def test_each_test_that_the_threat_model_names_exists() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    suites = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "contracts" / "test").rglob("*.sol")]
    known = {name for file in suites for name in TEST.findall(file.read_text())}
    assert sorted(set(re.findall(r"`(test\w+)`", page)) - known) == []


def test_what_is_no_link_and_no_command_is_found() -> None:
    assert not _resolves(ROOT / "README.md", "docs/nowhere.md")
    assert not _resolves(ROOT / "README.md", "docs/protocol.md#nothing-like-that")
    assert not _is_command("doctors")
    assert not _is_command("shardcast fly")
    assert _is_command("shardcast serve")
    assert "--port" in _flags("shardcast serve", " --port 1")
    assert "--fly" not in _flags("shardcast serve", "")
    assert "--against" in _flags("trainer data", " stats FILE") and "--against" not in _flags("trainer data", "")


def _settings() -> Iterator[tuple[str, list[str]]]:
    """(package, field names) of every subclass of RoleConfig in the product."""
    for package in PRODUCT:
        for file in _sources(package):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef) and "RoleConfig" in map(ast.unparse, node.bases):
                    yield package, [ast.unparse(f.target) for f in node.body if isinstance(f, ast.AnnAssign)]


def _sources(package: str) -> Iterator[Path]:
    return (ROOT / package).rglob("*.py")


def _texts(file: Path) -> Iterator[str]:
    """Every string constant of a source file."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _logged(file: Path) -> Iterator[str]:
    """Names of the log lines that a source file writes."""
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        logger, name = ast.unparse(node.func.value), node.args[0]
        if node.func.attr in LEVELS and logger in LOGGERS and isinstance(name, ast.Constant):
            yield str(name.value)


def _resolves(page: Path, link: str) -> bool:
    if "://" in link:
        return True
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in _anchors(target.read_text()))


def _anchors(text: str) -> set[str]:
    """Headings as GitHub links them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _code(text: str) -> list[str]:
    """Code spans, and lines of code blocks."""
    spans = re.findall(r"`([^`\n]+)`", text)
    return spans + [line for line in text.splitlines() if line.startswith("    ")]


def _flags(words: str, rest: str) -> set[str]:
    """The options of a command, `--help` among them; the first word of `rest` may be a command within a group."""
    name, *children = words.split()
    command = load_command(name)
    for child in [*children, *rest.split()[:1]]:
        command = getattr(command, "commands", {}).get(child, command)
    return {option for parameter in command.params for option in parameter.opts} | {"--help"}


def _is_command(words: str) -> bool:
    name, _, child = words.partition(" ")
    if name not in COMMANDS:
        return False
    children = getattr(load_command(name), "commands", {}) if child else {}
    return not children or not child or child in children
