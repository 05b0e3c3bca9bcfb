"""Relays behind https and proxies: with the system's certificates, or an error that says what is wrong."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from protocol.errors import ConfigError, Unreachable
from protocol.shardcast import document
from protocol.shardcast.client import fetch
from protocol.shardcast.line import weights_client
from tests.unit.protocol.shardcast.relay_world import files_of, published, release_of

PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(document, "PAUSE_SECONDS", 0.002)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed one of 127.0.0.1, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    names = ["-subj", "/CN=relay", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*command, *names, "-out", certificate, "-keyout", key], check=True, capture_output=True)
    return certificate, key


@pytest.fixture
def url(tmp_path: Path, certificate: tuple[Path, Path]) -> Iterator[str]:
    """An https server over `tmp_path/origin`."""

    class Handler(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(tmp_path / "origin"))  # type: ignore[arg-type]

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    # A handshake belongs to the connection's own thread: who doesn't like the certificate ends that alone.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_version_comes_over_https_where_the_certificate_is_trusted(
    tmp_path: Path, url: str, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    manifest = published(tmp_path, shard_bytes=10_000)
    with weights_client() as http:
        fetched = fetch(http, [url], release_of(manifest), tmp_path / "got")
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("no_proxy", ["", "127.0.0.1"])
def test_a_certificate_that_nobody_vouches_for_is_refused_and_named(
    tmp_path: Path, url: str, no_proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the own line, and by the client that takes its place where the environment speaks of proxies."""
    monkeypatch.setattr("socketserver.BaseServer.handle_error", lambda *arguments: None)
    if no_proxy:
        monkeypatch.setenv("no_proxy", no_proxy)
    manifest = published(tmp_path)
    with weights_client() as http, pytest.raises(Unreachable) as failure:
        fetch(http, [url], release_of(manifest), tmp_path / "got")
    assert "CERTIFICATE_VERIFY_FAILED" in str(failure.value) and "manifest.json" in failure.value.what


def test_a_proxys_client_trusts_the_same_certificates(
    tmp_path: Path, url: str, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    manifest = published(tmp_path)
    with weights_client() as http:
        fetched = fetch(http, [url], release_of(manifest), tmp_path / "got")
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1080", "ftp://127.0.0.1:21"])
def test_a_proxy_that_can_not_be_used_is_named(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", proxy)
    with pytest.raises(ConfigError, match="proxy") as failure:
        weights_client()
    assert "all" in failure.value.why and "no_proxy" in failure.value.todo
