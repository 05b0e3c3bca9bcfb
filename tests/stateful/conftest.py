"""A node for all runs, which can be restarted, with the contracts on it."""

from __future__ import annotations

from collections.abc import Iterator

import anyio.from_thread
import pytest

from testnet.chain.anvil import find_anvil
from tests.integration.conftest import LocalChain, deploy_contracts
from tests.stateful.node import KeptNode
from tests.stateful.stages import Stages
from tests.unit.coordinator.conftest import empty_database, portal, quiet_logs

__all__ = ["empty_database", "portal", "quiet_logs"]


@pytest.fixture(scope="module")
def stages(
    tmp_path_factory: pytest.TempPathFactory, portal: anyio.from_thread.BlockingPortal, empty_database: bytes
) -> Iterator[Stages]:
    if find_anvil() is None:
        pytest.skip("anvil isn't installed: `make anvil` gets it from npm")
    folder = tmp_path_factory.mktemp("stateful")
    node = KeptNode(folder)
    chain = LocalChain(node.process, deploy_contracts(node.process.url))
    yield Stages(node, chain, folder, portal, empty_database)
    chain.contracts.client.rpc.close()
    node.close()
