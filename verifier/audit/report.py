"""An audit's result on a terminal, or as a document.

In: a `Report`. Out: lines or one JSON document on stdout, and the exit code.
"""

from __future__ import annotations

import json

import typer

from protocol.plain import plain
from verifier.audit.step import Report


def print_report(report: Report, as_json: bool) -> int:
    """Returns the exit code."""
    for line in [json.dumps(report.as_json(), indent=2)] if as_json else map(plain, report.lines()):
        typer.echo(line)
    return report.exit_code
