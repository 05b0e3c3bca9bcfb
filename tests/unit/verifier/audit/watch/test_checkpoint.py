"""What a coordinator answers to whoever holds one checkpoint against another: an end, whatever it serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from protocol.api import EpochView
from protocol.chain.pool import LogHead
from protocol.errors import VerificationFailed
from protocol.merkle.checkpoint import open_checkpoint, sign_checkpoint
from protocol.merkle.note import KeyType, NoteKey, NoteSigner
from verifier.audit.log.checked_log import own_heads
from verifier.audit.step import Report, StepState
from verifier.audit.watch.checkpoint import Remembered, audit_checkpoint

SIGNER = NoteSigner("log", bytes(range(32)))
ROOT, OTHER = "0x" + "11" * 32, "0x" + "22" * 32
MAX_PAGES = 1_000


class Epochs:
    """Serves pages of (epoch, size) by what was seen last."""

    def __init__(self, page: Callable[[int], Sequence[tuple[int, int]]]) -> None:
        self._page = page
        self.num_asked = 0

    def epochs(self, after: int = -1) -> list[EpochView]:
        self.num_asked += 1
        assert self.num_asked < MAX_PAGES, "it asks for ever"
        return [
            EpochView(epoch=epoch, size=size, root=ROOT, transaction=None, block=1, beacon_hash=None)
            for epoch, size in self._page(after)
        ]


def since(served: Epochs) -> Report:
    """A checkpoint of 20 leaves, held against one of 10 that was kept."""
    old = Remembered("kept.note", open_checkpoint(sign_checkpoint(SIGNER, 10, ROOT), SIGNER.key))
    return audit_checkpoint(sign_checkpoint(SIGNER, 20, OTHER), SIGNER.key, served, None, [old])  # type: ignore[arg-type]


UNORDERED = {
    "the same page again": lambda after: [(3, 4)],
    "an epoch that closes twice": lambda after: [(0, 4), (0, 5)],
    "epochs backwards": lambda after: [(3, 4), (2, 5)],
    "epochs that never grow": lambda after: [(after + 1, 4)],
    "a log that shrinks": lambda after: [(0, 5), (1, 4)],
}


@pytest.mark.parametrize("page", UNORDERED.values(), ids=UNORDERED.keys())
def test_epochs_without_order_are_a_fault_and_no_endless_search(
    page: Callable[[int], Sequence[tuple[int, int]]],
) -> None:
    (*_, step) = since(Epochs(page)).steps
    assert step.state is StepState.FAILED and "no order" in step.why
    with pytest.raises(VerificationFailed, match="no order"):
        own_heads(Epochs(page))  # type: ignore[arg-type]


def test_epochs_in_order_are_gone_through_to_their_end() -> None:
    served = Epochs(lambda after: [(after + 1, after + 2)] if after < 5 else [])
    (*_, step) = since(served).steps
    assert step.state is StepState.FAILED and "shorter than a checkpoint" in step.why
    heads = own_heads(Epochs(lambda after: [(after + 1, after + 2)] if after < 5 else []))  # type: ignore[arg-type]
    assert [(head.epoch, head.size) for head in heads] == [(n, n + 1) for n in range(6)]


def test_two_witnesses_of_one_name_must_both_have_seen_it() -> None:
    signers = [NoteSigner("witness", bytes([number]) * 32) for number in (1, 2)]
    keys = tuple(NoteKey(one.key.name, one.key.public_key, KeyType.COSIGNATURE) for one in signers)
    note = signers[0].cosign(sign_checkpoint(SIGNER, 10, ROOT), 1_700_000_000)
    one = audit_checkpoint(note, SIGNER.key, None, None, [], keys).steps[0]
    assert one.state is StepState.FAILED and str(keys[1]) in one.why and str(keys[0]) not in one.why
    both = audit_checkpoint(signers[1].cosign(note, 1_700_000_001), SIGNER.key, None, None, [], keys).steps[0]
    assert both.state is StepState.OK


def test_a_checkpoint_ahead_of_the_chain_is_anchored_to_nothing() -> None:
    def audited(size: int) -> Report:
        heads = [LogHead(0, 10, ROOT)]
        return audit_checkpoint(sign_checkpoint(SIGNER, size, ROOT), SIGNER.key, None, heads, [])

    assert audited(10).result == "ok"
    assert audited(11).result == "consistent, not anchored"
    assert audited(9).result == "failed"
