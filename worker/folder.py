"""The worker's data folder: it belongs to one node in one pool, and to one process at a time.

    DATA/owner.json   whose it is      DATA/lock      who uses it now
    DATA/leases/      tasks at hand    DATA/outbox/   submissions and their answers
    DATA/weights/     policy versions  DATA/config.json

In: `data_dir`. Out: `WorkerFolder` with leases and outbox open. Raises ConfigError where it is another's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from protocol.canonical import canonical_json
from protocol.errors import ConfigError
from protocol.files import write_atomically
from protocol.lock import FolderLock
from protocol.signing import SigningDomain
from protocol.wire import Address, Hash32
from worker.leases import Leases
from worker.outbox import Outbox

OWNER_FILE = "owner.json"


class Owner(BaseModel):
    """Whose a data folder is; `domain` is the separator of the deployment's signatures."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    node: Address
    pool_id: int
    domain: Hash32


class WorkerFolder:
    """Example: `WorkerFolder(config.data_dir, node, pool_id, domain, give_up_seconds=3600)`."""

    def __init__(
        self,
        folder: Path,
        *,
        node: str,
        pool_id: int,
        domain: SigningDomain,
        give_up_seconds: float,
        keep_refused_seconds: float = math.inf,
    ) -> None:
        self._lock = FolderLock(folder, "worker")
        try:
            self._claim(folder, node, pool_id, domain)
        except OSError:
            self._lock.close()
            raise
        self.path = folder
        self.weights = folder / "weights"
        self.leases = Leases(folder / "leases", domain)
        self.outbox = Outbox(folder / "outbox", give_up_seconds, keep_refused_seconds)
        self.leases.recover()
        self.outbox.recover()

    def __enter__(self) -> WorkerFolder:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process use the folder."""
        self._lock.close()

    def _claim(self, folder: Path, node: str, pool_id: int, domain: SigningDomain) -> None:
        """What lies in here is signed for one deployment: a new chain on the old folder would send old work."""
        owner = canonical_json({"node": node, "pool_id": pool_id, "domain": "0x" + domain.separator.hex()})
        path = folder / OWNER_FILE
        if not path.exists():
            write_atomically(path, owner)
        elif path.read_bytes() != owner:
            self._lock.close()
            raise ConfigError(
                "this data folder belongs to another node, pool or deployment",
                f"{path}: {path.read_bytes().decode(errors='replace')}",
                "give this worker a data_dir of its own",
            )


@dataclass(frozen=True)
class Contents:
    """What lies in a data folder, counted from outside while a worker may be using it."""

    num_leases: int
    num_pending: int
    policy_versions: tuple[int, ...]


def contents(folder: Path) -> Contents:
    """Changes nothing, and is right for the moment only."""
    entries = [path for path in (folder / "outbox").glob("0x*.json") if not path.name.endswith(".answer.json")]
    versions = sorted(int(path.name[1:]) for path in (folder / "weights").glob("v*") if path.name[1:].isdigit())
    return Contents(len(list((folder / "leases").glob("0x*.json"))), len(entries), tuple(versions))


def owner_of(folder: Path) -> str | None:
    """The node that a data folder belongs to; None where none has claimed it yet."""
    try:
        found = Owner.model_validate_json((folder / OWNER_FILE).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    return found.node
