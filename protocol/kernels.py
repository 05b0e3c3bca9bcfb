"""Compiled kernels: numba functions with their machine code on disk, and the question whether to use them.

A kernel file (`toploc/kernel_topk.py` is one) is imported at the first use of a fast path, and compiles or
loads all of its kernels there. In: functions with explicit types. Out: the same functions, compiled. Every
fast path has a plain one with the same results, taken where numba is missing or PROOFPOOL_KERNELS=plain.

Machine code lies in `$NUMBA_CACHE_DIR`, else in `$XDG_CACHE_HOME/proofpool` or `~/.cache/proofpool`: a
folder for each state of the source, version of numba and Python, and kind of processor. Where nothing can
be written there each process compiles anew.

    python -m protocol.kernels    # compile all now: what `make setup` does, some 30 CPU s
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import structlog

from protocol.files import cache_folder
from protocol.telemetry import get_logger

VARIABLE = "PROOFPOOL_KERNELS"
KERNEL_FILES = (
    "protocol.toploc.kernel_topk",
    "protocol.toploc.kernel_field",
    "protocol.sampling_kernels",
    "protocol.engines.decode_kernels",
    "protocol.engines.step_kernel",
    "protocol.engines.place_kernels",
    "protocol.shardcast.patch_kernels",
)
"""What `warm` compiles."""

F = TypeVar("F", bound=Callable[..., Any])


def are_enabled() -> bool:
    """Whether fast paths are to be taken: numba is there, and PROOFPOOL_KERNELS isn't "plain"."""
    return os.environ.get(VARIABLE) != "plain" and _numba_is_installed()


def warm() -> None:
    """Compile every kernel that isn't on disk yet. Does nothing where they aren't enabled."""
    if are_enabled():
        for name in KERNEL_FILES:
            importlib.import_module(name)


def uncompiled() -> list[str]:
    """Kernel files that the next use has to compile first; to be asked where they are enabled."""
    sources = [Path(spec.origin) for name in KERNEL_FILES if (spec := importlib.util.find_spec(name)) and spec.origin]
    return [source.stem for source in sources if not _folder_of(source).is_dir()]


def kernel(signature: str) -> Callable[[F], F]:
    """Compile a function for these types now, or load it.

    It may call helpers and read constants of its own file and of those that this one imports: see `_sources`.
    """

    def compiled(function: F) -> F:
        folder = _cache_folder(Path(function.__code__.co_filename))
        if folder is None:
            dispatcher = _njit(function)
            dispatcher.compile(signature)
        else:
            with _one_process(folder):
                dispatcher = _load_or_compile(function, signature, folder)
        # A call with other types then is an error, and no silent compilation.
        dispatcher.disable_compile()
        fast: F = dispatcher
        return fast

    return compiled


def helper(function: F) -> F:
    """A function that kernels call, made before them; compiled into each of them."""
    fast: F = _njit(function)
    return fast


def _njit(function: Callable[..., Any]) -> Any:
    import numba

    return numba.njit(nogil=True, error_model="numpy")(function)


def _load_or_compile(function: Callable[..., Any], signature: str, folder: Path) -> Any:
    """From the folder, or compiled and kept there; what is damaged there is compiled anew."""
    try:
        return _cached(function, signature, folder)
    except Exception as error:  # a damaged pickle raises anything; what is wrong with the kernel itself comes again
        damaged = list(folder.glob(f"*/*.{function.__qualname__}-*.nb[ci]"))
        if not damaged:
            raise
        _say("kernels.damaged", kept_in=str(folder), kernel=function.__qualname__, error=repr(error))
    for path in damaged:
        path.unlink()
    return _cached(function, signature, folder)


def _cached(function: Callable[..., Any], signature: str, folder: Path) -> Any:
    dispatcher = _njit(function)
    _enable_caching(dispatcher, folder)
    dispatcher.compile(signature)
    return dispatcher


def _enable_caching(dispatcher: Any, folder: Path) -> None:
    import numba

    config: Any = numba.config
    # numba reads the setting here and never again, so that other users of numba keep theirs.
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        dispatcher.enable_caching()
    finally:
        config.CACHE_DIR = before


@cache
def _cache_folder(source: Path) -> Path | None:
    """The folder for the kernels of this file; says so where they have to be compiled first. None: nowhere to write."""
    folder = _folder_of(source)
    is_new = not folder.is_dir()
    writable = _is_writable(folder)
    if is_new or not writable:
        _say("kernels.compiling", source=source.stem, about_seconds=10, kept_in=str(folder) if writable else "nowhere")
    return folder if writable else None


def _folder_of(source: Path) -> Path:
    return _cache_base() / f"{source.stem}-{_state_of(source)}"


def _cache_base() -> Path:
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return Path(chosen) if chosen else cache_folder()


def _state_of(source: Path) -> str:
    import llvmlite.binding as llvm
    import numba

    features = llvm.get_host_cpu_features().flatten()
    state = (sys.version, numba.__version__, llvm.get_host_cpu_name(), features, os.environ.get("NUMBA_BOUNDSCHECK"))
    texts = b"".join(file.read_bytes() for file in _sources(source))
    return hashlib.sha256(repr(state).encode() + texts).hexdigest()[:16]


def _sources(source: Path) -> list[Path]:
    """The files that machine code of this one is made of, sorted.

    Itself and all that it imports of its project, whose helpers and constants are compiled in; of imported files that
    have compiled functions too, what these import.
    """
    found, ahead = {source}, [source]
    while ahead:
        new = _imported(ahead.pop()) - found
        found |= new
        ahead += [file for file in new if file != Path(__file__) and _has_compiled_functions(file)]
    return sorted(found)


def _has_compiled_functions(source: Path) -> bool:
    text = source.read_bytes()
    return b"import numba" in text or b"kernels import helper" in text


def _imported(source: Path) -> set[Path]:
    """The files beside this one, in its packages or their sisters, that it imports."""
    base = source.parent
    while (base / "__init__.py").is_file():
        base = base.parent
    tree = ast.parse(source.read_bytes())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    files = (base.joinpath(*name.split(".")).with_suffix(".py") for name in names)
    return {file for file in files if file.is_file()}


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


@contextmanager
def _one_process(folder: Path) -> Iterator[None]:
    """Let one process compile and the others wait for what it leaves in the folder."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(event: str, **fields: object) -> None:
    # Standard output may be a program's; without a configured log the line goes to standard error.
    if structlog.is_configured():
        get_logger().info(event, **fields)
    else:
        print(event, *(f"{key}={value}" for key, value in fields.items()), file=sys.stderr)


@cache
def _numba_is_installed() -> bool:
    return importlib.util.find_spec("numba") is not None


if __name__ == "__main__":
    warm()
