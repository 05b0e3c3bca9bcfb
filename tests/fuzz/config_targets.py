"""Targets: files of a role's own folder (TOML, keystores), and of a model's (config, tokenizer, weights).

A model comes from whoever serves weights, so its files are as hostile as any message until their hash is known.
"""

from __future__ import annotations

import atexit
import json
import tempfile
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from coordinator.config import CoordinatorConfig
from protocol.chain.contracts import NAMES
from protocol.chain.deployment import read_deployment, write_deployment
from protocol.config import RoleConfig, load_config
from protocol.errors import ConfigError, KeyFailure, MalformedFile, NotCanonical
from protocol.keystore import CHEAP_SCRYPT_N, create_keystore, open_keystore
from protocol.rules import Rules
from protocol.tokenizer import TOKENIZER_FILE, Tokenizer
from protocol.weights import CONFIG_FILE, ModelConfig, check_weights, load_weights
from protocol.weights_parts import WEIGHTS_FILE
from testnet.task import testnet_environment
from tests.fuzz.target import Target
from tests.unit.verifier.verifier_world import BASE_MODEL, make_rules
from trainer.config import TrainerConfig
from verifier.config import VerifierConfig
from worker.config import WorkerConfig

_ROLES: tuple[tuple[str, type[RoleConfig]], ...] = (
    ("worker", WorkerConfig),
    ("coordinator", CoordinatorConfig),
    ("verifier", VerifierConfig),
    ("trainer", TrainerConfig),
)
PASSWORD = "a"


@cache
def scratch() -> Path:
    """A folder for the file at hand."""
    folder = tempfile.TemporaryDirectory(prefix="proofpool-fuzz-files-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def _written(name: str, data: bytes, mode: int = 0o600) -> Path:
    path = scratch() / name
    path.write_bytes(data)
    path.chmod(mode)
    return path


def read_settings(data: bytes) -> None:
    """Each role's configuration, and the rules of a pool."""
    path = _written("settings.toml", data)
    for role, shape in _ROLES:
        try:
            config = load_config(shape, role, path, {})
        except ConfigError as error:
            assert error.why or error.todo
        else:
            assert shape.model_validate_json(config.model_dump_json()) == config


def _settings_seeds() -> list[bytes]:
    common = b'coordinator_url = "http://a"\nchain_url = "http://b"\npool_id = 1\n'
    files = b'keystore = "k"\npassword_file = "p"\ndata_dir = "d"\nledger = "0x' + b"11" * 20 + b'"\n'
    trainer = b'base_model = "m"\norigin_dir = "o"\n[recipe]\nlearning_rate = 1e-3\n'
    return [common + files, files + common[28:] + b'public_hosts = ["a"]\n', common + files + trainer]


def read_deployment_file(data: bytes) -> None:
    """Contracts that can be named, and written as they were read."""
    found = read_deployment(_written("deployment.json", data))
    assert found.ledger == found.addresses.ledger
    write_deployment(scratch() / "again.json", found)
    assert read_deployment(scratch() / "again.json") == found


def _deployment_seeds() -> list[bytes]:
    contract = {"address": "0x" + "11" * 20, "code_hash": "0x" + "22" * 32}
    deployment = {"schema_version": 1, "chain_id": 31337, "block": 7, "salt": "0x" + "33" * 32}
    return [json.dumps(deployment | {"contracts": dict.fromkeys(NAMES, contract)}).encode()]


def open_key(data: bytes) -> None:
    open_keystore(_written("key.json", data), PASSWORD)


def _key_seeds() -> list[bytes]:
    path = scratch() / "seed.json"
    path.unlink(missing_ok=True)
    create_keystore(path, PASSWORD, secret=bytes(31) + b"\1", scrypt_n=CHEAP_SCRYPT_N)
    scrypt = json.loads(path.read_bytes())
    pbkdf2 = json.loads(path.read_bytes())
    pbkdf2["crypto"] |= {
        "kdf": "pbkdf2",
        "kdfparams": {"c": 2, "dklen": 32, "prf": "hmac-sha256", "salt": "00" * 16},
    }
    return [json.dumps(scrypt).encode(), json.dumps(pbkdf2).encode()]


def read_model_config(data: bytes) -> None:
    """A model's config names tensors, and goes into a file that reads the same."""
    folder = _written(CONFIG_FILE, data).parent
    config = ModelConfig.load(folder)
    assert len(config.weight_shapes()) >= 2
    _written(CONFIG_FILE, json.dumps(config.as_hugging_face()).encode())
    assert ModelConfig.load(folder) == config


def read_tokenizer(data: bytes) -> None:
    folder = _written(TOKENIZER_FILE, data).parent
    _written(CONFIG_FILE, b'{"eos_token_id": 1, "bos_token_id": null}')
    _use_tokenizer(Tokenizer.load(folder))


def read_special_ids(data: bytes) -> None:
    """The tokenizer's part of a model's config."""
    folder = _written(CONFIG_FILE, data).parent
    _written(TOKENIZER_FILE, (BASE_MODEL / TOKENIZER_FILE).read_bytes())
    _use_tokenizer(Tokenizer.load(folder))


def _use_tokenizer(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("12 + 3 = #15\n")
    tokenizer.decode([*tokens, -1, 0, 2**31 - 1, *tokenizer.eos_ids])
    assert len(tokenizer.tokenizer_hash) == 66


def read_weights(data: bytes) -> None:
    check_weights(_model_config(), load_weights(_written(WEIGHTS_FILE, data)))


@cache
def _model_config() -> ModelConfig:
    document = json.loads((BASE_MODEL / CONFIG_FILE).read_bytes())
    return ModelConfig.model_validate(
        document
        | {"vocab_size": 3, "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1}
        | {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2}
    )


def _weights_seeds() -> list[bytes]:
    import torch
    from safetensors.torch import save

    shapes = _model_config().weight_shapes()
    return [save({name: torch.zeros(shape, dtype=dtype) for name, shape in shapes.items()}) for dtype in _dtypes()]


def _dtypes() -> list:  # type: ignore[type-arg]
    import torch

    return [torch.bfloat16, torch.float32, torch.int8]


def _model_config_seeds() -> list[bytes]:
    base = json.loads((BASE_MODEL / CONFIG_FILE).read_bytes())
    rope = base | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "model_type": "qwen2"}
    return [json.dumps(document).encode() for document in (base, rope)]


def _rules_seeds() -> list[bytes]:
    return [make_rules(testnet_environment(Tokenizer.load(BASE_MODEL))).model_dump_json().encode()]


def read_rules(data: bytes) -> None:
    """A pool's rules have a hash, or are refused."""
    rules = Rules.model_validate_json(data)
    assert len(rules.rules_hash) == 66 and rules.max_units >= 1


CONFIG_TARGETS = (
    Target("settings", read_settings, (), _settings_seeds),
    Target("deployment", read_deployment_file, (ConfigError,), _deployment_seeds, is_json=True),
    Target("keystore", open_key, (KeyFailure,), _key_seeds, is_json=True, max_seconds=20.0),
    Target("model_config", read_model_config, (ConfigError,), _model_config_seeds, is_json=True),
    Target("special_ids", read_special_ids, (ConfigError,), _model_config_seeds, is_json=True),
    Target(
        "tokenizer",
        read_tokenizer,
        (ConfigError,),
        lambda: [(BASE_MODEL / TOKENIZER_FILE).read_bytes()],
        is_json=True,
    ),
    Target("pool_rules", read_rules, (ValidationError, NotCanonical), _rules_seeds, is_json=True),
    Target("weights", read_weights, (MalformedFile,), _weights_seeds),
)
