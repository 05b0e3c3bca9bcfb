"""The Python that sandboxed programs get: this one's binary and standard library, and the few libraries they load.

In: this process's own interpreter. Out: what is mounted where, for `bubblewrap.py`. No package is among it: an answer
may use the standard library, and finds the same one on every machine with this version.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from protocol.errors import ConfigError

ROOM = "/python"
EXTENSIONS = ("zlib", "_bz2", "_lzma", "_ctypes")
"""Modules of the standard library whose own libraries come along; those of Tk, TLS, curses and databases don't."""
PACKAGES = ("site-packages", "dist-packages")
NOT_COPIED = ("test", "config-*", "ensurepip", "idlelib", "turtledemo")
LDD_LINE = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)
COPIES = Path("/var/cache/proofpool")


@dataclass(frozen=True)
class Interpreter:
    """Pairs of a path on this machine and where it is mounted, read-only; what is hidden beneath; how it is called."""

    mounts: tuple[tuple[Path, str], ...]
    hidden: tuple[str, ...]
    command: tuple[str, ...]


@cache
def interpreter() -> Interpreter:
    """Of this process. Raises ConfigError where its parts can't be found.

    Where root's own Python is in a folder that others can't enter, a copy in `COPIES` stands in for it: sandboxes are
    never root's.
    """
    mounts = _parts()
    library = next(place for place in mounts if Path(place).name.startswith("python3."))
    hidden = tuple(f"{library}/{name}" for name in PACKAGES if (mounts[library] / name).is_dir())
    command = (f"{ROOM}/bin/python3", "-s", "-S", "-B", "-P", f"{ROOM}/inside.py")
    if os.geteuid() == 0 and not all(map(_is_open_to_all, mounts.values())):
        inner = {place: path for place, path in mounts.items() if place.startswith(ROOM)}
        mounts = {ROOM: _copied(inner), **{place: path for place, path in mounts.items() if place not in inner}}
        hidden = ()
    return Interpreter(tuple((path, place) for place, path in mounts.items()), hidden, command)


def _parts() -> dict[str, Path]:
    """Place in the sandbox to path here: the binary, the standard library, shared libraries, `inside.py`."""
    binary, library = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib")).resolve()
    dynamic = library / "lib-dynload"
    found = [path for module in EXTENSIONS for path in dynamic.glob(f"{module}.*.so")]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    parts = {f"{ROOM}/bin/python3": binary, f"{ROOM}/lib/{version}": library}
    for path in _libraries([binary, *found]):
        # The loader is named by its full path in every binary; the rest is looked for in one folder.
        parts[str(path) if path.name.startswith("ld-") else f"{ROOM}/lib/{path.name}"] = path.resolve()
    parts[f"{ROOM}/inside.py"] = Path(__file__).resolve().with_name("inside.py")
    return parts


def _libraries(binaries: list[Path]) -> list[Path]:
    """What the dynamic loader would load for these."""
    try:
        told = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError("the libraries of this Python can't be found", f"ldd: {error}") from error
    return sorted({Path(found) for found in LDD_LINE.findall(told)})


def _is_open_to_all(path: Path) -> bool:
    """Whether any user can get there and read it."""
    readable = path.stat().st_mode & stat.S_IROTH
    return bool(readable) and all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)


def _copied(parts: dict[str, Path]) -> Path:
    """A folder that holds the parts as `ROOM` does, made once for each version of them."""
    key = hashlib.sha256()
    for place, path in sorted(parts.items()):
        found = path.stat()
        key.update(f"{place} {path} {found.st_mtime_ns} {found.st_size}\n".encode())
    key.update(parts[f"{ROOM}/inside.py"].read_bytes())
    folder = COPIES / f"python-{key.hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    try:
        COPIES.mkdir(mode=0o755, parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=COPIES))
    except OSError as error:
        raise _not_copied(error) from error
    try:
        for place, path in parts.items():
            _copy(path, temporary / Path(place).relative_to(ROOM))
        temporary.chmod(0o755)
        temporary.rename(folder)
    except OSError as error:
        shutil.rmtree(temporary)
        if not folder.is_dir():  # else another process was first
            raise _not_copied(error) from error
    return folder


def _not_copied(error: OSError) -> ConfigError:
    todo = "run as another user than root, or with a Python that all users can read"
    return ConfigError("root's Python can't be copied to where sandboxes can read it", str(error), todo)


def _copy(path: Path, to: Path) -> None:
    to.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, to, ignore=shutil.ignore_patterns(*PACKAGES, *NOT_COPIED))
        return
    shutil.copyfile(path, to)
    to.chmod(0o755)
