"""The Court's cases as records: what opens one, where it stands, and its jury.

In: answers of the Court; for sending, messages with their signatures and paths into the log. Out: typed values for
`ChainPool`. A case's id is the submission's; a dispute over earnings has `Ledger.earningsId` as its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from protocol.canonical import from_hex0x, hex0x, keccak256
from protocol.draw import JURY_ROUND
from protocol.wire import ZERO_HASH, Submission, Verdict


class CaseState(IntEnum):
    """Where a case before the Court stands (Court.CaseState)."""

    NONE = 0
    ACCUSED = 1
    APPEALED = 2
    """Before a jury, as `CHALLENGED` is."""
    CHALLENGED = 3
    UPHELD = 4
    OVERTURNED = 5
    LAPSED = 6

    @property
    def is_before_jury(self) -> bool:
        return self in (CaseState.APPEALED, CaseState.CHALLENGED)

    @property
    def is_over(self) -> bool:
        return self >= CaseState.UPHELD


class Vote(IntEnum):
    """What a juror says of a case (Vote in contracts/Types.sol)."""

    NONE = 0
    UPHOLD = 1
    OVERTURN = 2
    UNAVAILABLE = 3
    """The evidence isn't served."""


@dataclass(frozen=True)
class CaseRecord:
    """A case as the Court has it; `deadline` is the appeal's, in chain seconds. A jury has its own.

    `held_wei` is what it holds of the node's allotment.
    """

    state: CaseState
    deadline: int
    held_wei: int = 0
    round: int = 0
    """The round that accused; 2 for a challenge."""
    reason: int = 0
    node: str = ""
    held_earnings_wei: int = 0

    @property
    def can_be_accused(self) -> bool:
        """Whether the slash quorum may open a case: there is none, or one that no jury has decided for a challenger."""
        is_undecided = self.state in (CaseState.CHALLENGED, CaseState.LAPSED)
        return self.state is CaseState.NONE or (self.round == JURY_ROUND and is_undecided)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> CaseRecord:
        return cls(
            state=CaseState(found["state"]),
            deadline=found["deadline"],
            round=found["round"],
            reason=found["reason"],
            node=found["node"],
            held_wei=found["held_stake"],
            held_earnings_wei=found["held_earnings"],
        )


@dataclass(frozen=True)
class Juror:
    """A seat of a jury; `commitment` is zero until the juror committed, `vote` NONE until it is revealed."""

    validator: str
    seat: int
    vote: Vote
    commitment: str

    @property
    def has_committed(self) -> bool:
        return self.commitment != ZERO_HASH


@dataclass(frozen=True)
class JuryRecord:
    """A case's jury (Panel in contracts/Types.sol). Times are chain seconds."""

    epoch: int
    """Of the seats that are drawn from."""
    beacon_block: int
    """Whose hash draws the jurors; armed again where it gets out of reach."""
    commit_deadline: int
    """Zero until the jury is seated."""
    deadline: int
    """Of the seating; then of the votes."""
    jurors: tuple[Juror, ...]
    """In drawn order: a juror's position is its place here."""

    @property
    def is_seated(self) -> bool:
        return self.commit_deadline != 0

    @property
    def is_complete(self) -> bool:
        """Whether every juror has voted."""
        return self.is_seated and all(juror.vote is not Vote.NONE for juror in self.jurors)

    def can_reveal(self, now: int) -> bool:
        """Whether votes may be shown at chain second `now`."""
        all_committed = all(juror.has_committed for juror in self.jurors)
        return self.is_seated and now < self.deadline and (all_committed or now >= self.commit_deadline)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> JuryRecord | None:
        """None where no jury was summoned."""
        if not found["deadline"]:
            return None
        jurors = (Juror(j["validator"], j["seat"], Vote(j["vote"]), j["commitment"]) for j in found["jurors"])
        return cls(found["epoch"], found["beacon_block"], found["commit_deadline"], found["deadline"], tuple(jurors))


@dataclass(frozen=True)
class DisputeRecord:
    """An open dispute over an earnings root (Jury.Dispute); its jury goes by `ChainPool.earnings_id`."""

    disputer: str
    epoch: int
    bond_wei: int
    coordinator: str
    """Whose bond answers for the root; the zero address where somebody else committed it."""
    attesters: tuple[int, ...]
    """Seats that signed the root, and answer for it."""
    root: str
    total_wei: int

    @classmethod
    def of(cls, found: Mapping[str, Any], earnings: Mapping[str, Any]) -> DisputeRecord:
        return cls(
            disputer=found["disputer"],
            epoch=found["epoch"],
            bond_wei=found["bond"],
            coordinator=found["coordinator"],
            attesters=tuple(found["attesters"]),
            root=earnings["root"],
            total_wei=earnings["total"],
        )


@dataclass(frozen=True)
class Summons:
    """That a case's jury was summoned, in a block; after a reorg it may be in another one."""

    case_id: str
    block_hash: str


@dataclass(frozen=True)
class JuryTerms:
    """A pool's terms of appeals, challenges and juries."""

    appeal_bond_wei: int
    challenge_bond_wei: int
    seat_bond_wei: int
    jury_seconds: int
    """To seat the jury in; then half of it to commit in and half to reveal in."""
    jury_size: int
    window_seconds: int
    """How long roots that a dispute held can be disputed once it is over."""
    first_slash_bps: int
    """What a seat's wrong verdict costs of its bond, in hundredths of a percent."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> JuryTerms:
        return cls(
            appeal_bond_wei=found["appeal_bond"],
            challenge_bond_wei=found["challenge_bond"],
            seat_bond_wei=found["seat_bond"],
            jury_seconds=found["jury_period"],
            jury_size=found["jury_size"],
            window_seconds=found["challenge_window"],
            first_slash_bps=found["first_slash_bps"],
        )


@dataclass(frozen=True)
class Inclusion:
    """That the log has an event in `epoch` (Court.Inclusion); `document` is the event's JSON as 0x-hex."""

    epoch: int
    leaf_index: int
    document: str
    proof: tuple[str, ...]


NOT_SETTLED = Inclusion(0, 0, "0x", ())
"""What an accusation in round 0 says of the settling."""


@dataclass(frozen=True)
class Accusation:
    """What opens a case (Court.Accusation): as many verdicts as the slash quorum, in ascending order of draws.

    In round 1 `settling` shows the event that settled the submission: its epoch's beacon picks and draws.
    """

    submission: Submission
    node_signature: str
    inclusion: Inclusion
    verdicts: tuple[Verdict, ...]
    signatures: tuple[str, ...]
    draw_indexes: tuple[int, ...]
    settling: Inclusion = NOT_SETTLED


@dataclass(frozen=True)
class Challenge:
    """What calls a jury over a submission that nobody accused; `reason` is one that the pool slashes."""

    submission: Submission
    node_signature: str
    inclusion: Inclusion
    reason: int
    evidence_hash: str


def vote_commitment(case_id: str, seat: int, vote: Vote, salt: str) -> str:
    """keccak256(abi.encode(bytes32 caseId, uint32 seat, uint8 vote, bytes32 salt)): what binds a juror to its vote."""
    words = (from_hex0x(case_id), seat.to_bytes(32, "big"), int(vote).to_bytes(32, "big"), from_hex0x(salt))
    return hex0x(keccak256(b"".join(words)))
