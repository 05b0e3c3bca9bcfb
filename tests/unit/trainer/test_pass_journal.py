"""Passes that are kept while they are measured: whole lines count, a torn one goes, one that can't be read is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from protocol.errors import MalformedFile
from trainer.pass_journal import PassJournal


class Plan(BaseModel):
    seed: int = 1


@pytest.fixture
def journal(tmp_path: Path) -> PassJournal:
    journal = PassJournal(tmp_path / "measured.jsonl", Plan())
    journal.start_anew()
    journal.append([1, 0, 2])
    return journal


def test_what_a_kill_cut_short_is_taken_away_and_measured_again(journal: PassJournal) -> None:
    with journal.path.open("a") as file:
        file.write("[3, 4")
    assert journal.passes() == [1, 0, 2]
    journal.append([5])
    assert journal.passes() == [1, 0, 2, 5]


@pytest.mark.parametrize("line", ["[1, 2", "{}", '["a"]', "", "null"])
def test_a_whole_line_that_cant_be_read_is_named(journal: PassJournal, line: str) -> None:
    with journal.path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(MalformedFile, match="can't be read") as refused:
        journal.passes()
    assert f"{journal.path}, line 3" in refused.value.why
