"""A whole pool in one process: the coordinator over its API, verifiers with the tiny model, honest submissions.

`Town.submit` hands in what the worker's engine and prover make; `Town.turn` gives every verifier and the coordinator's
stages a turn and closes the epoch. The chain is the coordinator's mirrors, read back (`MirrorChain`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import select

from coordinator.db import chain as mirror
from coordinator.db.work import Account, ReauditRow, SubmissionRow
from coordinator.draws import open_draws, seats_at
from coordinator.reaudits import reaudit
from coordinator.settle import settle
from coordinator.standing import UNSETTLED
from protocol.api import ReauditState, SubmissionView
from protocol.chain.cases import Accusation, CaseRecord, CaseState, Summons
from protocol.chain.pool import LogHead, PoolRecord, VersionRecord
from protocol.chain.terms import PriceTerms
from protocol.draw import Seat
from protocol.signing import Signer, SigningDomain
from tests.unit.coordinator.conftest import POOL_ID, Site
from tests.unit.verifier.verifier_world import World
from tests.worlds.generated import generate
from verifier.accuse import Accuser
from verifier.attest import Attester
from verifier.commitments import Commitments
from verifier.completions import Completions
from verifier.history import History
from verifier.judge import Judge
from verifier.juror import Jurors
from verifier.loop import Verifier
from verifier.reaudits import Reaudits
from verifier.store import open_store
from verifier.verdicts import Verdicts


@dataclass(frozen=True)
class MirrorChain:
    """What a verifier asks of the chain, answered from what the coordinator has indexed of it."""

    site: Site
    accused: set[str]
    """Submissions that anybody has accused; their cases are over at once."""

    @property
    def domain(self) -> SigningDomain:
        return self.site.domain

    def time(self) -> int:
        return int(self.site.clock.seconds)

    def record(self) -> PoolRecord:
        pool = self._pool()
        return PoolRecord(
            pool_id=POOL_ID,
            coordinator=pool.coordinator,
            trainer=pool.trainer,
            rules_hashes=frozenset({pool.rules_hash}),
            prices_wei=frozenset({pool.price_wei}),
            verify_prices_wei=frozenset({pool.verify_price_wei}),
            accept_quorum=pool.accept_quorum,
            slash_quorum=pool.slash_quorum,
            draw_limit=pool.draw_limit,
            reaudit_bps=pool.reaudit_bps,
            accuse_seconds=100,
            lease_seconds=60,
            max_async=pool.max_async,
        )

    def num_epochs(self) -> int:
        return len(self._epochs())

    def heads(self, start: int) -> Sequence[LogHead]:
        return [LogHead(epoch.epoch, epoch.size, epoch.root) for epoch in self._epochs()[start:]]

    def epoch_times(self, epochs: Collection[int]) -> dict[int, int]:
        return dict.fromkeys(epochs, self.time())

    def terms_since(self, time: int) -> Sequence[PriceTerms]:
        pool = self._pool()
        return [PriceTerms(0, pool.price_wei, pool.verify_price_wei)]

    def epoch_beacon(self, epoch: int) -> str | None:
        epochs = self._epochs()
        return epochs[epoch].beacon_hash if epoch < len(epochs) else None

    def version(self, policy_version: int) -> VersionRecord:
        with self.site.coordinator.reading() as session:
            row = session.get_one(mirror.Version, (POOL_ID, policy_version))
            return VersionRecord(policy_version, row.manifest_hash, row.beacon_block, row.beacon_hash)

    def seats(self) -> Sequence[Seat]:
        with self.site.coordinator.reading() as session:
            return seats_at(session, POOL_ID, 1 << 40)

    def provider_of(self, node: str) -> str:
        with self.site.coordinator.reading() as session:
            return session.get_one(mirror.Node, node).provider

    def case_of(self, submission_id: str) -> CaseRecord:
        return CaseRecord(CaseState.UPHELD if submission_id in self.accused else CaseState.NONE, 0)

    def juries_summoned(self, first_block: int | None) -> tuple[list[Summons], int]:
        return [], 1

    def accuse(self, accusation: Accusation) -> None:
        self.accused.add(accusation.submission.id(self.domain))

    def enforce(self, submission_id: str) -> None:
        raise AssertionError("no case is open here")

    def _pool(self) -> mirror.Pool:
        with self.site.coordinator.reading() as session:
            return session.get_one(mirror.Pool, POOL_ID)

    def _epochs(self) -> list[mirror.Epoch]:
        with self.site.coordinator.reading() as session:
            return list(session.scalars(select(mirror.Epoch).order_by(mirror.Epoch.epoch)))


@dataclass(frozen=True)
class HeldWeights:
    """Weights that are there already."""

    world: World

    def fetch(self, policy_version: int) -> Path:
        return self.world.folder

    def model(self, policy_version: int) -> Any:
        return self.world.model


@dataclass
class Town:
    """The pool and everybody in it; `verifiers` by validator's address, in the order in which they joined."""

    site: Site
    world: World
    folder: Path
    verifiers: dict[str, Verifier] = field(default_factory=dict)
    histories: dict[str, History] = field(default_factory=dict)
    opened: list[Any] = field(default_factory=list)
    accused: set[str] = field(default_factory=set)
    """Submissions that validators have accused before the Court."""

    def join(self, kind: type[Judge] = Judge, from_epoch: int = 0) -> str:
        """A validator with one seat, active from an epoch on: later ones can't be drawn for what came in before."""
        number = len(self.verifiers)
        signer = Signer((200 + number).to_bytes(32, "big"))
        self.site.add_seat(number, signer.address, active_from_epoch=from_epoch)
        db = open_store(self.folder / f"verifier-{number}")
        db.execute("PRAGMA synchronous=OFF")
        self.opened.append(db)
        chain, client = MirrorChain(self.site, self.accused), self.site.client(signer)
        history, verdicts = History(db), Verdicts(db)
        reaudits = Reaudits(db, history.payments)
        weights: Any = HeldWeights(self.world)
        self.histories[signer.address] = history
        self.verifiers[signer.address] = Verifier(
            signer.address,
            chain,
            client,
            history,
            verdicts,
            Commitments(db, signer, chain.domain),
            judge := kind(signer, chain, client, history, verdicts, weights, Completions(db)),
            Accuser(db, chain, client, history),
            Attester(db, signer, chain, client, history, reaudits),
            reaudits,
            Jurors(db, signer.address, chain, client, history, judge),
            clock=self.site.clock,
            judge_seconds=1_000.0,
        )
        return signer.address

    def submit(self, *, forged: bool = False) -> str:
        """Work that is leased and handed in; honest, or with rewards that weren't earned."""
        task = self.site.lease()
        rows = generate(self.world.rules, self.world.environment, self.world.folder, task.message)
        if forged:
            rows = [replace(row, task_reward=1.0 - row.task_reward) for row in rows]
        envelope, submission_id, file = self.site.pack(task.message, rows)
        self.site.client(self.site.node).submit(envelope, submission_id, file)
        return submission_id

    def turn(self) -> None:
        """Everybody once; then the epoch is anchored."""
        for verifier in self.verifiers.values():
            verifier.turn()
        for stage in (open_draws, settle, reaudit):
            stage(self.site.coordinator)
        self.site.close_epoch()

    def run(self, num_turns: int) -> None:
        for _ in range(num_turns):
            self.turn()

    def run_to_the_end(self) -> None:
        """Until everything is settled, and every re-audit that comes is over."""
        for _ in range(40):
            self.turn()
            if not self._is_busy():
                return
        raise AssertionError("it doesn't come to an end")

    def _is_busy(self) -> bool:
        with self.site.coordinator.reading() as session:
            unsettled = session.query(SubmissionRow).filter(SubmissionRow.standing.in_(UNSETTLED)).count()
            going_on = ReauditRow.is_asking | (ReauditRow.state == ReauditState.DRAWN)
            return bool(unsettled + session.query(ReauditRow).filter(going_on).count())

    def view(self, submission_id: str) -> SubmissionView:
        found: SubmissionView = self.site.client().submission(submission_id)
        return found

    def disputed(self) -> dict[str, int]:
        """Disputed work stamps by validator, as the coordinator's status says."""
        return dict(self.site.client().status().disputed_stamps)

    def accounts(self) -> dict[str, int]:
        with self.site.coordinator.reading() as session:
            return {row.address: row.cumulative_wei for row in session.scalars(select(Account))}
