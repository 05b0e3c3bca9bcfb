"""A small contract for tests, with its compiled form (solc 0.8.37, optimizer 200 runs, evmVersion cancun)."""

import json
from functools import cache
from pathlib import Path

from protocol.canonical import from_hex0x
from protocol.chain.abi import ContractAbi


@cache
def probe_abi() -> ContractAbi:
    return ContractAbi(_document()["abi"])


def probe_abi_json() -> list[dict]:
    return _document()["abi"]


def probe_deployment(first_value: int) -> bytes:
    return from_hex0x(_document()["bytecode"]) + probe_abi().encode_constructor(first_value)


def _document() -> dict:
    return json.loads((Path(__file__).parent / "Probe.json").read_text())
