"""Whether an earnings root on chain is true: what a juror of a dispute asks, and who is about to dispute one.

In: the root, the checked log, the chain. Out: what is wrong with it; nothing where it stands. The same eyes with which
a seat looks before it attests (`verifier/attest.py`), from the last root on that nobody can dispute any more.
"""

from __future__ import annotations

from typing import Protocol

from protocol.chain.cases import DisputeRecord, Vote
from protocol.errors import VerificationFailed
from verifier.attest import payment_faults, recomputed
from verifier.history import History
from verifier.prices import PriceChain
from verifier.reaudits import Beacons, undue_reaudits


class RootChain(PriceChain, Beacons, Protocol):
    """What is asked of the chain."""

    def final_epoch_before(self, epoch: int) -> int: ...


def root_faults(epoch: int, root: str, total_wei: int, history: History, chain: RootChain) -> list[str]:
    """Why the root over earnings up to `epoch` is false; empty where it is true.

    Raises VerificationFailed while the checked log doesn't reach so far.
    """
    if history.num_epochs <= epoch:
        raise VerificationFailed(
            "the checked log doesn't reach to this root", f"epoch {epoch}, checked up to {history.num_epochs}"
        )
    faults, found = [], recomputed(epoch, history)
    if found != (root, total_wei):
        faults.append(f"the log adds up to {found[1]} wei under {found[0]}, the root says {total_wei} under {root}")
    final_epoch = chain.final_epoch_before(epoch)
    faults += payment_faults(epoch, history.payments, chain, final_epoch)
    return faults + undue_reaudits(history.payments, chain, final_epoch, epoch)


def judge_root(dispute: DisputeRecord, history: History, chain: RootChain) -> Vote:
    """What a juror says of a disputed root. Raises VerificationFailed while the checked log doesn't reach so far."""
    faults = root_faults(dispute.epoch, dispute.root, dispute.total_wei, history, chain)
    return Vote.UPHOLD if faults else Vote.OVERTURN
