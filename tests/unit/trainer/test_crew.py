"""What every rank does around a learner: what a step leaves in the heap goes back, on the first one and on others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.checkpoint import CheckpointStore
from trainer.crew import Crew, Learn, Save
from trainer.learner import Learner
from trainer.samples import TrainingBatch


def test_memory_goes_back_after_a_step_and_not_before(
    make_learner: Callable[..., Learner], batch: TrainingBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = Crew(make_learner(), CheckpointStore(tmp_path / "checkpoints"), tmp_path)
    given_back: list[int] = []
    monkeypatch.setattr("trainer.crew.return_holes", lambda: given_back.append(crew.learner.num_updates))
    crew._carry_out(Save(0, None))
    assert given_back == []
    crew.learn(batch, 0)
    first = crew.learner.num_updates
    crew._carry_out(Learn(batch, 1))
    assert given_back == [first, 2 * first] and first > 0
