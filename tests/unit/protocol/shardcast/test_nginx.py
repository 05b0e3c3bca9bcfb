"""deploy/nginx-relay.conf with a real nginx, where there is one: a client takes a version from it, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from protocol.shardcast.client import fetch
from protocol.shardcast.line import weights_client
from testnet.ports import Ports
from tests.unit.protocol.shardcast.relay_world import files_of, published, release_of

CONF = Path(__file__).resolve().parents[4] / "deploy" / "nginx-relay.conf"
NGINX = shutil.which("nginx")


@contextmanager
def nginx(folder: Path, root: Path) -> Iterator[str]:
    """The configuration with this root, on a free port."""
    with Ports(1) as ports:
        (port,) = ports.numbers
    site = CONF.read_text().replace("listen 8501", f"listen 127.0.0.1:{port}")
    (folder / "site.conf").write_text(site.replace("/var/lib/proofpool/relay", str(root)))
    paths = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = f"daemon off; user root; pid {folder}/pid; error_log stderr; events {{}} "
    (folder / "nginx.conf").write_text(f"{main} http {{ access_log off; {paths} include {folder}/site.conf; }}")
    with subprocess.Popen([str(NGINX), "-p", str(folder), "-c", str(folder / "nginx.conf")]) as child:
        try:
            while not _answers(f"http://127.0.0.1:{port}/healthz"):
                assert child.poll() is None
                threading.Event().wait(0.02)
            yield f"http://127.0.0.1:{port}"
        finally:
            child.terminate()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).text == "ok\n"
    except httpx.ConnectError:
        return False


@pytest.mark.skipif(NGINX is None, reason="no nginx here")
def test_a_client_takes_a_version_from_nginx(tmp_path: Path) -> None:
    manifest = published(tmp_path)
    root = tmp_path / "origin"
    (root / "versions/0/shards/.9.part").write_bytes(b"half")
    (root / "secret").write_text("no")
    with nginx(tmp_path, root) as url, weights_client() as http:
        fetched = fetch(http, [url], release_of(manifest), tmp_path / "got")
        assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")
        part = http.get(f"{url}/versions/0/shards/1", headers={"Range": "bytes=500-"})
        assert (part.status_code, part.content) == (206, (root / "versions/0/shards/1").read_bytes()[500:])
        for path in ("/secret", "/versions/0/shards/.9.part", "/versions/0/", "/versions/..%2fsecret"):
            assert http.get(url + path).status_code in (400, 404)


def test_the_configuration_names_what_relays_write() -> None:
    """Without an nginx, at least the paths are those of a version."""
    assert r"(shards|patch)/[0-9]+|manifest\.json|shards\.json|here\.json" in CONF.read_text()
