"""HTTP requests that carry their sender's signature.

    Authorization: Proofpool <base64url of canonical JSON {address, expiry, nonce, signature}>

The signature is EIP-712 over `HttpRequest` (method, host, path, query, SHA-256 of the body, expiry, nonce) in the
Ledger's domain. In: an httpx request and a `Signer` (`RequestSigner`), or what a server received
(`verify_request`). Out: the header, or the `Caller`. Path and query are the raw bytes of the request line.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from typing import Annotated

import httpx
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from protocol.canonical import canonical_json, hex0x, sha256
from protocol.clock import Clock
from protocol.errors import SignatureInvalid
from protocol.signing import Signer, SigningDomain, recover
from protocol.wire import Address, HttpRequest, Signature, UInt64

SCHEME = "Proofpool"
LIFETIME_SECONDS = 60
MAX_LIFETIME_SECONDS = 300
MAX_HEADER_CHARACTERS = 1024
OTHER_HOST = "the request is for another host"


def todo_for_host(why: str) -> str | None:
    """What to do where a server refused a request as one for another host; None for any other refusal."""
    _, is_that, names = why.partition(OTHER_HOST)
    if not is_that:
        return None
    hosts = names.partition("not one of ")[2].strip("[]' ;").replace("'", "")
    ours = f"set `coordinator_url` to one of these hosts, with http:// in front: {hosts}"
    return f"{ours}; or have its operator add this one to `public_hosts`"


@dataclass(frozen=True)
class Caller:
    """Who signed a request. A server that must not act twice keeps `nonce` until `expiry`."""

    address: str
    expiry: int
    nonce: str


class _Credentials(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    address: Address
    expiry: UInt64
    nonce: Annotated[str, StringConstraints(max_length=64)]
    signature: Signature


def random_nonce() -> str:
    return secrets.token_hex(12)


class RequestSigner(httpx.Auth):
    """Signs each request that an httpx client sends.

    Each request carries a nonce of its own, so that no second one has the same signature: a server refuses the
    repetition of what isn't idempotent (a lease).
    Example: `httpx.Client(auth=RequestSigner(signer, domain, clock))`.
    """

    requires_request_body = True

    def __init__(
        self, signer: Signer, domain: SigningDomain, clock: Clock, new_nonce: Callable[[], str] = random_nonce
    ) -> None:
        self._signer = signer
        self._domain = domain
        self._clock = clock
        self._new_nonce = new_nonce

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        path, _, query = request.url.raw_path.decode("ascii").partition("?")
        message = HttpRequest(
            method=request.method,
            host=request.headers["host"].lower(),
            path=path,
            query=query,
            body_hash=hex0x(sha256(request.content)),
            expiry=int(self._clock.now()) + LIFETIME_SECONDS,
            nonce=self._new_nonce(),
        )
        request.headers["authorization"] = authorization(self._signer, message, self._domain)
        yield request


def authorization(signer: Signer, message: HttpRequest, domain: SigningDomain) -> str:
    """The value of the Authorization header for one request."""
    credentials = _Credentials(
        address=signer.address,
        expiry=message.expiry,
        nonce=message.nonce,
        signature=signer.sign(message, domain),
    )
    encoded = base64.urlsafe_b64encode(canonical_json(credentials.model_dump()))
    return f"{SCHEME} {encoded.decode().rstrip('=')}"


def verify_request(
    header: str | None,
    *,
    method: str,
    host: str,
    path: str,
    query: str,
    body_hash: str,
    domain: SigningDomain,
    now: float,
    hosts: Collection[str],
) -> Caller:
    """Who signed this request. Raises SignatureInvalid where nobody did, or for something else.

    `host` is the request's Host header, `hosts` the names that this server answers to; `path` and `query` are
    raw, as in the request line; `body_hash` is the SHA-256 of the body as it arrived (0x-hex); `now` is in Unix
    seconds.
    """
    if host.lower() not in hosts:
        todo = f"set `coordinator_url` to one of these hosts: {', '.join(sorted(hosts))}"
        raise SignatureInvalid(OTHER_HOST, f"{host[:80]!r}, not one of {sorted(hosts)}", todo)
    credentials = _parse(header)
    _check_expiry(credentials.expiry, now)
    message = HttpRequest(
        method=method.upper(),
        host=host.lower(),
        path=path,
        query=query,
        body_hash=body_hash,
        expiry=credentials.expiry,
        nonce=credentials.nonce,
    )
    found = recover(message.digest(domain), credentials.signature)
    if found != credentials.address:
        raise SignatureInvalid(
            f"the request isn't signed by {credentials.address}",
            f"method, host, path, query or body differ from what was signed, or the domain does ({found})",
            "sign what is sent, for this host, chain and deployment",
        )
    return Caller(credentials.address, credentials.expiry, credentials.nonce)


def _parse(header: str | None) -> _Credentials:
    scheme, _, encoded = (header or "").partition(" ")
    if scheme != SCHEME or len(encoded) > MAX_HEADER_CHARACTERS:
        raise SignatureInvalid(
            "the request carries no usable Authorization header",
            f"scheme {scheme[:20]!r}, {len(encoded)} characters",
            f"send `Authorization: {SCHEME} …` of at most {MAX_HEADER_CHARACTERS} characters",
        )
    try:
        raw = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        credentials = _Credentials.model_validate_json(raw)
    except (binascii.Error, ValidationError, ValueError) as error:
        raise SignatureInvalid("the Authorization header can't be read", type(error).__name__) from error
    if canonical_json(credentials.model_dump()) != raw:
        raise SignatureInvalid("the Authorization header isn't canonical JSON", "RFC 8785")
    return credentials


def _check_expiry(expiry: int, now: float) -> None:
    if expiry <= now:
        raise SignatureInvalid("the request has expired", f"at {expiry}, now {now:.0f}", "check this machine's clock")
    if expiry > now + MAX_LIFETIME_SECONDS:
        raise SignatureInvalid(
            "the request's expiry lies too far ahead",
            f"at {expiry}, now {now:.0f}, at most {MAX_LIFETIME_SECONDS} s",
            "sign each request anew, with a clock that is right",
        )
