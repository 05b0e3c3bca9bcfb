"""Logs and metrics, with the same event names as the ledger.

In: a role's name. Out: JSON lines on stderr (or pretty ones on a terminal), and Prometheus metrics
`proofpool_*`. Fields: ts, level, role, event, and what the event says. No secret is ever logged.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import structlog

Observer = Callable[[str, Mapping[str, Any]], None]
"""Is told each line's event and fields; called in the thread that logs."""


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
    renderer: Any = structlog.dev.ConsoleRenderer() if pretty else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *map(_observed, observers),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(role=role)


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
    on_stderr: structlog.stdlib.BoundLogger = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
    return on_stderr
