"""`proofpool audit challenge`: bring a submission that was accepted, and shouldn't have been, before a jury."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verifier.audit.court.sender import (
    ChainOption,
    JsonOption,
    KeystoreOption,
    LedgerOption,
    PasswordOption,
    sending,
    tell,
)
from verifier.audit.options import CacheOption, ModelOption

if TYPE_CHECKING:
    from protocol.api import SubmissionView
    from protocol.chain.pool import ChainPool
    from protocol.checks.report import FileReport
    from protocol.reasons import RejectReason


def challenge(
    submission_id: Annotated[str, typer.Argument(metavar="HASH", help="The submission's id.")],
    chain: ChainOption,
    ledger: LedgerOption,
    coordinator: Annotated[
        str, typer.Option("--coordinator", envvar="PROOFPOOL_COORDINATOR_URL", help="Base URL.")
    ] = "http://127.0.0.1:8700",
    model: ModelOption = None,
    cache: CacheOption = None,
    without_check: Annotated[
        bool, typer.Option("--without-check", help="Judge nothing here: it was judged elsewhere.")
    ] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="CODE", help="With --without-check: a slashable reason.")
    ] = None,
    evidence: Annotated[
        Path | None, typer.Option("--evidence", help="Where to keep the evidence; else challenge-HASH.json here.")
    ] = None,
    keystore: KeystoreOption = None,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring an accepted forgery before a jury. Takes the pool's challenge bond, which a false challenge loses.

    By default it is judged on this machine first, over every rollout, and nothing is sent where it holds. The seats
    that accepted it are named in the case. Exit code 3 where no forgery is found.
    """
    from protocol.canonical import is_hash32
    from protocol.client import CoordinatorClient
    from protocol.errors import UsageError
    from protocol.progress import Progress
    from verifier.audit.court.challenge import Challenger
    from verifier.audit.court.forgery import judge_again, reason_of
    from verifier.audit.replay.pinned import ModelSource

    if not is_hash32(subject := submission_id.lower()):
        why = f"{submission_id}: an id is 0x and 64 hexadecimal digits"
        raise UsageError("that is no submission id", why, "copy one from the coordinator's GET /v1/submissions")
    told = _reason(reason, without_check=without_check)
    with sending(chain, ledger, keystore, password_file) as sender, closing(CoordinatorClient(coordinator)) as client:

        def judge(pool: ChainPool, view: SubmissionView) -> tuple[RejectReason, FileReport | None]:
            if told is not None:
                return told, None
            source = ModelSource(model, lambda: client.pool().shardcast_urls, cache)
            with Progress(f"judging {subject}", 2, verb="waiting for", is_patient=True) as progress:
                report = judge_again(coordinator, client, pool, view, source, progress)
            return reason_of(report), report

        file = evidence or Path(f"challenge-{subject}.json")
        report = Challenger(sender.contracts, sender.lane, client, judge, file).challenge(subject)
    tell(as_json, report.model_dump(mode="json"))


def _reason(code: str | None, *, without_check: bool) -> RejectReason | None:
    """The reason that was told; None where it is to be found. Raises UsageError."""
    from protocol.errors import UsageError
    from protocol.reasons import Cost, RejectReason

    slashable = ", ".join(reason.value for reason in RejectReason if reason.cost is Cost.SLASH)
    if without_check != (code is not None):
        given = "--without-check" if without_check else "--reason"
        raise UsageError("--without-check and --reason go together", f"only {given}", f"give one of: {slashable}")
    if code is None:
        return None
    if code not in slashable.split(", "):
        raise UsageError("that is no reason for a slash", code, f"give one of: {slashable}")
    return RejectReason(code)
