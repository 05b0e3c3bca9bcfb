"""The matrix as Markdown: tables for docs/verification.md, between `<!-- attacks: NAME -->` and `<!-- end -->`.

In: documents under docs/data. Out: the page with its tables made anew. Run: `python -m tests.attacks --tables`.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.attacks.audits import Audits
from tests.attacks.document import DATA, Document, read_document
from tests.attacks.matrix import ROLLOUTS_A_FILE, Line
from tests.attacks.shares import Share

PAGE = DATA.parent / "verification.md"
MARKS = re.compile(r"<!-- attacks: (?P<name>[^>]+?) -->\n.*?<!-- end -->", re.DOTALL)

HEAD = """\
| attack | what differs | rollouts altered | caught alone, % | caught per file, % | by | value (limit) | outcome |
|---|---|---|---|---|---|---|---|"""


def renewed(page: str) -> str:
    """The page with every table that there is a document for."""

    def part(found: re.Match[str]) -> str:
        table, _, name = found["name"].partition(" ")
        path = document_of(name)
        text = TABLES[table](read_document(path)) if path.exists() else "Not measured yet."
        return f"<!-- attacks: {found['name']} -->\n{text}\n<!-- end -->"

    return MARKS.sub(part, page)


def document_of(name: str) -> Path:
    """Where the figures lie that a table is made of."""
    return DATA / f"attacks.{name}.json"


def missing(page: str) -> list[Path]:
    """Documents that the page's tables ask for, and that nobody has made."""
    asked = dict.fromkeys(document_of(found["name"].partition(" ")[2]) for found in MARKS.finditer(page))
    return [path for path in asked if not path.exists()]


def matrix_table(document: Document) -> str:
    about = f"{document.pool}; limits: `{document.limits}`; `{document.command}`"
    return "\n".join([about, "", HEAD, *map(row, document.lines)])


def row(line: Line) -> str:
    by = f"`{line.check}`" if line.check else "–"
    value = "" if line.value is None else f"{line.value:.2g} ({line.limit:.1g})"
    name = f"{line.attack} *" if line.close else line.attack
    rollouts = f"{line.num_altered} of {line.num_rollouts}"
    cells = (name, line.lie, rollouts, _share(line.rollouts), _share(line.submissions), by, value, line.outcome)
    return f"| {' | '.join(cells)} |"


def freedom_table(document: Document) -> str:
    left = document.freedom
    if left is None:
        return "Not measured yet."
    return (
        f"{document.pool}: of {left.num_tokens} tokens a file {left.num_ties:.1f} have a second best within the "
        f"largest margin that passes. At most {left.bits_bound_per_1000:.1f} bits per 1,000 tokens can be chosen; "
        f"{left.num_unnoticed:.1f} rollouts of 64 took another branch and passed, which is "
        f"{left.bits_shown_per_1000:.1f} bits per 1,000 tokens at one bit each."
    )


def audits_table(document: Document) -> str:
    counts = document.full[0].counts if document.full else ()
    head = ["attack", *(f"{count}" for count in counts), "enough", "saves"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [_audits_row(one, 1) for one in document.full]
    lines += [_audits_row(one, 20) for one in document.tenths]
    return "\n".join(lines)


def _audits_row(one: Audits, num_files: int) -> str:
    least = one.least(num_files)
    saves = "–" if least is None else f"{ROLLOUTS_A_FILE / least:.0f} ×"
    shares = [f"{100 * share:.0f}" for share in one.shares]
    return f"| {' | '.join([one.attack, *shares, str(least or '–'), saves])} |"


TABLES = {"matrix": matrix_table, "freedom": freedom_table, "audits": audits_table}


def _share(share: Share) -> str:
    if share.share is None:
        return "–"
    return f"{_percent(share.share)} ({_percent(share.low)}–{_percent(share.high)})"


def _percent(share: float) -> str:
    """Never rounded up to 100, nor down to 0."""
    for text, bound in (("100", 1.0), ("0", 0.0)):
        if share == bound:
            return text
    return f"{min(99.9, max(0.1, 100 * share)):.1f}"


def write_tables(page: Path) -> list[Path]:
    """Renew the page's tables; the documents that weren't there for it."""
    text = page.read_text(encoding="utf-8")
    page.write_text(renewed(text), encoding="utf-8")
    return missing(text)
