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

from protocol.clock import SteadyClock
from protocol.shardcast.client import fetch
from protocol.shardcast.file_server import FileServer
from protocol.shardcast.forwarder import Forwarder
from protocol.shardcast.holding import HOLDING_FILE, read_holding
from protocol.shardcast.line import weights_client
from testnet.ports import Ports
from tests.unit.protocol.shardcast.chain_world import run_of
from tests.unit.protocol.shardcast.relay_world import files_of, published, release_of
from tests.unit.protocol.shardcast.test_forwarder import Announced

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


@pytest.mark.skipif(NGINX is None, reason="no nginx here")
def test_a_client_takes_patches_from_nginx_over_a_folder_that_a_relay_fills(tmp_path: Path) -> None:
    run = run_of(tmp_path, 3, snapshot_every=4)
    announced = Announced()
    root = tmp_path / "relay"
    (root / "versions").mkdir(parents=True)
    with nginx(tmp_path, root) as url, weights_client() as http, FileServer(run.origin, ("127.0.0.1", 0)) as origin:
        pulling = Forwarder(root, [origin.url], announced, http, 5, SteadyClock())
        for version, way in ((0, "whole"), (1, "patches"), (2, "patches")):
            announced.release = release_of(run.manifests[version])
            pulling.look()
            fetched = fetch(http, [url], release_of(run.manifests[version]), tmp_path / "got")
            assert fetched.way == way and files_of(fetched.folder) == files_of(run.checkpoint(version))
        holding = read_holding(http.get(f"{url}/versions/2/{HOLDING_FILE}").content, 2)
        assert set(holding.patch) == set(run.manifests[2].patch_shards) and holding.completed_time
        assert http.get(f"{url}/versions/2/patch/99").status_code == 404


def test_the_configuration_names_what_relays_write() -> None:
    """Without an nginx, at least the paths are those of a version."""
    assert r"(shards|patch)/[0-9]+|manifest\.json|shards\.json|here\.json" in CONF.read_text()
