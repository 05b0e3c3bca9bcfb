"""Solidity's ABI in Python values: encode calls, decode results, events and custom errors.

In: a contract's JSON ABI. Out: bytes to send, and Python values of what comes back.

    uintN, intN → int · bool → bool · string → str · bytesN and bytes → 0x-hex str · address → 0x-hex str, lower case
    struct → dict by snake_case name; given as a mapping or an object with such attributes (a pydantic message)

Names are the contract's, in snake_case for values ("poolId" → `pool_id`) and unchanged for functions, events and
errors. Source: Solidity's contract ABI specification. Second implementation in the tests: web3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError, EncodingError

from protocol.canonical import from_hex0x, hex0x, keccak256
from protocol.errors import ChainError, UsageError

_ARRAY = re.compile(r"^(.*)\[(\d*)\]$")


def snake_case(name: str) -> str:
    """
    >>> snake_case("policyVersion"), snake_case("numSeats"), snake_case("root")
    ('policy_version', 'num_seats', 'root')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().lstrip("_")


@dataclass(frozen=True)
class Parameter:
    """One typed value of a function, event or error; structs have components."""

    name: str
    kind: str
    indexed: bool = False
    components: tuple[Parameter, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Parameter:
        components = tuple(cls.of(component) for component in document.get("components", ()))
        return cls(snake_case(document["name"]), document["type"], document.get("indexed", False), components)

    @cached_property
    def signature(self) -> str:
        """The canonical type, structs written as tuples."""
        if not self.kind.startswith("tuple"):
            return self.kind
        return "(" + ",".join(c.signature for c in self.components) + ")" + self.kind.removeprefix("tuple")

    def lower(self, value: Any) -> Any:
        """From our values to those of eth_abi."""
        if match := _ARRAY.match(self.kind):
            return [self._item(match[1]).lower(item) for item in value]
        if self.kind == "tuple":
            return tuple(c.lower(_member(value, c.name)) for c in self.components)
        return from_hex0x(value) if self.kind.startswith("bytes") and isinstance(value, str) else value

    def lift(self, value: Any) -> Any:
        """From eth_abi's values to ours."""
        if match := _ARRAY.match(self.kind):
            return tuple(self._item(match[1]).lift(item) for item in value)
        if self.kind == "tuple":
            return {c.name: c.lift(item) for c, item in zip(self.components, value, strict=True)}
        if isinstance(value, bytes):
            return hex0x(value)
        return value.lower() if self.kind == "address" else value

    def _item(self, kind: str) -> Parameter:
        return Parameter(self.name, kind, components=self.components)


def _member(value: Any, name: str) -> Any:
    try:
        return value[name] if isinstance(value, Mapping) else getattr(value, name)
    except (KeyError, AttributeError) as error:
        raise UsageError("a struct lacks a member", f"{name} in {type(value).__name__}") from error


@dataclass(frozen=True)
class _Entry:
    """What functions, events and errors share: a name and typed inputs."""

    name: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...] = ()

    @cached_property
    def signature(self) -> str:
        return f"{self.name}({','.join(p.signature for p in self.inputs)})"

    @cached_property
    def topic(self) -> str:
        return hex0x(keccak256(self.signature.encode()))

    @cached_property
    def selector(self) -> bytes:
        return keccak256(self.signature.encode())[:4]


@dataclass(frozen=True)
class DecodedError:
    """A custom error, `Error(string)` or `Panic(uint256)`, with its arguments in order."""

    name: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class DecodedEvent:
    """An event's name and its arguments by snake_case name."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ErrorTable:
    """Custom errors of several contracts, since one contract's refusal can come out of a call to another."""

    by_selector: Mapping[bytes, _Entry] = field(default_factory=dict)

    @classmethod
    def of(cls, abis: Iterable[ContractAbi]) -> ErrorTable:
        builtin = [
            _Entry("Error", (Parameter("message", "string"),)),
            _Entry("Panic", (Parameter("code", "uint256"),)),
        ]
        entries = [*builtin, *(entry for abi in abis for entry in abi.errors.values())]
        return cls({entry.selector: entry for entry in entries})

    def decode(self, data: bytes) -> DecodedError | None:
        """None where the data names no known error."""
        entry = self.by_selector.get(data[:4])
        if entry is None:
            return None
        return DecodedError(entry.name, _decode(entry.inputs, data[4:], f"error {entry.name}"))


