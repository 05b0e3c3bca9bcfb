"""All targets by name."""

from __future__ import annotations

from tests.fuzz.config_targets import CONFIG_TARGETS
from tests.fuzz.file_targets import FILE_TARGETS
from tests.fuzz.message_targets import MESSAGE_TARGETS
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {target.name: target for target in (*FILE_TARGETS, *MESSAGE_TARGETS, *CONFIG_TARGETS)}
