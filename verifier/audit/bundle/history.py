"""Is it in the log, and is the log the one that the chain anchors?

In: log events with their proofs, and heads. Out: one check a function.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocol.api import LogEntry
from protocol.bundle import ChainFacts, HeadFact, LoggedEvent, ProofBundle
from protocol.canonical import canonical_json, hex0x, sha256
from protocol.errors import ProofpoolError, VerificationFailed
from protocol.merkle.history import event_leaf_hash_of, verify_consistency, verify_inclusion
from verifier.audit.bundle.ground import Ground
from verifier.audit.step import StillOpen, Values, must_equal, must_hold


def check_entry(entry: LogEntry, event_type: str, subject: str) -> None:
    """An event's hashes follow from its document, and it is of this type and about this subject."""
    check_leaf(entry)
    named = (entry.event.get("index"), entry.event.get("type"), entry.event.get("subject"), entry.subject)
    must_equal("the log has another event there", named, (entry.index, event_type, subject, subject))


def event_data(entry: LogEntry) -> dict[str, Any]:
    """What the event says. Raises VerificationFailed where that is no object."""
    data = entry.event.get("data")
    if not isinstance(data, dict):
        raise VerificationFailed(f"event {entry.index} has no data", type(data).__name__)
    return data


def event_payments(entry: LogEntry) -> dict[str, int]:
    """Amounts by account that a settling event pays. Raises VerificationFailed where they can't be read."""
    payments = event_data(entry).get("payments")
    try:
        found = {str(account): int(amount) for account, amount in payments}  # type: ignore[union-attr]
    except (TypeError, ValueError) as error:
        raise VerificationFailed(f"event {entry.index} has no readable payments", str(payments)[:200]) from error
    must_equal(f"event {entry.index} pays an account twice", len(found), len(payments))  # type: ignore[arg-type]
    return found


def check_leaf(entry: LogEntry) -> str:
    """The leaf hash, recomputed from the event's document."""
    try:
        document = canonical_json(entry.event)
    except ProofpoolError as error:
        raise VerificationFailed(f"event {entry.index} has no canonical form", str(error)) from error
    must_equal(f"event {entry.index} has another hash", hex0x(sha256(document)), entry.event_hash)
    leaf = event_leaf_hash_of(entry.subject, entry.event_hash)
    must_equal(f"event {entry.index} has another leaf hash", leaf, entry.leaf_hash)
    return leaf


def check_inclusion(event: LoggedEvent, facts: ChainFacts) -> str:
    """The leaf stands under its epoch's root, and this is the first epoch that holds it; the root."""
    proof = event.inclusion
    if proof is None:
        raise StillOpen(f"event {event.entry.index} isn't anchored yet")
    must_equal("the proof is for another leaf", (proof.index, proof.leaf_hash), _place(event.entry))
    head = facts.head(proof.epoch)
    must_hold(f"no head is known for epoch {proof.epoch}", head is not None)
    assert head is not None
    must_equal("the proof is for another head", (proof.size, proof.root), (head.size, head.root))
    before = facts.head(proof.epoch - 1) if proof.epoch else None
    must_hold("an earlier epoch holds it already", before is None or before.size <= proof.index, f"epoch {proof.epoch}")
    must_hold(
        f"event {proof.index} isn't under the root of epoch {proof.epoch}",
        verify_inclusion(proof.leaf_hash, proof.index, proof.size, proof.path, proof.root),
        f"root {proof.root}, size {proof.size}",
    )
    return proof.root


def check_received(bundle: ProofBundle, submission_id: str) -> Values:
    """The event of its arrival is about this submission, names its file, and hashes to the leaf."""
    check_entry(bundle.received.entry, "submission.received", submission_id)
    data, message = event_data(bundle.received.entry), bundle.submission.message
    logged = {name: data.get(name) for name in ("node", "counter", "policy_version", "content_hash")}
    must_equal("the log has another submission there", logged, message.model_dump(include=set(logged)))
    must_equal("the log names another file", data.get("file_sha256"), hex0x(sha256(bundle.file)))
    return {"index": str(bundle.received.entry.index), "leaf_hash": bundle.received.entry.leaf_hash}


def check_received_inclusion(bundle: ProofBundle, facts: ChainFacts) -> Values:
    root = check_inclusion(bundle.received, facts)
    assert bundle.received.inclusion is not None
    return {"epoch": str(bundle.received.inclusion.epoch), "root": root}


def check_append_only(bundle: ProofBundle, facts: ChainFacts) -> Values:
    """Each older head is a prefix of the newest: one history, not several."""
    if not facts.heads:
        raise StillOpen("no epoch is anchored yet")
    newest = facts.heads[-1]
    for old, path in _older_heads(bundle, facts):
        must_hold(
            f"epoch {old.epoch} isn't a prefix of epoch {newest.epoch}",
            verify_consistency(old.size, newest.size, old.root, newest.root, path),
            f"sizes {old.size} and {newest.size}",
        )
    return {"newest_epoch": str(newest.epoch), "size": str(newest.size), "root": newest.root}


def check_heads(bundle: ProofBundle, ground: Ground) -> Values:
    """The heads that the proofs lead to are heads that the auditor trusts, or prefixes of one."""
    if not ground.heads:
        raise StillOpen("nothing trusted to hold the heads against: give --chain or --trusted-head")
    claimed = {head.epoch: (head.size, head.root) for head in bundle.chain.heads}
    for epoch in sorted(claimed.keys() & ground.heads.keys()):
        must_equal(f"the anchored head of epoch {epoch} differs", claimed[epoch], ground.heads[epoch])
    for head in bundle.chain.heads:
        found = ground.facts.head(head.epoch)
        if found is not None and head.beacon_hash is not None:
            must_equal(f"the beacon of epoch {head.epoch} differs", head.beacon_hash, found.beacon_hash)
    newest = max(ground.heads)
    must_hold(
        "the trusted head isn't among the bundle's", newest in claimed, f"epoch {newest}, claimed {sorted(claimed)}"
    )
    if later := [epoch for epoch in claimed if epoch > newest]:
        must_hold("the chain doesn't have all these heads", not ground.is_chain, f"none of epochs {later}")
        raise StillOpen(f"epochs {later} are newer than the trusted head of epoch {newest}")
    return {"heads": str(len(claimed)), "anchor": ground.anchor}


def _older_heads(bundle: ProofBundle, facts: ChainFacts) -> Iterator[tuple[HeadFact, tuple[str, ...]]]:
    paths = {link.old_epoch: link.path for link in bundle.links}
    for head in facts.heads[:-1]:
        must_hold(f"no consistency proof for epoch {head.epoch}", head.epoch in paths)
        yield head, paths[head.epoch]


def _place(entry: LogEntry) -> tuple[int, str]:
    return entry.index, entry.leaf_hash
