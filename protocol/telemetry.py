"""Logs and metrics, with the same event names as the ledger.

In: a role's name. Out: JSON lines on stderr (or pretty ones on a terminal), and Prometheus metrics
`proofpool_*`. Fields: ts, level, role, event, and what the event says, in this order. No secret is ever logged.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import structlog

Observer = Callable[[str, Mapping[str, Any]], None]
"""Is told each line's event and fields; called in the thread that logs."""
FIRST = ("ts", "level", "role", "event")


def configure_logging(
    role: str,
    log_format: str = "auto",
    level: str = "info",
    stream: TextIO | None = None,
    observers: Sequence[Observer] = (),
) -> None:
    """Set up logging of this process. `log_format`: json, pretty, or auto (pretty on a terminal).

    `observers` see what is logged: a process's state and its metrics then say the same as its log.
    """
    out = stream or sys.stderr
    pretty = log_format == "pretty" or (log_format == "auto" and out.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *map(_observed, observers),
            *_written(_for_people(out) if pretty else structlog.processors.JSONRenderer()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(role=role)


def _written(renderer: Any) -> list[Any]:
    """The last steps of the log's pipeline."""
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.format_exc_info,
        _in_order,
        renderer,
    ]


def _for_people(out: TextIO) -> Any:
    """Colours are for terminals, and for who wants them (https://no-color.org)."""
    return structlog.dev.ConsoleRenderer(
        colors=out.isatty() and not os.environ.get("NO_COLOR"),
        timestamp_key="ts",
        sort_keys=False,
        exception_formatter=structlog.dev.plain_traceback,
    )


def _in_order(logger: Any, method: str, line: dict[str, Any]) -> dict[str, Any]:
    return {name: line[name] for name in FIRST if name in line} | line


def _observed(observer: Observer) -> Any:
    """A step of the log's pipeline that changes nothing."""

    def step(logger: Any, method: str, line: dict[str, Any]) -> dict[str, Any]:
        observer(str(line["event"]), line)
        return line

    return step


def get_logger() -> structlog.stdlib.BoundLogger:
    """A logger: `log.info("submission.accepted", submission_id=…, num_units=…)`."""
    if structlog.is_configured():
        logger: structlog.stdlib.BoundLogger = structlog.get_logger()
        return logger
    # A command configures nothing, and its stdout is for data alone.
    on_stderr: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr), processors=_written(_for_people(sys.stderr))
    )
    return on_stderr
