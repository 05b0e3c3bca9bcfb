"""The limits that a pool's rules start from, as `proofpool verifier calibrate` measured them (docs/thresholds.md).

In: the threshold files of this folder, one a model and precision. Out: `Thresholds`.
"""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from protocol.canonical import hex0x
from protocol.engines.names import Dtype
from protocol.errors import ConfigError, UsageError
from protocol.rules import Thresholds
from protocol.tokenizer import TOKENIZER_FILE

DEFAULT = "testnet.float32"
SUFFIX = ".json"
SHAPE_FILES = ("config.json", TOKENIZER_FILE)
"""What doesn't change while a model is trained; its weights do, and limits are for all of its versions."""


def default_thresholds() -> Thresholds:
    """Limits for float32 engines on CPUs, calibrated on the testnet's base model."""
    return thresholds_of(DEFAULT)


def names() -> list[str]:
    """Of the files that come with proofpool: model and precision."""
    folder = files(__name__)
    return sorted(entry.name.removesuffix(SUFFIX) for entry in folder.iterdir() if entry.name.endswith(SUFFIX))


def thresholds_of(name: str) -> Thresholds:
    """The limits of one of `names`; raises UsageError where there is no such file."""
    if name not in names():
        raise UsageError("there are no such thresholds", name, f"there are: {', '.join(names())}")
    return _limits((files(__name__) / f"{name}{SUFFIX}").read_text(encoding="utf-8"), name)


def thresholds_for(model_folder: Path, dtype: Dtype = "float32") -> Thresholds:
    """The limits that were measured on a model of this shape and with this tokenizer, whatever its weights.

    Raises ConfigError where none of the files that come with proofpool is for it.
    """
    for name in names():
        measured = json.loads((files(__name__) / f"{name}{SUFFIX}").read_text(encoding="utf-8"))
        if measured["dtype"] == dtype and all(
            measured["model"][file] == _file_hash(model_folder / file) for file in SHAPE_FILES
        ):
            return thresholds_of(name)
    raise ConfigError(
        f"no limits were measured for the model in {model_folder}",
        f"its {' and '.join(SHAPE_FILES)} are of none of: {', '.join(names())}",
        "name one of those that fits, or measure them: proofpool verifier calibrate (docs/thresholds.md)",
    )


def read_thresholds(path: Path) -> Thresholds:
    """The limits in a threshold file anywhere; raises ConfigError where it is none."""
    try:
        return _limits(path.read_text(encoding="utf-8"), f"{path}")
    except OSError as error:
        raise ConfigError("a threshold file can't be read", f"{path}: {error.strerror}") from error


def _file_hash(path: Path) -> str:
    try:
        return hex0x(hashlib.sha256(path.read_bytes()).digest())
    except OSError as error:
        raise ConfigError("a model's file can't be read", f"{path}: {error.strerror}") from error


def _limits(text: str, name: str) -> Thresholds:
    try:
        return Thresholds.model_validate(json.loads(text)["limits"])
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        why = f"{name}: {str(error).splitlines()[0]}"
        raise ConfigError("not a threshold file", why, "make one with `proofpool verifier calibrate`") from error
