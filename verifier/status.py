"""How a verifier stands, from its own folder and from whoever answers.

In: configuration. Out: `VerifierStatus`; what can't be reached is said and leaves the rest as it is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from pydantic import BaseModel, ConfigDict

from protocol.client import CoordinatorClient
from protocol.errors import ProofpoolError, UsageError
from protocol.reasons import Outcome
from verifier.config import VerifierConfig
from verifier.history import History
from verifier.reaudits import ReauditCounts, Reaudits
from verifier.store import FILE_NAME, open_store
from verifier.verdicts import Verdicts


class VerifierStatus(BaseModel):
    """One document; `headline` is the line that a person reads."""

    model_config = ConfigDict(frozen=True)
    schema_version: int = 1
    headline: str
    verdicts: dict[str, int]
    num_unrevealed: int
    num_disputed_stamps: int
    reaudits: dict[str, int]
    num_epochs_checked: int
    num_epochs_committed: int | None
    problem: str | None

    @property
    def is_blocked(self) -> bool:
        return self.num_epochs_committed is None


def read_status(config: VerifierConfig) -> VerifierStatus:
    """Raises ConfigError for another pool's coordinator, and nothing for what is down.

    A folder without a store is a verifier that hasn't run.
    """
    kept = _from_store(config)
    num_committed, problem = _from_coordinator(config)
    return VerifierStatus(
        headline=_headline(kept, num_committed),
        verdicts=kept.verdicts,
        num_unrevealed=kept.num_unrevealed,
        num_disputed_stamps=kept.num_disputed_stamps,
        reaudits=asdict(kept.reaudits),
        num_epochs_checked=kept.num_epochs,
        num_epochs_committed=num_committed,
        problem=problem,
    )


@dataclass(frozen=True)
class _Kept:
    """What the store says."""

    verdicts: dict[str, int] = field(default_factory=dict)
    num_unrevealed: int = 0
    num_disputed_stamps: int = 0
    reaudits: ReauditCounts = ReauditCounts(0, 0, 0, 0, 0)
    num_epochs: int = 0


def _from_store(config: VerifierConfig) -> _Kept:
    if not (config.data_dir / FILE_NAME).exists():
        return _Kept()
    db = open_store(config.data_dir)
    try:
        verdicts, history = Verdicts(db), History(db)
        reaudits = Reaudits(db, history.payments)
        return _Kept(
            verdicts=verdicts.count_by_outcome(),
            num_unrevealed=verdicts.num_unrevealed,
            num_disputed_stamps=reaudits.num_disputed_stamps(),
            reaudits=reaudits.counts(),
            num_epochs=history.num_epochs,
        )
    finally:
        db.close()


def _from_coordinator(config: VerifierConfig) -> tuple[int | None, str | None]:
    client = CoordinatorClient(config.coordinator_url, timeout_seconds=5)
    try:
        return client.configured_pool(config.pool_id, config.ledger).epoch, None
    except UsageError:
        raise
    except ProofpoolError as error:
        return None, str(error)
    finally:
        client.close()


def _headline(kept: _Kept, num_committed: int | None) -> str:
    if num_committed is None:
        return "BLOCKED: the coordinator doesn't answer"
    if kept.num_disputed_stamps:
        return f"DISPUTED: other seats dispute {kept.num_disputed_stamps} of this validator's work stamps"
    if kept.num_epochs + 2 < num_committed:
        return f"BEHIND: epochs checked up to {kept.num_epochs} of {num_committed}"
    if not kept.verdicts:
        return "IDLE: nothing has been drawn on this validator's seats yet"
    slashes = kept.verdicts.get(Outcome.SLASH.name.lower(), 0)
    return f"JUDGING: {sum(kept.verdicts.values())} verdicts given, {slashes} of them slash"
