"""`python -m coordinator serve` as a process: kill -9 in the middle, start again, nothing lost or doubled."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from protocol.api import PoolInfo
from protocol.chain.deployment import Deployment, stay_with, write_deployment
from protocol.client import CoordinatorClient
from protocol.clock import SystemClock
from protocol.errors import CoordinatorUnreachable
from protocol.http import RequestSigner
from protocol.keystore import CHEAP_SCRYPT_N, create_keystore, write_secret
from protocol.signing import Signer
from testnet.chain.genesis import dev_secrets
from testnet.chain.process import python_environment
from tests.flaky_node import FlakyNode
from tests.integration.conftest import LOG_SECRET

DEADLINE_SECONDS = 60
MOST_CONFIRMATIONS = 2
PASSWORD = "of no value"


class Server:
    """A coordinator process over the world's database, pool and chain."""

    def __init__(self, world: Any, folder: Path, port: int, key: bytes) -> None:
        self.world = world
        self.clients: list[CoordinatorClient] = []
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / "coordinator.log"
        folder.mkdir(exist_ok=True)
        keystore, password = folder / "key.json", folder / "password"
        create_keystore(keystore, PASSWORD, secret=key, scrypt_n=CHEAP_SCRYPT_N)
        write_secret(folder / "log.json", PASSWORD, LOG_SECRET, scrypt_n=CHEAP_SCRYPT_N)
        password.write_text(PASSWORD)
        password.chmod(0o600)
        settings = world.coordinator.config.model_dump(mode="json", exclude_none=True)
        settings |= {"keystore": str(keystore), "password_file": str(password), "port": port, "log_format": "json"}
        settings |= {"loop_seconds": 0.05, "checkpoint_keystore": str(folder / "log.json")}
        self.config = folder / "coordinator.toml"
        self.config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "coordinator", "serve", "--config", str(self.config)],
                stdout=output,
                stderr=output,
                env=python_environment(),
            )
        self.until(self.is_ready)
        return self.process

    def client(self, signer: Signer | None = None) -> CoordinatorClient:
        auth = None if signer is None else RequestSigner(signer, self.world.domain, SystemClock())
        self.clients.append(CoordinatorClient(self.url, auth))
        return self.clients[-1]

    def is_ready(self) -> bool:
        try:
            return bool(self.client().pool().policy_version == 0)
        except CoordinatorUnreachable:
            return False

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for client in self.clients:
            client.close()

    def has_seen_all(self) -> bool:
        """Whether it knows each block that there is: leases of one that lags behind would be late in chain time."""
        try:
            seen = self.client().pool().freshness.indexed_block
        except CoordinatorUnreachable:
            return False
        return bool(seen + MOST_CONFIRMATIONS >= self.world.contracts.client.head().number)

    def until(self, holds: Callable[[], bool]) -> None:
        """Make blocks, as fast as they are seen, until it holds; as long as the process lives."""
        clock = SystemClock()
        deadline = clock.now() + DEADLINE_SECONDS
        while not holds():
            if self.process.poll() is not None or clock.now() > deadline:
                raise AssertionError(self.log.read_text()[-3000:])
            if self.has_seen_all():
                self.world.chain.mine()


@pytest.fixture
def server(world: Any, tmp_path: Path) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    world.coordinator.engine.dispose()
    made = Server(world, tmp_path, port, dev_secrets(2)[1])
    made.start()
    yield made
    made.end()


def test_what_was_received_survives_kill_9_and_is_received_once(world: Any, server: Server) -> None:
    node = server.client(world.node)
    task = node.lease(0).message
    envelope, submission_id, file = world.pack(task)
    receipt = node.submit(envelope, submission_id, file)
    server.process.kill()
    server.process.wait()
    with pytest.raises(CoordinatorUnreachable):
        node.submit(envelope, submission_id, file)
    server.start()
    assert node.submit(envelope, submission_id, file) == receipt
    assert [view.submission_id for view in server.client().submissions()] == [submission_id]
    assert node.submission_file(submission_id) == file
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(DEADLINE_SECONDS) == 0
    assert '"coordinator.listening"' in server.log.read_text()
    assert "Traceback" not in server.log.read_text()


