"""Groups that a run has trained on, as far back as rollouts may still be offered: nothing accepted is used twice.

In: the checkpoint that a step begins at, and the offer of its batch. Out: `UnfitRow` for a group that an earlier step
had; and `earlier.json` beside the offer that a checkpoint keeps, so that a checkpoint alone knows it all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from protocol.api import BatchOffer, GroupRef
from protocol.errors import VerificationFailed
from protocol.files import write_atomically
from trainer.batch_file import OFFER_FILE, BatchFile
from trainer.samples import UnfitRow

FILE_NAME = "earlier.json"


class TrainedGroups(BaseModel):
    """Example: `TrainedGroups.until(checkpoint.folder / "batch").check(offer)`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    by_step: dict[int, tuple[GroupRef, ...]] = {}

    @classmethod
    def until(cls, folder: Path) -> TrainedGroups:
        """Of the step whose batch lies in `folder`, and of those before; none for a base model, which has no folder.

        Raises VerificationFailed where the files can't be read.
        """
        if not folder.is_dir():
            return cls()
        file = folder / FILE_NAME
        try:
            offer = BatchOffer.model_validate_json((folder / OFFER_FILE).read_bytes())
            # Checkpoints of earlier releases have none: their own groups are all that they know.
            earlier = cls.model_validate_json(file.read_bytes()) if file.exists() else cls()
        except (OSError, ValidationError) as error:
            raise VerificationFailed(
                "a checkpoint doesn't say which groups were trained on",
                f"{folder}: {str(error).splitlines()[0]}",
                "take the checkpoint from a copy that is whole, or move it away: its step is taken again",
            ) from error
        return cls(by_step=earlier.by_step | {offer.step: offer.groups})

    def write(self, folder: Path, batch: BatchFile) -> None:
        """Beside the offer of `batch`: what the next steps may still be offered, given the oldest version of its."""
        kept = {step: groups for step, groups in self.by_step.items() if step > batch.oldest_version}
        write_atomically(folder / FILE_NAME, TrainedGroups(by_step=kept).model_dump_json(indent=1).encode())

    def check(self, offer: BatchOffer) -> None:
        """Raises UnfitRow for a group that was trained on."""
        steps = {group: step for step, groups in self.by_step.items() for group in groups}
        for group in offer.groups:
            if group in steps:
                raise UnfitRow(group.submission_id, f"its group {group.group} was trained on in step {steps[group]}")
