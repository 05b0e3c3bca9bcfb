"""Bundles of real submissions with one bit turned round: `audit verify` says ✗ at the value's step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from protocol.bundle import ProofBundle
from protocol.cli import run
from tests.documents import checked
from tests.integration.conftest import ON_ONE_NODE
from tests.integration.tampered import FILE, Document, flipped, flipped_file, paths
from tests.integration.test_audit import History, failed, history
from verifier.audit.bundle.ground import chain_ground, claims_alone
from verifier.audit.bundle.verify import verify_bundle

__all__ = ["history"]

pytestmark = [ON_ONE_NODE, pytest.mark.usefixtures("local_chain")]

NOTHING = {
    "submission.message.pool_id": "digest",
    "submission.message.policy_version": "lease",
    "submission.message.node": "node signature",
    "submission.message.counter": "lease",
    "submission.message.rules_hash": "lease",
    "submission.message.content_hash": "digest",
    "submission.signature": "node signature",
    "task.message.pool_id": "lease",
    "task.message.beacon_hash": "lease",
    "task.message.price_wei": "lease",
    "task.message.max_units": "lease",
    "task.message.deadline": "lease",
    "task.signature": "lease",
    "receipt.message.submission_id": "receipt",
    "receipt.message.received_block": "receipt",
    "receipt.message.include_by_epoch": "receipt",
    "receipt.signature": "receipt",
    "rules.thresholds.toploc_mantissa_mean.slash": "lease",
    "rules.environment.environment_hash": "lease",
    "file": "digest",
    "received.entry.event.data.num_units": "log event",
    "received.entry.event.time": "log event",
    "received.entry.subject": "log event",
    "received.entry.event_hash": "log event",
    "received.entry.leaf_hash": "inclusion",
    "received.inclusion.index": "inclusion",
    "received.inclusion.path.0": "inclusion",
    "received.inclusion.size": "inclusion",
    "received.inclusion.epoch": "inclusion",
    "links.0.old_epoch": "append-only",
    "links.0.path.0": "append-only",
    "chain.heads.0.root": "append-only",
    "chain.heads.0.size": "inclusion",
    "verdicts.0.verdict.message.submission_id": "verdicts",
    "verdicts.0.verdict.message.epoch": "verdicts",
    "verdicts.0.verdict.message.seat": "verdicts",
    "verdicts.0.verdict.message.round": "verdicts",
    "verdicts.0.verdict.message.outcome": "decision",
    "verdicts.0.verdict.message.reason": "verdicts",
    "verdicts.0.verdict.message.evidence_hash": "verdicts",
    "verdicts.0.verdict.signature": "verdicts",
    "verdicts.0.validator": "verdicts",
    "verdicts.0.evidence.seed": "verdicts",
    "verdicts.0.evidence.checks.0.outcome": "verdicts",
    "verdicts.0.revealed.entry.event.data.in_time": "verdicts",
    "verdicts.0.revealed.inclusion.path.0": "verdicts",
    "verdicts.0.salt": "commitments",
    "verdicts.0.path.0": "commitments",
    "verdicts.0.commitment.message.root": "commitments",
    "verdicts.0.commitment.message.part": "commitments",
    "verdicts.0.commitment.signature": "commitments",
    "verdicts.0.committed.entry.event.data.root": "commitments",
    "verdicts.0.committed.inclusion.path.0": "commitments",
    "verdicts.0.draw": "draws",
    "settled.entry.event.type": "decision",
    "settled.inclusion.path.0": "decision",
    "settled.entry.event.data.amount_wei": "payment",
    "settled.entry.event.data.payments.1.1": "payment",
    "earnings.account": "earnings",
    "earnings.cumulative_wei": "earnings",
    "earnings.path.0": "earnings",
    "earnings.root": "earnings",
    "earnings.epoch": "earnings",
    "chain.earnings.root": "earnings",
    "chain.version.beacon_hash": "lease",
    "chain.deployment_salt": "digest",
    "chain.provider": "node signature",
    "chain.coordinator": "lease",
}
"""Value → step, where the paid bundle itself shows it."""
CHAIN = {
    "chain.chain_id": "deployment",
    "chain.contracts.ledger": "deployment",
    "chain.contracts.registry": "deployment",
    "chain.pool_id": "deployment",
    "chain.trainer": "deployment",
    "chain.accept_quorum": "deployment",
    "chain.slash_quorum": "deployment",
    "chain.reaudit_bps": "deployment",
    "chain.version.manifest_hash": "lease",
    "chain.heads.1.beacon_hash": "heads",
    "chain.heads.4.epoch": "heads",
    "chain.heads.4.size": "heads",
    "chain.heads.4.root": "heads",
    "chain.seats.0.validator": "draws",
    "chain.seats.1.active_from_epoch": "draws",
    "chain.earnings.total_wei": "earnings",
    "chain.earnings.claimed_wei": "earnings",
}
"""Where only the chain shows it: what a bundle says about the chain."""
COURT = {
    "chain.case.state": "slash",
    "chain.case.reason": "slash",
    "chain.case.held_wei": "slash",
    "chain.case.provider": "slash",
    "verdicts.1.verdict.message.outcome": "verdicts",
    "verdicts.1.verdict.signature": "verdicts",
    "earnings.cumulative_wei": "earnings",
}
"""In the bundle of the slashed one, against the chain."""
HEAD = {"chain.heads.4.epoch": "heads", "chain.heads.4.size": "heads", "chain.heads.4.root": "heads"}
"""Against a trusted head."""


def documents(history: History) -> dict[str, Document]:
    """Both bundles by submission id."""
    client = history.world.client()
    return {name: json.loads(client.bundle(name).model_dump_json()) for name in (history.paid, history.slashed)}


@pytest.fixture(scope="module")
def bundles(history: History) -> dict[str, Document]:
    return documents(history)


def chain_flags(history: History) -> list[str]:
    return ["--chain", history.world.chain.process.url, "--ledger", history.world.contracts.addresses.ledger]


class Command:
    """`proofpool audit verify HASH --bundle FILE`, with what it prints."""

    def __init__(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._file = file
        self._capsys = capsys

    def check(self, submission_id: str, document: Document, *flags: str) -> tuple[int, dict[str, str]]:
        """Exit code, and the state of each step."""
        self._file.write_text(json.dumps(document))
        arguments = ["audit", "verify", submission_id, "--bundle", str(self._file), "--json", *flags]
        code = run(arguments)
        printed = checked(arguments, self._capsys.readouterr().out)
        return code, {step["name"]: step["state"] for step in json.loads(printed)["steps"]} if printed else {}


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path / "bundle.json", capsys)


def head_flag(document: Document) -> str:
    head = document["chain"]["heads"][-1]
    return f"{head['epoch']}:{head['size']}:{head['root']}"


def test_the_bundles_as_they_are_hold(history: History, bundles: dict[str, Document], command: Command) -> None:
    for submission_id, document in bundles.items():
        for flags in ([], chain_flags(history), ["--trusted-head", head_flag(document)]):
            code, steps = command.check(submission_id, document, *flags)
            assert code == 0 and "failed" not in steps.values()


@pytest.mark.parametrize("path", NOTHING)
def test_a_flipped_bit_that_the_bundle_shows(
    path: str, history: History, bundles: dict[str, Document], command: Command
) -> None:
    tampered = flipped(bundles[history.paid], path)
    code, steps = command.check(history.paid, tampered)
    assert (code, steps[NOTHING[path]]) == (3, "failed"), steps


@pytest.mark.parametrize("path", CHAIN)
def test_a_flipped_bit_that_the_chain_shows(
    path: str, history: History, bundles: dict[str, Document], command: Command
) -> None:
    tampered = flipped(bundles[history.paid], path)
    code, steps = command.check(history.paid, tampered, *chain_flags(history))
    assert (code, steps[CHAIN[path]]) == (3, "failed"), steps


@pytest.mark.parametrize("path", COURT)
def test_a_flipped_bit_about_a_case(
    path: str, history: History, bundles: dict[str, Document], command: Command
) -> None:
    tampered = flipped(bundles[history.slashed], path)
    code, steps = command.check(history.slashed, tampered, *chain_flags(history))
    assert (code, steps[COURT[path]]) == (3, "failed"), steps


@pytest.mark.parametrize("path", HEAD)
def test_a_flipped_bit_that_a_trusted_head_shows(
    path: str, history: History, bundles: dict[str, Document], command: Command
) -> None:
    honest = bundles[history.paid]
    code, steps = command.check(history.paid, flipped(honest, path), "--trusted-head", head_flag(honest))
    assert (code, steps[HEAD[path]]) == (3, "failed"), steps


def test_a_flipped_bit_of_the_version_makes_it_no_bundle(
    history: History, bundles: dict[str, Document], command: Command
) -> None:
    assert command.check(history.paid, flipped(bundles[history.paid], "schema_version")) == (2, {})


@pytest.mark.parametrize("bit", range(0, 8 * 1000, 397))
def test_any_bit_of_the_file(bit: int, history: History, bundles: dict[str, Document]) -> None:
    """Also where the rows stay the same: the log names the very bytes."""
    honest = bundles[history.paid]
    report = verify_bundle(*read(honest | {FILE: flipped_file(honest[FILE], bit)}), history.paid)
    assert "log event" in failed(report)


def read(document: Document):  # type: ignore[no-untyped-def]
    bundle = ProofBundle.model_validate_json(json.dumps(document))
    return bundle, claims_alone(bundle)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["paid", "slashed"])
def test_every_value_counts(
    which: str, history: History, bundles: dict[str, Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bit of any value: noticed with the chain, but for freshness. Alone, only what it says of the chain passes."""
    submission_id, rpc = getattr(history, which), history.world.contracts.client.rpc
    monkeypatch.setattr(rpc, "call", remembered(rpc.call))
    monkeypatch.setattr(rpc, "batch", remembered(rpc.batch))
    for path, bundle in readable(bundles[submission_id]):
        says_of_the_chain, only_informs = path.startswith("chain."), path.startswith("freshness.")
        ground = chain_ground(bundle, history.world.contracts)
        assert bool(failed(verify_bundle(bundle, ground, submission_id))) != only_informs, path
        alone = failed(verify_bundle(bundle, claims_alone(bundle), submission_id))
        assert alone or says_of_the_chain or only_informs, path


def remembered(ask: Callable[..., Any]) -> Callable[..., Any]:
    """The chain stands still here: a question that was answered isn't asked again. A refusal is."""
    answers: dict[str, Any] = {}

    def answer(*arguments: Any) -> Any:
        key = repr(arguments)
        if key not in answers:
            answers[key] = ask(*arguments)
        return answers[key]

    return answer


def readable(document: Document) -> Iterator[tuple[str, ProofBundle]]:
    """A flipped bit of each value; where it makes the document no bundle, it is a version or a rule's."""
    for path in paths(document):
        try:
            yield path, ProofBundle.model_validate_json(json.dumps(flipped(document, path)))
        except ValidationError:
            assert path.endswith("schema_version") or path.startswith("rules."), path
