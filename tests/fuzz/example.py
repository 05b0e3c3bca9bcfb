"""A well-formed document of any message type, made from the type's own JSON schema.

In: a pydantic model. Out: JSON bytes with every field in it. New messages are fuzzed without anybody listing them.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

HASH, ADDRESS, SIGNATURE = "0x" + "5a" * 32, "0x" + "5a" * 20, "0x" + "5a" * 64 + "1b"
_BY_PATTERN = {
    "^0x[0-9a-f]{64}$": HASH,
    "^0x[0-9a-f]{40}$": ADDRESS,
    "^0x[0-9a-f]{130}$": SIGNATURE,
}


def example(shape: type[BaseModel]) -> bytes:
    """A document that `shape` accepts."""
    schema = shape.model_json_schema()
    return json.dumps(value_of(schema, schema.get("$defs", {}))).encode()


def value_of(schema: dict[str, Any], known: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return value_of(known[schema["$ref"].rpartition("/")[2]], known)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return value_of(schema[choice][0], known)
    kind = schema.get("type")
    if kind == "object":
        return {name: value_of(part, known) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        items = schema.get("prefixItems") or [schema.get("items", {})]
        return [value_of(item, known) for item in items]
    return _plain(kind, schema)


def _plain(kind: str | None, schema: dict[str, Any]) -> Any:
    if kind == "string":
        if schema.get("format") == "base64":
            return "QUJD"
        return _BY_PATTERN.get(schema.get("pattern", ""), "a1")
    if kind in ("integer", "number"):
        return max(schema.get("minimum", 1), schema.get("exclusiveMinimum", 0), 1)
    return {"boolean": True, "null": None}.get(kind or "", 1)
