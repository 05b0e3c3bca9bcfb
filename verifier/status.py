"""How a verifier stands, from its own folder and from whoever answers.

In: configuration. Out: `VerifierStatus`; what can't be reached is said and leaves the rest as it is.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from protocol.client import CoordinatorClient
from protocol.errors import ProofpoolError
from protocol.reasons import Outcome
from verifier.config import VerifierConfig
from verifier.history import History
from verifier.store import FILE_NAME, open_store
from verifier.verdicts import Verdicts


class VerifierStatus(BaseModel):
    """One document; `headline` is the line that a person reads."""

    model_config = ConfigDict(frozen=True)
    schema_version: int = 1
    headline: str
    verdicts: dict[str, int]
    num_unrevealed: int
    num_epochs_checked: int
    num_epochs_committed: int | None
    problem: str | None


def read_status(config: VerifierConfig) -> VerifierStatus:
    """Raises nothing for what is down; a folder without a store is a verifier that hasn't run."""
    counts, num_unrevealed, num_checked = _from_store(config)
    num_committed, problem = _from_coordinator(config)
    return VerifierStatus(
        headline=_headline(counts, num_checked, num_committed),
        verdicts=counts,
        num_unrevealed=num_unrevealed,
        num_epochs_checked=num_checked,
        num_epochs_committed=num_committed,
        problem=problem,
    )


def _from_store(config: VerifierConfig) -> tuple[dict[str, int], int, int]:
    if not (config.data_dir / FILE_NAME).exists():
        return {}, 0, 0
    db = open_store(config.data_dir)
    try:
        verdicts, history = Verdicts(db), History(db)
        return verdicts.count_by_outcome(), verdicts.num_unrevealed, history.num_epochs
    finally:
        db.close()


def _from_coordinator(config: VerifierConfig) -> tuple[int | None, str | None]:
    client = CoordinatorClient(config.coordinator_url, timeout_seconds=5)
    try:
        return client.pool().epoch, None
    except ProofpoolError as error:
        return None, str(error)
    finally:
        client.close()


def _headline(counts: dict[str, int], num_checked: int, num_committed: int | None) -> str:
    if num_committed is None:
        return "BLOCKED: the coordinator doesn't answer"
    if num_checked + 2 < num_committed:
        return f"BEHIND: epochs checked up to {num_checked} of {num_committed}"
    if not counts:
        return "IDLE: nothing has been drawn on this validator's seats yet"
    slashes = counts.get(Outcome.SLASH.name.lower(), 0)
    return f"JUDGING: {sum(counts.values())} verdicts given, {slashes} of them slash"
