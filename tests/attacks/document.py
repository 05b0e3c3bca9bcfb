"""What a run of the matrix leaves: lines, freedom, audits, as a JSON file under docs/data.

In: an arena and attacks. Out: `Document`, and the file that docs/verification.md's tables are made of.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from protocol.files import write_atomically
from tests.attacks.arena import Arena
from tests.attacks.attack import Attack
from tests.attacks.audits import Audits, audits
from tests.attacks.freedom import Freedom, freedom
from tests.attacks.matrix import Effort, Line, line_of
from tests.attacks.table import BY_NAME, MIXTURES
from tests.attacks.trial import tried

DATA = Path(__file__).resolve().parents[2] / "docs" / "data"

FULL = ("smaller-model", "other-seed", "int8", "int4", "small-then-prefill", "other-then-prefill", "wrong-seed")
FULL += ("temperature-0.5", "temperature-0.9", "top-p-0.9", "hidden-prompt-proved", "edited-5", "forced-eos")
FULL += ("proof-offline", "proof-constant-full")
"""Full cheats whose audits are simulated; the others are refused before the model runs, or like one of these."""


@dataclass(frozen=True)
class Document:
    """One pool's figures; `limits` names the threshold file that they were judged by."""

    pool: str
    limits: str = ""
    command: str = ""
    lines: tuple[Line, ...] = ()
    freedom: Freedom | None = None
    full: tuple[Audits, ...] = ()
    tenths: tuple[Audits, ...] = ()

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        document = ADAPTER.dump_python(self, mode="json")
        write_atomically(path, json.dumps(document, indent=1, allow_nan=False).encode() + b"\n")


ADAPTER: TypeAdapter[Document] = TypeAdapter(Document)


def read_document(path: Path) -> Document:
    return ADAPTER.validate_json(path.read_bytes())


def play(
    arena: Arena, attacks: Sequence[Attack], effort: Effort, seen: Callable[[Line], Any], **about: str
) -> Document:
    """Everything about the chosen attacks; `seen` is told of each line as it comes."""
    lines, full, tenths = [], [], []
    for attack in [arena.marked(attack) for attack in attacks if attack.name not in arena.left_out]:
        trial = tried(arena, attack)
        lines.append(line_of(trial, effort))
        seen(lines[-1])
        if attack.name in FULL:
            full.append(audits(trial, effort.num_audits))
        if attack.name in {mixture.name for mixture in MIXTURES}:
            tenths.append(audits(trial, effort.num_audits))
    everything = len(attacks) >= len(BY_NAME)
    left = freedom(arena) if everything else None
    return Document(arena.title, **about, lines=tuple(lines), freedom=left, full=tuple(full), tenths=tuple(tenths))
