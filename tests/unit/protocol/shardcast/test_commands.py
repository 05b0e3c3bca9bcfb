"""`proofpool shardcast get`, and `origin` as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from protocol import cli
from protocol.clock import SystemClock
from protocol.documents import shape_of
from protocol.errors import Unreachable
from protocol.shardcast.file_server import FileServer
from protocol.shardcast.token import Gate, Ground
from tests.unit.protocol.shardcast.relay_world import files_of, published

ROOT = Path(__file__).resolve().parents[4]


def test_get_fetches_a_version_by_its_hash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = published(tmp_path)
    with FileServer(tmp_path / "origin", ("127.0.0.1", 0)) as server:
        asked = ["shardcast", "get", "0", "--url", server.url, "--out", str(tmp_path), "--json"]
        assert cli.run([*asked, "--manifest-hash", manifest.manifest_hash]) == 0
        report = shape_of("shardcast get").validate_json(capsys.readouterr().out)
        assert report.num_bytes_fetched == manifest.num_bytes and report.relays[0].url == server.url
        assert (report.way, report.num_bytes_saved, report.base_version) == ("whole", 0, None)
        assert files_of(tmp_path / "v0") == files_of(tmp_path / "checkpoint")
        assert cli.run([*asked, "--manifest-hash", "0x" + "11" * 32]) == 3
        assert not (tmp_path / "v0").exists(), "what isn't what was asked for doesn't stay under its name"


def test_get_says_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["shardcast", "get", "0", "--out", str(tmp_path), "--manifest-hash", "0x" + "11" * 32]
    assert cli.run(asked) == 2
    assert cli.run([*asked, "--url", "http://127.0.0.1:9"]) == 5
    assert "are the relays running?" in capsys.readouterr().err


def test_a_relay_among_peers_has_to_know_its_own_url(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["shardcast", "relay", str(tmp_path), "--upstream", "http://127.0.0.1:9", "--peer", "http://127.0.0.1:9"]
    assert cli.run(asked) == 2
    assert "--peer without --url" in capsys.readouterr().err


def test_origin_publishes_and_serves_until_it_is_asked_to_end(tmp_path: Path) -> None:
    manifest = published(tmp_path)
    command = [sys.executable, "-m", "protocol.cli", "shardcast", "origin", str(tmp_path / "new"), "--port", "0"]
    command += ["--checkpoint", str(tmp_path / "checkpoint"), "--pool", "1", "--version", "0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        said = child.stdout.readline().split()
        whole = said[0]
        assert httpx.get(f"{said[1]}/healthz").text == "ok\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    made = {path.name for path in (tmp_path / "new/versions/0").iterdir()}
    assert made == {"shards", "manifest.json"} and whole.startswith("0x")
    assert whole != manifest.manifest_hash, "shards of 64 MiB make another manifest"


@pytest.mark.parametrize("given", ["banana", "0X" + "11" * 32, "0x" + "11" * 31])
def test_get_refuses_what_is_no_hash(tmp_path: Path, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["shardcast", "get", "0", "--url", "http://127.0.0.1:9", "--out", str(tmp_path)]
    assert cli.run([*asked, "--manifest-hash", given]) == 2
    assert "that is no hash" in capsys.readouterr().err


def test_get_replaces_nothing_that_it_has_not_fetched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest, mine = published(tmp_path), tmp_path / "v0" / "mine"
    mine.parent.mkdir()
    mine.write_text("notes")
    with FileServer(tmp_path / "origin", ("127.0.0.1", 0)) as server:
        asked = ["shardcast", "get", "0", "--url", server.url, "--manifest-hash", manifest.manifest_hash]
        assert cli.run([*asked, "--out", str(tmp_path)]) == 2
        assert mine.read_text() == "notes" and "wasn't fetched" in capsys.readouterr().err
        mine.unlink()
        mine.parent.rmdir()
        assert cli.run([*asked, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{tmp_path / 'v0'}\n"
    assert (
        f"whole: {manifest.num_bytes:,} bytes" in printed.err and f"{server.url}: {manifest.num_bytes:,}" in printed.err
    )


def test_an_answer_that_refuses_is_told_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published(tmp_path)
    asked = ["shardcast", "get", "7", "--out", str(tmp_path), "--manifest-hash", "0x" + "11" * 32, "--wait", "0"]
    with FileServer(tmp_path / "origin", ("127.0.0.1", 0)) as server:
        assert cli.run([*asked, "--url", server.url]) == 5
    errors = capsys.readouterr().err
    assert "status 404" in errors and "is that version published?" in errors
    gate = Gate([], unknown_ground, SystemClock())
    with FileServer(tmp_path / "origin", ("127.0.0.1", 0), gate=gate) as server:
        assert cli.run([*asked, "--url", server.url]) == 5
    errors = capsys.readouterr().err
    assert "status 401" in errors and "PROOFPOOL_SHARDCAST_TOKEN_FILE" in errors


def unknown_ground() -> Ground:
    raise Unreachable("the coordinator isn't there")
