"""Write the generated references anew: README.md's tree, cli.md, openapi.json, schemas/, vectors.json, tables in pages.

In: module docstrings, `--help` of each command, the HTTP API, sources. Out: files, or with `--check` a list of
stale ones. Run: make docs
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ |= {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1", "TERM": "dumb"}

ROOMS = {
    "contracts": "what the chain enforces",
    "protocol": "what all off-chain parties agree on",
    "worker": "rollout -> proof -> submission; weights in",
    "coordinator": "leases, intake, pool, batches, the log",
    "verifier": "submission -> verdict; the auditor's commands",
    "trainer": "batch -> optimizer step -> broadcast",
    "testnet": "all roles on one machine, with faults",
}
TREE_START, TREE_END = "<!-- tree: make docs -->", "<!-- end of tree -->"
GLOSS_WIDTH = 88


def main() -> int:
    generated = dict(_generated())
    stale = [path for path, text in generated.items() if _update(path, text)]
    stale += [path for path in (ROOT / "docs" / "schemas").iterdir() if path not in generated and _remove(path)]
    if "--check" not in sys.argv:
        return 0
    for path in stale:
        print(f"{path.relative_to(ROOT)} is stale: run `make docs`", file=sys.stderr)
    return 1 if stale else 0


def _generated() -> Iterator[tuple[Path, str]]:
    import reference  # beside this file
    import vectors

    from protocol import documents

    yield ROOT / "docs" / "vectors.json", vectors.vectors()
    yield ROOT / "docs" / "openapi.json", _http_api()
    for command in documents.SHAPES:
        text = json.dumps(documents.schema_of(command), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        yield ROOT / "docs" / "schemas" / documents.file_of(command), text
    for page in sorted((ROOT / "docs").glob("*.md")):
        yield page, reference.with_generated_parts(page.read_text())
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text().partition(TREE_START)
    after = rest.partition(TREE_END)[2]
    yield readme, f"{before}{TREE_START}\n```\n{_tree()}\n```\n{TREE_END}{after}"
    yield ROOT / "docs" / "cli.md", _command_reference()


def _update(path: Path, text: str) -> bool:
    """Whether the file differed; it is rewritten unless only checking."""
    if path.exists() and path.read_text() == text:
        return False
    if "--check" not in sys.argv:
        path.write_text(text)
    return True


def _remove(path: Path) -> bool:
    """A schema of no command is taken away unless only checking; True in any case."""
    if "--check" not in sys.argv:
        path.unlink()
    return True


def _tree() -> str:
    lines = []
    for room, gloss in ROOMS.items():
        lines.append(f"{room + '/':<40} {gloss}")
        lines.extend(
            f"{'  ' + str(path.relative_to(ROOT / room)):<40} {_gloss(path)}" for path in _sources(ROOT / room)
        )
    return "\n".join(lines)


def _sources(room: Path) -> list[Path]:
    """Files that carry code of the room: no tests, no generated or foreign ones."""
    files = [path for suffix in ("*.py", "*.sol") for path in room.rglob(suffix)]
    hidden = {"node_modules", "build", "test", "versions"}
    return sorted(f for f in files if f.name != "__init__.py" and not hidden & set(f.relative_to(room).parts))


def _gloss(path: Path) -> str:
    """The file's own first sentence, as far as a line holds."""
    text = _first_line(path).rstrip(".")
    return text if len(text) <= GLOSS_WIDTH else text[: GLOSS_WIDTH - 2].rsplit(" ", 1)[0] + " …"


def _first_line(path: Path) -> str:
    if path.suffix == ".sol":
        comments = (line.removeprefix("/// ") for line in path.read_text().splitlines() if line.startswith("/// "))
        return next(comments, "")
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def _http_api() -> str:
    from coordinator.api.app import create_app

    return json.dumps(create_app(None).openapi(), indent=1, sort_keys=True) + "\n"


def _command_reference() -> str:
    from protocol.cli import COMMANDS, load_command

    parts = ["# Command reference\n\nGenerated from `--help` by `make docs`.\n"]
    for name in COMMANDS:
        parts.extend(_help_of(load_command(name), f"proofpool {name}"))
    return "\n".join(parts)


def _help_of(command: Any, path: str) -> Iterator[str]:
    """Sections for a command and its sub-commands, in the order of the table."""
    context = command.make_context(path, [], resilient_parsing=True)
    with contextlib.redirect_stdout(io.StringIO()) as printed:  # rich help is printed, not returned
        returned = command.get_help(context)
    lines = [line.rstrip() for line in (printed.getvalue() + returned).splitlines()]
    yield f"## {path}\n\n```\n" + "\n".join(lines).strip("\n") + "\n```\n"
    for name, child in getattr(command, "commands", {}).items():
        yield from _help_of(child, f"{path} {name}")


if __name__ == "__main__":
    sys.exit(main())
