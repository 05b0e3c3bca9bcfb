"""A `FileReport` for people: what it comes to, what to do, where it goes wrong, and a line a check.

In: `FileReport`. Out: lines on stdout.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.checks.divergence import ChunkDivergence, Token, TokenDivergence
from protocol.checks.report import CheckReport, FileReport
from protocol.reasons import Outcome


def print_report(report: FileReport) -> None:
    """The verdict and where it goes wrong come first. The first column says what holds (✓) and what doesn't (✗)."""
    for line in _summary(report):
        print(line)
    rows = [_cells(check) for check in report.checks]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if report.num_audited:
        print(f"audited by the model: {report.num_audited} of {report.num_rollouts} rollouts")


def _summary(report: FileReport) -> Iterator[str]:
    if report.submission_id:
        yield report.submission_id
    yield f"{report.outcome}{f': {report.reason}' if report.reason else ''}"
    if report.hint:
        yield f"do: {report.hint}"
    yield from divergence_lines(report)
    if report.outcome == "slash" and report.signed_content_hash is None:
        yield "not compared with what its node has signed: a file that was damaged on its way looks the same"


def divergence_lines(report: FileReport) -> Iterator[str]:
    """Where the file first parts from what was computed, if it does."""
    if report.first_token:
        yield _token_line(report.first_token)
    if report.first_chunk:
        yield _chunk_line(report.first_chunk)


def _cells(check: CheckReport) -> tuple[str, ...]:
    mark = "✓" if check.outcome == Outcome.ACCEPT else "✗"
    words = " ".join(filter(None, (check.reason, check.detail)))
    return (f"{mark} {check.check}", number_text(check.value), limits_text(check), _share(check.margin_ratio), words)


def limits_text(check: CheckReport) -> str:
    """From where on it is refused, and slashed."""
    if check.reject_threshold is None:
        return ""
    word = "from" if check.refused_when == "at least" else "over"
    slash = "never" if check.slash_threshold is None else f"{word} {number_text(check.slash_threshold)}"
    return f"reject {word} {number_text(check.reject_threshold)}, slash {slash}"


def _share(ratio: float | None) -> str:
    """How much of the way to the limit is used up."""
    if ratio is None:
        return ""
    return f"{ratio:.0%} of it" if ratio < 10 else f"{ratio:.0f} times it"


def _token_line(found: TokenDivergence) -> str:
    says = f"first token that is off: rollout {found.rollout}, token {found.position}: {_quoted(found.claimed)}"
    if found.drawn and found.margin:
        says += f" instead of {_quoted(found.drawn)}, {found.margin:.4g} nats below it"
    return f"{says}; log-prob {found.claimed_logprob:.6g} claimed, {found.recomputed_logprob:.6g} recomputed"


def _chunk_line(found: ChunkDivergence) -> str:
    place = f"rollout {found.rollout}, chunk {found.chunk} (tokens {found.first_position} to {found.last_position})"
    off = f"{found.mismatches} of {found.num_values} values differ in sign or exponent"
    content = ", the proof hardly depends on the states" if found.is_degenerate else ""
    return f"first proof that is off: {place}: {off}, mantissas by {found.mantissa_mean:.4g} on average{content}"


def _quoted(token: Token) -> str:
    return f"{token.text!r} ({token.id})"


def number_text(value: float | None) -> str:
    """Four digits; nothing of what there isn't."""
    return "" if value is None else f"{value:.4g}"
