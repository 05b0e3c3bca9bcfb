"""Files by their content: put once, never changed, named by SHA-256.

In: bytes. Out: a file that is durable before the call returns, or `storage_full` with nothing kept.
"""

from __future__ import annotations

import errno
from pathlib import Path

from protocol.canonical import hex0x, sha256
from protocol.errors import ProofpoolError, Rejected
from protocol.files import write_atomically
from protocol.reasons import RejectReason

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class BlobStore:
    """A folder of blobs, two levels deep. Example: `store.get(store.put(data)) == data`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, blob_hash: str) -> Path:
        """Where the blob with this SHA-256 (0x-hex) is kept, if it is."""
        name = blob_hash.removeprefix("0x")
        return self._folder / name[:2] / name

    def put(self, data: bytes) -> str:
        """Keep `data`; its SHA-256 as 0x-hex. Raises Rejected(STORAGE_FULL) where there is no room."""
        blob_hash = hex0x(sha256(data))
        path = self.path(blob_hash)
        if path.exists():
            return blob_hash
        try:
            write_atomically(path, data)
        except OSError as error:
            if error.errno in FULL:
                raise Rejected(
                    RejectReason.STORAGE_FULL, error.strerror or "no space left", value=f"{len(data)} bytes"
                ) from error
            raise
        return blob_hash

    def get(self, blob_hash: str) -> bytes:
        """Raises ProofpoolError where there is no such blob."""
        try:
            return self.path(blob_hash).read_bytes()
        except FileNotFoundError as error:
            raise ProofpoolError("a blob is missing", blob_hash, "restore the blob folder from a backup") from error
