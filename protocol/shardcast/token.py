"""Download tokens: who may take a pool's weights from relays that ask for one.

    Authorization: Bearer <base64url of canonical JSON {pool_id, holder, expiry, signature}>

In: a `DownloadToken` with the signature of somebody whom the relay trusts (its coordinator, or a node's own key); the
header of a request. Out: the header's value, and whether it lets in. A token says who may have bandwidth, and nothing
about bytes: whoever sees one can use it until it ends, and weights are checked whoever sends them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Generator
from pathlib import Path
from typing import NamedTuple

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from protocol.canonical import canonical_json
from protocol.clock import Clock
from protocol.errors import KeyFailure, SignatureInvalid
from protocol.signing import Signer, SigningDomain, recover
from protocol.wire import Address, DownloadToken, Signature, UInt64

SCHEME = "Bearer"
MAX_TOKEN_CHARACTERS = 1024
MAX_KNOWN = 4096
"""Tokens whose signature needn't be checked again."""


class Ground(NamedTuple):
    """What tokens are for."""

    pool_id: int
    domain: SigningDomain


class _Credentials(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    pool_id: UInt64
    holder: Address
    expiry: UInt64
    signature: Signature

    @property
    def message(self) -> DownloadToken:
        return DownloadToken(pool_id=self.pool_id, holder=self.holder, expiry=self.expiry)


def make_token(signer: Signer, message: DownloadToken, domain: SigningDomain) -> str:
    """What is put into the token file."""
    credentials = _Credentials(**message.model_dump(), signature=signer.sign(message, domain))
    return base64.urlsafe_b64encode(canonical_json(credentials.model_dump())).decode().rstrip("=")


class Gate:
    """Threads share it. Example: `Gate([coordinator], ground, SystemClock()).check(header)`.

    `ground` is asked at the first token that comes, and may raise ProofpoolError where it isn't known yet.
    """

    def __init__(self, signers: Collection[str], ground: Callable[[], Ground], clock: Clock) -> None:
        self._signers, self._ground, self._clock = frozenset(signers), ground, clock
        self._known: dict[str, int] = {}

    def check(self, header: str | None) -> None:
        """Raises SignatureInvalid where the header's token doesn't let in, and what `ground` raises."""
        scheme, _, text = (header or "").partition(" ")
        if scheme != SCHEME or len(text) > MAX_TOKEN_CHARACTERS:
            raise SignatureInvalid("the request has no download token", f"scheme {scheme[:20]!r}")
        expiry = self._known.get(text)
        if expiry is None:
            expiry = self._expiry_of(text)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[text] = expiry
        if expiry <= self._clock.now():
            raise SignatureInvalid("the download token has expired", f"at {expiry}", "ask for a new one")

    def _expiry_of(self, text: str) -> int:
        """Of a token that one of the signers made for this pool."""
        credentials, (pool_id, domain) = _parse(text), self._ground()
        signer = recover(credentials.message.digest(domain), credentials.signature)
        if signer not in self._signers:
            raise SignatureInvalid("the download token is signed by nobody who is trusted here", signer)
        if credentials.pool_id != pool_id:
            why = f"pool {credentials.pool_id}, not {pool_id}"
            raise SignatureInvalid("the download token is for another pool", why)
        return credentials.expiry


class TokenFile(httpx.Auth):
    """Sends the token that is in a file, read anew for each request, so that a new one takes its place any time."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Raises KeyFailure where there is no such file."""
        try:
            token = self._file.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise KeyFailure("the download token can't be read", f"{self._file}: {error}") from error
        request.headers["authorization"] = f"{SCHEME} {token}"
        yield request


def _parse(text: str) -> _Credentials:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        credentials = _Credentials.model_validate_json(raw)
    except (binascii.Error, ValidationError, ValueError) as error:
        raise SignatureInvalid("the download token can't be read", type(error).__name__) from error
    if canonical_json(credentials.model_dump()) != raw:
        raise SignatureInvalid("the download token isn't canonical JSON", "RFC 8785")
    return credentials
