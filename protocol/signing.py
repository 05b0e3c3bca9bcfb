"""Signatures: EIP-712 digests, signing and recovery on native secp256k1.

In: a typed message (`TypedMessage`) and the `SigningDomain` of the deployment. Out: 65-byte
signatures (r ‖ s ‖ v, v in {27, 28}, low s). Nobody signs a string that a peer chose: only the
message types of `protocol/wire.py` can be signed.
Source: EIP-712, EIP-2 (low s), EIP-55 (checksums). Vectors: tests/unit/protocol/test_signing.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from coincurve import PrivateKey, PublicKey
from pydantic import BaseModel, ConfigDict

from protocol.canonical import from_hex0x, hex0x, keccak256
from protocol.errors import SignatureInvalid

DOMAIN_TYPE = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract,bytes32 salt)"
_SIGNATURE = re.compile("0x[0-9a-f]{130}")
HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0


@dataclass(frozen=True)
class SigningDomain:
    """Where a signature counts: one chain, one contract, one deployment.

    `salt` is drawn at deployment, because local chains redeploy to the same addresses.
    """

    chain_id: int
    contract: str
    salt: str

    @cached_property
    def separator(self) -> bytes:
        return keccak256(
            keccak256(DOMAIN_TYPE.encode())
            + keccak256(b"proofpool")
            + keccak256(b"1")
            + self.chain_id.to_bytes(32, "big")
            + from_hex0x(self.contract).rjust(32, b"\0")
            + from_hex0x(self.salt)
        )


class TypedMessage(BaseModel):
    """A frozen message with a fixed EIP-712 type; subclasses name it in `solidity_type`.

    Field order in the class is the order in the type; names are snake_case here and camelCase there.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    solidity_type: ClassVar[str]

    def struct_hash(self) -> bytes:
        """hashStruct of EIP-712."""
        members = self.solidity_type.partition("(")[2].rstrip(")").split(",")
        kinds = [member.split(" ")[0] for member in members]
        values = [getattr(self, name) for name in type(self).model_fields]
        words = [_encode_word(kind, value) for kind, value in zip(kinds, values, strict=True)]
        return keccak256(keccak256(self.solidity_type.encode()) + b"".join(words))

    def digest(self, domain: SigningDomain) -> bytes:
        """The 32 bytes that are signed, and the id of what is identified by its message."""
        return keccak256(b"\x19\x01" + domain.separator + self.struct_hash())

    def id(self, domain: SigningDomain) -> str:
        return hex0x(self.digest(domain))


def _encode_word(kind: str, value: object) -> bytes:
    if kind == "string" and isinstance(value, str):
        return keccak256(value.encode())
    if kind == "bytes32" and isinstance(value, str):
        return from_hex0x(value).rjust(32, b"\0")
    if kind == "address" and isinstance(value, str):
        return from_hex0x(value).rjust(32, b"\0")
    if isinstance(value, int):
        return int(value).to_bytes(32, "big")
    raise TypeError(f"no EIP-712 word for {kind} from {type(value).__name__}")


class Signer:
    """A private key in memory and what can be done with it; never printed, never written."""

    def __init__(self, secret: bytes) -> None:
        self._key = PrivateKey(secret)
        self.address = _address_of(self._key.public_key)

    def __repr__(self) -> str:
        return f"Signer({self.address})"

    def sign(self, message: TypedMessage, domain: SigningDomain) -> str:
        """0x-hex of r ‖ s ‖ v over the message's digest in this domain."""
        return self.sign_digest(message.digest(domain))

    def sign_digest(self, digest: bytes) -> str:
        """Sign 32 bytes that this process computed itself (a typed message, a transaction)."""
        raw = self._key.sign_recoverable(digest, hasher=None)
        return hex0x(raw[:64] + bytes([raw[64] + 27]))


def recover(digest: bytes, signature: str) -> str:
    """The address whose key signed `digest`. Raises SignatureInvalid for anything not canonical."""
    if _SIGNATURE.fullmatch(signature) is None:
        why = f"{len(signature)} characters from {signature[:20]!r}"
        raise SignatureInvalid("a signature isn't 65 bytes as lower-case 0x-hex", why)
    raw = from_hex0x(signature)
    if raw[64] not in (27, 28):
        raise SignatureInvalid("a signature must end in 27 or 28", f"{raw[64]}")
    if int.from_bytes(raw[32:64], "big") > HALF_ORDER:
        raise SignatureInvalid("a signature has a high s, which is malleable", "EIP-2")
    try:
        key = PublicKey.from_signature_and_message(raw[:64] + bytes([raw[64] - 27]), digest, hasher=None)
    except Exception as error:  # the library raises bare Exception for points off the curve
        raise SignatureInvalid("a signature recovers to no key", signature[:20]) from error
    return _address_of(key)


def check_signature(message: TypedMessage, signature: str, signer: str, domain: SigningDomain) -> None:
    """Raises SignatureInvalid unless `signer` signed `message` in `domain`."""
    found = recover(message.digest(domain), signature)
    if found != signer.lower():
        raise SignatureInvalid(f"{type(message).__name__} isn't signed by {signer}", f"the signature is by {found}")


def checksummed(address: str) -> str:
    """EIP-55 spelling, for display."""
    plain = address.lower().removeprefix("0x")
    mask = keccak256(plain.encode()).hex()
    return "0x" + "".join(c.upper() if int(m, 16) >= 8 else c for c, m in zip(plain, mask, strict=False))


def _address_of(key: PublicKey) -> str:
    return hex0x(keccak256(key.format(compressed=False)[1:])[12:])
