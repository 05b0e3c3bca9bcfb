"""Requests that must not act twice: their nonces, kept until the request expires.

In: the caller of a verified request. Out: nothing, or `signature_invalid` for a repetition.
"""

from __future__ import annotations

from sqlalchemy import delete
from sqlalchemy.orm import Session

from coordinator.db.work import SeenNonce
from protocol.errors import SignatureInvalid
from protocol.http import Caller


def use_nonce(session: Session, caller: Caller, now: float) -> None:
    """Remember this request's nonce. Raises SignatureInvalid where it has none, or one that was used."""
    if not caller.nonce:
        raise SignatureInvalid(
            "this request needs a nonce", "it isn't idempotent", "sign each request with a new nonce"
        )
    session.execute(delete(SeenNonce).where(SeenNonce.expiry <= int(now)))
    if session.get(SeenNonce, (caller.address, caller.nonce)) is not None:
        raise SignatureInvalid("this signed request was sent before", f"nonce {caller.nonce}", "sign a new request")
    session.add(SeenNonce(address=caller.address, nonce=caller.nonce, expiry=caller.expiry))
