"""The file of a batch: the rows of its groups, in its order, out of the files that were handed in.

In: (submission id, group) keys and the rules that they share. Out: parquet in the rollout file's own format, so
that the trainer reads one format only; the header's `task_id` is the batch's `groups_root`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from coordinator.context import Coordinator
from coordinator.db.work import SubmissionRow
from coordinator.rules import rules_document
from coordinator.uploads import max_row_tokens
from protocol.batches import GroupKey
from protocol.rollouts import FileHeader, Rollout, read_rollouts, write_rollouts
from protocol.rules import Rules


@dataclass(frozen=True)
class BatchFile:
    data: bytes
    rules_hash: str
    num_rollouts: int
    num_tokens: int
    """Output tokens."""


def batch_file(coordinator: Coordinator, keys: Sequence[GroupKey], rules_hash: str, groups_root: str) -> BatchFile:
    """Raises ProofpoolError where a blob is missing."""
    with coordinator.reading() as session:
        rules = rules_document(session, rules_hash)
        ids = {submission_id for submission_id, _ in keys}
        found = session.execute(
            select(SubmissionRow.submission_id, SubmissionRow.file_sha256).where(SubmissionRow.submission_id.in_(ids))
        )
        blob_hashes = dict(found.all())
    files = {submission_id: _rows(coordinator.blobs.get(blob), rules) for submission_id, blob in blob_hashes.items()}
    rollouts = list(_in_order(files, keys, rules.group_size))
    header = FileHeader(task_id=groups_root, group_size=rules.group_size, sampling=rules.sampling)
    return BatchFile(
        data=write_rollouts(header, rollouts),
        rules_hash=rules_hash,
        num_rollouts=len(rollouts),
        num_tokens=sum(rollout.num_units for rollout in rollouts),
    )


def _rows(data: bytes, rules: Rules) -> list[Rollout]:
    max_rows = rules.group_size * rules.groups_per_task
    return read_rollouts(data, max_rows=max_rows, max_tokens=max_row_tokens(rules))[1]


def _in_order(files: dict[str, list[Rollout]], keys: Sequence[GroupKey], group_size: int) -> Iterator[Rollout]:
    for submission_id, group in keys:
        yield from files[submission_id][group * group_size : (group + 1) * group_size]
