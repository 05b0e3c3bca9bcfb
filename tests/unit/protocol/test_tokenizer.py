"""The tokenizer wrapper: round trips, unknown ids, and the hash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.errors import ConfigError
from protocol.tokenizer import Tokenizer
from testnet.base_model.vocabulary import EOS_ID, PAD_ID, make_tokenizer


def make_folder(folder: Path, **config: object) -> Path:
    folder.mkdir()
    make_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"eos_token_id": EOS_ID, "pad_token_id": PAD_ID, **config}))
    return folder


def test_a_folder_gives_the_tokenizer_and_its_special_ids(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(make_folder(tmp_path / "a", eos_token_id=[1, 2]))
    assert (tokenizer.eos_ids, tokenizer.bos_id, tokenizer.pad_id) == ((1, 2), None, PAD_ID)
    assert tokenizer.decode(tokenizer.encode("57+87=144;#144")) == "57+87=144;#144"


def test_special_and_unknown_ids_decode_to_nothing(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(make_folder(tmp_path / "a"))
    digit = tokenizer.encode("7")
    assert tokenizer.decode([EOS_ID, *digit, PAD_ID, 10**6, -1]) == "7"


def test_the_hash_covers_definition_and_special_ids(tmp_path: Path) -> None:
    same = [Tokenizer.load(make_folder(tmp_path / name)).tokenizer_hash for name in "ab"]
    other = Tokenizer.load(make_folder(tmp_path / "c", eos_token_id=2)).tokenizer_hash
    assert same[0] == same[1] != other


@pytest.mark.parametrize("config", [{"eos_token_id": None}, {"eos_token_id": "x"}])
def test_a_model_without_an_end_token_is_refused(tmp_path: Path, config: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="end-of-sequence"):
        Tokenizer.load(make_folder(tmp_path / "a", **config))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't load"):
        Tokenizer.load(tmp_path)
    folder = make_folder(tmp_path / "a")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="can't load"):
        Tokenizer.load(folder)


@pytest.mark.parametrize("token_id", [2**31 + 1, -1, "1", 1.5])
def test_ids_past_any_vocabulary_are_refused_at_once(tmp_path: Path, token_id: object) -> None:
    """The library walks up to the largest id."""
    folder = make_folder(tmp_path / "a")
    definition = json.loads((folder / "tokenizer.json").read_text())
    definition["model"]["vocab"]["7"] = token_id
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    with pytest.raises(ConfigError):
        Tokenizer.load(folder)


@pytest.mark.parametrize("eos", [None, [], True, "1", 1.0, -1, 2**53, [1, None]])
def test_a_model_without_a_proper_eos_is_refused(tmp_path: Path, eos: object) -> None:
    with pytest.raises(ConfigError, match="end-of-sequence"):
        Tokenizer.load(make_folder(tmp_path / "a", eos_token_id=eos))


def test_a_text_without_tokens_is_a_config_error(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "a")
    definition = json.loads((folder / "tokenizer.json").read_text())
    definition["model"]["unk_token"] = "nowhere"
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    with pytest.raises(ConfigError, match="no tokens"):
        Tokenizer.load(folder).encode("é")
