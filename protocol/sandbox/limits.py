"""What a sandboxed program may use up, and how far from a limit a finding is certain."""

from __future__ import annotations

from math import ceil

from pydantic import BaseModel, ConfigDict, Field

MIB = 1 << 20


class Limits(BaseModel):
    """For one run of a program. A worker and a verifier of different speed judge alike: see `verdict.py`.

    Example: `Limits(cpu_seconds=2)`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    cpu_seconds: float = Field(default=4.0, ge=0.1, le=600)
    """CPU time, user and system, after which a run that is right counts as too slow."""
    idle_seconds: float = Field(default=4.0, ge=0.1, le=600)
    """The same for time in which it neither computes nor waits for a processor."""
    margin: float = Field(default=2.0, ge=1.25, le=8)
    """Within this factor of a limit nothing is certain; a run is ended at the limit times this."""
    memory_bytes: int = Field(default=512 * MIB, ge=64 * MIB, le=16384 * MIB)
    """Address space, the interpreter's own included."""
    tmp_bytes: int = Field(default=64 * MIB, ge=MIB, le=4096 * MIB)
    """What `/tmp` holds, in memory."""
    output_bytes: int = Field(default=8 * MIB, ge=1024, le=256 * MIB)
    """What it may print, or return."""
    num_threads: int = Field(default=32, ge=1, le=256)
    num_files: int = Field(default=64, ge=16, le=1024)
    """Open at once."""

    @property
    def killed_at_cpu_seconds(self) -> float:
        return self.cpu_seconds * self.margin

    @property
    def killed_at_idle_seconds(self) -> float:
        return self.idle_seconds * self.margin

    @property
    def last_resort_seconds(self) -> float:
        """Wall time after which a run ends whatever the machine is busy with; nothing is certain then."""
        return 60 + 20 * (self.killed_at_cpu_seconds + self.killed_at_idle_seconds)

    def inside(self) -> dict[str, int]:
        """What the program's own process is limited to by the kernel, by the resource's name in `resource`."""
        return {
            "RLIMIT_AS": self.memory_bytes,
            "RLIMIT_CPU": ceil(self.killed_at_cpu_seconds) + 1,  # behind the watch from outside, should that fail
            "RLIMIT_FSIZE": self.tmp_bytes,
            "RLIMIT_NOFILE": self.num_files,
            "RLIMIT_NPROC": self.num_threads,
            "RLIMIT_CORE": 0,
            "RLIMIT_MEMLOCK": 0,
        }
