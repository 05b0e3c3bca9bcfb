"""A relay's shards of one version: plain files, each there whole and checked, or not at all.

In: pieces of shards from many threads. Out: `FOLDER/shards/I` or `FOLDER/patch/I`, put there by rename, and the
holding, written after it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from blake3 import blake3

from protocol.canonical import hex0x
from protocol.shardcast.folder import HASH_BYTES
from protocol.shardcast.holding import OwnHolding
from protocol.shardcast.listing import LISTING_FILE
from protocol.shardcast.manifest import Kind, Shard


class ShardFolder:
    """Example: `with ShardFolder(folder, OwnHolding(folder, 3)) as sink: ShardWork(3, shards, sink, …).run()`."""

    def __init__(self, folder: Path, holding: OwnHolding, kind: Kind = "shards") -> None:
        self._folder, self._holding, self._kind = folder, holding, kind
        self._numbers: dict[Shard, int] = {}
        self._lock = threading.Lock()
        self._parts: dict[Shard, int] = {}
        self._asked: tuple[int, ...] = ()
        self.here: dict[int, Shard] = {}
        """Checked shards."""
        (folder / kind).mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        """Shards that broke off are dropped; what is here stays, and the folder may be used again."""
        with self._lock:
            for shard, descriptor in self._parts.items():
                os.close(descriptor)
                self._part_path(self._numbers[shard]).unlink(missing_ok=True)
            self._parts.clear()
            self._asked = ()

    def write(self, shard: Shard, at: int, data: memoryview) -> None:
        descriptor = self._part(shard)
        while data:
            num_written = os.pwrite(descriptor, data, at)
            data, at = data[num_written:], at + num_written

    def keep(self, shard: Shard) -> None:
        """From now on others can have it."""
        with self._lock:
            os.close(self._parts.pop(shard))
            number = self._numbers[shard]
            self._part_path(number).replace(self._path(number))
            self.here[number] = shard
            self._say()

    def found(self, shards: Mapping[int, Shard]) -> set[int]:
        """The numbers of those that are here already, hashed once more; files with other bytes are removed."""
        self._numbers |= {shard: number for number, shard in shards.items()}
        for number, shard in shards.items():
            path = self._path(number)
            if self.here.get(number) == shard or not path.exists():
                continue
            if _is(path, shard):
                self.here[number] = shard
            else:
                self.here.pop(number, None)
                path.unlink()
        with self._lock:
            self._say()
        return {number for number, shard in shards.items() if self.here.get(number) == shard}

    def ask(self, numbers: Iterable[int]) -> None:
        """Say that upstreams are asked for these just now."""
        with self._lock:
            self._asked = tuple(numbers)
            self._say()

    def clear_but(self, shards: Mapping[int, Shard]) -> None:
        """All of these are here; remove what isn't among them, of an earlier process or a listing."""
        for path in (self._folder / self._kind).iterdir():
            if not path.name.isdigit() or int(path.name) not in shards:
                path.unlink()
        if self._kind == "shards":
            (self._folder / LISTING_FILE).unlink(missing_ok=True)
        with self._lock:
            self.here, self._asked = dict(shards), ()
            self._say()

    def _say(self) -> None:
        """Under the lock."""
        self._holding.tell(self._kind, self.here, self._asked)

    def _part(self, shard: Shard) -> int:
        with self._lock:
            if shard not in self._parts:
                path = self._part_path(self._numbers[shard])
                self._parts[shard] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            return self._parts[shard]

    def _path(self, number: int) -> Path:
        return self._folder / self._kind / str(number)

    def _part_path(self, number: int) -> Path:
        """Hidden, so that no server hands it out."""
        return self._folder / self._kind / f".{number}.part"


def _is(path: Path, shard: Shard) -> bool:
    hasher = blake3()
    with path.open("rb", buffering=0) as file:
        while data := file.read(HASH_BYTES):
            hasher.update(data)
    return path.stat().st_size == shard.num_bytes and hex0x(hasher.digest()) == shard.blake3