def test_bad_requests_over_a_socket_get_problems_and_the_server_goes_on(world: Any, server: Server) -> None:
    with httpx.Client(base_url=server.url, timeout=30) as http:
        too_large = http.put(f"/v1/submissions/0x{'00' * 32}", content=bytes(65 << 20))
        assert (too_large.status_code, too_large.json()["code"]) == (413, "too_large")
        unsigned = http.post("/v1/tasks", json={"policy_version": 0})
        assert (unsigned.status_code, unsigned.json()["code"]) == (401, "signature_invalid")
        assert PoolInfo.model_validate_json(http.get("/v1/pool").content).pool_id == world.pool_id
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as line:
        line.sendall(b"PUT /v1/submissions/0x00 HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
    assert server.client().pool().pool_id == world.pool_id


def test_a_pool_that_was_never_made_is_refused_at_the_start(world: Any, tmp_path: Path) -> None:
    world.coordinator.engine.dispose()
    server = made_server(world, tmp_path)
    server.config.write_text(server.config.read_text().replace(f"pool_id = {world.pool_id}", "pool_id = 99"))
    assert ended(server) == 5
    assert "error: there is no such pool on this chain\n  why: NoSuchPool(99)\n" in server.log.read_text()


@pytest.mark.parametrize("num_epochs", [0, 1])
def test_another_key_than_the_pools_is_refused_at_the_start(world: Any, tmp_path: Path, num_epochs: int) -> None:
    for _ in range(num_epochs):
        world.close_epoch()
    world.coordinator.engine.dispose()
    wrong = Server(world, tmp_path / "wrong", 0, dev_secrets(3)[2])
    wrong.config.write_text(wrong.config.read_text().replace(f'"{tmp_path}"', f'"{tmp_path / "wrong"}"'))
    command = [sys.executable, "-m", "coordinator", "serve", "--config", str(wrong.config)]
    result = subprocess.run(command, env=python_environment(), capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert result.returncode == 6
    assert "isn't the pool's coordinator" in result.stderr
    assert "Traceback" not in result.stderr


def made_server(world: Any, folder: Path, **changes: object) -> Server:
    """A server that isn't started, with settings of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = Server(world, folder, port, dev_secrets(2)[1])
    with made.config.open("a") as file:
        file.writelines(f"{name} = {json.dumps(value)}\n" for name, value in changes.items())
    return made


def ended(server: Server) -> int:
    """Run it to its end, which comes by itself."""
    with server.log.open("ab") as output:
        process = subprocess.run(
            [sys.executable, "-m", "coordinator", "serve", "--config", str(server.config)],
            stdout=output,
            stderr=output,
            env=python_environment(),
            timeout=DEADLINE_SECONDS,
        )
    return process.returncode


def test_a_node_that_is_away_at_the_start_is_waited_for(world: Any, tmp_path: Path) -> None:
    world.coordinator.engine.dispose()
    with FlakyNode(world.chain.process.url) as flaky:
        server = made_server(world, tmp_path)
        server.config.write_text(server.config.read_text().replace(world.chain.process.url, flaky.url))
        flaky.fail("http", 30)
        try:
            server.start()
        finally:
            server.end()
    assert flaky.num_failed == 30
    waits = [json.loads(line) for line in server.log.read_text().splitlines() if '"waiting"' in line]
    assert waits[0]["awaited"] == "the chain's node"
    assert "500" in waits[0]["why"]


def test_a_second_coordinator_with_an_empty_folder_ends_before_it_sends(world: Any, tmp_path: Path) -> None:
    world.close_epoch()
    client, signer = world.contracts.client, world.coordinator.signer
    nonce = client.transaction_count(signer.address)
    (tmp_path / "second").mkdir()
    server = made_server(world, tmp_path / "second")
    server.config.write_text(server.config.read_text().replace(f'"{tmp_path}"', f'"{tmp_path / "second"}"'))
    assert ended(server) == 2
    assert "the pool's rules aren't here" in server.log.read_text()
    assert world.rules.rules_hash in server.log.read_text()
    rules = tmp_path / "rules.json"
    rules.write_text(world.rules.model_dump_json())
    server.config.write_text(server.config.read_text().replace("rules_files = []", f'rules_files = ["{rules}"]'))
    assert ended(server) == 1
    assert "the chain anchors another log in epoch 0" in server.log.read_text()
    assert "another coordinator uses this key" in server.log.read_text()
    assert client.transaction_count(signer.address) == nonce


def test_a_folder_of_another_deployment_is_refused(world: Any, tmp_path: Path) -> None:
    world.coordinator.engine.dispose()
    stay_with(tmp_path, world.contracts)
    file = tmp_path / "deployment.json"
    file.write_text(file.read_text().replace(world.contracts.salt, "0x" + "77" * 32))
    server = made_server(world, tmp_path)
    assert ended(server) == 5
    assert "the chain has another deployment" in server.log.read_text()
    write_deployment(tmp_path / "named.json", Deployment.of(world.contracts, 1).model_copy(update={"chain_id": 1}))
    file.unlink()
    server = made_server(world, tmp_path / "other", deployment=str(tmp_path / "named.json"))
    assert ended(server) == 5
    assert "the node serves another chain" in server.log.read_text()
