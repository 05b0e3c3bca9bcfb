"""Is a submission the duplicate that a verdict calls it? Recomputed from its file and that of the twin it names.

A verifier remembers what it accepted; nobody else does. But its evidence names the other submission, whose node has
signed that file too.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from protocol.bundle import ProofBundle
from protocol.checks.case import completions_hash
from protocol.errors import ProofpoolError
from protocol.rollouts import content_hash
from protocol.signing import SigningDomain
from protocol.wire import Evidence
from verifier.audit.bundle.content import read_file
from verifier.stamps import OF_MEMORY

FindBundle = Callable[[str], ProofBundle]
"""A submission's id to its bundle. Raises ProofpoolError where it can't be had."""


def named_twin(evidence: Evidence) -> str | None:
    """The other submission that a refusal as a duplicate names."""
    refusals = [check.detail for check in evidence.checks if check.reason == OF_MEMORY.value]
    found = re.search(r"0x[0-9a-f]{64}", refusals[0]) if refusals else None
    return found[0] if found else None


def is_twin(bundle: ProofBundle, twin_id: str, domain: SigningDomain, find: FindBundle) -> bool | None:
    """Whether the same node signed the same completions under `twin_id`; None where that can't be told.

    What a coordinator serves in its place is nothing that a validator is blamed for.
    """
    own = bundle.submission.message
    if own.id(domain) == twin_id:
        return False
    try:
        twin = find(twin_id)
        other = twin.submission.check(twin.submission.message.node, domain)
        header, rollouts = read_file(twin)
    except ProofpoolError:
        return None
    if other.id(domain) != twin_id or content_hash(header, rollouts) != other.content_hash:
        return None
    return own.node == other.node and completions_hash(rollouts) == completions_hash(read_file(bundle)[1])
