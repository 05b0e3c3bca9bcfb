"""What `proofpool verifier calibrate` is told: checked, and turned into a calibration.

In: the command's options. Out: `Calibration`. `command` is how to run the same again.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import UsageError
from verifier.calibration.plan import Plan, make_plan
from verifier.calibration.run import Calibration
from verifier.calibration.setups import dtype_of
from verifier.calibration.subject import load_subject


@dataclass(frozen=True)
class Options:
    """Lists are text with commas between, empty for all that this machine has."""

    model: Path
    rules: Path | None
    dtype: str
    num_rollouts: int
    batch_sizes: str
    generators: str
    judges: str
    previous: Path | None
    num_deviating: int
    seed: int
    out: Path

    def calibration(self) -> Calibration:
        """Raises UsageError or ConfigError naming the option that can't be used."""
        if self.num_deviating < 1:
            raise UsageError("no deviation would be measured", f"--deviating {self.num_deviating}", "give 1 or more")
        subject = load_subject(self.model, self.rules)
        return Calibration(
            subject=subject,
            plan=self.plan(subject.num_rollouts),
            out=self.out,
            command=self.command,
            seed=self.seed,
            num_deviating=self.num_deviating,
            previous=self.previous,
        )

    def plan(self, submission_rollouts: int) -> Plan:
        """Whole submissions, at least as many rollouts as asked for."""
        return make_plan(
            dtype=dtype_of(self.dtype),
            num_submissions=-(-self.num_rollouts // submission_rollouts),
            submission_rollouts=submission_rollouts,
            batch_sizes=_numbers(self.batch_sizes),
            generators=_names(self.generators),
            judges=_names(self.judges),
        )

    @property
    def command(self) -> str:
        """To paste in the folder that this was started in; without what changes nothing in the file."""
        words = ["proofpool", "verifier", "calibrate", "--model", f"{self.model}"]
        words += ["--rules", f"{self.rules}"] if self.rules else []
        words += ["--dtype", self.dtype, "--rollouts", f"{self.num_rollouts}", "--batch-sizes", self.batch_sizes]
        words += ["--generators", self.generators] if self.generators else []
        words += ["--judges", self.judges] if self.judges else []
        words += ["--previous", f"{self.previous}"] if self.previous else []
        return shlex.join([*words, "--deviating", f"{self.num_deviating}", "--seed", f"{self.seed}"])

    @property
    def command_to_resume(self) -> str:
        return f"{self.command} {shlex.join(['--out', f'{self.out}', '--resume'])}"


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str) -> list[int]:
    try:
        return [int(name) for name in _names(text)]
    except ValueError as error:
        raise UsageError("batch sizes are whole numbers", f"{text!r}", "for example --batch-sizes 1,8,64") from error
