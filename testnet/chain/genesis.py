"""What a local chain starts with, on either node: its id, limits, and the development mnemonic's accounts.

In: how many accounts. Out: signers; number i is derived at m/44'/60'/0'/0/i. They are worth nothing on any other chain.
Source: BIP-39 (seed), BIP-32 (derivation), BIP-44 (path). Second implementation in the tests: eth_account.
"""

from __future__ import annotations

import hashlib
import hmac

from coincurve import PrivateKey

from protocol.signing import Signer

MNEMONIC = "test test test test test test test test test test test junk"
BALANCE_WEI = 1_000_000 * 10**18
"""Native balance of each account, for gas."""
CHAIN_ID = 31337
GAS_LIMIT = 100_000_000
"""Of a block."""
NUM_ACCOUNTS = 20

_HARDENED = 2**31
_PATH = (44 + _HARDENED, 60 + _HARDENED, _HARDENED, 0)
_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def dev_signers(num_accounts: int, mnemonic: str = MNEMONIC) -> tuple[Signer, ...]:
    """The first `num_accounts` accounts of a mnemonic."""
    return tuple(Signer(secret) for secret in dev_secrets(num_accounts, mnemonic))


def dev_secrets(num_accounts: int, mnemonic: str = MNEMONIC) -> tuple[bytes, ...]:
    """Their private keys, for keystores of a local run."""
    seed = hashlib.pbkdf2_hmac("sha512", mnemonic.encode(), b"mnemonic", 2048)
    root = hmac.digest(b"Bitcoin seed", seed, "sha512")
    key, chain_code = root[:32], root[32:]
    for number in _PATH:
        key, chain_code = _child(key, chain_code, number)
    return tuple(_child(key, chain_code, i)[0] for i in range(num_accounts))


def _child(key: bytes, chain_code: bytes, number: int) -> tuple[bytes, bytes]:
    """CKDpriv of BIP-32."""
    parent = b"\0" + key if number >= _HARDENED else PrivateKey(key).public_key.format(compressed=True)
    digest = hmac.digest(chain_code, parent + number.to_bytes(4, "big"), "sha512")
    child = (int.from_bytes(digest[:32], "big") + int.from_bytes(key, "big")) % _ORDER
    return child.to_bytes(32, "big"), digest[32:]
