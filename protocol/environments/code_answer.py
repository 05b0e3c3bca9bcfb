"""The program within a completion: the last fenced block of Python.

In: what a completion says after its thinking. Out: the program's text, or None. Read line by line, in time that grows
with the text's length and no faster.
"""

from __future__ import annotations

FENCE = "```"
LANGUAGES = frozenset(("", "py", "python", "python3"))
MAX_CHARACTERS = 1 << 18


def program_in(text: str) -> str | None:
    """The last closed block; one in another language, or one longer than `MAX_CHARACTERS`, is none.

    >>> program_in("First:\\n```python\\nprint(1)\\n```\\nBetter:\\n```\\nprint(2)\\n```\\n")
    'print(2)'
    """
    found, lines, language, indent = None, list[str](), None, 0
    for line in text.splitlines():
        stripped = line.strip()
        if language is None and stripped.startswith(FENCE):
            language = stripped.lstrip("`").strip().lower()
            lines, indent = [], len(line) - len(line.lstrip(" "))
        elif language is not None and stripped.startswith(FENCE) and not stripped.strip("`"):
            if language in LANGUAGES:
                found = "\n".join(lines)
            language = None
        elif language is not None:
            # A block within a list is indented with the list.
            lines.append(line[indent:] if line[:indent].isspace() else line)
    return found if found is not None and len(found) <= MAX_CHARACTERS else None
