"""Ready configurations, a folder each in `trainer/recipes/`: `trainer.toml`, and what the pool has to be for it.

In: a recipe's name. Out: both files in a folder of the caller's, to be edited. `proofpool trainer init` is the command.
"""

from __future__ import annotations

from pathlib import Path

from protocol.errors import UsageError
from protocol.files import write_new

FOLDER = Path(__file__).parent / "recipes"
FILES = ("trainer.toml", "pool.toml")


def recipe_names() -> list[str]:
    return sorted(path.name for path in FOLDER.iterdir())


def write_recipe(name: str, out: Path) -> list[Path]:
    """The files, written where none of that name was. Raises UsageError."""
    if name not in recipe_names():
        raise UsageError("there is no such recipe", name, f"choose one of {', '.join(recipe_names())}")
    written = [out / file for file in FILES]
    for path in written:
        if path.exists():
            raise UsageError("a configuration is there already", str(path), "name another folder with --out")
    for path in written:
        write_new(path, (FOLDER / name / path.name).read_bytes())
    return written
