"""What a stranger wrote is shown as one printable line, and what reads well already stays as it is."""

from __future__ import annotations

import pytest

from protocol.plain import plain


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "a\nb", "a\rb", "\x07", "\u009b1m", "\u2028", "\u202eabc", "\ud800", "\x00"]
)
def test_what_steers_a_terminal_or_fakes_a_line_is_not_shown(text: str) -> None:
    shown = plain(text)
    assert shown.isprintable() and "?" in shown and len(shown) == len(text)


@pytest.mark.parametrize("text", ["", "✓ payment  7 wei", "proofpool/31337/0xab/1", "naïve 雪"])
def test_other_text_stays(text: str) -> None:
    assert plain(text) == text
