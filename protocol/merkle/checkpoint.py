"""A checkpoint: the log's size and root, signed by the log's own key, for whoever wants to remember it.

In: an origin, a size, a root. Out: the text of a signed note; or, of a note, the checkpoint once the log's key has
signed it. The key is in the pool's record on chain (`checkpointKey`) and never changes: two checkpoints that it signed
and that aren't of one history prove that somebody rewrote it, whatever the chain says.

    proofpool/31337/0xe7f1…0512/1          origin: chain id, Ledger, pool
    4711                                   leaves
    bZ1F…=                                 root (RFC 9162), base64

    — proofpool/31337/0xe7f1…0512/1 a1b2…  Ed25519

Source: C2SP tlog-checkpoint, signed-note. Vectors: tests/unit/protocol/merkle/test_checkpoint.py.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.canonical import MAX_SAFE_INTEGER, from_hex0x, hex0x
from protocol.errors import VerificationFailed
from protocol.merkle.note import KeyType, NoteKey, NoteSignature, NoteSigner, open_note, split_note


@dataclass(frozen=True)
class Checkpoint:
    """After `size` leaves the log called `origin` has this root."""

    origin: str
    size: int
    root: str

    @property
    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{base64.b64encode(from_hex0x(self.root)).decode()}\n"

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Lines past the third are somebody's extensions, and passed over. Raises VerificationFailed."""
        lines = text.split("\n")
        if len(lines) < 4 or not lines[0] or not re.fullmatch("0|[1-9][0-9]{0,15}", lines[1]):
            raise VerificationFailed("that is no checkpoint", f"{lines[:2]}", "origin, size and root are a line each")
        size = int(lines[1])
        try:
            root = base64.b64decode(lines[2], validate=True)
        except (binascii.Error, ValueError):
            root = b""
        if size > MAX_SAFE_INTEGER or len(root) != 32 or base64.b64encode(root).decode() != lines[2]:
            raise VerificationFailed("that is no checkpoint", f"size {size}, root {lines[2][:100]!r}")
        return cls(lines[0], size, hex0x(root))


@dataclass(frozen=True)
class SignedCheckpoint:
    """A checkpoint that the log's key has signed, and which witnesses that are known saw it when."""

    checkpoint: Checkpoint
    note: str
    witnesses: tuple[NoteSignature, ...] = ()


def origin_of(chain_id: int, ledger: str, pool_id: int) -> str:
    """A pool's log has one name in the world; it is also its key's."""
    return f"proofpool/{chain_id}/{ledger}/{pool_id}"


def sign_checkpoint(signer: NoteSigner, size: int, root: str) -> str:
    """The signed note."""
    return signer.sign(Checkpoint(signer.key.name, size, root).text)


def open_checkpoint(note: str, log_key: NoteKey, witnesses: Sequence[NoteKey] = ()) -> SignedCheckpoint:
    """Raises VerificationFailed where it isn't of this log, or not signed by its key."""
    text, signatures = open_note(note, [log_key, *witnesses])
    checkpoint = Checkpoint.parse(text)
    if checkpoint.origin != log_key.name:
        raise VerificationFailed("the checkpoint is of another log", f"{checkpoint.origin}, not {log_key.name}")
    if not any(signature.key == log_key for signature in signatures):
        names = sorted({name for name, _ in split_note(note)[1]})
        raise VerificationFailed("the log's key hasn't signed this checkpoint", f"signed by {', '.join(names)[:200]}")
    seen = tuple(signature for signature in signatures if signature.key.type is KeyType.COSIGNATURE)
    return SignedCheckpoint(checkpoint, note, seen)
