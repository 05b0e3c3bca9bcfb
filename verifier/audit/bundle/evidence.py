"""The evidence that a command is about, and the ground that it is held against, as the command line names them.

In: a coordinator or a bundle's file; a chain with its Ledger, a trusted head, or neither. Out: `ProofBundle`, `Ground`.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from protocol.bundle import ProofBundle
    from verifier.audit.bundle.ground import Ground, KnownHead
    from verifier.audit.options import Source


def gathered(submission_id: str, source: Source, block: str | None = None) -> tuple[ProofBundle, Ground]:
    """Raises UsageError for a file that can't be read, or flags of which one would be passed over."""
    _check_ground(source.chain, source.ledger, source.trusted_head, block)
    if block is not None:
        return _by_block(source.bundle, block, source.ledger)
    known = None if source.trusted_head is None else read_head(source.trusted_head)
    if source.bundle is not None:
        evidence = read_bundle(source.bundle)
    else:
        evidence = fetch_bundle(source.coordinator, submission_id, known.size if known is not None else None)
    return evidence, ground_of(evidence, source.chain, source.ledger, known)


def _by_block(bundle: Path | None, block: str, ledger: str | None) -> tuple[ProofBundle, Ground]:
    from protocol.errors import UsageError
    from verifier.audit.bundle.block import known_by_block, parse_block
    from verifier.audit.bundle.ground import trusted_head

    number, block_hash = parse_block(block)
    if bundle is None:
        todo = "`proofpool audit bundle HASH --out FILE --chain URL` makes one; or give --chain alone"
        raise UsageError("a block anchors a bundle that leads to it", "--trusted-block without --bundle", todo)
    evidence = read_bundle(bundle)
    head = known_by_block(evidence, number, block_hash, ledger)
    return evidence, trusted_head(evidence, head, f"block {number} {block_hash}, ")


def fetch_bundle(coordinator: str, submission_id: str, size: int | None = None) -> ProofBundle:
    """`size`: of the log's head that its proofs are to lead to; else the newest."""
    from protocol.client import CoordinatorClient

    with closing(CoordinatorClient(coordinator)) as client:
        return client.bundle(submission_id, size)


def fetch_bundle_to_block(
    coordinator: str, submission_id: str, chain: str | None, ledger: str | None, block: int | None
) -> ProofBundle:
    """With what leads from a block to the log's head, where a chain is asked. Raises UsageError, NotFound."""
    from protocol.chain.contracts import Contracts
    from protocol.client import CoordinatorClient
    from protocol.clock import SystemClock
    from protocol.errors import UsageError
    from verifier.audit.bundle.block import prove_block
    from verifier.audit.options import check_ledger

    check_ledger(chain, ledger)
    if chain is None:
        if block is not None:
            raise UsageError("a block is read from a chain", "--block without --chain", "give --chain too")
        return fetch_bundle(coordinator, submission_id)
    with closing(CoordinatorClient(coordinator)) as client:
        pool = client.pool()
        contracts = Contracts.connect(chain, ledger or pool.contracts.ledger, SystemClock())
        with closing(contracts.client.rpc):
            if block is not None:
                proof, head = prove_block(contracts, pool.pool_id, block)
                return client.bundle(submission_id, head.size).model_copy(update={"block": proof})
            found = client.bundle(submission_id)
            if not found.chain.heads:
                return found
            proof, _ = prove_block(contracts, pool.pool_id, epoch=found.chain.heads[-1].epoch)
            return found.model_copy(update={"block": proof})


def read_head(text: str) -> KnownHead:
    """`EPOCH:SIZE:ROOT`, or a file that somebody kept, and so trusts: a checkpoint, or a head. Raises UsageError."""
    from protocol.bundle import HeadFact
    from protocol.errors import UsageError, VerificationFailed
    from protocol.merkle.checkpoint import Checkpoint
    from protocol.merkle.note import split_note
    from verifier.audit.bundle.ground import KnownHead, parse_head
    from verifier.audit.document import read_document

    file = Path(text)
    if not file.is_file():
        return parse_head(text)
    todo = (
        "keep a checkpoint with `proofpool audit checkpoint --out FILE`; a testnet's run folder has bundles/head.json"
    )
    if file.suffix == ".json":
        head = read_document(file, HeadFact, "a log head", todo)
        return KnownHead(head.epoch, head.size, head.root)
    try:
        checkpoint = Checkpoint.parse(split_note(file.read_text("utf-8"))[0])
    except (OSError, ValueError, VerificationFailed) as error:
        raise UsageError("that is no signed checkpoint", f"{text}: {error}", todo) from error
    return KnownHead(None, checkpoint.size, checkpoint.root, checkpoint.origin)


def read_bundle(file: Path) -> ProofBundle:
    """Raises UsageError."""
    from protocol.bundle import ProofBundle
    from verifier.audit.document import read_document

    return read_document(file, ProofBundle, "a bundle", "make one with `proofpool audit bundle`")


def _check_ground(chain: str | None, ledger: str | None, head: str | None, block: str | None) -> None:
    """Raises UsageError where a flag would be passed over: what wasn't looked at mustn't look trusted."""
    from protocol.errors import UsageError
    from verifier.audit.options import check_ledger

    grounds = {"--chain (PROOFPOOL_CHAIN_URL)": chain, "--trusted-head": head, "--trusted-block": block}
    if len(given := [name for name, value in grounds.items() if value is not None]) > 1:
        raise UsageError("an audit stands on one thing", " and ".join(given), "give one")
    if block is None:
        check_ledger(chain, ledger)


def ground_of(evidence: ProofBundle, chain: str | None, ledger: str | None, head: KnownHead | None) -> Ground:
    from protocol.chain.contracts import Contracts
    from protocol.clock import SystemClock
    from verifier.audit.bundle.ground import chain_ground, claims_alone, trusted_head

    if chain is not None:
        contracts = Contracts.connect(chain, ledger or evidence.chain.contracts.ledger, SystemClock())
        with closing(contracts.client.rpc):
            return chain_ground(evidence, contracts)
    return claims_alone(evidence) if head is None else trusted_head(evidence, head)
