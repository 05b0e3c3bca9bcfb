"""Signed requests: what is signed is what is accepted, by whom it says, for a short time."""

import base64
import json
import threading
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.canonical import hex0x, sha256
from protocol.errors import SignatureInvalid
from protocol.http import LIFETIME_SECONDS, MAX_LIFETIME_SECONDS, Caller, RequestSigner, authorization, verify_request
from protocol.signing import Signer, SigningDomain
from protocol.wire import HttpRequest

NOW = 1_700_000_000.0
HOST = "pool.example:8080"
DOMAIN = SigningDomain(31337, "0x" + "11" * 20, "0x" + "22" * 32)
SIGNER = Signer(b"\x07" * 32)


class FixedClock:
    def now(self) -> float:
        return NOW

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        return stop.is_set()


def sent(
    method: str = "POST", url: str = f"http://{HOST}/v1/tasks?limit=3", body: bytes = b"{}", nonce: str = ""
) -> httpx.Request:
    """The request as it leaves a client with `RequestSigner`."""
    seen: list[httpx.Request] = []

    def serve(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    auth = RequestSigner(SIGNER, DOMAIN, FixedClock(), lambda: nonce)
    with httpx.Client(transport=httpx.MockTransport(serve), auth=auth) as client:
        client.request(method, url, content=body)
    return seen[0]


def received(request: httpx.Request, **changed: Any) -> Caller:
    """What a server makes of it, but for what was changed on the way."""
    path, _, query = request.url.raw_path.decode().partition("?")
    arguments: dict[str, Any] = {
        "header": request.headers.get("authorization"),
        "method": request.method,
        "host": request.headers["host"],
        "path": path,
        "query": query,
        "body_hash": hex0x(sha256(request.content)),
        "domain": DOMAIN,
        "now": NOW,
        "hosts": {HOST},
    }
    arguments |= changed
    return verify_request(arguments.pop("header"), **arguments)


def header_of(document: bytes) -> str:
    return "Proofpool " + base64.urlsafe_b64encode(document).decode().rstrip("=")


def test_a_signed_request_names_its_sender() -> None:
    assert received(sent()) == Caller(SIGNER.address, int(NOW) + LIFETIME_SECONDS, "")


def test_a_nonce_travels_with_an_admin_action() -> None:
    assert received(sent(nonce="n-1")).nonce == "n-1"


def test_escaped_paths_and_bare_gets_are_signed_as_they_are_sent() -> None:
    assert received(sent("GET", f"http://{HOST}/v1/a%20b/%C3%A9?q=%2F&r", b"")).address == SIGNER.address
    assert received(sent("GET", f"http://{HOST}/v1/pools", b"")).address == SIGNER.address


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "PUT"},
        {"path": "/v1/task"},
        {"query": "limit=4"},
        {"body_hash": hex0x(sha256(b"{ }"))},
        {"host": "other.example", "hosts": {"other.example"}},
        {"domain": SigningDomain(1, DOMAIN.contract, DOMAIN.salt)},
        {"domain": SigningDomain(31337, DOMAIN.contract, "0x" + "33" * 32)},
    ],
)
def test_any_other_request_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(SignatureInvalid, match="isn't signed by|recovers to no key"):
        received(sent(), **changed)


def test_a_host_that_is_not_ours_is_refused() -> None:
    with pytest.raises(SignatureInvalid, match="another host"):
        received(sent(), hosts={"elsewhere.example"})


def test_expiry_bounds_a_request_on_both_sides() -> None:
    assert received(sent(), now=NOW + LIFETIME_SECONDS - 1).address == SIGNER.address
    with pytest.raises(SignatureInvalid, match="expired"):
        received(sent(), now=NOW + LIFETIME_SECONDS)
    with pytest.raises(SignatureInvalid, match="too far ahead"):
        received(sent(), now=NOW - MAX_LIFETIME_SECONDS)


def test_nobody_signs_for_another_address() -> None:
    header = sent().headers["authorization"]
    document = json.loads(base64.urlsafe_b64decode(header.split()[1] + "=="))
    document["address"] = "0x" + "99" * 20
    forged = header_of(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())
    with pytest.raises(SignatureInvalid, match="isn't signed by"):
        received(sent(), header=forged)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Proofpool",
        "Bearer abc",
        "Proofpool !!!!",
        "Proofpool é",
        header_of(b"{}"),
        header_of(b"[" * 500),
        header_of(b"null"),
        header_of(b"\xff\xfe"),
        "Proofpool " + "A" * 5000,
    ],
)
def test_unusable_headers_are_refused(header: str | None) -> None:
    with pytest.raises(SignatureInvalid):
        received(sent(), header=header)


def test_one_signature_has_one_header() -> None:
    header = sent().headers["authorization"]
    document = base64.urlsafe_b64decode(header.split()[1] + "==")
    for variant in (b" " + document, document.replace(b'"nonce":""', b'"nonce": ""'), document[:-1] + b',"expiry":1}'):
        with pytest.raises(SignatureInvalid):
            received(sent(), header=header_of(variant))


@given(st.text(max_size=80))
def test_no_header_text_crashes(text: str) -> None:
    with pytest.raises(SignatureInvalid):
        received(sent(), header="Proofpool " + text)


def test_header_fits_its_limit_with_the_longest_nonce() -> None:
    message = HttpRequest(
        method="POST", host=HOST, path="/", query="", body_hash="0x" + "00" * 32, expiry=2**53 - 1, nonce="n" * 64
    )
    assert len(authorization(SIGNER, message, DOMAIN)) < 500
