"""Is the submission what it says it is? Its digest, its lease, its node's signature, its receipt.

In: a `ProofBundle` and the `ChainFacts` to hold it against. Out: one check a function, as `step.take_step` takes them.
"""

from __future__ import annotations

from protocol.bundle import ChainFacts, ProofBundle
from protocol.rollouts import FileHeader, Rollout, content_hash, read_rollouts
from protocol.wire import ZERO_ADDRESS
from verifier.audit.bundle.history import event_data
from verifier.audit.step import StillOpen, Values, must_equal, must_hold
from verifier.case import check_answered

MAX_ROWS, MAX_TOKENS = 1 << 12, 1 << 15
"""What decoding a stranger's file may cost, whatever rules came with it."""


def read_file(bundle: ProofBundle) -> tuple[FileHeader, list[Rollout]]:
    """Header and rows of the bundle's file. Raises MalformedFile."""
    max_rows = min(MAX_ROWS, bundle.rules.group_size * bundle.rules.groups_per_task)
    return read_rollouts(bundle.file, max_rows=max_rows, max_tokens=MAX_TOKENS)


def check_digest(bundle: ProofBundle, facts: ChainFacts, submission_id: str) -> Values:
    """The file's content hash and the submission's id, both recomputed."""
    header, rollouts = read_file(bundle)
    found = content_hash(header, rollouts)
    must_equal("the file isn't the one that was signed", found, bundle.submission.message.content_hash)
    must_equal("the submission has another id", bundle.submission.message.id(facts.domain), submission_id)
    must_equal("the file belongs to another task", header.task_id, bundle.task.message.id(facts.domain))
    return {"content_hash": found, "id": submission_id, "rollouts": str(len(rollouts))}


def check_lease(bundle: ProofBundle, facts: ChainFacts) -> Values:
    """The task is this coordinator's, for this node, under these rules and this beacon."""
    task = bundle.task.check(facts.coordinator, facts.domain)
    must_equal("the task is another pool's", task.pool_id, facts.pool_id)
    must_equal("the rules aren't those of the task", bundle.rules.rules_hash, task.rules_hash)
    version = facts.version
    must_equal("the bundle claims another version than the chain's", bundle.chain.version, version)
    must_equal("the task names another version", task.policy_version, version.policy_version)
    check_answered(task, bundle.submission.message, version.beacon_hash)
    must_equal("the task's beacon block isn't the chain's", task.beacon_block, version.beacon_block)
    return {"task": task.id(facts.domain), "coordinator": facts.coordinator, "beacon": task.beacon_hash}


def check_node(bundle: ProofBundle, facts: ChainFacts) -> Values:
    """The node signed it, and works for the provider that the log names."""
    submission = bundle.submission.check(bundle.submission.message.node, facts.domain)
    must_hold("the node was never authorised by anybody", facts.provider != ZERO_ADDRESS, submission.node)
    logged = event_data(bundle.received.entry).get("provider")
    must_equal("the log names another provider", logged, facts.provider)
    return {"node": submission.node, "provider": facts.provider}


def check_receipt(bundle: ProofBundle, facts: ChainFacts, submission_id: str) -> Values:
    """The coordinator promised to log it by an epoch, and kept the promise."""
    receipt = bundle.receipt.check(facts.coordinator, facts.domain)
    must_equal("the receipt is for another submission", receipt.submission_id, submission_id)
    if bundle.received.inclusion is None:
        raise StillOpen(f"promised by epoch {receipt.include_by_epoch}, not anchored yet")
    epoch = bundle.received.inclusion.epoch
    must_hold(
        "the promise of inclusion was broken",
        epoch <= receipt.include_by_epoch,
        f"anchored by epoch {epoch}, promised by {receipt.include_by_epoch}",
    )
    return {"promised_epoch": str(receipt.include_by_epoch), "epoch": str(epoch)}
