"""The files that a model's tensors lie in: one, or several beside an index, as large models come.

    model.safetensors                                     or
    model.safetensors.index.json                          {"weight_map": {"model.norm.weight": "model-00002-…", …}}
    model-00001-of-00002.safetensors, …

In: a folder in Hugging Face format. Out: each file with the tensors that the index puts there, held against what is in
it. What isn't where the index says is an error and never a guess. Everything that proofpool writes is one file.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from protocol.errors import MalformedFile

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
PART = re.compile(r"model-[0-9]+-of-[0-9]+\.safetensors")
TODO = "fetch the model's folder again, whole"


def weights_files(folder: Path) -> Sequence[str]:
    """Names of the files whose bytes are the weights, the index among them. Raises MalformedFile."""
    parts = parts_of(folder)
    return [*([INDEX_FILE] if (folder / INDEX_FILE).exists() and not _is_whole(folder) else []), *sorted(parts)]


def parts_of(folder: Path) -> Mapping[str, frozenset[str] | None]:
    """Each file's name, with its tensors'; None where there is but one file, and no index that says.

    Raises MalformedFile for an index that isn't one, and where the folder has other parts than it names.
    """
    if _is_whole(folder) or not (folder / INDEX_FILE).exists():
        return {WEIGHTS_FILE: None}
    parts = defaultdict[str, set[str]](set)
    for name, file in _index(folder / INDEX_FILE).items():
        parts[file].add(name)
    there = {path.name for path in folder.iterdir()}
    if missing := sorted(set(parts) - there):
        raise _misfit("parts of a model's weights are missing", f"{folder} lacks {_some(missing)}")
    if extra := sorted(name for name in there - set(parts) if PART.fullmatch(name)):
        raise _misfit("a folder has parts of other weights", f"{folder / INDEX_FILE} doesn't name {_some(extra)}")
    return {file: frozenset(names) for file, names in parts.items()}


def check_part(file: Path, found: Iterable[str], parts: Mapping[str, frozenset[str] | None]) -> None:
    """Raises MalformedFile unless `file` has exactly the tensors that the index puts there."""
    expected, names = parts[file.name], frozenset(found)
    if expected is None or names == expected:
        return
    if lacks := sorted(expected - names):
        raise _misfit("a part of a model's weights lacks tensors", f"{file} has no {_some(lacks)}")
    extra = sorted(names - expected)
    elsewhere = frozenset[str]().union(*(tensors or () for tensors in parts.values()))
    if twice := [name for name in extra if name in elsewhere]:
        raise _misfit("a tensor is in two parts of a model's weights", f"{file} has {_some(twice)} as well")
    raise _misfit("a part of a model's weights has tensors of no index", f"{file}: {_some(extra)}")


def _is_whole(folder: Path) -> bool:
    return (folder / WEIGHTS_FILE).exists()


def _index(path: Path) -> dict[str, str]:
    """Tensor to file name."""
    try:
        document = json.loads(path.read_bytes(), object_pairs_hook=_each_once)
        places = document["weight_map"]
        if not places or not all(_is_name(file) for file in places.values()):
            raise ValueError("weight_map names no files of this folder")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _misfit("an index of weights can't be read", f"{path}: {error}") from error
    return dict(places)


def _is_name(file: object) -> bool:
    return isinstance(file, str) and file.endswith(".safetensors") and Path(file).name == file


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it names something twice")
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _misfit(what: str, why: str) -> MalformedFile:
    return MalformedFile(what, why, TODO)
