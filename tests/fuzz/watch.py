"""Runs inputs through a target and keeps what went wrong: exceptions that aren't allowed, and slow inputs.

In: bytes. Out: `Watch`, whose `findings` name each fault once, by the place that raised it. Findings are written
to a folder as they come, since the next input may end the process.
"""

from __future__ import annotations

import hashlib
import json
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.target import Target

REPORT_SECONDS = 1.0


@dataclass
class Watch:
    """What happened so far. `folder` None keeps findings in memory only; `patience` stretches the time limit."""

    target: Target
    folder: Path | None = None
    patience: float = 1.0
    num_inputs: int = 0
    slowest_seconds: float = 0.0
    slowest: bytes = b""
    findings: dict[str, bytes] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)
    reported: float = 0.0

    def run(self, data: bytes) -> None:
        """Run one input; whatever isn't allowed is a finding, errors of native code included."""
        began = time.perf_counter()
        try:
            self.target.run(data)
        except self.target.allowed:
            pass
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._keep(_place_of(error), data, str(error))
        seconds = time.perf_counter() - began
        self.num_inputs += 1
        if seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest = seconds, data
        if seconds > self.patience * self.target.max_seconds:
            self._keep(f"slower than {self.target.max_seconds} s", data, f"{seconds:.3f} s")
        if self.folder is not None and began - self.reported > REPORT_SECONDS:
            self.report()

    def report(self) -> None:
        """Write the counts to the folder."""
        assert self.folder is not None
        self.reported = time.perf_counter()
        counts = {
            "num_inputs": self.num_inputs,
            "seconds": self.reported - self.started,
            "slowest_seconds": self.slowest_seconds,
            "slowest_bytes": len(self.slowest),
            "findings": sorted(self.findings),
        }
        (self.folder / "report.json").write_text(json.dumps(counts))

    def _keep(self, place: str, data: bytes, detail: str) -> None:
        if place in self.findings and len(self.findings[place]) <= len(data):
            return
        self.findings[place] = data
        if self.folder is not None:
            name = hashlib.sha256(place.encode()).hexdigest()[:12]
            (self.folder / f"finding-{name}").write_bytes(data)
            (self.folder / f"finding-{name}.txt").write_text(f"{place}\n{detail}\n")


def _place_of(error: BaseException) -> str:
    """The error's type, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames[-3:]]
    return f"{type(error).__name__} at {' < '.join(reversed(where))}"
