"""Whether this is a submission at all: signed by its node, for a lease of this coordinator, in time, unaltered.

In: the signed messages, and what chain and log say of them. Out: passed, or a reason that costs no stake: all
that a node can be slashed for is judged after this, on bytes that the node has signed for.
"""

from __future__ import annotations

from protocol.errors import SignatureInvalid
from protocol.reasons import RejectReason
from protocol.wire import CheckResult, Submission, Task
from verifier.case import Case
from verifier.results import passed, refused

NAME = "envelope"


def check(case: Case) -> CheckResult:
    for finding in (_signatures, _lease, _rules, _deadline, _content):
        fault = finding(case)
        if fault is not None:
            return refused(NAME, *fault)
    return passed(NAME)


Fault = tuple[RejectReason, str]


def _signatures(case: Case) -> Fault | None:
    facts, dossier = case.dossier.facts, case.dossier
    try:
        dossier.submission.check(case.claim.node, facts.domain)
    except SignatureInvalid as error:
        return RejectReason.SIGNATURE_INVALID, f"submission: {error.why}"
    try:
        dossier.task.check(facts.coordinator, facts.domain)
    except SignatureInvalid as error:
        return RejectReason.LEASE_UNKNOWN, f"task: {error.why}"
    return None


def _lease(case: Case) -> Fault | None:
    """The node and the coordinator speak of the same task, and so does the file."""
    task, claim = case.dossier.task.message, case.claim
    for name in ("pool_id", "policy_version", "node", "counter", "rules_hash"):
        if getattr(task, name) != getattr(claim, name):
            return RejectReason.LEASE_UNKNOWN, f"{name}: {_of(task, name)} leased, {_of(claim, name)} submitted"
    if case.header.task_id != task.id(case.dossier.facts.domain):
        return RejectReason.FILE_MISMATCH, f"the file is for task {case.header.task_id}"
    return None


def _rules(case: Case) -> Fault | None:
    wanted, known = case.claim.rules_hash, case.dossier.facts.rules_hashes
    if case.rules.rules_hash != wanted or wanted not in known:
        return RejectReason.RULES_CHANGED, f"the pool's record names other rules than {wanted}"
    return None


def _deadline(case: Case) -> Fault | None:
    received, deadline = case.dossier.facts.received_time, case.dossier.task.message.deadline
    if received > deadline:
        return RejectReason.LEASE_EXPIRED, f"received {received - deadline} s after the deadline"
    return None


def _content(case: Case) -> Fault | None:
    if case.content_hash != case.claim.content_hash:
        return RejectReason.FILE_MISMATCH, f"the rows hash to {case.content_hash}"
    return None


def _of(message: Task | Submission, name: str) -> object:
    return getattr(message, name)
