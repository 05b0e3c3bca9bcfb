"""What an auditor stands on: the chain, a head that he knows already, or nothing.

In: a `ProofBundle`, and a chain's contracts or a trusted head. Out: `Ground`, whose facts every check holds the bundle
against. Without a chain the facts are the bundle's own claims, and only a trusted head anchors its history.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from protocol.bundle import (
    CaseFact,
    ChainFacts,
    EarningsFact,
    HeadFact,
    ProofBundle,
    SeatFact,
    VersionFact,
)
from protocol.canonical import is_hash32
from protocol.chain.cases import CaseState
from protocol.chain.contracts import Contracts, Read
from protocol.draw import FOREVER
from protocol.errors import TransactionReverted, UsageError, VerificationFailed
from protocol.merkle.checkpoint import origin_of
from protocol.wire import ZERO_HASH
from verifier.audit.step import StillOpen, Values, must_equal, must_hold

Head = tuple[int, str]
"""Size and root."""
SETTLED_FACTS = (
    *("chain_id", "contracts", "deployment_salt", "coordinator", "trainer", "provider"),
    *("accept_quorum", "slash_quorum", "reaudit_bps"),
)
"""What the step `deployment` compares; seats, heads, the case and earnings are compared by the steps that use them."""


@dataclass(frozen=True)
class Ground:
    """Facts to check against, which heads are trusted by epoch, and in words why (`anchor`, empty for nothing).

    `is_chain`: the facts were read from a chain; otherwise they are the bundle's own claims. `refusal` says why the
    chain couldn't be asked about this bundle: then the facts are claims after all, and the audit fails.
    """

    facts: ChainFacts
    heads: Mapping[int, Head]
    anchor: str
    is_chain: bool = False
    refusal: str = ""


def claims_alone(bundle: ProofBundle) -> Ground:
    """Offline, with nothing known beforehand: the bundle can only be consistent with itself."""
    return Ground(bundle.chain, {}, "")


@dataclass(frozen=True)
class KnownHead:
    """A head that the auditor knows from elsewhere: by its epoch, or by the `origin` of a signed checkpoint."""

    epoch: int | None
    size: int
    root: str
    origin: str | None = None


def trusted_head(bundle: ProofBundle, head: KnownHead, by: str = "") -> Ground:
    """Offline, with one head known from elsewhere: history up to it is anchored, chain state is still claimed.

    `by` says where it is known from. Raises VerificationFailed where nothing in the bundle leads to a checkpoint.
    """
    epoch = head.epoch if head.epoch is not None else _epoch_of(bundle.chain, head)
    return Ground(bundle.chain, {epoch: (head.size, head.root)}, f"{by}head of epoch {epoch}; chain state as claimed")


def parse_head(text: str) -> KnownHead:
    """`EPOCH:SIZE:ROOT`. Raises UsageError."""
    epoch, size, root = (*text.split(":"), "", "")[:3]
    if text.count(":") != 2 or not _is_count(epoch) or not _is_count(size) or not is_hash32(root.lower()):
        raise UsageError(
            "a trusted head is EPOCH:SIZE:ROOT, or the file of a checkpoint",
            f"{text[:200]}: two numbers, then 0x and 64 hexadecimal digits",
            "copy one from where you know it",
        )
    return KnownHead(int(epoch), int(size), root.lower())


def _is_count(text: str) -> bool:
    return re.fullmatch("[0-9]{1,16}", text) is not None


def _epoch_of(facts: ChainFacts, head: KnownHead) -> int:
    """Of a checkpoint, which names a size only. Raises VerificationFailed."""
    origin = origin_of(facts.chain_id, facts.contracts.ledger, facts.pool_id)
    must_equal("the checkpoint is of another log", head.origin, origin)
    found = next((claimed.epoch for claimed in facts.heads if claimed.size == head.size), None)
    if found is None:
        sizes = ", ".join(str(claimed.size) for claimed in facts.heads)
        todo = "`proofpool audit bundle HASH --trusted-head FILE` makes one that does"
        raise VerificationFailed(
            "the bundle doesn't lead to this checkpoint", f"{head.size} leaves; its heads have {sizes}", todo
        )
    return found


def chain_ground(bundle: ProofBundle, contracts: Contracts) -> Ground:
    """The chain's own answers to everything that the bundle claims.

    Where it speaks of a pool or a version that the chain has never had, there is no answer, and `refusal` says so.
    """
    anchor = f"chain {contracts.client.chain_id}, Ledger {contracts.addresses.ledger}, block "
    anchor += str(contracts.client.head().number)
    try:
        facts = read_facts(bundle, contracts)
    except TransactionReverted as error:
        return Ground(bundle.chain, {}, anchor, is_chain=True, refusal=str(error))
    heads = {head.epoch: (head.size, head.root) for head in facts.heads}
    return Ground(facts, heads, anchor, is_chain=True)


def check_deployment(bundle: ProofBundle, ground: Ground) -> Values:
    """The bundle claims the chain's own deployment, keys, quorums and provider."""
    if not ground.is_chain:
        raise StillOpen("no chain to compare with: keys, seats and beacons are as the bundle claims")
    must_hold("the bundle speaks of what isn't on chain", not ground.refusal, ground.refusal)
    claimed, found = bundle.chain, ground.facts
    for name in SETTLED_FACTS:
        must_equal(f"the bundle claims another {name}", getattr(claimed, name), getattr(found, name))
    return {"chain_id": str(found.chain_id), "ledger": found.contracts.ledger, "pool": str(found.pool_id)}


