"""Local chains for tests: each test runs on the embedded node, and on anvil where it's installed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.chain.abi import ErrorTable
from protocol.chain.client import ChainClient
from protocol.chain.lane import Lane, LanePolicy
from protocol.chain.rpc import JsonRpc
from protocol.clock import SystemClock
from testnet.chain.anvil import find_anvil, start_anvil
from testnet.chain.genesis import CHAIN_ID, dev_signers
from testnet.chain.node import start_embedded
from testnet.chain.process import NodeProcess
from tests.probe_contract import probe_abi, probe_deployment


def start(name: str, folder: Path, block_seconds: float) -> NodeProcess:
    if name == "embedded":
        return start_embedded(folder, SystemClock(), block_seconds=block_seconds)
    if (binary := find_anvil()) is None:
        pytest.skip("anvil isn't installed: `make anvil` gets it from npm")
    return start_anvil(binary, folder, SystemClock(), block_seconds=block_seconds)


@pytest.fixture(scope="session", params=["embedded", "anvil"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that makes a block for each transaction."""
    with start(request.param, tmp_path_factory.mktemp(request.param), 0) as process:
        yield process


@pytest.fixture(scope="module", params=["embedded", "anvil"])
def ticking_node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that makes a block every second."""
    with start(request.param, tmp_path_factory.mktemp(request.param), 1) as process:
        yield process


@pytest.fixture
def make_client() -> Iterator[Callable[[NodeProcess], ChainClient]]:
    clients: list[ChainClient] = []

    def make(process: NodeProcess) -> ChainClient:
        clients.append(ChainClient(JsonRpc(process.url), CHAIN_ID, ErrorTable.of([probe_abi()])))
        return clients[-1]

    yield make
    for client in clients:
        client.rpc.close()


@pytest.fixture
def client(node: NodeProcess, make_client: Callable[[NodeProcess], ChainClient]) -> ChainClient:
    return make_client(node)


@pytest.fixture
def make_lane() -> Callable[..., Lane]:
    """A lane of development account `number`."""

    def make(client: ChainClient, number: int = 0, policy: LanePolicy | None = None) -> Lane:
        return Lane(client, dev_signers(number + 1)[number], SystemClock(), policy)

    return make


@pytest.fixture
def lane(client: ChainClient, make_lane: Callable[..., Lane]) -> Lane:
    return make_lane(client)


@pytest.fixture
def probe(lane: Lane) -> str:
    """A fresh Probe's address."""
    address = lane.send(None, probe_deployment(5)).contract_address
    assert address is not None
    return address
