"""How a run has gone, out of its metrics.jsonl: what held it up, how old its rollouts were, what wasn't trained on.

In: lines of one run. Out: `RunStatus`, which `proofpool trainer status` prints and the trainer logs at its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from protocol.errors import UsageError
from trainer.metrics_file import FILE_NAME, GROUPS_BY_USE, LEFT_UNUSED, Line, MetricsFile
from trainer.stopwatch import Bottleneck, StepTimes, bottleneck

SAID_OF_WAITS: Mapping[Bottleneck, str] = {
    Bottleneck.BATCH: "waits for batches: more or faster workers and verifiers would make it quicker",
    Bottleneck.PUBLISHING: "waits for weights to be published: a quicker line, chain or a larger max_async would help",
    Bottleneck.EVALUATION: "waits for held-back problems: fewer of them, or a larger evaluate_every, would help",
    Bottleneck.TRAINING: "trains: a quicker or larger trainer would make it quicker",
}


class LagReport(BaseModel):
    """Policy versions between a rollout and the weights that its step started from, over rollouts."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    least: int
    mean: float
    most: int
    num_rollouts: dict[str, int]
    """By lag."""


class RunStatus(BaseModel):
    """`proofpool trainer status --json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    run: str
    policy_version: int
    """Of the newest line."""
    num_steps: int
    bottleneck: Bottleneck | None
    """What took longest over all steps; None before the first, and for a run that doesn't say."""
    seconds: dict[Bottleneck, float]
    """Of waits and work, by what they were for."""
    num_steps_by_bottleneck: dict[Bottleneck, int]
    other_seconds: float
    """Of the steps, spent neither waiting nor on their work."""
    lag: LagReport | None
    num_rollouts: int
    """Trained on."""
    num_unused_groups: dict[str, int]
    """Accepted and paid, not trained on, by reason, since the pool began."""
    num_unused_rollouts: dict[str, int]
    """The same in rollouts."""
    newest: dict[str, Any]
    """Every column's newest value."""

    def lines(self) -> list[str]:
        """For people."""
        return [*self._time_lines(), *self._lag_lines(), *self._unused_lines(), *self._learning_lines()]

    def _time_lines(self) -> Iterable[str]:
        yield f"{self.run}: policy version {self.policy_version}, {self.num_steps} steps, {self.num_rollouts} rollouts"
        if self.bottleneck is None:
            return
        yield f"it {SAID_OF_WAITS[self.bottleneck]}"
        whole = sum(self.seconds.values()) + self.other_seconds
        for kind, seconds in self.seconds.items():
            steps = self.num_steps_by_bottleneck.get(kind, 0)
            yield f"  {kind.value:<11} {seconds:9.1f} s  {_share(seconds, whole):>6}  bottleneck of {steps} steps"
        yield f"  {'other':<11} {self.other_seconds:9.1f} s  {_share(self.other_seconds, whole):>6}"

    def _lag_lines(self) -> Iterable[str]:
        if self.lag is None:
            return
        yield f"policy lag: {self.lag.least} to {self.lag.most} versions, {self.lag.mean:.2f} in the mean"
        whole = sum(self.lag.num_rollouts.values())
        for lag, count in self.lag.num_rollouts.items():
            yield f"  {lag:>2}  {count:7} rollouts  {_share(count, whole):>6}  {'█' * round(40 * count / whole)}"

    def _unused_lines(self) -> Iterable[str]:
        for reason, groups in self.num_unused_groups.items():
            rollouts = self.num_unused_rollouts.get(reason)
            of_them = "" if rollouts is None else f" ({rollouts} rollouts)"
            yield f"accepted, not trained on: {groups} groups{of_them}, {reason}"

    def _learning_lines(self) -> Iterable[str]:
        shown = {
            "mean_task_reward": "task reward",
            "held_back_average": "held-back avg@k",
            "held_back_at_least_once": "held-back pass@k",
            "tokens_per_second": "tokens/s",
            "mfu": "MFU",
        }
        for column, name in shown.items():
            if isinstance(value := self.newest.get(column), int | float):
                yield f"{name}: {value:.4g}"


def read_lines(run: Path) -> list[Line]:
    """The metrics of a run's folder, of a testnet's, or a metrics.jsonl itself. Raises UsageError without any."""
    places = [run] if run.is_file() else [run / FILE_NAME, run / "data" / "trainer" / FILE_NAME]
    file = next((place for place in places if place.is_file()), None)
    if file is None and any((place.parent / "config.json").is_file() for place in places):
        raise UsageError("the run has nothing to tell yet", f"{run} has no {FILE_NAME}", "wait for the first step")
    if file is None:
        raise UsageError("that is no run", f"no {FILE_NAME} under {run}", "name a run folder or the file")
    if not (lines := MetricsFile(file).lines()):
        raise UsageError("the run has nothing to tell yet", f"{file} is empty", "wait for the first step")
    return lines


def status_of(run: str, lines: Sequence[Line]) -> RunStatus:
    """What the lines come to; of lines about a step that was taken twice, the later one counts. `lines` isn't empty."""
    steps = list({line["step"]: line for line in lines if "num_rollouts" in line}.values())
    timed = [times for line in steps if (times := _times(line)) is not None]
    seconds = _added(times.by_bottleneck for times in timed)
    newest: Line = {}
    for line in lines:
        newest |= line
    unused = {use: count for use, count in (newest.get(GROUPS_BY_USE) or {}).items() if use in LEFT_UNUSED}
    group_size = _group_size(steps)
    return RunStatus(
        run=run,
        policy_version=max(line["step"] for line in lines),
        num_steps=len(steps),
        bottleneck=bottleneck(seconds) if seconds else None,
        seconds=seconds,
        num_steps_by_bottleneck=dict(Counter(bottleneck(times.by_bottleneck) for times in timed)),
        other_seconds=max(0.0, sum(times.step_seconds for times in timed) - sum(seconds.values())),
        lag=_lag(steps),
        num_rollouts=sum(line["num_rollouts"] for line in steps),
        num_unused_groups=unused,
        num_unused_rollouts={use: group_size * count for use, count in unused.items()} if group_size else {},
        newest={name: value for name, value in newest.items() if name not in ("step", "time")},
    )


def _times(line: Line) -> StepTimes | None:
    """None for a line without them: a rehearsal's has only the whole."""
    names = [field.name for field in fields(StepTimes)]
    return StepTimes(**{name: float(line[name]) for name in names}) if all(name in line for name in names) else None


def _added(parts: Iterable[Mapping[Bottleneck, float]]) -> dict[Bottleneck, float]:
    total: dict[Bottleneck, float] = {}
    for part in parts:
        total = {kind: total.get(kind, 0.0) + seconds for kind, seconds in part.items()}
    return total


def lag_counts(lines: Iterable[Line]) -> Counter[int]:
    """Rollouts by policy lag, over all steps; empty for a run that doesn't say."""
    counts: Counter[int] = Counter()
    for line in lines:
        counts.update({int(lag): count for lag, count in (line.get("policy_lag_counts") or {}).items()})
    return counts


def _lag(steps: Sequence[Line]) -> LagReport | None:
    counts = lag_counts(steps)
    if not counts:
        return None
    mean = sum(lag * count for lag, count in counts.items()) / counts.total()
    ordered = {str(lag): count for lag, count in sorted(counts.items())}
    return LagReport(least=min(counts), mean=mean, most=max(counts), num_rollouts=ordered)


def _group_size(steps: Sequence[Line]) -> int | None:
    newest = steps[-1] if steps else {}
    return newest["num_rollouts"] // newest["num_groups"] if newest.get("num_groups") else None


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "–"
