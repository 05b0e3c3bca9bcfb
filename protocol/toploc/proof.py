"""One proof as a polynomial, with names and lenient reading as in the published library.

In: points, bytes or base64. Out: `ProofPoly`. For what strangers send use `encoding.parse_proofs`:
here extra coefficients, coefficients past the prime, any modulus and broken base64 are let through.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from protocol.toploc.activations import Activations
from protocol.toploc.field import PRIME, interpolate, to_field
from protocol.toploc.modulus import Indices, injective_moduli

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_SEXTETS = bytes(_ALPHABET.index(c) if c in _ALPHABET else 255 for c in range(256))
_INTEGERS = {"int32", "int64", "uint32"}


@dataclass(repr=False)
class ProofPoly:
    """`coeffs` ascending, `modulus` by which indices are reduced before they are looked up.

    Example: `ProofPoly.from_points([1, 2], [4, 6])(2) == 6`.
    """

    coeffs: list[int] = field(default_factory=list)
    modulus: int = 0

    def __call__(self, x: int) -> int:
        """The value at x, which isn't reduced by `modulus`: pass `x % poly.modulus`."""
        value = 0
        for coefficient in reversed(self.coeffs):
            value = (value * x + coefficient) % PRIME
        return value

    def __len__(self) -> int:
        return len(self.coeffs)

    def __repr__(self) -> str:
        return f"ProofPoly[{self.modulus}]({self.coeffs})"

    @classmethod
    def null(cls, length: int) -> ProofPoly:
        """Modulus and coefficients 0: what the published library writes after an error. Never valid."""
        return cls([0] * length, 0)

    @classmethod
    def from_points(cls, x: Sequence[int], y: Sequence[int]) -> ProofPoly:
        """The polynomial of degree < len(x) through (x mod m, y mod 65497).

        Raises ValueError for no points, lists of different length, or an x that is there twice.
        """
        if not len(x) == len(y) > 0:
            raise ValueError(f"{len(x)} x and {len(y)} y don't make points")
        # Indices are 32-bit integers in the published library; larger ones wrap around.
        indices: Indices = np.asarray(x, dtype=np.int64).astype(np.int32).astype(np.int64)[None]
        modulus = injective_moduli(indices)
        coefficients = interpolate(to_field(np.fmod(indices, modulus[:, None])), to_field(y)[None])
        return cls([int(c) for c in coefficients[0]], int(modulus[0]))

    @classmethod
    def from_points_tensor(cls, x: Activations, y: Activations) -> ProofPoly:
        """As `from_points`; y may also be a bf16 or fp16 tensor, of which the bit patterns count."""
        return cls.from_points(_integers(x), _integers(y))

    @classmethod
    def from_bytes(cls, data: bytes) -> ProofPoly:
        """Any big-endian uint16 words; an odd byte at the end is dropped. ValueError below 2 bytes."""
        words = read_words(data).tolist()
        return cls(words[1:], words[0])

    @classmethod
    def from_base64(cls, text: str) -> ProofPoly:
        """Stops at the first "="; unknown characters count as 255, missing padding and spare bits as nothing."""
        sextets = text.split("=", 1)[0].encode("utf-8").translate(_SEXTETS)
        out = bytearray()
        for start in range(0, len(sextets), 4):
            quad = sextets[start : start + 4]
            word = 0
            for place, sextet in enumerate(quad):
                word |= sextet << (18 - 6 * place)
            out += (word & 0xFFFFFF).to_bytes(3, "big")[: len(quad) * 6 // 8]
        return cls.from_bytes(bytes(out))

    def to_bytes(self) -> bytes:
        """Big-endian uint16 modulus and coefficients. OverflowError for what doesn't fit."""
        return b"".join(int(word).to_bytes(2, "big") for word in [self.modulus, *self.coeffs])

    def to_base64(self) -> str:
        return base64.b64encode(self.to_bytes()).decode()


def read_words(data: bytes) -> npt.NDArray[np.uint16]:
    """The uint16 words of a proof, [1 + n], read as `ProofPoly.from_bytes` does."""
    if len(data) < 2:
        raise ValueError("Data too short")
    return np.frombuffer(data, dtype=">u2", count=len(data) // 2)


def _integers(values: Activations) -> list[int]:
    kind = str(values.dtype).removeprefix("torch.")
    if kind in _INTEGERS:
        return [int(v) for v in values.reshape(-1).tolist()]
    if kind in ("bfloat16", "float16"):
        from protocol.toploc.activations import bit_patterns

        return [int(v) for v in bit_patterns(values)[0].reshape(-1)]
    raise ValueError(f"{kind} has neither integers nor 16-bit patterns")