def read_facts(bundle: ProofBundle, contracts: Contracts) -> ChainFacts:
    """The same facts as `bundle.chain`, read from the contracts."""
    pool_id = bundle.chain.pool_id
    config = contracts.read("pools", "configOf", pool_id)
    submission = bundle.submission.message
    provider = str(contracts.read("registry", "ownerOf", submission.node))
    claimed = bundle.chain.earnings
    return ChainFacts(
        chain_id=contracts.client.chain_id,
        contracts=contracts.addresses,
        deployment_salt=contracts.salt,
        pool_id=pool_id,
        coordinator=config["coordinator"],
        trainer=config["trainer"],
        accept_quorum=config["accept_quorum"],
        slash_quorum=config["slash_quorum"],
        reaudit_bps=config["reaudit_bps"],
        provider=provider,
        version=_version(contracts, pool_id, submission.policy_version),
        heads=_heads(contracts, pool_id, bundle.chain.heads),
        seats=_seats(contracts, pool_id),
        case=_case(contracts, submission.id(contracts.domain)),
        earnings=_earnings(contracts, pool_id, provider, claimed.epoch if claimed else None),
    )


def _version(contracts: Contracts, pool_id: int, policy_version: int) -> VersionFact:
    found = contracts.read("ledger", "versionOf", pool_id, policy_version)
    return VersionFact(
        policy_version=policy_version,
        manifest_hash=found["manifest_hash"],
        beacon_block=found["beacon_block"],
        beacon_hash=_known(found["beacon_hash"]),
    )


def _heads(contracts: Contracts, pool_id: int, claimed: tuple[HeadFact, ...]) -> tuple[HeadFact, ...]:
    """The chain's heads of these epochs, without those that it doesn't have.

    The chain forgets heads that are `RING` epochs old; they stay as claimed, since the newest one proves them.
    """
    count, ring = contracts.read_all([Read("ledger", "epochCount", (pool_id,)), Read("ledger", "RING")])
    kept = [head.epoch for head in claimed if head.epoch < count <= head.epoch + ring]
    answers = contracts.read_all([Read("ledger", "epochOf", (pool_id, epoch)) for epoch in kept])
    found = {
        epoch: HeadFact(epoch=epoch, size=head["size"], root=head["root"], beacon_hash=_known(head["beacon"]))
        for epoch, head in zip(kept, answers, strict=True)
    }
    return tuple(found.get(head.epoch, head) for head in claimed if head.epoch < count)


def _seats(contracts: Contracts, pool_id: int) -> tuple[SeatFact, ...]:
    count = contracts.read("registry", "numSeats", pool_id)
    found = contracts.read_all([Read("registry", "seatOf", (pool_id, seat)) for seat in range(count)])
    return tuple(
        SeatFact(
            seat=number,
            validator=seat["validator"],
            active_from_epoch=seat["active_from"],
            active_until_epoch=None if seat["active_until"] >= FOREVER else seat["active_until"],
        )
        for number, seat in enumerate(found)
    )


def _case(contracts: Contracts, submission_id: str) -> CaseFact | None:
    found = contracts.read("court", "caseOf", submission_id)
    state = CaseState(found["state"])
    if state is CaseState.NONE:
        return None
    return CaseFact(
        state=state.name.lower(),
        round=found["round"],
        reason=found["reason"],
        provider=str(contracts.read("registry", "ownerOf", found["node"])),
        held_wei=found["held_stake"],
    )


def _earnings(contracts: Contracts, pool_id: int, provider: str, epoch: int | None) -> EarningsFact | None:
    """The root of `epoch`, or the newest; None where there is none."""
    if epoch is None:
        epoch, found = contracts.read("ledger", "newestEarnings", pool_id)
    else:
        found = contracts.read("ledger", "earningsOf", pool_id, epoch)
    if found["root"] == ZERO_HASH:
        return None
    return EarningsFact(
        epoch=epoch,
        root=found["root"],
        total_wei=found["total"],
        claimed_wei=contracts.read("ledger", "claimed", pool_id, provider),
    )


def _known(beacon_hash: str) -> str | None:
    return None if beacon_hash == ZERO_HASH else beacon_hash
