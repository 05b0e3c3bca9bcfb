"""What took a model long to make, kept on disk between runs of the matrix.

In: a description of the work as text. Out: whatever the work gave. Names hold a digest of the description and of the
code that did the work, so that changed code starts anew.
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

ROOT = Path(__file__).resolve().parents[2]
CODE = ("protocol/forward.py", "protocol/engines", "protocol/sampling*.py", "protocol/checks/prefill.py")
CODE += ("protocol/checks/measurements.py", "protocol/kv_cache.py", "tests/attacks/decode.py", "tests/attacks/weights.py")

Made = TypeVar("Made")


@dataclass(frozen=True)
class Cache:
    """A folder of pickles, which only this program writes; None keeps nothing."""

    folder: Path | None

    def get(self, description: str, make: Callable[[], Made]) -> Made:
        """What `make` gave for this description, now or before."""
        if self.folder is None:
            return make()
        path = self.folder / f"{hashlib.sha256((code_hash() + description).encode()).hexdigest()[:32]}.pickle"
        if path.exists():
            found: Made = pickle.loads(path.read_bytes())
            return found
        made = make()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, pickle.dumps(made))
        return made


def default_cache() -> Cache:
    return Cache(models_dir().parent / "attacks")


def code_hash() -> str:
    """SHA-256 over the code whose results are kept."""
    digest = hashlib.sha256()
    for pattern in CODE:
        for path in sorted(ROOT.glob(f"{pattern}/*.py" if not pattern.endswith(".py") else pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()
