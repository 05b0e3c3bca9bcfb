"""A calibration from start to end: honest work, limits, what lies near to it, the file.

    plan's jobs ─generate─▶ case ─judge─▶ observations ─▶ journal      (honest)
    journal ─▶ limits                                                  (`limits.py`)
    deviations ─▶ cases ─▶ observations, and the checks under these limits ─▶ journal
    journal ─▶ ThresholdFile

In: a subject, a plan, where to write. Out: the `ThresholdFile`, written. Interrupted at any point, the journal beside
the file keeps what was measured; `resume` goes on from there to the same file.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from protocol.checks.case import Case
from protocol.checks.measurements import Measurements
from protocol.checks.stages import COSTLY
from protocol.doctor import installed_version
from protocol.forward import CausalLM
from protocol.progress import Progress
from protocol.reasons import Outcome
from protocol.rules import Thresholds
from verifier.calibration.deviations import Deviation, deviations
from verifier.calibration.document import ThresholdFile, deviation_report, honest_report, rules_of
from verifier.calibration.generate import Generation
from verifier.calibration.journal import HONEST, Entry, Journal
from verifier.calibration.limits import Chosen, choose_limits
from verifier.calibration.observe import Model, Observation, judged, observations
from verifier.calibration.output import journal_of
from verifier.calibration.plan import Job, Plan
from verifier.calibration.reference import ReferenceModel
from verifier.calibration.samples import Samples
from verifier.calibration.setups import DTYPES, Judge
from verifier.calibration.subject import Subject

FIRST_DEVIATING = 1 << 20
"""Deviating submissions have numbers, and so prompts, of their own."""
PACKAGES = ("proofpool", "torch", "numpy", "transformers")


@dataclass
class Models:
    """A judge's model, loaded once for all judges that share it."""

    folder: Path
    _loaded: dict[tuple[str, str, str], Model] = field(default_factory=dict)

    def of(self, judge: Judge) -> Model:
        key = (judge.implementation, judge.dtype, judge.kernel if judge.implementation == "transformers" else "")
        if key not in self._loaded:
            self._loaded[key] = self._load(judge)
        return self._loaded[key]

    def _load(self, judge: Judge) -> Model:
        if judge.implementation == "transformers":
            return ReferenceModel(self.folder, judge.dtype, judge.kernel)
        return CausalLM.load(self.folder, DTYPES[judge.dtype]).eval()


