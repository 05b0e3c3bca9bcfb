"""The evidence of a run that outlives it: proof bundles, and the log head that they lead to.

In: submissions worth checking, while the coordinator is up. Out: `bundles/HASH.json` and `bundles/head.json` in the
run folder; `proofpool audit verify HASH --bundle FILE --trusted-head EPOCH:SIZE:ROOT` needs nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from protocol.bundle import HeadFact, ProofBundle
from protocol.client import CoordinatorClient
from protocol.files import write_atomically

BUNDLES = "bundles"


def fetch_bundles(coordinator: CoordinatorClient, submission_ids: Iterable[str]) -> list[ProofBundle]:
    """Bundles that all lead to the same head. Where an epoch is anchored between two, the earlier is fetched again."""
    bundles = {submission_id: coordinator.bundle(submission_id) for submission_id in submission_ids}
    while old := _led_to_older_heads(bundles):
        bundles |= {submission_id: coordinator.bundle(submission_id) for submission_id in old}
    return list(bundles.values())


def keep_bundles(bundles: Sequence[ProofBundle], submission_ids: Sequence[str], run_dir: Path) -> str:
    """Write them; the head that they lead to, as `--trusted-head` takes it."""
    folder = run_dir / BUNDLES
    for submission_id, bundle in zip(submission_ids, bundles, strict=True):
        write_atomically(folder / f"{submission_id}.json", bundle.model_dump_json().encode())
    head = bundles[0].chain.heads[-1]
    write_atomically(folder / "head.json", json.dumps(head.model_dump(mode="json"), indent=2).encode() + b"\n")
    return trusted_head(head)


def trusted_head(head: HeadFact) -> str:
    return f"{head.epoch}:{head.size}:{head.root}"


def _led_to_older_heads(bundles: dict[str, ProofBundle]) -> list[str]:
    epochs = {submission_id: bundle.chain.heads[-1].epoch for submission_id, bundle in bundles.items()}
    newest = max(epochs.values(), default=0)
    return [submission_id for submission_id, epoch in epochs.items() if epoch < newest]
