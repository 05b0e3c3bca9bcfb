"""What the mutations of the fuzzing runs must not do."""

from __future__ import annotations

import copy
import json
import random

from tests.fuzz.mutation import VALUES, mutate_json

DOCUMENT = json.dumps({"names": ["a", {"b": 1}], "size": 3, "parts": [[1, 2], {}, []]}).encode()


def mutations(seed: int, count: int) -> list[bytes | None]:
    rng = random.Random(seed)
    return [mutate_json(DOCUMENT, rng) for _ in range(count)]


def test_one_input_leaves_nothing_behind_for_the_next() -> None:
    before = copy.deepcopy(VALUES)
    first = mutations(1, 3_000)
    assert repr(before) == repr(VALUES)
    assert mutations(1, 3_000) == first != mutations(2, 3_000)


def test_a_small_document_stays_small() -> None:
    assert max(len(changed or b"") for changed in mutations(3, 3_000)) < 1_000_000
