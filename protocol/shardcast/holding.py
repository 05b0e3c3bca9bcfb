"""The holding: which shards of a version a relay has, as it says itself.

`versions/N/here.json` is written anew, by rename, whenever a shard has come or is asked for. Other relays look there
for what to ask this one for, and what it is about to have. Nobody signs it and nobody need believe it: who says that it
has what it hasn't is found out at the first request.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.errors import ShardCorrupt
from protocol.shardcast.listing import Number
from protocol.shardcast.manifest import Kind
from protocol.wire import UInt64

HOLDING_FILE = "here.json"
MAX_HOLDING_BYTES = 1 << 20
MAX_TIME = 1 << 53
"""Unix seconds; more of them a float can't tell apart."""
MOST_FETCHING = 10
"""More than this nobody asks for at a time."""


class Holding(BaseModel):
    """Numbers of shards. Example: `Holding(policy_version=3, shards=(0, 1), fetching=(2,)).write(folder)`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    policy_version: UInt64
    shards: tuple[Number, ...]
    """Checked, and served."""
    fetching: Annotated[tuple[Number, ...], Field(max_length=MOST_FETCHING)] = ()
    """Asked of an upstream just now."""
    patch: tuple[Number, ...] = ()
    """The same of the patch's shards."""
    patch_fetching: Annotated[tuple[Number, ...], Field(max_length=MOST_FETCHING)] = ()
    completed_time: Annotated[float, Field(ge=0, le=MAX_TIME, allow_inf_nan=False)] | None = None
    """Unix seconds since when all are here, by the relay's clock; None until then."""

    def numbers(self, kind: Kind) -> tuple[int, ...]:
        return self.shards if kind == "shards" else self.patch

    def numbers_fetching(self, kind: Kind) -> tuple[int, ...]:
        return self.fetching if kind == "shards" else self.patch_fetching

    def write(self, folder: Path) -> None:
        """As the holding of a version's folder. It isn't synced: after a power cut shards are hashed again anyway."""
        temporary = folder / f".{HOLDING_FILE}"
        temporary.write_text(self.model_dump_json())
        temporary.replace(folder / HOLDING_FILE)


class OwnHolding:
    """A relay's own, as it grows. Threads share it. Example: `OwnHolding(folder, 3).tell("patch", [0, 1], [2])`."""

    def __init__(self, folder: Path, policy_version: int) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._holding = Holding(policy_version=policy_version, shards=())

    def tell(self, kind: Kind, here: Iterable[int], asked: Iterable[int]) -> None:
        """What is here of a kind, and what upstreams are asked for."""
        fetching = "fetching" if kind == "shards" else "patch_fetching"
        self._write({kind: tuple(sorted(here)), fetching: tuple(asked)})

    def complete(self, now: float) -> None:
        """All of the version is here."""
        self._write({"completed_time": now})

    def _write(self, changes: dict[str, object]) -> None:
        with self._lock:
            self._holding = self._holding.model_copy(update=changes)
            self._holding.write(self._folder)


def read_holding(data: bytes, policy_version: int) -> Holding:
    """Raises ShardCorrupt for what is no holding of this version."""
    try:
        holding = Holding.model_validate_json(data)
    except ValidationError as error:
        raise ShardCorrupt("a relay's holding can't be read", str(error.errors()[0]["msg"])) from error
    if holding.policy_version != policy_version:
        raise ShardCorrupt("a relay's holding is of another version", f"{holding.policy_version}, not {policy_version}")
    return holding
