"""What commands print with `--json`, held against the schemas in docs/schemas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from protocol.documents import ONE_A_LINE, SHAPES, shape_of


def fitting(command: str, text: str) -> Any:
    """The document, or a list of lines, once it fits the shape that the command's schema is made of."""
    shape = shape_of(command)
    if command in ONE_A_LINE:
        return [_read(shape, line) for line in text.splitlines()]
    return _read(shape, text)


def checked(arguments: Sequence[str], printed: str) -> str:
    """What a command line printed, held against its schema where it asked for `--json` and something came."""
    if "--json" in arguments and printed:
        fitting(arguments[0] if arguments[0] in SHAPES else " ".join(arguments[:2]), printed)
    return printed


def _read(shape: Any, text: str) -> Any:
    """Every field is one of the shape's, and what pydantic reads is what stands there."""
    read = json.loads(shape.dump_json(shape.validate_json(text)))
    assert read == json.loads(text)
    return read
