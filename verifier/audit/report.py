"""An audit's result on a terminal, or as a document.

In: a `Report`. Out: lines or one JSON document on stdout, and the exit code.
"""

from __future__ import annotations

import json

import typer

from verifier.audit.step import Report


def print_report(report: Report, as_json: bool) -> int:
    """Returns the exit code."""
    for line in [json.dumps(report.as_json(), indent=2)] if as_json else map(plain, report.lines()):
        typer.echo(line)
    return report.exit_code


def plain(line: str) -> str:
    """A line in which others may have written something, so that nothing in it steers a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in line)
