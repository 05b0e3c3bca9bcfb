"""Every committed input, and every seed, ends as its parser says: with a value, or with an error that it documents."""

from __future__ import annotations

import pytest

from tests.fuzz.random_run import starting_points
from tests.fuzz.target import CORPUS
from tests.fuzz.targets import TARGETS
from tests.fuzz.watch import Watch

MAX_CORPUS_BYTES = 1 << 20
PATIENCE = 10.0
"""Other tests run beside this one: only what hangs is to fail here."""


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_of_the_corpus_is_read_or_refused(name: str) -> None:
    watch = Watch(TARGETS[name], patience=PATIENCE)
    points = starting_points(TARGETS[name])
    Watch(TARGETS[name]).run(points[0])  # imports and models aren't any input's fault
    for data in points:
        watch.run(data)
    assert watch.num_inputs > 0
    assert not watch.findings


def test_the_corpus_is_small_and_belongs_to_targets() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MAX_CORPUS_BYTES
    assert {path.parent.name for path in files} <= set(TARGETS)


def test_a_fault_is_found_once_with_its_smallest_input() -> None:
    def fail(data: bytes) -> None:
        if len(data) > 1:
            raise KeyError(data[0])

    honest = TARGETS["thrift"]
    watch = Watch(type(honest)("broken", fail, (), lambda: [b""]))
    for data in (b"", b"ab", b"abc", b"cd"):
        watch.run(data)
    assert watch.num_inputs == 4
    assert list(watch.findings.values()) == [b"ab"]
