"""Verdicts are kept before anybody hears of them: one a draw, whatever happens in between."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

from protocol.reasons import Outcome
from verifier.store import FILE_NAME, open_store
from verifier.verdicts import KeptVerdict, Verdicts

NODE = "0x" + "0a" * 20
OTHER_NODE = "0x" + "0b" * 20
COMPLETIONS = "0x" + "cc" * 32


def test_a_kept_verdict_is_there_after_a_restart(tmp_path: Path, make_verdict: Callable[..., KeptVerdict]) -> None:
    db = open_store(tmp_path)
    kept = Verdicts(db).keep(make_verdict(1), NODE, None)
    db.close()
    again = open_store(tmp_path)
    assert Verdicts(again).find(kept.message.submission_id, 0, 2) == kept
    again.close()


def test_the_first_verdict_of_a_draw_stands(
    store: sqlite3.Connection, make_verdict: Callable[..., KeptVerdict]
) -> None:
    verdicts = Verdicts(store)
    first = verdicts.keep(make_verdict(1, Outcome.ACCEPT), NODE, None)
    second = verdicts.keep(make_verdict(1, Outcome.SLASH, salt=9), NODE, None)
    assert second == first
    assert verdicts.count_by_outcome() == {"accept": 1}


def test_another_round_has_its_own_verdict(store: sqlite3.Connection, make_verdict: Callable[..., KeptVerdict]) -> None:
    verdicts = Verdicts(store)
    verdicts.keep(make_verdict(1), NODE, None)
    assert verdicts.keep(make_verdict(1, Outcome.DROP, round_number=1), NODE, None).message.outcome == Outcome.DROP


def test_an_unfinished_write_leaves_nothing(tmp_path: Path, make_verdict: Callable[..., KeptVerdict]) -> None:
    db = open_store(tmp_path)
    verdicts = Verdicts(db)
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO completions VALUES (?, ?, ?)", (NODE, COMPLETIONS, "0x" + "01" * 32))
    db.close()  # as a kill does: no commit
    again = open_store(tmp_path)
    assert Verdicts(again).find_twin(NODE, COMPLETIONS, "0x" + "02" * 32) is None
    assert verdicts is not None and (tmp_path / FILE_NAME).exists()
    again.close()


def test_twins_of_accepted_completions_are_found_for_the_same_node_only(
    store: sqlite3.Connection, make_verdict: Callable[..., KeptVerdict]
) -> None:
    verdicts = Verdicts(store)
    first = verdicts.keep(make_verdict(1), NODE, COMPLETIONS).message.submission_id
    assert verdicts.find_twin(NODE, COMPLETIONS, "0x" + "02" * 32) == first
    assert verdicts.find_twin(NODE, COMPLETIONS, first) is None
    assert verdicts.find_twin(OTHER_NODE, COMPLETIONS, "0x" + "02" * 32) is None


def test_completions_of_refused_work_leave_no_twin(
    store: sqlite3.Connection, make_verdict: Callable[..., KeptVerdict]
) -> None:
    verdicts = Verdicts(store)
    verdicts.keep(make_verdict(1, Outcome.DROP), NODE, COMPLETIONS)
    assert verdicts.find_twin(NODE, COMPLETIONS, "0x" + "02" * 32) is None
