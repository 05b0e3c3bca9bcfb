"""All targets by name."""

from __future__ import annotations

from tests.fuzz.api_targets import API_TARGETS
from tests.fuzz.chain_targets import CHAIN_TARGETS
from tests.fuzz.code_targets import CODE_TARGETS
from tests.fuzz.config_targets import CONFIG_TARGETS
from tests.fuzz.file_targets import FILE_TARGETS
from tests.fuzz.message_targets import MESSAGE_TARGETS
from tests.fuzz.patch_targets import PATCH_TARGETS
from tests.fuzz.target import Target
from tests.fuzz.verdict_targets import VERDICT_TARGETS

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *(*FILE_TARGETS, *MESSAGE_TARGETS, *CONFIG_TARGETS, *CHAIN_TARGETS, *API_TARGETS, *VERDICT_TARGETS),
        *PATCH_TARGETS,
        *CODE_TARGETS,
    )
}
