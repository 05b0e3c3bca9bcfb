"""SHA-256 of a file, by the published library's name: what its users compare weights and proofs files by.

In: a path. Out: lower-case hex, without "0x".
"""

from __future__ import annotations

import hashlib
from os import PathLike
from pathlib import Path


def sha256sum(filename: str | PathLike[str], chunk_size: int = 65536) -> str:
    """The file is read `chunk_size` bytes at a time, so that memory doesn't grow with it. Raises OSError."""
    digest = hashlib.sha256()
    with Path(filename).open("rb", buffering=0) as file:
        while part := file.read(chunk_size):
            digest.update(part)
    return digest.hexdigest()
