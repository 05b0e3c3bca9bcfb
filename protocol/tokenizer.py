"""Text to tokens and back: a thin typed wrapper over a model folder's `tokenizer.json`.

In: a model folder. Out: `Tokenizer` with encode, decode, the special ids from `config.json`, and a
hash that goes into `environment_hash`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer as Backend

from protocol.canonical import canonical_hash
from protocol.errors import ConfigError

TOKENIZER_FILE = "tokenizer.json"


class Tokenizer:
    """Encodes and decodes with the model's own vocabulary.

    Example: `Tokenizer.load(folder).encode("7 + 8 =")`.
    """

    def __init__(self, backend: Backend, eos_ids: Sequence[int], bos_id: int | None, pad_id: int | None) -> None:
        self._backend = backend
        self.eos_ids = tuple(eos_ids)
        """Tokens that end a completion, the first being the one that training data ends with."""
        self.bos_id = bos_id
        self.pad_id = pad_id

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Reads `tokenizer.json` and the special ids of `config.json`; raises ConfigError where either is unusable."""
        path = folder / TOKENIZER_FILE
        try:
            backend = Backend.from_str(path.read_text(encoding="utf-8"))
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except Exception as error:  # the tokenizers package raises bare Exception
            raise ConfigError(f"can't load the tokenizer in {folder}", str(error), "give a model folder") from error
        eos = config.get("eos_token_id")
        eos_ids = eos if isinstance(eos, list) else [eos]
        if not all(isinstance(token, int) for token in eos_ids):
            raise ConfigError(f"the model in {folder} names no end-of-sequence token", f"eos_token_id is {eos!r}")
        return cls(backend, eos_ids, config.get("bos_token_id"), config.get("pad_token_id"))

    @property
    def vocab_size(self) -> int:
        size: int = self._backend.get_vocab_size()
        return size

    def encode(self, text: str) -> list[int]:
        """Token ids of the text alone: no special token is added."""
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Text without special tokens. Ids outside the vocabulary, negative ones included, decode to nothing."""
        known = [token for token in tokens if 0 <= token < self.vocab_size]
        text: str = self._backend.decode(known, skip_special_tokens=True)
        return text

    def text_of(self, token: int) -> str:
        """What one token reads as, by itself; a special one has its name, an id outside the vocabulary no text."""
        if not 0 <= token < self.vocab_size:
            return ""
        text: str = self._backend.decode([token], skip_special_tokens=False)
        return text

    @property
    def tokenizer_hash(self) -> str:
        """Keccak-256 over the tokenizer's definition and the special ids, 0x-hex."""
        definition: str = self._backend.to_str()
        return canonical_hash(
            {"definition": definition, "eos_ids": list(self.eos_ids), "bos_id": self.bos_id, "pad_id": self.pad_id}
        )