class ContractAbi:
    """One contract's functions, events and errors by name.

    Example: `abi.encode_call("claim", 1, account, amount, proof)`.
    """

    def __init__(self, document: Iterable[Mapping[str, Any]]) -> None:
        entries = list(document)
        self.functions = _by_name(entries, "function")
        self.events = _by_name(entries, "event")
        self.errors = _by_name(entries, "error")
        self._constructor = next((_entry(e) for e in entries if e["type"] == "constructor"), _Entry("", ()))
        self._events_by_topic = {event.topic: event for event in self.events.values()}

    def encode_call(self, function: str, *arguments: Any) -> bytes:
        """Selector and arguments. Raises UsageError for an unknown name or values that don't fit the types."""
        entry = self._function(function)
        return entry.selector + _encode(entry.inputs, arguments, function)

    def encode_constructor(self, *arguments: Any) -> bytes:
        """What is appended to the bytecode of a deployment."""
        return _encode(self._constructor.inputs, arguments, "constructor")

    def decode_call(self, data: bytes) -> tuple[str, tuple[Any, ...]]:
        """The function and arguments of a transaction's data. Raises ChainError where no function fits."""
        for entry in self.functions.values():
            if entry.selector == data[:4]:
                return entry.name, _decode(entry.inputs, data[4:], entry.name)
        raise ChainError("a call names no function of the contract", hex0x(data[:4]))

    def decode_result(self, function: str, data: bytes) -> Any:
        """One value as it is, several as a dict by name (a tuple where the contract names none)."""
        outputs = self._function(function).outputs
        values = _decode(outputs, data, function)
        if len(values) == 1:
            return values[0]
        if all(parameter.name for parameter in outputs):
            return {parameter.name: value for parameter, value in zip(outputs, values, strict=True)}
        return values

    def decode_event(self, topics: Sequence[str], data: bytes) -> DecodedEvent | None:
        """None where the log isn't an event of this contract."""
        event = self._events_by_topic.get(topics[0]) if topics else None
        if event is None:
            return None
        indexed = [p for p in event.inputs if p.indexed]
        plain = [p for p in event.inputs if not p.indexed]
        if len(indexed) != len(topics) - 1:
            raise ChainError(f"a log of {event.name} doesn't fit its ABI", f"{len(topics)} topics")
        found = {p.name: _decode_topic(p, topic) for p, topic in zip(indexed, topics[1:], strict=True)}
        found |= zip((p.name for p in plain), _decode(plain, data, event.name), strict=True)
        return DecodedEvent(event.name, {p.name: found[p.name] for p in event.inputs})

    def topic(self, event: str) -> str:
        return self.events[event].topic

    def _function(self, name: str) -> _Entry:
        try:
            return self.functions[name]
        except KeyError as error:
            raise UsageError("the contract has no such function", name, "overloads go by full signature") from error


def _by_name(entries: Iterable[Mapping[str, Any]], kind: str) -> dict[str, _Entry]:
    """Entries by name; those that share a name are found by their full signature only."""
    found = [_entry(e) for e in entries if e["type"] == kind]
    by_signature = {entry.signature: entry for entry in found}
    names = [entry.name for entry in found]
    return by_signature | {entry.name: entry for entry in found if names.count(entry.name) == 1}


def _entry(document: Mapping[str, Any]) -> _Entry:
    return _Entry(
        document.get("name", ""),
        tuple(Parameter.of(p) for p in document.get("inputs", ())),
        tuple(Parameter.of(p) for p in document.get("outputs", ())),
    )


def _encode(parameters: Sequence[Parameter], arguments: Sequence[Any], name: str) -> bytes:
    if len(parameters) != len(arguments):
        raise UsageError(f"{name} takes {len(parameters)} arguments", f"{len(arguments)} were given")
    try:
        values = [p.lower(argument) for p, argument in zip(parameters, arguments, strict=True)]
        return encode([p.signature for p in parameters], values)
    except (EncodingError, ValueError, TypeError) as error:
        raise UsageError(f"{name} can't take these arguments", str(error)) from error


def _decode(parameters: Sequence[Parameter], data: bytes, name: str) -> tuple[Any, ...]:
    try:
        values = decode([p.signature for p in parameters], data)
    except (DecodingError, OverflowError, ValueError) as error:
        raise ChainError(f"the chain's answer for {name} doesn't fit its ABI", str(error)[:200]) from error
    return tuple(p.lift(value) for p, value in zip(parameters, values, strict=True))


def _decode_topic(parameter: Parameter, topic: str) -> Any:
    """An indexed value; of strings, arrays and structs the log holds only their hash."""
    if parameter.kind in ("string", "bytes") or parameter.kind.startswith("tuple") or _ARRAY.match(parameter.kind):
        return topic
    return _decode([parameter], from_hex0x(topic), parameter.name)[0]
