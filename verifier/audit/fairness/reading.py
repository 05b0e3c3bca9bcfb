"""Reads what `proofpool audit fairness` weighs: the log once, then the files of what it received, if they are wanted.

In: a coordinator, its checked log. Out: `Fairness`. Beacons that the log names are held against the chain, where there
is one: who could name another could say that a task asked something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from protocol.client import CoordinatorClient
from protocol.errors import VerificationFailed
from protocol.progress import Progress
from verifier.audit.fairness.deliveries import Deliveries
from verifier.audit.fairness.fairness import Fairness, weigh
from verifier.audit.fairness.leases import End, Leases
from verifier.audit.fairness.promises import HeldReceipt, Promises
from verifier.audit.fairness.questions import Questions
from verifier.audit.fairness.refused import Refused
from verifier.audit.log.checked_log import CheckedLog
from verifier.audit.log.reading import reading


def read_fairness(
    client: CoordinatorClient,
    log: CheckedLog,
    *,
    with_files: bool = False,
    model: Path | None = None,
    receipts: Sequence[HeldReceipt] = (),
) -> Fairness:
    """Raises VerificationFailed where the log isn't the one under its heads, or names other beacons than the chain."""
    questions = Questions(log.pool.pool_id, log.domain, client.rules, model)
    leases, refused, promises = Leases(questions), Refused(), Promises(receipts, {log.pool.coordinator})
    with reading(log) as events:
        for epoch, entry in events:
            leases.note(epoch, entry)
            refused.note(entry)
            promises.note(epoch, entry)
    foreign = _foreign_beacons(log, leases, questions)
    found = promises.found(log.num_epochs, log.domain)
    if not with_files:
        return weigh(leases, questions.known, refused, found, num_foreign=foreign)
    with closing(Deliveries()) as deliveries:
        _read_files(client, leases, questions, deliveries)
        return weigh(leases, questions.known, refused, found, deliveries, num_foreign=foreign)


def _read_files(client: CoordinatorClient, leases: Leases, questions: Questions, deliveries: Deliveries) -> None:
    with Progress("files read", len(leases.work), is_patient=True) as progress:
        for submission_id, work in leases.work.items():
            known = questions.known.get(work.lease.rules_hash)
            deliveries.read(submission_id, work, known.rules if known else None, client.submission_file)
            progress.step()


def _foreign_beacons(log: CheckedLog, leases: Leases, questions: Questions) -> int:
    """Leases, but for voided ones, under beacons that the chain hasn't. Raises VerificationFailed where all are."""
    if log.chain is None:
        return 0
    on_chain = {}
    for version, beacons in sorted(questions.terms.beacons.items()):
        on_chain[version] = beacon = log.chain.version(version).beacon_hash
        if beacon is not None and beacon not in {named for _, named in beacons}:
            raise VerificationFailed(
                f"the log names another beacon of policy version {version} than the chain",
                f"{beacons[-1][1]}, on chain {beacon}",
            )
    standing = (lease.beacon for lease in leases.leases.values() if lease.end is not End.REORGED)
    return sum(on_chain[beacon[0]] != beacon[1] for beacon in standing if beacon is not None)
