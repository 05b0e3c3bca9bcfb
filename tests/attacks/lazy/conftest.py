"""A town with nobody in it yet, over the unit tests' coordinator and the tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest
import torch
from sqlalchemy import delete

from coordinator.db import chain as mirror
from coordinator.rules import remember_rules
from protocol.draw import BPS
from protocol.forward import CausalLM
from protocol.tokenizer import Tokenizer
from testnet.task import testnet_environment
from tests.attacks.lazy.town import Town
from tests.unit.coordinator.conftest import empty_database, make_site, portal, quiet_logs
from tests.unit.verifier.verifier_world import BASE_MODEL, World, make_rules

__all__ = ["empty_database", "portal", "quiet_logs"]


@pytest.fixture(scope="session")
def small_world() -> World:
    """The testnet's model; tasks of 2 groups of 4 rollouts."""
    torch.set_num_threads(1)
    environment = testnet_environment(Tokenizer.load(BASE_MODEL))
    rules = make_rules(environment, group_size=4, groups_per_task=2)
    return World(rules, environment, BASE_MODEL, CausalLM.load(BASE_MODEL).eval())


@pytest.fixture
def town(
    tmp_path: Path, empty_database: bytes, portal: anyio.from_thread.BlockingPortal, small_world: World
) -> Iterator[Town]:
    """Every settled submission is judged again."""
    site: Any = make_site(tmp_path / "coordinator", empty_database, portal)
    site.rules = small_world.rules
    with site.coordinator.writing() as session:
        remember_rules(session, small_world.rules)
        session.execute(delete(mirror.Seat))
    deployment = site.coordinator.deployment
    contracts = deployment.contracts.model_copy(update={"ledger": deployment.domain.contract})
    site.coordinator.deployment = replace(deployment, contracts=contracts)  # so that a bundle's ids can be recomputed
    site.pool(rules_hash=small_world.rules.rules_hash, reaudit_bps=BPS)
    made = Town(site, small_world, tmp_path)
    yield made
    for db in made.opened:
        db.close()
    site.coordinator.engine.dispose()
