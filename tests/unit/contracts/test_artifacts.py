"""The committed artifacts are complete, and tell their own code from any other."""

import hashlib
import json
from pathlib import Path

import pytest

import contracts
from contracts.artifacts import CONTRACT_NAMES, load


@pytest.mark.parametrize("contract", CONTRACT_NAMES)
def test_an_artifact_has_abi_and_code_within_the_chains_limit(contract):
    artifact = load(contract)
    assert artifact.contract == contract
    assert artifact.entry("constructor")["inputs"]
    assert len(artifact.bytecode) <= 49_152  # EIP-3860


def test_entries_are_found_by_kind_and_name_and_missing_ones_raise():
    ledger = load("Ledger")
    assert [member["name"] for member in ledger.entry("event", "EpochCommitted")["inputs"]] == [
        "poolId",
        "epoch",
        "size",
        "root",
        "beaconBlock",
    ]
    with pytest.raises(KeyError, match="Ledger has no function mint"):
        ledger.entry("function", "mint")


def test_errors_of_the_libraries_are_in_the_abi():
    assert load("Registry").entry("error", "NotDrawn")
    assert load("Pools").entry("error", "UnbondingTooShort")


def test_foreign_code_does_not_match():
    assert not load("Court").matches(b"")
    assert not load("Court").matches(load("Ledger").bytecode)


@pytest.mark.parametrize("contract", CONTRACT_NAMES)
def test_artifacts_were_compiled_from_the_sources_beside_them(contract):
    folder = Path(contracts.__file__).parent
    digest = hashlib.sha256()
    for source in sorted(folder.glob("*.sol"), key=lambda path: path.name):
        digest.update(f"{source.name}\0{source.read_text('utf-8')}\0".encode())
    artifact = json.loads((folder / "artifacts" / f"{contract}.json").read_text("utf-8"))
    assert artifact["sources_sha256"] == "0x" + digest.hexdigest(), "run `make contracts` and commit the result"