@dataclass
class Calibration:
    """Example: `Calibration(subject, plan, Path("thresholds.json"), command="…").run(resume=False)`."""

    subject: Subject
    plan: Plan
    out: Path
    command: str
    seed: int = 0
    num_deviating: int = 2
    """Submissions of each deviation."""
    previous: Path | None = None

    def __post_init__(self) -> None:
        self._generation = Generation(self.subject, self.seed)
        self._models = Models(self.subject.folder)

    def run(self, *, resume: bool) -> ThresholdFile:
        """The whole of it. Raises UsageError where an unfinished run is in the way, or is another one."""
        with Journal.open(journal_of(self.out), self._header(), resume=resume) as journal:
            self._measure_honest(journal)
            samples = Samples.of(journal.of_kind(HONEST))
            chosen = self._limits(samples)
            samples = samples.clipped(chosen.thresholds.sampling_margin_clip)
            with tempfile.TemporaryDirectory(prefix="proofpool-calibrate-") as scratch:
                kinds = self._measure_deviations(journal, chosen.thresholds, Path(scratch))
            document = self._document(journal, samples, chosen, kinds)
            document.write(self.out)
            journal.discard()
        return document

    def _measure_honest(self, journal: Journal) -> None:
        jobs = list(self.plan.jobs())
        with Progress("honest tasks", len(jobs)) as progress:
            for job in jobs:
                missing = [judge for judge in job.judges if not journal.has(HONEST, job.number, judge.name)]
                if not missing:
                    progress.skip()
                    continue
                progress.doing(job.generator.name)
                for entry in self._honest_entries(job, missing):
                    journal.append(entry)
                progress.step()

    def _limits(self, samples: Samples) -> Chosen:
        rules = self.subject.rules
        with Progress("limits", 1) as progress:
            progress.doing("fitting")
            chosen = choose_limits(samples, rules.thresholds.sampling_margin_clip, rules.group_size)
            progress.step()
        return chosen

    def _honest_entries(self, job: Job, judges: list[Judge]) -> Iterator[Entry]:
        case = self._generation.task(job.number, job.generator, job.num_submissions)
        for judge in judges:
            found = judged(case, self._models.of(judge), judge)
            yield Entry(HONEST, job.number, job.generator.name, judge.name, self._samples(case, found))

    def _measure_deviations(self, journal: Journal, thresholds: Thresholds, scratch: Path) -> list[str]:
        """The names of what was measured, in order."""
        kinds = list(deviations(self._generation, self.plan.dtype, scratch, self.previous))
        numbers, judge = range(FIRST_DEVIATING, FIRST_DEVIATING + self.num_deviating), self.plan.judges[0]
        with Progress("deviating submissions", len(kinds) * self.num_deviating) as progress:
            for kind, number in product(kinds, numbers):
                if journal.has(kind.name, number, judge.name):
                    progress.skip()
                    continue
                progress.doing(kind.name)
                journal.append(self._deviating_entry(kind, number, judge, thresholds))
                progress.step()
        return [kind.name for kind in kinds]

    def _deviating_entry(self, kind: Deviation, number: int, judge: Judge, thresholds: Thresholds) -> Entry:
        model, largest = self._models.of(judge), max(g.max_batch for g in self.plan.generators)
        case = kind.submission(self._generation, number, model, judge, largest)
        found = judged(case, model, judge)
        refused_by = refusing(case, found, thresholds)
        return Entry(kind.name, number, kind.name, judge.name, self._samples(case, found), refused_by)

    def _samples(self, case: Case, found: Measurements) -> tuple[Observation, ...]:
        return tuple(observations(case, found, self.subject.num_rollouts))

    def _document(self, journal: Journal, samples: Samples, chosen: Chosen, kinds: list[str]) -> ThresholdFile:
        num_rollouts = sum(job.num_submissions for job in self.plan.jobs()) * self.subject.num_rollouts
        return ThresholdFile(
            model={"name": self.subject.folder.resolve().name, **self.subject.hashes()},
            dtype=self.plan.dtype,
            limits=chosen.thresholds,
            derivations=chosen.derivations,
            honest=honest_report(samples, num_rollouts),
            deviations=[deviation_report(journal.of_kind(kind), chosen.thresholds) for kind in kinds],
            rules=rules_of(self.subject.rules),
            made_with=made_with(),
            command=self.command,
        )

    def _header(self) -> dict[str, Any]:
        """What must be the same for a run to go on."""
        return {
            "model": self.subject.hashes(),
            "rules": rules_of(self.subject.rules),
            "plan": {
                "num_submissions": self.plan.num_submissions,
                "generators": [generator.name for generator in self.plan.generators],
                "judges": [judge.name for judge in self.plan.judges],
            },
            "seed": self.seed,
            "made_with": made_with(),
        }


def refusing(case: Case, found: Measurements, thresholds: Thresholds) -> tuple[str, ...]:
    """The names of the checks that refuse a case under these limits."""
    rules = case.rules.model_copy(update={"thresholds": thresholds})
    judged_case = replace(case, terms=replace(case.terms, rules=rules), measurements=found)
    results = [check(judged_case) for check in COSTLY]
    return tuple(result.check for result in results if result.outcome != Outcome.ACCEPT)


def made_with() -> dict[str, str]:
    """Versions and machine: numbers are of these."""
    versions = {package: installed_version(package) for package in PACKAGES}
    return {**versions, "python": platform.python_version(), "machine": f"{platform.machine()}, {_processor()}"}


def _processor() -> str:
    """The processor's name where the system tells it."""
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"
