"""Text to tokens and back: a thin typed wrapper over a model folder's `tokenizer.json`.

In: a model folder. Out: `Tokenizer` with encode, decode, the special ids from `config.json`, and a
hash that goes into `environment_hash`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from protocol.canonical import canonical_hash
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

TOKENIZER_FILE = "tokenizer.json"
TEMPLATE_FILE = "chat_template.jinja"
SETTINGS_FILE = "tokenizer_config.json"
MAX_TOKEN_ID = 2**24
"""Far past any vocabulary. The library walks from 0 to the largest id when it writes a vocabulary down."""


TokenId = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID, strict=True)]


class _SpecialIds(BaseModel):
    """The part of `config.json` that says which tokens end a text, or pad it."""

    model_config = ConfigDict(frozen=True)
    eos_token_id: TokenId | Annotated[tuple[TokenId, ...], Field(min_length=1)]
    bos_token_id: TokenId | None = None
    pad_token_id: TokenId | None = None


class Tokenizer:
    """Encodes and decodes with the model's own vocabulary.

    Example: `Tokenizer.load(folder).encode("7 + 8 =")`.
    """

    def __init__(
        self,
        backend: Backend,
        eos_ids: Sequence[int],
        bos_id: int | None,
        pad_id: int | None,
        chat_template: str | None = None,
    ) -> None:
        self._backend = backend
        self.chat_template = chat_template
        """The model's chat template (Jinja), None where its folder has none; see `protocol/chat_template.py`."""
        self.eos_ids = tuple(eos_ids)
        """Tokens that end a completion, the first being the one that training data ends with."""
        self.bos_id = bos_id
        self.pad_id = pad_id

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Reads `tokenizer.json` and the special ids of `config.json`; raises ConfigError where either is unusable."""
        from tokenizers import Tokenizer as Backend  # an auditor reads what others drew, and needs none

        path = folder / TOKENIZER_FILE
        try:
            definition = path.read_text(encoding="utf-8")
            _check_ids(from_json(definition))
            backend = Backend.from_str(definition)
            config = (folder / "config.json").read_bytes()
        except Exception as error:  # the tokenizers package raises bare Exception
            raise ConfigError(f"can't load the tokenizer in {folder}", str(error), "give a model folder") from error
        try:
            special = _SpecialIds.model_validate_json(config)
        except ValidationError as error:
            first = error.errors()[0]
            why = f"config.json, {first['loc'][0] if first['loc'] else 'as a whole'}: {first['msg']}"
            raise ConfigError(f"the model in {folder} names no end-of-sequence token, or no proper ids", why) from error
        eos = special.eos_token_id
        eos_ids = eos if isinstance(eos, tuple) else (eos,)
        return cls(backend, eos_ids, special.bos_token_id, special.pad_token_id, _chat_template(folder))

    @property
    def vocab_size(self) -> int:
        size: int = self._backend.get_vocab_size()
        return size

    def encode(self, text: str) -> list[int]:
        """Token ids of the text alone: no special token is added. Raises ConfigError where a token is lacking."""
        try:
            ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        except Exception as error:  # the tokenizers package raises bare Exception
            raise ConfigError("the tokenizer has no tokens for a text", f"{text[:40]!r}: {error}") from error
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Text without special tokens. Ids outside the vocabulary, negative ones included, decode to nothing."""
        vocab_size = self.vocab_size
        known = [token for token in tokens if 0 <= token < vocab_size]
        text: str = self._backend.decode(known, skip_special_tokens=True)
        return text

    def text_of(self, token: int) -> str:
        """What one token reads as, by itself; a special one has its name, an id outside the vocabulary no text."""
        if not 0 <= token < self.vocab_size:
            return ""
        text: str = self._backend.decode([token], skip_special_tokens=False)
        return text

    def name_of(self, token: int | None) -> str:
        """How a special token is spelt in a chat template; empty for None and for ids outside the vocabulary."""
        return "" if token is None else self._backend.id_to_token(token) or ""

    @property
    def tokenizer_hash(self) -> str:
        """Keccak-256 over the tokenizer's definition and the special ids, 0x-hex."""
        definition: str = self._backend.to_str()
        return canonical_hash(
            {"definition": definition, "eos_ids": list(self.eos_ids), "bos_id": self.bos_id, "pad_id": self.pad_id}
        )


def _chat_template(folder: Path) -> str | None:
    """From `chat_template.jinja`, else the setting of that name; raises ConfigError where the settings are no JSON.

    Of several named templates it is the one called `default`.
    """
    if (file := folder / TEMPLATE_FILE).is_file():
        return file.read_text(encoding="utf-8")
    if not (file := folder / SETTINGS_FILE).is_file():
        return None
    try:
        settings = from_json(file.read_bytes())
        template = settings.get("chat_template")
        if isinstance(template, list):
            template = {one["name"]: one["template"] for one in template}.get("default")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise ConfigError(f"{file} can't be read", str(error), "fetch the model's folder again") from error
    return template if isinstance(template, str) else None


def _check_ids(definition: Any) -> None:
    """Raises ValueError, or TypeError for another shape, where a token has an id that no vocabulary reaches."""
    vocabulary = definition["model"].get("vocab", {})
    ids = [*(vocabulary.values() if isinstance(vocabulary, dict) else ())]
    ids += [token["id"] for token in definition.get("added_tokens", ())]
    if any(not 0 <= token <= MAX_TOKEN_ID for token in ids):
        raise ValueError(f"a token id isn't within 0 to {MAX_TOKEN_ID}")
