"""All targets by name."""

from __future__ import annotations

from tests.fuzz.file_targets import FILE_TARGETS
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {target.name: target for target in (*FILE_TARGETS,)}
