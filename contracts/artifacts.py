"""The compiled contracts: ABI and code as committed under `artifacts/`, so that running needs no compiler.

In: a contract's name. Out: an `Artifact`. They are made by `npm run compile` in this folder, and CI compares.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

ContractName = Literal["Credits", "Registry", "Pools", "Ledger", "Court", "Jury"]

CONTRACT_NAMES: tuple[ContractName, ...] = get_args(ContractName)
"""In order of deployment."""


@dataclass(frozen=True)
class Artifact:
    """One compiled contract. `abi` is the JSON ABI, custom errors of the libraries that it uses included."""

    contract: ContractName
    compiler: str
    abi: tuple[dict[str, Any], ...]
    bytecode: bytes
    """Init code, to which the ABI-encoded constructor arguments are appended."""
    deployed_sha256: str
    """0x-hex, of the deployed code with zeros in the places of `immutables`."""
    immutables: tuple[tuple[int, int], ...]
    """(start, length) in bytes of what the constructor writes into the deployed code."""

    def entry(self, kind: str, name: str = "") -> dict[str, Any]:
        """The ABI entry of `kind` (function, event, error, constructor) called `name`; raises KeyError if missing."""
        for entry in self.abi:
            if entry["type"] == kind and entry.get("name", "") == name:
                return entry
        raise KeyError(f"{self.contract} has no {kind} {name}")

    def matches(self, code: bytes) -> bool:
        """Whether `code`, as an address holds it, is this contract, whatever its constructor's arguments were."""
        plain = bytearray(code)
        for start, length in self.immutables:
            plain[start : start + length] = bytes(length)
        return "0x" + hashlib.sha256(plain).hexdigest() == self.deployed_sha256


@cache
def load(contract: ContractName) -> Artifact:
    """The committed artifact of `contract`."""
    document = json.loads(files("contracts").joinpath("artifacts", f"{contract}.json").read_text("utf-8"))
    return Artifact(
        contract=contract,
        compiler=document["compiler"],
        abi=tuple(document["abi"]),
        bytecode=bytes.fromhex(document["bytecode"].removeprefix("0x")),
        deployed_sha256=document["deployed_bytecode_sha256"],
        immutables=tuple((start, length) for start, length in document["immutables"]),
    )
