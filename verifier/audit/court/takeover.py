"""Committing what seats attested in the place of a silent coordinator, and claiming from it. Anybody may.

In: documents of several validators (`verifier/takeover.py`), the chain, an account that pays the gas. Out:
transactions. Everything is checked here first: a refused transaction costs gas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from protocol.chain.block import Receipt
from protocol.chain.contracts import Contracts
from protocol.chain.lane import Lane
from protocol.chain.pool import FOREVER, ChainPool
from protocol.draw import DrawnSeat, draw_seats
from protocol.earnings import StatedEarnings
from protocol.errors import (
    NotEligible,
    ProofpoolError,
    SignatureInvalid,
    TransactionReverted,
    VerificationFailed,
)
from protocol.wire import ZERO_HASH, EarningsAttestation, EpochAttestation, Signed
from verifier.takeover import AttestedEarnings, AttestedEpoch, check_silent

ROUND = 0
DocumentT = TypeVar("DocumentT", AttestedEpoch, AttestedEarnings)
AttestationT = TypeVar("AttestationT", EpochAttestation, EarningsAttestation)


@dataclass(frozen=True)
class Committer:
    """An account that sends what validators signed.

    Example: `Committer(contracts, 1, lane).commit_epoch(documents)`.
    """

    contracts: Contracts
    pool_id: int
    lane: Lane

    @property
    def pool(self) -> ChainPool:
        return ChainPool(self.contracts, self.pool_id, lane=self.lane)

    def commit_epoch(self, documents: Sequence[AttestedEpoch]) -> Receipt:
        """Anchor the head that the documents agree on. Raises NotEligible without two thirds of the drawn seats."""
        check_silent(self.contracts, self.pool_id)
        one = _agreed(documents)
        self._check_open(one.epoch)
        wanted = EpochAttestation(pool_id=one.pool_id, epoch=one.epoch, size=one.size, root=one.root, seat=0)
        signatures = self._signatures([a for d in documents for a in d.attestations], wanted)
        subject = self.contracts.read("ledger", "epochId", self.pool_id, one.epoch)
        drawn = self._drawn(self._beacon(one.epoch - 1), subject, one.epoch)
        indexes, chosen = _chosen(drawn, signatures, -(-2 * len(drawn) // 3))
        head = (self.pool_id, one.epoch, one.size, one.root, one.proof)
        return self.contracts.send(self.lane, "ledger", "commitEpochAttested", *head, indexes, chosen)

    def commit_earnings(self, documents: Sequence[AttestedEarnings]) -> Receipt:
        """Commit the earnings that the documents agree on. Raises NotEligible without the pool's accept quorum."""
        check_silent(self.contracts, self.pool_id)
        one = _agreed(documents)
        StatedEarnings.of(one)
        wanted = EarningsAttestation(
            pool_id=one.pool_id, epoch=one.epoch, root=one.root, total_wei=one.total_wei, seat=0
        )
        signatures = self._signatures([a for d in documents for a in d.attestations], wanted)
        subject = self.contracts.read("ledger", "earningsId", self.pool_id, one.epoch)
        drawn = self._drawn(self._beacon(one.epoch), subject, one.epoch)
        indexes, chosen = _chosen(drawn, signatures, self.pool.record().accept_quorum)
        statement = (self.pool_id, one.epoch, one.root, one.total_wei)
        return self.contracts.send(self.lane, "ledger", "commitEarnings", *statement, indexes, chosen)

    def claim(self, document: AttestedEarnings, account: str) -> int:
        """Have `account` paid what it has earned by this document: the amount. Raises NotFound, NotEligible."""
        call = StatedEarnings.of(document).claim_of(account)
        try:
            events = self.contracts.events(self.contracts.send(self.lane, "ledger", "claim", *call))
        except TransactionReverted as error:
            raise self._unclaimable(document.epoch, error) from error
        return next(int(event.arguments["amount"]) for event in events if event.name == "Claimed")

    def _unclaimable(self, epoch: int, error: TransactionReverted) -> ProofpoolError:
        """Why a claim is refused, in words, where it is one of the refusals that come in the ordinary course."""
        if error.name == "NoEarnings":
            return NotEligible(
                "no earnings of this epoch are on chain", f"epoch {epoch}", "wait for them, or commit them"
            )
        if error.name == "NothingToClaim":
            return NotEligible("there is nothing to claim", f"what epoch {epoch} proves is paid", "try a later epoch's")
        if error.name != "NotClaimableYet":
            return error
        due, now = int(str(error.arguments[0])), self.contracts.client.head().timestamp
        when = "until a dispute is over" if due == FOREVER else f"from chain time {due} on"
        todo = "wait for its end" if due == FOREVER else f"wait {max(0, due - now)} s"
        newest = self.contracts.read("ledger", "claimableEarnings", self.pool_id)
        if newest["earnings"]["root"] != ZERO_HASH:
            todo += f", or claim by the earnings of epoch {newest['epoch']}: GET /v1/earnings/{newest['epoch']}"
        return NotEligible("these earnings can't be claimed yet", f"epoch {epoch}, {when}", todo)

    def _check_open(self, epoch: int) -> None:
        if epoch != (open_epoch := self.pool.num_epochs()):
            raise NotEligible("these files are for another epoch", f"{epoch}, open is {open_epoch}", "attest it anew")

    def _beacon(self, epoch: int) -> str:
        """beacon(epoch), stored now where nobody did."""
        if (beacon := self.pool.epoch_beacon(epoch)) is not None:
            return beacon
        beacon_block = self.contracts.read("ledger", "epochOf", self.pool_id, epoch)["beacon_block"]
        if (head := self.contracts.client.head().number) <= beacon_block:
            raise NotEligible(
                "the beacon isn't mined yet", f"block {beacon_block}, the chain is at {head}", "try again in a moment"
            )
        self.contracts.send(self.lane, "ledger", "sealEpoch", self.pool_id, epoch)
        if (beacon := self.pool.epoch_beacon(epoch)) is None:
            raise NotEligible("the beacon was missed and is armed again", f"epoch {epoch}", "try again in a few blocks")
        return beacon

    def _drawn(self, beacon: str, subject: str, epoch: int) -> tuple[DrawnSeat, ...]:
        pool = self.pool
        return draw_seats(beacon, subject, ROUND, pool.seats(), epoch, num_seats=pool.record().draw_limit)

    def _signatures(self, attestations: Iterable[Signed[AttestationT]], wanted: AttestationT) -> dict[int, str]:
        """Signatures under `wanted` by seat, each by the seat's own validator; raises for any other."""
        validators = {seat.index: seat.validator for seat in self.pool.seats()}
        found = {}
        for signed in attestations:
            seat = signed.message.seat
            if seat not in validators or signed.message != wanted.model_copy(update={"seat": seat}):
                raise VerificationFailed(
                    "an attestation isn't for what its file says", f"{signed.message!r}", "leave that file out"
                )
            try:
                signed.check(validators[seat], self.contracts.domain)
            except SignatureInvalid as error:
                raise VerificationFailed(
                    "an attestation isn't by its seat's validator", f"seat {seat}: {error.why}", "leave that file out"
                ) from error
            found[seat] = signed.signature
        return found


def _agreed(documents: Sequence[DocumentT]) -> DocumentT:
    """The first document. Raises VerificationFailed where the others say something else."""
    plain = [document.model_copy(update={"attestations": ()}) for document in documents]
    if different := [one for one in plain if one != plain[0]]:
        raise VerificationFailed(
            "the files don't agree",
            f"epoch {plain[0].epoch} under {plain[0].root}, and {different[0].epoch} under {different[0].root}",
            "give files that do, and ask why the others don't",
        )
    return documents[0]


def _chosen(drawn: Sequence[DrawnSeat], signatures: Mapping[int, str], quorum: int) -> tuple[list[int], list[str]]:
    """Raw draws and signatures of drawn seats that signed. Raises NotEligible with fewer than the quorum."""
    signed = [one for one in drawn if one.seat.index in signatures]
    if not signed or len(signed) < quorum:
        waiting = [one.seat.validator for one in drawn if one.seat.index not in signatures]
        raise NotEligible(
            "too few of the drawn seats signed",
            f"{len(signed)} of {max(1, quorum)}; drawn and missing: {', '.join(waiting) or 'nobody'}",
            "get the files of these validators",
        )
    return [one.draw_index for one in signed], [signatures[one.seat.index] for one in signed]
