"""`proofpool trainer run --dry-run`: what a run would be, without a key, weights or a written byte.

In: the resolved configuration, a number of ranks. Out: `DryRun`: the configuration, what a rank's step takes of memory,
what the first versions take of disk, where the run would start, and what it would pull from the coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from protocol.client import CoordinatorClient
from protocol.errors import NotFound, Unreachable
from protocol.plain import plain
from protocol.rules import Rules
from protocol.weights import ModelConfig
from trainer.checkpoint import CheckpointStore
from trainer.config import TrainerConfig
from trainer.machine import hindrances, rules_hindrances
from trainer.memory import MemoryEstimate, estimate_memory, size_text

ASK_SECONDS = 5.0


class Pull(BaseModel):
    """What the coordinator would be asked for: rollouts of a step, under these rules."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    reached: bool
    why: str
    """What it answered where it couldn't be reached, else empty."""
    policy_version: int | None = None
    """The pool's newest; None before version 0."""
    num_pending_groups: int | None = None
    """Accepted and not yet in a batch."""
    max_async: int | None = None
    rules_hash: str | None = None
    group_size: int | None = None
    max_new_tokens: int | None = None
    is_paused: bool | None = None


class DryRun(BaseModel):
    """What `proofpool trainer run --dry-run --json` prints."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    config: dict[str, Any]
    """As it was resolved: defaults < TOML < environment < flags."""
    memory: MemoryEstimate
    """Of each rank."""
    host_bytes: int
    """Of a rank, all parts of `memory` there together."""
    gpu_bytes: int
    checkpoint_bytes: int
    """Of one checkpoint on disk, without its batch; `keep_checkpoints` of them stay."""
    version_bytes: int
    """Of what is published for each policy version."""
    starts_from: int | None
    """Policy version of the checkpoint that the run goes on from; None for the base model."""
    next_step: int
    oldest_version: int | None
    """Rollouts of older policy versions wouldn't be used; None where the coordinator didn't say."""
    pull: Pull
    warnings: tuple[str, ...]
    """What would go wrong, or slowly."""


def dry_run(config: TrainerConfig, num_ranks: int) -> DryRun:
    """Raises ConfigError for a model that can't be trained, another pool, or a start that isn't there."""
    model = ModelConfig.load(config.base_model)
    memory = estimate_memory(model, config.recipe, config.scale, num_ranks, config.evaluation)
    start = CheckpointStore(config.data_dir / "checkpoints").peek(config.resume)
    pull, rules = _pull(config)
    next_step = 1 if start is None else start + 1
    return DryRun(
        config=config.model_dump(mode="json"),
        memory=memory,
        host_bytes=memory.total("host"),
        gpu_bytes=memory.total("gpu"),
        checkpoint_bytes=12 * memory.num_trained + 2 * memory.num_parameters,
        version_bytes=2 * memory.num_parameters,
        starts_from=start,
        next_step=next_step,
        oldest_version=None if pull.max_async is None else max(0, next_step - 1 - pull.max_async),
        pull=pull,
        warnings=(
            *_warnings(config, model, pull, next_step),
            *hindrances(config, model),
            *(() if rules is None else rules_hindrances(config, rules)),
        ),
    )


def _pull(config: TrainerConfig) -> tuple[Pull, Rules | None]:
    """With the rules where they are known. Asked without a key: all of it is public."""
    try:
        with closing(CoordinatorClient(config.coordinator_url, timeout_seconds=ASK_SECONDS)) as client:
            pool = client.configured_pool(config.pool_id, config.ledger)
            rules, status = client.rules(pool.rules_hash), client.status()
    except (Unreachable, NotFound) as error:
        return Pull(reached=False, why=f"{error.what}: {error.why}"), None
    found = Pull(
        reached=True,
        why="",
        policy_version=pool.policy_version,
        num_pending_groups=status.num_pending_groups,
        max_async=pool.max_async,
        rules_hash=pool.rules_hash,
        group_size=rules.group_size,
        max_new_tokens=rules.sampling.max_new_tokens,
        is_paused=pool.paused,
    )
    return found, rules


def _warnings(config: TrainerConfig, model: ModelConfig, pull: Pull, next_step: int) -> Iterator[str]:
    longest = pull.max_new_tokens
    if longest is not None and longest > config.recipe.max_tokens:
        yield (
            f"completions of up to {longest} tokens get a bin to themselves, past recipe.max_tokens = "
            f"{config.recipe.max_tokens}: they take more memory than estimated"
        )
    if longest is not None and longest > model.max_position_embeddings:
        yield (
            f"the rules allow completions of {longest} tokens, the model has {model.max_position_embeddings} positions"
        )
    if pull.is_paused:
        yield "the pool is paused: nothing is leased, and no batch will come"
    if pull.policy_version is not None and pull.policy_version >= next_step:
        yield (
            f"the pool has policy version {pull.policy_version} already: each is published once, and this data_dir "
            f"would make version {next_step} anew; use the data_dir of that run"
        )


def lines(found: DryRun) -> Iterator[str]:
    """For people."""
    yield "configuration:"
    yield from (f"  {name} = {value}" for name, value in _flat(found.config))
    memory = found.memory
    trained = "" if memory.num_trained == memory.num_parameters else f", {memory.num_trained:,} trained"
    ranks = "1 rank" if memory.num_ranks == 1 else f"each of {memory.num_ranks} ranks"
    yield f"memory of {ranks}: {memory.num_parameters:,} parameters{trained}"
    for part in memory.parts:
        yield f"  {part.place:<5}{size_text(part.num_bytes):>10}  {part.name}: {part.why}"
    if found.gpu_bytes:
        yield f"  gpu  {size_text(found.gpu_bytes):>10}  in all, without CUDA's own and gaps between blocks"
    yield f"  host {size_text(found.host_bytes):>10}  in all"
    disk = size_text(found.checkpoint_bytes)
    yield f"disk: {disk} a checkpoint, of which {size_text(found.version_bytes)} are published"
    where = "the base model" if found.starts_from is None else f"the checkpoint of version {found.starts_from}"
    yield f"start: from {where}; the next step makes version {found.next_step}"
    yield f"pull: {plain(_pull_line(found))}"
    yield from (f"warning: {plain(warning)}" for warning in found.warnings)


def _pull_line(found: DryRun) -> str:
    pull = found.pull
    if not pull.reached:
        return f"unknown, the coordinator can't be asked ({pull.why})"
    return (
        f"groups of {pull.group_size} rollouts of up to {pull.max_new_tokens} tokens, policy version "
        f"{found.oldest_version} or newer (max_async {pull.max_async}), rules {pull.rules_hash}; "
        f"{pull.num_pending_groups} accepted groups wait; the pool's newest version is "
        f"{'none yet' if pull.policy_version is None else pull.policy_version}"
    )


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
