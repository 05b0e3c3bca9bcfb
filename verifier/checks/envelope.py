"""Whether this is a submission at all: signed by its node, for a lease of this coordinator, in time, unaltered.

In: the signed messages, and what chain and log say of them. Out: passed, or a reason that costs no stake: all
that a node can be slashed for is judged after this, on bytes that the node has signed for.
"""

from __future__ import annotations

from protocol.checks.case import Case
from protocol.checks.results import passed, refused
from protocol.errors import SignatureInvalid
from protocol.reasons import RejectReason
from protocol.wire import CheckResult
from verifier.case import LEASED_FIELDS, Dossier

NAME = "envelope"

Fault = tuple[RejectReason, str]


def check(dossier: Dossier, case: Case) -> CheckResult:
    for finding in (_signatures, _lease, _beacon, _rules, _deadline, _content):
        fault = finding(dossier, case)
        if fault is not None:
            return refused(NAME, *fault)
    return passed(NAME)


def _signatures(dossier: Dossier, case: Case) -> Fault | None:
    facts = dossier.facts
    try:
        dossier.submission.check(dossier.claim.node, facts.domain)
    except SignatureInvalid as error:
        return RejectReason.SIGNATURE_INVALID, f"submission: {error.why}"
    try:
        dossier.task.check(facts.coordinator, facts.domain)
    except SignatureInvalid as error:
        return RejectReason.LEASE_UNKNOWN, f"task: {error.why}"
    return _renewal(dossier)


def _renewal(dossier: Dossier) -> Fault | None:
    """A later deadline is the coordinator's word about this task, or none at all."""
    if dossier.renewal is None:
        return None
    try:
        renewed = dossier.renewal.check(dossier.facts.coordinator, dossier.facts.domain)
    except SignatureInvalid as error:
        return RejectReason.LEASE_UNKNOWN, f"renewal: {error.why}"
    task_id = dossier.task.message.id(dossier.facts.domain)
    if renewed.task_id != task_id:
        return RejectReason.LEASE_UNKNOWN, f"the renewal is of task {renewed.task_id}, this is {task_id}"
    return None


def _lease(dossier: Dossier, case: Case) -> Fault | None:
    """The node and the coordinator speak of the same task, and so does the file."""
    task, claim = dossier.task.message, dossier.claim
    for name in LEASED_FIELDS:
        leased, submitted = getattr(task, name), getattr(claim, name)
        if leased != submitted:
            return RejectReason.LEASE_UNKNOWN, f"{name}: {leased} leased, {submitted} submitted"
    if case.header.task_id != task.id(dossier.facts.domain):
        return RejectReason.FILE_MISMATCH, f"the file is for task {case.header.task_id}"
    return None


def _beacon(dossier: Dossier, case: Case) -> Fault | None:
    """A lease on a block that the chain has dropped asked for other work than the chain does."""
    leased, sealed = dossier.task.message.beacon_hash, dossier.facts.beacon_hash
    if leased != sealed:
        return RejectReason.REORGED, f"the lease names beacon {leased}, the chain has {sealed}"
    return None


def _rules(dossier: Dossier, case: Case) -> Fault | None:
    wanted, known = dossier.claim.rules_hash, dossier.facts.rules_hashes
    if case.rules.rules_hash != wanted or wanted not in known:
        return RejectReason.RULES_CHANGED, f"the pool's record names other rules than {wanted}"
    return None


def _deadline(dossier: Dossier, case: Case) -> Fault | None:
    received, deadline = dossier.facts.received_time, dossier.deadline
    if received > deadline:
        return RejectReason.LEASE_EXPIRED, f"received {received - deadline} s after the deadline"
    return None


def _content(dossier: Dossier, case: Case) -> Fault | None:
    if case.content_hash != dossier.claim.content_hash:
        return RejectReason.FILE_MISMATCH, f"the rows hash to {case.content_hash}"
    return None
