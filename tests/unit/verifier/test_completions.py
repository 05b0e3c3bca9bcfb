"""Overlap between nodes: counted, of completions that are long enough to tell, and never held against anybody."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.cli import run
from protocol.rollouts import Rollout
from tests.documents import fitting
from tests.unit.verifier.test_verifier_commands import config_file
from tests.unit.verifier.verifier_world import World
from verifier.completions import MIN_TOKENS, Completions
from verifier.store import open_store

ALICE, BOB, CAROL = ("0x" + digit * 40 for digit in "abc")


def long_ones(rollouts: list[Rollout]) -> set[bytes]:
    return {r.output_tokens.tobytes() for r in rollouts if r.num_units >= MIN_TOKENS}


def test_what_two_nodes_share_is_counted_for_both(
    store: sqlite3.Connection, world: World, honest: list[Rollout]
) -> None:
    completions = Completions(store)
    others = world.rollouts(world.completions(counter=5), counter=5)
    mixed = [*honest[:16], *others[16:]]
    completions.keep(ALICE, "0x" + "01" * 32, world.case(honest))
    completions.keep(BOB, "0x" + "02" * 32, world.case(mixed))
    completions.keep(BOB, "0x" + "02" * 32, world.case(mixed))
    report = completions.report()
    shared = len(long_ones(honest) & long_ones(mixed))
    assert shared >= len(long_ones(honest[:16])) > 0
    assert [(o.node, o.other_node, o.num_shared) for o in report.overlaps] == [
        (ALICE, BOB, shared),
        (BOB, ALICE, shared),
    ]
    assert report.overlaps[0].num_completions == len(long_ones(honest))
    assert (report.num_nodes, report.num_completions) == (2, len(long_ones(honest) | long_ones(mixed)))


def test_short_answers_coincide_and_are_not_counted(
    store: sqlite3.Connection, world: World, honest: list[Rollout]
) -> None:
    def cut(rollout: Rollout) -> Rollout:
        length = MIN_TOKENS - 1
        return replace(
            rollout, output_tokens=rollout.output_tokens[:length], output_logprobs=rollout.output_logprobs[:length]
        )

    completions = Completions(store)
    for node in (ALICE, BOB):
        completions.keep(node, "0x" + "01" * 32, world.case([cut(r) for r in honest]))
    assert completions.report().overlaps == () and completions.report().num_completions == 0


def test_the_same_again_from_one_node_is_no_overlap(
    store: sqlite3.Connection, world: World, honest: list[Rollout]
) -> None:
    completions = Completions(store)
    completions.keep(CAROL, "0x" + "01" * 32, world.case(honest))
    completions.keep(CAROL, "0x" + "02" * 32, world.case(honest))
    assert completions.report().overlaps == ()


def test_the_command_reads_the_folder(
    tmp_path: Path, world: World, honest: list[Rollout], capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(config_file(tmp_path))
    assert run(["verifier", "overlap", "--config", config, "--json"]) == 0
    assert fitting("verifier overlap", capsys.readouterr().out) == {
        "schema_version": 1, "num_nodes": 0, "num_completions": 0, "overlaps": []
    }  # fmt: skip
    db = open_store(tmp_path / "data")
    for node in (ALICE, BOB):
        Completions(db).keep(node, "0x" + "01" * 32, world.case(honest))
    db.close()
    assert run(["verifier", "overlap", "--config", config, "--json"]) == 0
    overlaps = fitting("verifier overlap", capsys.readouterr().out)["overlaps"]
    assert {o["num_shared"] for o in overlaps} == {len(long_ones(honest))} and len(overlaps) == 2
    assert run(["verifier", "overlap", "--config", config]) == 0
    assert f"{ALICE} shares" in capsys.readouterr().out
