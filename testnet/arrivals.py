"""How policy versions reach the workers: from the trainer's announcement until each has it, and what patches saved.

In: the logs of the trainer and of workers, as they grow. Out: `VersionArrivals` for each version. Seconds are between
two processes' log lines, on one machine's clock.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

EVENTS = ("weights.announced", "weights.fetched")


class VersionArrivals(BaseModel):
    """A version, and the workers that have fetched it; those that skipped it aren't among them."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    policy_version: int
    num_workers: int
    first_seconds: float | None
    """Of the quickest worker, from the announcement on; null before any."""
    last_seconds: float | None
    num_by_way: dict[str, int]
    """Workers by the way that it came: `whole`, `patches`, or `snapshot` and patches."""
    fetched_bytes: int
    """By all of them."""
    saved_bytes: int
    """By patches, against as many whole versions."""


@dataclass(frozen=True)
class Arrival:
    """A version at one worker; `time` in Unix seconds."""

    worker: str
    time: float
    way: str
    num_bytes: int
    saved_bytes: int


class Arrivals:
    """Call `look` now and then; what was read once isn't read again."""

    def __init__(self, trainer: Path, workers: Mapping[str, Path]) -> None:
        """Log files; they needn't be there yet."""
        self._logs = {"": trainer, **workers}
        self._num_read: Counter[str] = Counter()
        self._announced: dict[int, float] = {}
        self._arrivals: defaultdict[int, dict[str, Arrival]] = defaultdict(dict)

    def look(self) -> None:
        for name, path in self._logs.items():
            for line in self._new_lines(name, path):
                self._take(name, line)

    @property
    def versions(self) -> tuple[VersionArrivals, ...]:
        """Of all announced versions, in order."""
        return tuple(self._of(version, time) for version, time in sorted(self._announced.items()))

    def _new_lines(self, name: str, path: Path) -> Iterator[dict[str, Any]]:
        """Whole lines only, and of these the events that count: a log has others, and tracebacks too."""
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._num_read[name])
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._num_read[name] += len(line)
                if line.startswith(b"{") and any(event.encode() in line for event in EVENTS):
                    yield json.loads(line)

    def _take(self, name: str, line: Mapping[str, Any]) -> None:
        """The first time counts: after a kill a version may be announced or fetched once more."""
        event, time = line["event"], datetime.fromisoformat(line["ts"]).timestamp()
        if event == "weights.announced" and not name:
            self._announced.setdefault(line["policy_version"], time)
        elif event == "weights.fetched" and name:
            arrival = Arrival(name, time, line["way"], line["num_bytes"], line["saved_bytes"])
            self._arrivals[line["policy_version"]].setdefault(name, arrival)

    def _of(self, policy_version: int, announced: float) -> VersionArrivals:
        found = list(self._arrivals[policy_version].values())
        # Who asks often may have a version before the line is written that says that it is announced.
        seconds = [round(max(0.0, arrival.time - announced), 3) for arrival in found]
        return VersionArrivals(
            policy_version=policy_version,
            num_workers=len(found),
            first_seconds=min(seconds, default=None),
            last_seconds=max(seconds, default=None),
            num_by_way=dict(sorted(Counter(arrival.way for arrival in found).items())),
            fetched_bytes=sum(arrival.num_bytes for arrival in found),
            saved_bytes=sum(arrival.saved_bytes for arrival in found),
        )


def told(version: VersionArrivals) -> str:
    """One version, in words."""
    if version.first_seconds is None or version.last_seconds is None:
        return f"v{version.policy_version} is announced, no worker has it yet"
    ways = ", ".join(f"{count} {way}" for way, count in version.num_by_way.items())
    return (
        f"v{version.policy_version} at {version.num_workers} workers ({ways}) {version.first_seconds:.1f} to "
        f"{version.last_seconds:.1f} s after its announcement, {version.fetched_bytes:,} bytes fetched, "
        f"{saved_share(version):.0%} saved by patches"
    )


def saved_share(version: VersionArrivals) -> float:
    return version.saved_bytes / max(1, version.fetched_bytes + version.saved_bytes)


def told_of_all(versions: Sequence[VersionArrivals]) -> str:
    """A run's versions, in a line."""
    # The first one is there before most workers are.
    seconds = [one.last_seconds for one in versions if one.last_seconds is not None and one.policy_version]
    fetched, saved = (sum(getattr(one, name) for one in versions) for name in ("fetched_bytes", "saved_bytes"))
    if not fetched:
        return "none fetched"
    total = f"{fetched:,} bytes fetched, {saved:,} saved by patches"
    if not seconds:
        return f"none after the first, {total}"
    return (
        f"{len(seconds)} after the first, at the last worker {sum(seconds) / len(seconds):.1f} s after their "
        f"announcement (mean; {max(seconds):.1f} s the longest), {total}"
    )
