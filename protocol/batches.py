"""What a batch is signed over, and how whoever is offered one checks it.

In: groups as (submission id, group index), in the batch's order. Out: their Merkle root; or an error where an
offer isn't the coordinator's, or names other groups than it is signed for.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api import BatchOffer
from protocol.errors import VerificationFailed
from protocol.merkle.standard import StandardTree
from protocol.signing import SigningDomain, check_signature
from protocol.wire import Batch

GroupKey = tuple[str, int]
GROUP_LEAF = ("bytes32", "uint32")


def groups_root(keys: Sequence[GroupKey]) -> str:
    """What `Batch` is signed over: the tree of (submission id, group)."""
    return StandardTree(GROUP_LEAF, keys).root


def check_offer(offer: BatchOffer, coordinator: str, domain: SigningDomain) -> None:
    """Raises SignatureInvalid, or VerificationFailed where the groups aren't those that were signed, each once."""
    message = Batch(pool_id=offer.pool_id, number=offer.number, step=offer.step, groups_root=offer.groups_root)
    check_signature(message, offer.signature, coordinator, domain)
    keys = [(group.submission_id, group.group) for group in offer.groups]
    if len(set(keys)) < len(keys):
        raise VerificationFailed(
            "a batch names a group more than once", f"{len(set(keys))} groups in {len(keys)} places"
        )
    found = groups_root(keys)
    if found != offer.groups_root:
        raise VerificationFailed(
            "a batch names other groups than it is signed for", f"{found}, not {offer.groups_root}"
        )
