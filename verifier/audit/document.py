"""A JSON file that somebody hands an auditor's command: read whole, or a usage error that says what is wrong with it.

In: a path, the shape that it has to have. Out: the shape. A file is a stranger's as an answer is: its length is
bounded, and so is what it unfolds into (`protocol/unfolding.py`). A name that stands twice in an object is refused:
readers differ in which of the two they take, and two auditors would see two documents.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from protocol.errors import UsageError
from protocol.unfolding import check_unfolding

MAX_BYTES = 400 << 20
"""The largest rollout file that a coordinator takes, in base64, and what stands beside it in a bundle."""

T = TypeVar("T", bound=BaseModel)


def read_document(file: Path, shape: type[T], what: str, todo: str) -> T:
    """`what` the file should be, such as "a bundle". Raises UsageError."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UsageError(f"this is not {what}", f"{file}: it is longer than {MAX_BYTES} bytes", todo)
        check_unfolding(content)
        document = shape.model_validate_json(content)
        json.loads(content, object_pairs_hook=_once)
        return document
    except OSError as error:
        raise UsageError(f"the file of {what} can't be read", f"{file}: {error.strerror}", todo) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        why = f"{file}: {first['msg']}{f' at `{place}`' if place else ''}"
        raise UsageError(f"this is not {what}, or a damaged one", why, todo) from error
    except ValueError as error:
        raise UsageError(f"this is not {what}", f"{file}: {error}", todo) from error


def _once(members: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in members}) < len(members):
        names = [name for name, _ in members]
        raise ValueError(f"a name stands twice in an object: {next(n for n in names if names.count(n) > 1)[:100]}")
