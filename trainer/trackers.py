"""Trackers: other people's programs that draw curves. A run has at most one, and does without.

In: `tracker = "tensorboard"`, `"wandb"` or `"trackio"`, and numbers by name, a step at a time. Out: whatever it makes
of them. Its library is imported only where it is chosen. What goes wrong in it later ends no run: it is logged, and
metrics.jsonl has everything.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from protocol.errors import ConfigError
from protocol.telemetry import get_logger

TrackerName = Literal["tensorboard", "wandb", "trackio"]
LIBRARIES: dict[TrackerName, str] = {"tensorboard": "tensorboardX", "wandb": "wandb", "trackio": "trackio"}
"""What is imported for each, which the extra of its name installs."""


class Tracker(Protocol):
    """Where curves go."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers of a step, which may be an earlier one than the last."""
        ...

    def close(self) -> None:
        """Write what isn't written yet; nothing is logged afterwards."""
        ...


class NoTracker:
    """Draws nothing."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


NO_TRACKER = NoTracker()


class TensorboardTracker:
    """Event files in `data_dir/tensorboard`; `tensorboard --logdir` draws them."""

    def __init__(self, library: Any, data_dir: Path) -> None:
        folder = data_dir / "tensorboard"
        # A file's name has the second of its making: started again within one, it would take the earlier file's place.
        number = sum(1 for _ in folder.iterdir()) if folder.exists() else 0
        self._writer = library.SummaryWriter(str(folder), filename_suffix=f".{number}")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbTracker:
    """A run of wandb that goes on after a restart; its files are in `data_dir/wandb`."""

    def __init__(self, library: Any, data_dir: Path, project: str, run: str) -> None:
        self._run = library.init(project=project, id=run, name=run, resume="allow", dir=str(data_dir))
        # Its own count only rises, and an evaluation may end after later steps.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({"step": step, **values})

    def close(self) -> None:
        self._run.finish()


class TrackioTracker:
    """A run of trackio that goes on after a restart; `trackio show` draws it."""

    def __init__(self, library: Any, project: str, run: str) -> None:
        self._run = library.init(project=project, name=run, resume="allow")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class Tolerated:
    """A tracker whose faults are logged, and end nothing."""

    def __init__(self, tracker: Tracker, name: str) -> None:
        self._tracker = tracker
        self._name = name

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._try(lambda: self._tracker.log(step, values))

    def close(self) -> None:
        self._try(self._tracker.close)

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # of any kind: it is another project's program, and only draws
            get_logger().warning("tracker.failed", tracker=self._name, why=f"{type(error).__name__}: {error}")


def make_tracker(name: TrackerName | None, data_dir: Path, project: str, run: str) -> Tracker:
    """The named one, ready for `run` of `project`. Raises ConfigError where its library isn't installed."""
    if name is None:
        return NO_TRACKER
    return Tolerated(_begun(name, data_dir, project, run), name)


def _begun(name: TrackerName, data_dir: Path, project: str, run: str) -> Tracker:
    library = _library(name)
    if name == "tensorboard":
        return TensorboardTracker(library, data_dir)
    if name == "wandb":
        return WandbTracker(library, data_dir, project, run)
    return TrackioTracker(library, project, run)


def _library(extra: TrackerName) -> Any:
    try:
        return importlib.import_module(LIBRARIES[extra])
    except ImportError as error:
        raise ConfigError(
            f"the tracker {extra} isn't installed", str(error), f"pip install 'proofpool[{extra}]', or drop `tracker`"
        ) from error
