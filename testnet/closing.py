"""The end of a run: claims, the audit of every claim that matters, every wei, and the evidence kept.

In: a run that is done and still up. Out: `Findings`, and bundles in the run folder. The audit is the product's own
(`proofpool audit verify`, `proofpool audit money`), against the chain.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from protocol.chain.contracts import Contracts
from protocol.chain.pool import ChainPool
from protocol.clock import Clock
from protocol.wire import ZERO_HASH, WeightsRelease
from testnet import profile
from testnet.evidence import fetch_bundles, keep_bundles
from testnet.money import claim_all
from testnet.run import Run
from verifier.audit.bundle.ground import chain_ground
from verifier.audit.bundle.verify import verify_bundle
from verifier.audit.log.copies import Copies
from verifier.audit.reports.money import Books, audit_books, read_books
from verifier.audit.step import Report, Values, must_hold, take_step
from verifier.audit.watch.checkpoint import log_key
from verifier.audit.watch.watch import Progress, Watch
from verifier.store import open_store

ROOT_SECONDS = 60.0
"""How long the first earnings root may take at most; a few epochs are usual."""


@dataclass(frozen=True)
class Findings:
    """What was found true at the end of a run, while its chain was still up."""

    reports: tuple[Report, ...]
    submission_ids: tuple[str, ...]
    """Of the bundles that were kept."""
    trusted_head: str
    """The anchored log head that they lead to, as EPOCH:SIZE:ROOT."""
    ledger_root: str
    paid_wei: int
    owed_wei: int
    slashed: tuple[str, ...]
    """Providers whose allotment the chain has slashed."""
    releases: tuple[WeightsRelease, ...]
    """Policy version 0 and the last one."""

    @property
    def passed(self) -> bool:
        return all(report.exit_code == 0 for report in self.reports)


def close(run: Run, clock: Clock, *, pass_windows: bool = False) -> Findings:
    """Claim what can be claimed, then check. `pass_windows`: the chain's clock is put forward past them first."""
    contracts = Contracts.connect(run.node.url, run.genesis.contracts.ledger, clock)
    with closing(contracts.client.rpc):
        if pass_windows and run.observer.tally.accepted_ids:
            _pass_windows(contracts, run.genesis.pool_id, clock)
        claim_all(contracts, run.accounts.operator.signer, clock, run.coordinator, run.genesis.pool_id)
        findings = _findings(run, contracts)
    run.observer.look()
    return findings


def _pass_windows(contracts: Contracts, pool_id: int, clock: Clock) -> None:
    """Once earnings are on chain, put its clock forward to when they can be claimed."""
    never, deadline = threading.Event(), clock.now() + ROOT_SECONDS
    while contracts.read("ledger", "newestEarnings", pool_id)[1]["root"] == ZERO_HASH and clock.now() < deadline:
        clock.wait(never, profile.BLOCK_SECONDS)
    contracts.client.rpc.call("evm_increaseTime", profile.WINDOW_SECONDS)
    contracts.client.rpc.call("evm_mine")


def _findings(run: Run, contracts: Contracts) -> Findings:
    submission_ids = _worth_checking(run)
    bundles = fetch_bundles(run.coordinator, submission_ids)
    reports = [
        verify_bundle(bundle, chain_ground(bundle, contracts), submission_id)
        for submission_id, bundle in zip(submission_ids, bundles, strict=True)
    ]
    with closing(open_store(run.run_dir / "audit")) as memory:
        watch = _watch(run, contracts, memory)
        watched = _watched(watch, run.genesis.pool_id, contracts.client.chain_id)
        books = read_books(run.coordinator, contracts, run.genesis.pool_id, watch.history)
        money = audit_books(books, contracts)
        owed_wei = _owed(books)
    return Findings(
        reports=(*reports, money, watched),
        submission_ids=submission_ids,
        trusted_head=keep_bundles(bundles, submission_ids, run.run_dir),
        ledger_root=books.head[1],
        paid_wei=books.paid_wei,
        owed_wei=owed_wei,
        slashed=tuple(sorted(run.observer.tally.slashed)),
        releases=tuple(run.coordinator.weights(version).release.message for version in (0, run.plan.num_steps)),
    )


def _watch(run: Run, contracts: Contracts, memory: sqlite3.Connection) -> Watch:
    pool_id = run.genesis.pool_id
    chain, copies = ChainPool(contracts, pool_id), partial(Copies, contracts, pool_id)
    return Watch(memory, run.coordinator, chain, key=log_key(contracts, pool_id), open_events=copies)


def _watched(watch: Watch, pool_id: int, chain_id: int) -> Report:
    """Every leaf of the log, its times, and the newest checkpoint, as somebody sees them who watches the pool."""
    faults = [alert.line() for alert in watch.turn() if alert.is_fault]
    step = take_step("watch", partial(_no_faults, faults, watch.progress))
    return Report(f"log of pool {pool_id}", (step,), f"chain {chain_id}", f"{watch.progress.size} leaves")


def _no_faults(faults: list[str], progress: Progress) -> Values:
    must_hold("the log has faults", not faults, "; ".join(faults))
    must_hold("nothing of the log is signed", progress.checkpoint_size > 0)
    return {"leaves": str(progress.size), "signed": str(progress.checkpoint_size)}


def _worth_checking(run: Run) -> tuple[str, ...]:
    """The first accepted submission and each slashed one."""
    tally = run.observer.tally
    return (*tally.accepted_ids[:1], *dict.fromkeys(tally.slashed_ids))


def _owed(books: Books) -> int:
    return books.earned_in_all.total() - books.paid_wei
