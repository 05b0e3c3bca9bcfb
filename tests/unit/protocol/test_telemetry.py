"""The log: what comes first in a line, and where there are colours."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator

import pytest
import structlog

from protocol.telemetry import configure_logging, get_logger

ESCAPE = "\x1b"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The log of other tests isn't this one's."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    was_configured, config = structlog.is_configured(), structlog.get_config()
    context = structlog.contextvars.get_contextvars()
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
    if was_configured:
        structlog.configure(**config)
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**context)


def written(out: io.StringIO, log_format: str = "auto") -> str:
    configure_logging("worker", log_format, stream=out)
    get_logger().info("task.leased", zebra=1, counter=7)
    return out.getvalue()


def test_a_line_for_people_begins_with_time_level_and_event() -> None:
    line = written(io.StringIO(), "pretty")
    assert re.fullmatch(rf"{TIME} \[info +\] task\.leased +role=worker zebra=1 counter=7\n", line), line


def test_a_line_for_programs_has_time_level_role_and_event_first() -> None:
    line = json.loads(written(io.StringIO()))
    assert list(line) == ["ts", "level", "role", "event", "zebra", "counter"]


def test_colours_are_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ESCAPE in written(Terminal()), "a terminal gets pretty lines by itself"
    assert ESCAPE not in written(io.StringIO(), "pretty"), "a file is no terminal"
    monkeypatch.setenv("NO_COLOR", "1")
    assert ESCAPE not in written(Terminal())


def test_a_command_that_configures_nothing_logs_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    get_logger().warning("lookout.failed", why="silence")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(rf"{TIME} \[warning +\] lookout\.failed +why=silence\n", printed.err), printed.err


def test_an_error_says_where_it_was_and_no_values_of_its_variables() -> None:
    out = io.StringIO()
    configure_logging("worker", "pretty", stream=out)
    secret = "0x" + "77" * 4
    try:
        raise ValueError("boom")
    except ValueError:
        get_logger().exception("lookout.ended")
    assert "ValueError: boom" in out.getvalue() and secret not in out.getvalue()
