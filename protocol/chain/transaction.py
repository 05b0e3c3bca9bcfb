"""EIP-1559 transactions: encoded, signed, named by their hash.

In: the fields and a `Signer`. Out: the raw bytes for `eth_sendRawTransaction` and the transaction's hash, both
0x-hex. Source: EIP-1559, EIP-2718. Second implementation in the tests: eth_account.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import rlp

from protocol.canonical import from_hex0x, hex0x, keccak256
from protocol.errors import UsageError
from protocol.signing import Signer

DYNAMIC_FEE_TYPE = b"\x02"


@dataclass(frozen=True)
class Transaction:
    """What is signed. `to` is None for a deployment; fees are in wei per gas."""

    chain_id: int
    nonce: int
    max_priority_fee_wei: int
    max_fee_wei: int
    gas_limit: int
    to: str | None
    value_wei: int = 0
    data: bytes = b""

    def numbered(self, nonce: int, gas_limit: int) -> Transaction:
        """The same call with its place and its gas."""
        return replace(self, nonce=nonce, gas_limit=gas_limit)

    def sign(self, signer: Signer) -> SignedTransaction:
        signature = from_hex0x(signer.sign_digest(keccak256(DYNAMIC_FEE_TYPE + rlp.encode(self._fields()))))
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
        raw = DYNAMIC_FEE_TYPE + rlp.encode([*self._fields(), signature[64] - 27, r, s])
        return SignedTransaction(self, signer.address, hex0x(raw), hex0x(keccak256(raw)))

    @classmethod
    def parse(cls, raw: bytes) -> Transaction:
        """What a raw signed transaction of ours says. Raises UsageError for any other bytes."""
        try:
            if raw[:1] != DYNAMIC_FEE_TYPE:
                raise UsageError("not an EIP-1559 transaction", f"type {raw[:1].hex() or 'missing'}")
            *numbers, to, value, data, _, _, _, _ = rlp.decode(raw[1:], strict=True)
            chain_id, nonce, tip, fee, gas = (int.from_bytes(number, "big") for number in numbers)
        except (rlp.DecodingError, ValueError, TypeError) as error:
            raise UsageError("not a signed transaction", str(error)[:100]) from error
        return cls(chain_id, nonce, tip, fee, gas, hex0x(to) if to else None, int.from_bytes(value, "big"), data)

    def _fields(self) -> list[object]:
        return [
            self.chain_id,
            self.nonce,
            self.max_priority_fee_wei,
            self.max_fee_wei,
            self.gas_limit,
            from_hex0x(self.to or ""),
            self.value_wei,
            self.data,
            [],  # access list
        ]


@dataclass(frozen=True)
class SignedTransaction:
    """Ready to be sent, as often as needed: the same bytes are the same transaction."""

    transaction: Transaction
    sender: str
    raw: str
    transaction_hash: str

    @classmethod
    def parse(cls, raw: bytes, sender: str) -> SignedTransaction:
        """What was stored of a transaction that `sender` has signed. Raises UsageError for any other bytes."""
        return cls(Transaction.parse(raw), sender, hex0x(raw), hex0x(keccak256(raw)))
