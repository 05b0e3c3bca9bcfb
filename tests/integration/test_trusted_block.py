"""A bundle anchored by one block that somebody trusts, made on both kinds of chain and checked with nobody asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.indexer import index_chain
from protocol.bundle import ProofBundle
from protocol.chain.rpc import quantity
from protocol.chain.sealed import SealedHeader, seal_header
from protocol.cli import run
from protocol.errors import ChainError, NotFound, UsageError, VerificationFailed
from tests.integration.test_audit import History, history, served
from verifier.audit.bundle import block
from verifier.audit.bundle.block import head_at_block, known_by_block, parse_block, prove_block

__all__ = ["history"]

pytestmark = pytest.mark.usefixtures("local_chain")


def newest(history: History) -> tuple[int, str]:
    head = history.world.contracts.client.head()
    return head.number, head.block_hash


def proven(history: History) -> ProofBundle:
    """The bundle, led to the newest block."""
    proof, _ = prove_block(history.world.contracts, history.world.pool_id, epoch=history.bundle.chain.heads[-1].epoch)
    return history.bundle.model_copy(update={"block": proof})


def flip(text: str) -> str:
    """Another letter near the end."""
    return text[:-3] + ("0" if text[-3] != "0" else "1") + text[-2:]


def of_epoch(bundle: ProofBundle) -> tuple[int, str]:
    """The block that took the epoch."""
    assert bundle.block is not None
    header = SealedHeader.of(bytes.fromhex(bundle.block.headers[0][2:]))
    return header.number, header.block_hash


def test_a_trusted_block_proves_the_head_that_the_bundle_leads_to(history: History) -> None:
    bundle, head = proven(history), history.bundle.chain.heads[-1]
    for at in (newest(history), of_epoch(bundle)):
        known = known_by_block(bundle, *at, None)
        assert (known.epoch, known.size, known.root) == (head.epoch, head.size, head.root)


def test_what_is_changed_in_the_proof_is_found(history: History) -> None:
    history.world.close_epoch()
    bundle, (number, block_hash) = proven(history), newest(history)
    proof = bundle.block
    assert proof is not None and len(proof.headers) > 2
    ledger, pool = bundle.chain.contracts.ledger, bundle.chain.pool_id

    def changed(name: str, place: int) -> dict[str, Any]:
        values = getattr(proof, name)
        return {name: (*values[:place], flip(values[place]), *values[place + 1 :])}

    changes = [changed(name, place) for name in ("headers", "path") for place in range(len(getattr(proof, name)))]
    changes += [
        {"headers": proof.headers[1:]},
        {"headers": (*proof.headers[:1], *proof.headers[2:])},
        {"headers": ("0x",)},
        {"path": ()},
        {"transaction_index": proof.transaction_index + 1},
    ]
    for change in changes:
        with pytest.raises(VerificationFailed):
            head_at_block(proof.model_copy(update=change), ledger, pool, number, block_hash)
    for wrong in ((number, flip(block_hash)), (number + 1, block_hash), (0, block_hash)):
        with pytest.raises(VerificationFailed):
            head_at_block(proof, ledger, pool, *wrong)
    for other in ((flip(ledger), pool), (ledger, pool + 1)):
        with pytest.raises(VerificationFailed, match="commits no epoch of this pool"):
            head_at_block(proof, *other, number, block_hash)


def test_a_node_that_lies_about_a_block_makes_no_proof(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    contracts, pool_id = history.world.contracts, history.world.pool_id
    document = contracts.client.rpc.call("eth_getBlockByNumber", quantity(newest(history)[0]), False)
    assert seal_header(document)
    with pytest.raises(ChainError, match="can't be put together"):
        seal_header(document | {"receiptsRoot": flip(document["receiptsRoot"])})
    honest = block._receipts
    monkeypatch.setattr(block, "_receipts", lambda *a: [one | {"status": "0x0"} for one in honest(*a)])
    with pytest.raises(ChainError, match="aren't the block's"):
        prove_block(contracts, pool_id)


def test_a_bundle_leads_to_the_block_that_is_given(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, file = history.world, tmp_path / "bundle.json"
    index_chain(world.coordinator)
    number, block_hash = newest(history)
    ledger = world.contracts.addresses.ledger
    chain = ["--chain", world.contracts.client.rpc.url, "--ledger", ledger]
    with served(world) as url:
        make = ["audit", "bundle", history.paid, "--coordinator", url, "--out", str(file)]
        assert run([*make, *chain]) == 0
        newer = json.loads(file.read_text())["block"]
        assert run([*make, *chain, "--block", str(number)]) == 0
        assert json.loads(file.read_text())["block"] == newer
        assert run([*make, "--block", "3"]) == 2
        assert run([*make, *chain, "--block", "1"]) == 1
    verify, trusted = ["audit", "verify", history.paid, "--bundle", str(file)], f"{number}:{block_hash}"
    capsys.readouterr()
    assert run([*verify, "--trusted-block", trusted]) == 0
    assert f"\nok (anchored: block {number} {block_hash}, head of epoch " in capsys.readouterr().out
    assert run([*verify, "--trusted-block", trusted, "--ledger", ledger]) == 0
    assert run([*verify, "--trusted-block", trusted, "--ledger", "0x" + "77" * 20]) == 3
    assert run([*verify, "--trusted-block", f"{number}:{flip(block_hash)}"]) == 3
    assert run([*verify, "--trusted-block", f"{number}:0x12"]) == 2
    assert run([*verify, "--trusted-block", trusted, *chain]) == 2
    assert run([*verify, "--trusted-block", trusted, "--trusted-head", "x"]) == 2
    file.write_text(history.bundle.model_dump_json())
    assert run([*verify, "--trusted-block", trusted]) == 2


def test_blocks_are_named_by_number_and_hash() -> None:
    assert parse_block("7:0x" + "AB" * 32) == (7, "0x" + "ab" * 32)
    for wrong in ("", "7", "7:", ":0x" + "ab" * 32, "-1:0x" + "ab" * 32, "x:0x" + "ab" * 32, "7:0x" + "ab" * 32 + ":1"):
        with pytest.raises(UsageError):
            parse_block(wrong)


def test_where_no_epoch_was_committed_before_the_block_nothing_is_made(history: History) -> None:
    with pytest.raises(NotFound, match="no epoch was committed shortly before"):
        prove_block(history.world.contracts, history.world.pool_id, number=1)
