"""The coordinator as a process: database, chain and key put together around the loop and the server.

In: a configuration file. Out: the HTTP server and the background loop, until SIGTERM. A stage of the
loop that fails by a fault of ours ends the process, with exit code 1, rather than half of it.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Collection
from functools import partial
from pathlib import Path

import uvicorn

from coordinator.api.app import create_app
from coordinator.blobs import BlobStore
from coordinator.bond import report_bond
from coordinator.checkpoints import log_signer
from coordinator.config import CoordinatorConfig
from coordinator.context import Coordinator, Deployment
from coordinator.db.engine import open_engine, usable_database
from coordinator.db.migrate import migrate
from coordinator.indexer import index_chain
from coordinator.loop import Loop
from coordinator.rules import check_rules, read_rules, remember_rules
from protocol.chain.deployment import connect, read_deployment, stay_with
from protocol.clock import Clock, SystemClock
from protocol.config import load_config, write_resolved
from protocol.errors import NotEligible, ProofpoolError
from protocol.keystore import load_signer
from protocol.lock import FolderLock
from protocol.telemetry import configure_logging, get_logger
from protocol.waiting import Waiting

BACKLOG = 512
SHUTDOWN_SECONDS = 5


def run_coordinator(file: Path | None) -> None:
    """`proofpool coordinator serve`."""
    config = load_config(CoordinatorConfig, "coordinator", file)
    configure_logging("coordinator", config.log_format)
    with FolderLock(config.data_dir, "coordinator"):
        write_resolved(config, config.data_dir)
        _serve(config)


def _serve(config: CoordinatorConfig) -> None:
    """Server and loop, until a signal. Raises ProofpoolError where the loop fails."""
    clock = SystemClock()
    waiting = Waiting(clock, threading.Event(), config.loop_seconds)  # a signal ends the process here
    with usable_database():
        coordinator = waiting.until("the chain's node", lambda: build_coordinator(config, clock))
        assert coordinator is not None
        waiting.until("the chain's node", partial(check_role, coordinator))
        waiting.until("the chain's node", partial(_index, coordinator))
        report_bond(coordinator)
    with _listen(config) as listener:
        host, port = listener.getsockname()[:2]
        server = _server(coordinator, _names(host, port))

        def stop(*_: object) -> None:
            server.should_exit = True

        # The server raises its signals again when it has ended, and by then they must not end the process.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        loop = Loop(coordinator, on_failure=stop)
        loop.start()
        get_logger().info("coordinator.listening", url=f"http://{host}:{port}")
        server.run([listener])
        loop.stop()
    if loop.failure is not None:
        raise ProofpoolError("the coordinator's loop ended", repr(loop.failure), "read its log, then start it again")


def _index(coordinator: Coordinator) -> bool:
    index_chain(coordinator)
    return True


def build_coordinator(config: CoordinatorConfig, clock: Clock) -> Coordinator:
    """Migrate the database, check the contracts, open the key, take in the rules.

    Raises WrongChain, KeyFailure, ChainError where the node doesn't answer.
    """
    contracts = connect(config.chain_url, clock, deployment=config.deployment, ledger=config.ledger)
    signer = load_signer(contracts.client.chain_id, config.keystore, config.password_file)
    config.data_dir.mkdir(parents=True, exist_ok=True)
    stay_with(config.data_dir, contracts)
    if config.deployment is not None:
        block = read_deployment(config.deployment).block
        config = config.model_copy(update={"first_block": max(block, config.first_block)})
    engine = open_engine(config.resolved_database_url)
    migrate(engine)
    coordinator = Coordinator(
        config,
        engine=engine,
        blobs=BlobStore(config.data_dir / "blobs"),
        deployment=Deployment(contracts.domain, contracts.addresses),
        signer=signer,
        clock=clock,
        chain=contracts,
        log_signer=log_signer(config, contracts),
    )
    with coordinator.writing() as session:
        for file in config.rules_files:
            remember_rules(session, read_rules(file))
    return coordinator


def check_role(coordinator: Coordinator) -> bool:
    """Before anything is read of the pool: it is there, names this key, and its rules are at hand.

    Raises TransactionReverted for a pool that was never made, NotEligible for another key, ConfigError without rules.
    """
    assert coordinator.chain is not None
    found = coordinator.chain.read("pools", "configOf", coordinator.config.pool_id)
    if coordinator.signer.address != found["coordinator"]:
        raise NotEligible(
            "this key isn't the pool's coordinator",
            f"{coordinator.signer.address}, the pool names {found['coordinator']}",
            "use the keystore of the address that the pool names",
        )
    with coordinator.reading() as session:
        check_rules(session, found["rules_hash"], coordinator.config.rules_files)
    return True


def _listen(config: CoordinatorConfig) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises ProofpoolError where the address is taken."""
    try:
        return socket.create_server((config.host, config.port), backlog=BACKLOG)
    except OSError as error:
        raise ProofpoolError(
            f"can't listen on {config.host}:{config.port}", str(error), "end what holds the port, or set `port`"
        ) from error


def _names(host: str, port: int) -> set[str]:
    """Host headers that name this listener."""
    local = {"127.0.0.1", "localhost"} if host in ("127.0.0.1", "0.0.0.0", "::") else set()
    return {f"{name}:{port}" for name in {host, *local}}


def _server(coordinator: Coordinator, hosts: Collection[str]) -> uvicorn.Server:
    app = create_app(coordinator, hosts)
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
    )
