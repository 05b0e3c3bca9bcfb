"""The built-in server: finished files of versions, whole or in part, to whom the limits allow; and nothing else."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from protocol.shardcast.file_server import FileServer
from protocol.shardcast.limits import BURST_SECONDS, Limits, Visitors, subscriber_of
from tests.unit.protocol.shardcast.test_shardcast import StandingClock

LOOPBACK = ("127.0.0.1", 0)
DATA = random.Random(1).randbytes(2048)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shards = tmp_path / "root" / "versions" / "0" / "shards"
    shards.mkdir(parents=True)
    (shards / "0").write_bytes(DATA)
    (shards / ".1.half").write_bytes(b"half")
    (tmp_path / "root" / "secret").write_text("no")
    (shards / "link").symlink_to(tmp_path / "root" / "secret")
    os.mkfifo(shards / "pipe")
    (shards.parent / "manifest.json").write_bytes(b"{}")
    return tmp_path / "root"


@pytest.fixture
def server(root: Path) -> Iterator[FileServer]:
    with FileServer(root, LOOPBACK) as server:
        yield server


def asked(server: FileServer, request: bytes) -> bytes:
    """The whole answer to a request as it is on the wire."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_a_finished_file_comes_whole_and_a_second_time_not_at_all(server: FileServer) -> None:
    with httpx.Client(base_url=server.url) as http:
        answer = http.get("/versions/0/shards/0")
        assert answer.content == DATA and answer.status_code == 200
        again = http.get("/versions/0/shards/0", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert http.head("/versions/0/shards/0").headers["content-length"] == str(len(DATA))
        assert http.get("/versions/0/manifest.json").content == b"{}"
        assert http.get("/healthz").text == "ok\n"
    assert server.served.num_bytes == len(DATA) + 2


@pytest.mark.parametrize(
    ("wanted", "status", "data"),
    [
        ("bytes=0-1", 206, DATA[:2]),
        ("bytes=100-", 206, DATA[100:]),
        ("bytes=-3", 206, DATA[-3:]),
        ("bytes=2000-999999", 206, DATA[2000:]),
        ("bytes=0-", 200, DATA),
        ("bytes=2048-", 416, b""),
        ("bytes=5-2", 416, b""),
        ("bytes=-0", 416, b""),
        ("bytes=0-1,5-6", 200, DATA),
        ("bytes=x", 200, DATA),
        ("bytes=-", 200, DATA),
    ],
)
def test_ranges(server: FileServer, wanted: str, status: int, data: bytes) -> None:
    answer = httpx.get(f"{server.url}/versions/0/shards/0", headers={"Range": wanted})
    assert (answer.status_code, answer.content) == (status, data)
    if status == 206:
        first = DATA.index(data)
        assert answer.headers["content-range"] == f"bytes {first}-{first + len(data) - 1}/{len(DATA)}"


def test_a_range_of_a_file_that_has_changed_is_the_whole_file(server: FileServer) -> None:
    answer = httpx.get(f"{server.url}/versions/0/shards/0", headers={"Range": "bytes=0-1", "If-Range": '"other"'})
    assert (answer.status_code, answer.content) == (200, DATA)


@pytest.mark.parametrize(
    "path",
    [
        "/secret",
        "/versions/../secret",
        "/versions/%2e%2e/secret",
        "/versions/0/../../secret",
        "/versions/0/shards/.1.half",
        "/versions/0/shards/link",
        "/versions/0/shards/pipe",
        "/versions/0/shards",
        "/versions/0/shards/",
        "/versions/0/shards/9",
        "/versions/00/manifest.json",
        "/versions",
        "/",
        "//etc/passwd",
        "/versions/0/manifest.json?x",
    ],
)
def test_nothing_else_is_handed_out(server: FileServer, path: str) -> None:
    said = asked(server, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 404 ") and said.endswith(b"there is no such file\n")


NONSENSE = (b"POST /versions/0/manifest.json HTTP/1.1\r\n\r\n", b"\xff\xfe\r\n\r\n", b"GET / HTTP/9\r\n\r\n")


@pytest.mark.parametrize("request_", NONSENSE)
def test_nonsense_is_refused(server: FileServer, request_: bytes) -> None:
    assert b" 200 " not in asked(server, request_)
    assert httpx.get(f"{server.url}/healthz").status_code == 200


def test_an_address_has_so_many_connections_and_no_more(root: Path) -> None:
    with FileServer(root, LOOPBACK, Limits(connections_per_ip=1)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as first:
            first.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert first.recv(100)
            assert asked(server, b"") == b"", "a second one is closed at once"
            assert server.served.num_refused == 1
        while server.visitors.num_connections:
            threading.Event().wait(0.01)
        assert httpx.get(f"{server.url}/healthz").status_code == 200


def test_what_the_visitors_may_take() -> None:
    clock = StandingClock()
    visitors = Visitors(Limits(connections=3, connections_per_ip=2, bytes_per_second_per_ip=100), clock)
    assert [visitors.enter("a"), visitors.enter("a"), visitors.enter("a")] == [True, True, False]
    assert [visitors.enter("b"), visitors.enter("c")] == [True, False]
    assert visitors.sent("a", int(100 * BURST_SECONDS)) == 0.0
    assert visitors.sent("a", 50) == 0.5 and visitors.sent("b", 50) == 0.0
    visitors.leave("a")
    visitors.leave("a")
    assert visitors.enter("a") and visitors.sent("a", 50) == 1.0, "who comes back has the same bucket"
    clock.seconds = 60.0
    assert visitors.sent("a", 100) == 0.0


def test_an_address_gets_its_bytes_at_its_rate_and_no_faster(root: Path) -> None:
    clock = StandingClock()
    limits = Limits(bytes_per_second_per_ip=len(DATA) // 4)
    with FileServer(root, LOOPBACK, limits, clock) as server:
        assert httpx.get(f"{server.url}/versions/0/shards/0").content == DATA
        assert httpx.get(f"{server.url}/versions/0/shards/0").content == DATA
    assert clock.seconds >= 2 * 4 - BURST_SECONDS - 0.01


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.7", "192.0.2.7", True),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.8", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("192.0.2.7", "192.0.2.8", False),
    ],
)
def test_a_subscriber_is_an_ipv4_address_or_half_of_an_ipv6_one(one: str, other: str, is_one: bool) -> None:
    assert (subscriber_of(one) == subscriber_of(other)) is is_one


def forwarded(server: FileServer, claimed: str) -> bytes:
    head = f"X-Forwarded-For: {claimed}\r\nForwarded: for={claimed}\r\nX-Real-IP: {claimed}\r\n"
    return asked(server, f"GET /healthz HTTP/1.1\r\nHost: x\r\n{head}Connection: close\r\n\r\n".encode())


def test_nobody_is_somebody_else_by_saying_so(root: Path) -> None:
    with FileServer(root, LOOPBACK, Limits(connections_per_ip=1)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as first:
            first.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert first.recv(100)
            assert forwarded(server, "192.0.2.7") == b"", "the address is still the connection's own"
        while server.visitors.num_connections:
            threading.Event().wait(0.01)
        assert b" 200 " in forwarded(server, "192.0.2.7")


def test_what_an_address_may_take_is_not_more_for_another_head(root: Path) -> None:
    clock = StandingClock()
    with FileServer(root, LOOPBACK, Limits(bytes_per_second_per_ip=len(DATA) // 4), clock) as server:
        for number in range(2):
            heads = {"X-Forwarded-For": f"192.0.2.{number}"}
            assert httpx.get(f"{server.url}/versions/0/shards/0", headers=heads).content == DATA
    assert clock.seconds >= 2 * 4 - BURST_SECONDS - 0.01


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_a_relay_serves_ipv6_and_counts_its_subscribers(root: Path) -> None:
    try:
        server = FileServer(root, ("::1", 0), Limits(connections_per_ip=1))
    except OSError:
        pytest.skip("no IPv6 loopback here")
    with server, socket.create_connection(("::1", server.port), timeout=20) as first:
        first.sendall(b"GET /versions/0/shards/0 HTTP/1.1\r\n\r\n")
        assert first.recv(100).startswith(b"HTTP/1.1 200 ")
        with socket.create_connection(("::1", server.port), timeout=20) as second:
            assert second.recv(100) == b""
