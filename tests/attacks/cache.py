"""What took a model long to make, kept on disk between runs of the matrix.

In: a description of the work as text. Out: whatever the work gave. Files are named by a digest of the description.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from protocol.files import write_atomically
from tests.models.smollm2 import models_dir

VERSION = 3
"""Counts changes of what the models draw and say; descriptions say all else that it depends on."""

Made = TypeVar("Made")


@dataclass(frozen=True)
class Cache:
    """A folder of pickles, which only this program writes; None keeps nothing."""

    folder: Path | None

    def get(self, description: str, make: Callable[[], Made]) -> Made:
        """What `make` gave for this description, now or before."""
        if self.folder is None:
            return make()
        path = self.folder / f"{hashlib.sha256(f'{VERSION} {description}'.encode()).hexdigest()[:32]}.pickle"
        if path.exists():
            found: Made = pickle.loads(path.read_bytes())
            return found
        made = make()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, pickle.dumps(made))
        return made


def default_cache() -> Cache:
    return Cache(models_dir().parent / "attacks")
