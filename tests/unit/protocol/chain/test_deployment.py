"""The deployment file: read as it was written, and refused where a role couldn't use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.chain.contracts import NAMES
from protocol.chain.deployment import read_deployment, write_deployment
from protocol.errors import ConfigError


def document(**changes: Any) -> bytes:
    contracts = {name: {"address": f"0x{i:040x}", "code_hash": "0x" + "22" * 32} for i, name in enumerate(NAMES, 1)}
    values = {"schema_version": 1, "chain_id": 31337, "block": 7, "salt": "0x" + "33" * 32, "contracts": contracts}
    return json.dumps(values | changes).encode()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(document())
    found = read_deployment(tmp_path / "a.json")
    assert found.ledger == found.addresses.ledger and found.block == 7
    write_deployment(tmp_path / "b.json", found)
    assert read_deployment(tmp_path / "b.json") == found


@pytest.mark.parametrize("missing", NAMES)
def test_a_file_that_lacks_a_contract_is_refused_and_says_which(tmp_path: Path, missing: str) -> None:
    contracts = json.loads(document())["contracts"]
    del contracts[missing]
    (tmp_path / "a.json").write_bytes(document(contracts=contracts))
    with pytest.raises(ConfigError, match="no deployment file") as refused:
        read_deployment(tmp_path / "a.json")
    assert f"there is no {missing}" in refused.value.why
