"""What a run needs of this machine: its GPU and libraries, files that it reads, the address that it listens on.

In: the configuration. Out: a line for each thing that a run would end with. Nothing is loaded, kept or written; a dry
run may be for another machine, so these are warnings there and errors only when it comes to the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import torch

from protocol.chain.deployment import named_deployment
from protocol.engines.vllm.library import require_installed
from protocol.environments.registry import environment_names, environment_of
from protocol.errors import ConfigError, ProofpoolError
from protocol.listen_address import why_not_free
from protocol.rules import Rules
from protocol.tokenizer import Tokenizer
from protocol.weights import ModelConfig
from protocol.weights_file import WeightsFile
from trainer.checkpoint import CheckpointStore
from trainer.config import TrainerConfig
from trainer.trackers import LIBRARIES


def hindrances(config: TrainerConfig, model: ModelConfig) -> Iterator[str]:
    """Each in a line, with what is to be done."""
    if not config.keystore.is_file():
        yield f"there is no keystore at {config.keystore}: make or import one (`proofpool key`), or set `keystore`"
    if config.password_file is not None and not config.password_file.is_file():
        yield f"there is no password file at {config.password_file}"
    yield from _of(lambda: named_deployment(config.deployment, config.ledger))
    yield from _of(lambda: check_pool(CheckpointStore(config.data_dir / "checkpoints"), config.pool_id))
    yield from _of_model(config, model)
    if config.metrics_address is not None and (why := why_not_free(config.metrics_address)):
        yield f"metrics_address {config.metrics_address} can't be listened on now ({why}): set it to a free one"
    if config.tracker is not None and find_spec(LIBRARIES[config.tracker]) is None:
        yield f"the tracker {config.tracker} isn't installed: pip install 'proofpool[{config.tracker}]'"
    if config.scale.device == "cuda" and not torch.cuda.is_available():
        yield f"torch {torch.__version__} sees no GPU here, and scale.device is cuda"
    if config.evaluation.evaluate_every and config.evaluation.engine == "vllm":
        yield from _of(require_installed)


def rules_hindrances(config: TrainerConfig, rules: Rules) -> Iterator[str]:
    """The same of what the pool's rules name: an environment (its hash covers the tokenizer) and held-back problems."""
    tokenizer = Tokenizer.load(config.base_model)
    if config.evaluation.evaluate_every:
        yield from _of(lambda: environment_of(rules.environment, tokenizer).held_back(config.evaluation.num_held_back))
    elif rules.environment.name in environment_names():  # a trainer can do without it, workers can't
        yield from _of(lambda: environment_of(rules.environment, tokenizer))


def check_tokenizer(base: Path, model: ModelConfig) -> None:
    """Before anything is published, since that is for good: each version carries the base model's tokenizer to workers.

    Raises ConfigError where there is none that can be used, or it has tokens that the model hasn't got.
    """
    tokenizer = Tokenizer.load(base)
    largest = max(tokenizer.vocab_size - 1, *tokenizer.eos_ids)
    if largest >= model.vocab_size:
        raise ConfigError(
            "the base model's tokenizer is another model's",
            f"{base}: it has token {largest}, the model has tokens 0 to {model.vocab_size - 1}",
            "put the tokenizer.json of this very model there: workers get it with each version",
        )


def check_pool(store: CheckpointStore, pool_id: int) -> None:
    """Before a batch is acknowledged or a version published: each pool has its own. Raises ConfigError."""
    newest = store.newest()
    if newest is not None and newest.pool_id not in (None, pool_id):
        raise ConfigError(
            "this data folder is another pool's",
            f"{newest.folder}: trained for pool {newest.pool_id}, pool_id is {pool_id}",
            "set pool_id as it was, or give this pool a data_dir and an origin_dir of its own",
        )


def _of_model(config: TrainerConfig, model: ModelConfig) -> Iterator[str]:
    def look() -> None:
        with WeightsFile(config.base_model, model) as weights:
            weights.check()

    yield from _of(look)
    yield from _of(lambda: check_tokenizer(config.base_model, model))


def _of(look: Callable[[], object]) -> Iterator[str]:
    """What `look` ends with: of any kind, a run would end with the same."""
    try:
        look()
    except ProofpoolError as error:
        yield str(error).replace(" | ", ": ", 1).replace(" | ", "; ")
