"""Download tokens: who is let in by a relay that wants one, and how clients show theirs."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from protocol.canonical import canonical_json
from protocol.errors import KeyFailure, SignatureInvalid, Unreachable
from protocol.shardcast import commands
from protocol.shardcast.client import fetch
from protocol.shardcast.file_server import FileServer
from protocol.shardcast.line import TOKEN_VARIABLE, weights_client
from protocol.shardcast.token import MAX_KNOWN, Gate, Ground, TokenFile, make_token
from protocol.signing import Signer, SigningDomain
from protocol.wire import DownloadToken
from tests.unit.protocol.shardcast.relay_world import files_of, published, release_of
from tests.unit.protocol.shardcast.test_shardcast import StandingClock

LOOPBACK = ("127.0.0.1", 0)
DOMAIN = SigningDomain(31337, "0x" + "aa" * 20, "0x" + "bb" * 32)
OTHER_DOMAIN = SigningDomain(31337, "0x" + "aa" * 20, "0x" + "cc" * 32)
TRUSTED, SOMEBODY = Signer(b"\x11" * 32), Signer(b"\x22" * 32)
END = 1000


def token(signer: Signer = TRUSTED, domain: SigningDomain = DOMAIN, **changes: Any) -> str:
    message = DownloadToken(pool_id=1, holder=SOMEBODY.address, expiry=END)
    return make_token(signer, message.model_copy(update=changes), domain)


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def gate(clock: StandingClock) -> Gate:
    return Gate([TRUSTED.address], lambda: Ground(1, DOMAIN), clock)


def test_a_token_of_the_trusted_signer_lets_in_until_it_ends(gate: Gate, clock: StandingClock) -> None:
    gate.check(f"Bearer {token()}")
    clock.seconds = END - 1
    gate.check(f"Bearer {token()}")
    clock.seconds = END
    with pytest.raises(SignatureInvalid, match="expired"):
        gate.check(f"Bearer {token()}")
    gate.check(f"Bearer {token(expiry=END + 1)}")


def edited(text: str, **changes: Any) -> str:
    """The token with other fields under the same signature."""
    document = json.loads(base64.urlsafe_b64decode(text + "==")) | changes
    return base64.urlsafe_b64encode(canonical_json(document)).decode().rstrip("=")


def spaced(text: str) -> str:
    """The same token, spelt otherwise."""
    document = json.loads(base64.urlsafe_b64decode(text + "=="))
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (None, "no download token"),
        ("", "no download token"),
        (f"Basic {token()}", "no download token"),
        (f"Bearer {'A' * 5000}", "no download token"),
        ("Bearer !!!", "can't be read"),
        ("Bearer e30", "can't be read"),
        (f"Bearer {token(SOMEBODY)}", "nobody who is trusted"),
        (f"Bearer {token(domain=OTHER_DOMAIN)}", "nobody who is trusted"),
        (f"Bearer {token(pool_id=2)}", "another pool"),
        (f"Bearer {edited(token(), expiry=END + 1)}", "nobody who is trusted"),
        (f"Bearer {edited(token(), holder=TRUSTED.address)}", "nobody who is trusted"),
        (f"Bearer {spaced(token())}", "canonical"),
    ],
)
def test_nobody_else_is_let_in(gate: Gate, header: str | None, why: str) -> None:
    for _ in range(2):  # the second time as well
        with pytest.raises(SignatureInvalid, match=why):
            gate.check(header)


def test_what_is_remembered_of_tokens_is_bounded(gate: Gate) -> None:
    for number in range(20):
        gate.check(f"Bearer {token(expiry=END + number)}")
    assert len(gate._known) == 20
    gate._known |= {str(number): END for number in range(MAX_KNOWN)}
    gate.check(f"Bearer {token(expiry=END + 20)}")
    assert len(gate._known) == 1


def test_a_relay_that_wants_tokens_serves_who_has_one_and_says_that_it_is_well_to_all(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = published(tmp_path, num_bytes=3000)
    with FileServer(tmp_path / "origin", LOOPBACK, gate=gate) as server:
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        refused = httpx.get(f"{server.url}/versions/0/manifest.json")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert "no download token" in refused.text
        with weights_client() as http, pytest.raises(Unreachable, match="401"):
            fetch(http, [server.url], release_of(manifest), tmp_path / "got")
        file = tmp_path / "token"
        file.write_text(token() + "\n")
        monkeypatch.setenv(TOKEN_VARIABLE, str(file))
        with weights_client() as http:
            fetched = fetch(http, [server.url], release_of(manifest), tmp_path / "got")
        assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")


def test_a_relay_that_does_not_know_its_pool_yet_asks_for_patience(tmp_path: Path, clock: StandingClock) -> None:
    published(tmp_path, num_bytes=3000)

    def ground() -> Ground:
        raise Unreachable("the coordinator doesn't answer", "", "")

    with FileServer(tmp_path / "origin", LOOPBACK, gate=Gate([TRUSTED.address], ground, clock)) as server:
        heads = {"Authorization": f"Bearer {token()}"}
        answer = httpx.get(f"{server.url}/versions/0/manifest.json", headers=heads)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_a_token_is_read_anew_for_each_request(tmp_path: Path) -> None:
    file, seen = tmp_path / "token", []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return httpx.Response(200)

    with httpx.Client(auth=TokenFile(file), transport=httpx.MockTransport(answer)) as http:
        with pytest.raises(KeyFailure, match="token"):
            http.get("http://relay/")
        for text in ("one", "two"):
            file.write_text(f"{text}\n")
            http.get("http://relay/")
    assert seen == ["Bearer one", "Bearer two"]


def test_the_command_makes_what_a_relay_lets_in(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    monkeypatch.setattr("protocol.shardcast.releases.CoordinatorReleases.ground", lambda self: Ground(1, DOMAIN))
    monkeypatch.setenv("PROOFPOOL_PRIVATE_KEY", "0x" + "11" * 32)
    words = ["token", "--holder", SOMEBODY.address, "--days", "2"]
    made = CliRunner().invoke(commands.app, words)
    gate.check(f"Bearer {made.stdout.strip()}")
    document = json.loads(base64.urlsafe_b64decode(made.stdout.strip() + "=="))
    assert document["holder"] == SOMEBODY.address and document["pool_id"] == 1
    monkeypatch.setenv("PROOFPOOL_PRIVATE_KEY", "0x" + "22" * 32)
    with pytest.raises(SignatureInvalid, match="nobody who is trusted"):
        gate.check(f"Bearer {CliRunner().invoke(commands.app, words).stdout.strip()}")
    assert CliRunner().invoke(commands.app, ["token", "--holder", "0x12"]).exit_code != 0
