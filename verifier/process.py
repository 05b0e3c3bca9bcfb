"""The verifier as a process: configuration, key, chain and coordinator put together around the loop.

In: a configuration file. Out: the loop, until SIGTERM. A kill at any point is safe: everything that has been
promised to anybody is in the data folder before it is said.
"""

from __future__ import annotations

import threading

import httpx

from protocol.api import PoolInfo
from protocol.chain.contracts import Contracts
from protocol.chain.deployment import connect, stay_with
from protocol.chain.journal import FILE_NAME, Journal
from protocol.chain.lane import Lane
from protocol.chain.pool import ChainPool
from protocol.client import CoordinatorClient
from protocol.clock import Clock, SystemClock
from protocol.config import write_resolved
from protocol.http import RequestSigner
from protocol.keystore import load_signer
from protocol.lock import FolderLock
from protocol.shardcast.line import weights_client
from protocol.signals import stop_on_signals
from protocol.signing import Signer
from protocol.telemetry import configure_logging, get_logger
from protocol.waiting import Waiting
from verifier.accuse import Accuser
from verifier.attest import Attester
from verifier.chain import PoolChain
from verifier.commitments import Commitments
from verifier.completions import Completions
from verifier.config import VerifierConfig
from verifier.history import History
from verifier.judge import Judge
from verifier.juror import Jurors
from verifier.loop import Verifier
from verifier.reaudits import Reaudits
from verifier.store import open_store
from verifier.verdicts import Verdicts
from verifier.weights import Weights


def run_verifier(config: VerifierConfig) -> None:
    """`proofpool verifier run`."""
    configure_logging("verifier", config.log_format)
    with FolderLock(config.data_dir, "verifier"):
        write_resolved(config, config.data_dir)
        stop, clock = stop_on_signals("verifier"), SystemClock()
        verifier = connect_verifier(config, clock, stop)
        if verifier is not None:
            get_logger().info("verifier.started", validator=verifier.validator, num_epochs=verifier.history.num_epochs)
            verifier.run(stop, config.loop_seconds)


def connect_verifier(config: VerifierConfig, clock: Clock, stop: threading.Event) -> Verifier | None:
    """The verifier of the configured pool; None if stopped while waiting for chain and coordinator.

    Raises ConfigError for another pool's coordinator, WrongChain for other contracts than expected, KeyFailure for a
    key that doesn't open.
    """
    waiting = Waiting(clock, stop, config.loop_seconds)
    asked = CoordinatorClient(config.coordinator_url)
    info = waiting.until("the coordinator", lambda: asked.configured_pool(config.pool_id, config.ledger))
    if info is None:
        return None
    contracts = waiting.until("the chain's node", lambda: _connect(config, info, clock))
    if contracts is None:
        return None
    signer = load_signer(info.chain_id, config.keystore, config.password_file)
    lane = Lane(contracts.client, signer, clock, journal=Journal(config.data_dir / FILE_NAME), stop=stop)
    waiting.until("the chain's node", lane.resume)
    terms = waiting.until("the chain's node", lambda: contracts.read("pools", "configOf", config.pool_id))
    if terms is None:
        return None
    chain = ChainPool(contracts, config.pool_id, confirmations=terms["confirmations"], lane=lane)
    client = CoordinatorClient(config.coordinator_url, RequestSigner(signer, contracts.domain, clock))
    http = weights_client()
    return build_verifier(config, signer, chain, client, http, clock)


def _connect(config: VerifierConfig, info: PoolInfo, clock: Clock) -> Contracts:
    ledger = config.ledger or info.contracts.ledger
    contracts = connect(config.chain_url, clock, deployment=config.deployment, ledger=ledger, chain_id=info.chain_id)
    stay_with(config.data_dir, contracts)
    return contracts


def build_verifier(
    config: VerifierConfig,
    signer: Signer,
    chain: PoolChain,
    client: CoordinatorClient,
    http: httpx.Client,
    clock: Clock,
) -> Verifier:
    """All stages over one store; weights come by `http`."""
    db = open_store(config.data_dir)
    history, verdicts = History(db), Verdicts(db)
    reaudits = Reaudits(db, history.payments)
    reaudits.remember_validator(signer.address)
    weights = Weights(config.data_dir / "weights", chain, client, http, config.num_versions_kept)
    judge = Judge(signer, chain, client, history, verdicts, weights, Completions(db))
    return Verifier(
        validator=signer.address,
        chain=chain,
        client=client,
        history=history,
        verdicts=verdicts,
        commitments=Commitments(db, signer, chain.domain),
        judge=judge,
        accuser=Accuser(db, chain, client, history),
        attester=Attester(db, signer, chain, client, history, reaudits),
        reaudits=reaudits,
        jurors=Jurors(db, signer.address, chain, client, history, judge),
        clock=clock,
        judge_seconds=config.judge_seconds,
    )
