"""A step's batch as it came: the signed offer, the rules, and the rollout file that the offer names.

In: what the coordinator serves, or the folder that a checkpoint keeps. Out: the samples of it, and the same folder. A
step can be taken again from it when the coordinator is gone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from protocol.api import BatchOffer
from protocol.canonical import hex0x
from protocol.errors import VerificationFailed
from protocol.files import write_atomically
from protocol.rules import Rules
from protocol.weights import ModelConfig
from protocol.wire import Hash32
from trainer.advantages import AdvantageScale
from trainer.samples import Limits, TrainingBatch, UnfitRow, read_batch

OFFER_FILE, RULES_FILE, ROLLOUT_FILE = "offer.json", "rules.json", "rollouts.parquet"


class BatchSource(BaseModel):
    """What a step was made of, by the names that the coordinator's log has for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    number: int
    groups_root: Hash32
    rules_hash: Hash32
    file_sha256: Hash32


@dataclass(frozen=True, eq=False)
class BatchFile:
    """`data` is the rollout file's bytes."""

    offer: BatchOffer
    rules: Rules
    data: bytes
    oldest_version: int = 0
    """The oldest policy version that the pool's `max_async` lets the step use."""

    @property
    def source(self) -> BatchSource:
        offer = self.offer
        return BatchSource(
            number=offer.number,
            groups_root=offer.groups_root,
            rules_hash=offer.rules_hash,
            file_sha256=hex0x(hashlib.sha256(self.data).digest()),
        )

    def read(self, model: ModelConfig, scale: AdvantageScale = "std") -> TrainingBatch:
        """Its samples. Raises VerificationFailed where the file isn't the offered one, UnfitRow for a bad row."""
        limits = Limits(model.vocab_size, model.max_position_embeddings, self.oldest_version)
        try:
            return read_batch(self.offer, self.data, self.rules, limits, scale)
        except UnfitRow:
            raise
        except VerificationFailed as error:
            raise VerificationFailed(
                f"batch {self.offer.number} of step {self.offer.step} can't be trained on",
                f"{error.what}: {error.why}" if error.why else error.what,
                "start again once the coordinator serves what it has signed; nothing of this batch was used",
            ) from error

    def write(self, folder: Path) -> None:
        """Three files, each whole or not there."""
        write_atomically(folder / OFFER_FILE, self.offer.model_dump_json(indent=1).encode())
        write_atomically(folder / RULES_FILE, self.rules.model_dump_json(indent=1).encode())
        write_atomically(folder / ROLLOUT_FILE, self.data)

    @classmethod
    def load(cls, folder: Path, file: Path | None = None) -> BatchFile:
        """What `write` made; the rollouts of `file` if given. Raises VerificationFailed where it isn't readable."""
        try:
            return cls(
                BatchOffer.model_validate_json((folder / OFFER_FILE).read_bytes()),
                Rules.model_validate_json((folder / RULES_FILE).read_bytes()),
                (file or folder / ROLLOUT_FILE).read_bytes(),
            )
        except (OSError, ValidationError) as error:
            raise VerificationFailed(
                "a stored batch can't be read", f"{folder}: {error}", "take the checkpoint from a copy that is whole"
            ) from error
