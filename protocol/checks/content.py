"""Whether a file is of the task that it is judged by, and holds what its node has signed for.

In: a file, the task's id, and the content hash that a submission signs, where there is one. Out: passed, or
`file_mismatch`: damage on the way looks like this, and never like a lie.
"""

from __future__ import annotations

from protocol.checks.case import Case
from protocol.checks.results import passed, refused
from protocol.reasons import RejectReason
from protocol.rollouts import FileHeader
from protocol.wire import CheckResult

NAME = "content"


def check(task_id: str, signed_hash: str | None, case: Case) -> CheckResult:
    """`signed_hash` is None where nothing is signed yet, or nobody knows what was."""
    if (other_task := check_header(task_id, case.header)) is not None:
        return other_task
    if signed_hash is not None and case.content_hash != signed_hash:
        detail = f"damaged or edited: its rows hash to {case.content_hash}, the node signed {signed_hash}"
        return refused(NAME, RejectReason.FILE_MISMATCH, detail)
    return passed(NAME)


def check_header(task_id: str, header: FileHeader) -> CheckResult | None:
    """The refusal of a file of another task, before its rows are looked at."""
    if header.task_id == task_id:
        return None
    return refused(NAME, RejectReason.FILE_MISMATCH, f"the file is for task {header.task_id}, not {task_id}")
