"""The coordinator as a process: database, chain and key put together around the loop and the server.

In: a configuration file. Out: the HTTP server and the background loop, until SIGTERM. A stage of the
loop that fails by a fault of ours ends the process, with exit code 1, rather than half of it.
"""

from __future__ import annotations

import socket
from pathlib import Path

import uvicorn

from coordinator.api.app import create_app
from coordinator.blobs import BlobStore
from coordinator.config import CoordinatorConfig
from coordinator.context import Coordinator, Deployment
from coordinator.db.engine import open_engine
from coordinator.db.migrate import migrate
from coordinator.loop import Loop
from coordinator.rules import read_rules, remember_rules
from protocol.chain.contracts import Contracts
from protocol.clock import Clock, SystemClock
from protocol.config import load_config, write_resolved
from protocol.errors import ProofpoolError
from protocol.keystore import load_signer
from protocol.telemetry import configure_logging, get_logger

BACKLOG = 512
SHUTDOWN_SECONDS = 5


def run_coordinator(file: Path | None) -> None:
    """`proofpool coordinator serve`."""
    config = load_config(CoordinatorConfig, "coordinator", file)
    configure_logging("coordinator", config.log_format)
    write_resolved(config, config.data_dir)
    coordinator = build_coordinator(config, SystemClock())
    with _listen(config) as listener:
        host, port = listener.getsockname()[:2]
        server = _server(coordinator, f"{host}:{port}")
        loop = Loop(coordinator, on_failure=lambda: setattr(server, "should_exit", True))
        loop.start()
        get_logger().info("coordinator.listening", url=f"http://{host}:{port}")
        server.run([listener])
        loop.stop()
    if loop.failure is not None:
        raise ProofpoolError("the coordinator's loop ended", repr(loop.failure), "read its log, then start it again")


def build_coordinator(config: CoordinatorConfig, clock: Clock) -> Coordinator:
    """Migrate the database, check the contracts, open the key, take in the rules. Raises WrongChain, KeyFailure."""
    contracts = Contracts.connect(config.chain_url, config.ledger, clock)
    signer = load_signer(contracts.client.chain_id, config.keystore, config.password_file)
    config.data_dir.mkdir(parents=True, exist_ok=True)
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
    )
    with coordinator.writing() as session:
        for file in config.rules_files:
            remember_rules(session, read_rules(file))
    return coordinator


def _listen(config: CoordinatorConfig) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises ProofpoolError where the address is taken."""
    try:
        return socket.create_server((config.host, config.port), backlog=BACKLOG)
    except OSError as error:
        raise ProofpoolError(
            f"can't listen on {config.host}:{config.port}", str(error), "end what holds the port, or set `port`"
        ) from error


def _server(coordinator: Coordinator, host: str) -> uvicorn.Server:
    app = create_app(coordinator, hosts=[host])
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
    )
