"""The assembly: a version's files as they are filled, shard by shard, each byte at its final place.

In: pieces of shards, in any order and from many threads. Out: the version's folder, put in place by one rename once
all shards are there. A list of the checked shards is kept beside them, so that a later process (this one was killed)
goes on with what is there; it trusts no line of that list before it has hashed the bytes again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from protocol.errors import Unreachable
from protocol.files import sync_folder, write_atomically
from protocol.shardcast.folder import MANIFEST_FILE, holds, is_held
from protocol.shardcast.manifest import Manifest, Shard

CHECKED_FILE = ".checked"
"""In the staging folder: a line of JSON for each shard that was checked and written."""
FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
"""A link in a folder that others can write to would lead to somebody's file."""


class Assembly:
    """Example: `with Assembly(folder) as assembly: assembly.write(shard, 0, data); assembly.keep(shard); …`."""

    def __init__(self, folder: Path) -> None:
        """Raises Unreachable while another assembly fills the same folder: it could write what nobody has checked."""
        self.folder = folder
        self.staging = folder.with_name(f".{folder.name}.staging")
        self._lock = threading.Lock()
        self._files: dict[str, int] = {}
        self.staging.mkdir(parents=True, exist_ok=True)
        self._checked = os.open(self.staging / CHECKED_FILE, FLAGS | os.O_APPEND, 0o644)
        if not self._is_alone():
            os.close(self._checked)
            why, todo = f"{self.staging} is being filled", "wait for it, or name another folder"
            raise Unreachable("another process fetches the same version there", why, todo)
        for path in self.staging.glob(".*"):  # of an earlier process that was killed while it applied patches
            if path.name != CHECKED_FILE:
                _remove(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        with self._lock:
            for descriptor in (*self._files.values(), self._checked):
                os.close(descriptor)
            self._files.clear()

    def write(self, shard: Shard, at: int, data: memoryview) -> None:
        """Bytes of a shard from its byte `at` on. Raises OSError, on a full disk for instance."""
        descriptor, position = self._descriptor(shard.file), shard.offset + at
        while data:
            try:
                num_written = os.pwrite(descriptor, data, position)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.staging / shard.file)) from error
            data, position = data[num_written:], position + num_written

    def keep(self, shard: Shard) -> None:
        """A shard is whole, and its hash was right."""
        os.write(self._checked, shard.model_dump_json().encode() + b"\n")

    def found(self, shards: Mapping[int, Shard]) -> set[int]:
        """The numbers of those that are here already, hashed once more."""
        listed = self._listed()
        return {index for index, shard in shards.items() if shard in listed and holds(self.staging, shard)}

    def num_listed_bytes(self, manifest: Manifest) -> int:
        """How much of a version seems to be here already, by the list alone."""
        return sum(shard.num_bytes for shard in self._listed() & set(manifest.shards))

    def copy(self, folder: Path, shards: Iterable[Shard]) -> None:
        """Take those shards over that are in the same place of `folder`'s files."""
        for shard in shards:
            if is_held(folder, shard):
                with (folder / shard.file).open("rb") as file:
                    file.seek(shard.offset)
                    self.write(shard, 0, memoryview(file.read(shard.num_bytes)))
                self.keep(shard)

    def finish(self, files: Mapping[str, int], manifest: Manifest | None = None) -> Path:
        """The folder, in its place: exactly these files (sizes in bytes by name), all shards of which were kept.

        With `manifest`, what they can be held against later lies beside them.
        """
        for name, num_bytes in files.items():
            descriptor = self._descriptor(name)
            os.truncate(descriptor, num_bytes)
            os.fsync(descriptor)  # without it, a power cut may leave a folder that looks whole with files that aren't
        for path in self.staging.iterdir():
            if path.name not in files and path.name != CHECKED_FILE:
                _remove(path)
        if manifest is not None:
            write_atomically(self.staging / MANIFEST_FILE, manifest.to_bytes())
        self.staging.rename(self.folder)
        (self.folder / CHECKED_FILE).unlink()  # it was the lock: who opened it before finds another folder, or none
        sync_folder(self.folder.parent)
        return self.folder

    def _is_alone(self) -> bool:
        """Whether the list is this one's now, and lies where it was opened: it may have gone with a finished folder."""
        try:
            fcntl.flock(self._checked, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.path.samestat(os.fstat(self._checked), (self.staging / CHECKED_FILE).stat())
        except (BlockingIOError, FileNotFoundError):
            return False

    def _descriptor(self, name: str) -> int:
        with self._lock:
            if name not in self._files:
                self._files[name] = os.open(self.staging / name, FLAGS, 0o644)
            return self._files[name]

    def _listed(self) -> set[Shard]:
        """Whatever can be read of the list: its last line may be torn."""
        listed = set()
        for line in (self.staging / CHECKED_FILE).read_bytes().splitlines():
            try:
                listed.add(Shard.model_validate_json(line))
            except ValidationError:
                continue
        return listed


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
