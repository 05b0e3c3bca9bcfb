"""An accused provider appeals on a real chain, by the command; whoever can't is told why before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.chain.cases import CaseState
from protocol.chain.lane import Lane
from protocol.chain.pool import ChainPool
from protocol.clock import SystemClock
from protocol.errors import NotEligible
from protocol.reasons import Outcome, RejectReason
from protocol.signing import Signer
from tests.integration.conftest import CREDIT, SETTLING, World
from tests.integration.test_audit import accuse
from tests.integration.test_promise_commands import (
    NODE,
    NOWHERE,
    PROVIDER,
    Command,
    Keys,
    call,
    document,
    keys,
    refusal,
)
from worker.appeal import Appeal, object_to

__all__ = ["call", "keys"]


def accused(world: World) -> str:
    """A submission that two seats accuse; its provider has twice the appeal bond."""
    world.send(world.provider, "credits", "faucet", 2 * CREDIT)
    submission_id = world.submit()
    world.judge(submission_id, Outcome.SLASH, RejectReason.WRONG_PROMPTS)
    accuse(world, submission_id)
    return submission_id


def appealed(world: World, submission_id: str, sender: Signer) -> Appeal:
    lane = Lane(world.contracts.client, sender, SystemClock())
    return object_to(world.contracts, lane, world.pool_id, submission_id)


def case_state(world: World, submission_id: str) -> CaseState:
    return ChainPool(world.contracts, world.pool_id).case_of(submission_id).state


def test_a_provider_appeals_once_with_its_own_key(world: World, keys: Keys, call: Command, tmp_path: Path) -> None:
    submission_id = accused(world)
    config = keys.config("worker", NODE, tmp_path / "data", coordinator_url=NOWHERE)
    (tmp_path / "data").mkdir()
    command = ("provider", "appeal", submission_id, "--config", config)
    assert refusal(call(*command)) == (6, ["error", "why", "do"]), "the node's key isn't its provider's"
    assert refusal(call(*command, "--dry-run")) == (6, ["error", "why", "do"])
    shown = (*command, "--keystore", str(keys.keystore(PROVIDER)), "--dry-run")
    command = (*command, "--keystore", str(keys.keystore(PROVIDER)), "--password-file", str(tmp_path / "password"))
    before = world.read("credits", "balanceOf", world.provider.address)
    would = document(call(*shown, "--json"))
    assert [one["function"] for one in would["transactions"]] == ["approve", "appeal"]
    (change,) = would["changes"]
    assert int(change["before_wei"]) - int(change["after_wei"]) == CREDIT and int(change["before_wei"]) == before
    assert case_state(world, submission_id) is CaseState.ACCUSED
    found = document(call(*command, "--json"))
    assert (found["sent"], found["bond_wei"], found["appellant"]) == (True, str(CREDIT), world.provider.address)
    assert found["jury_deadline"] > 0 and case_state(world, submission_id) is CaseState.APPEALED
    code, _, err = call(*command[:-3], "nobodys-key", *command[-2:])
    assert code == 4 and "no such key" in err, "a key's name will do, where there is one"
    code, out, _ = call(*command)
    assert code == 0 and out.startswith("appealed before: a bond of 1 credits")
    assert before - world.read("credits", "balanceOf", world.provider.address) == CREDIT
    code, out, _ = call(*shown)
    assert code == 0 and "would send no transaction" in out and "appealed before: a jury decides by" in out
    assert refusal(call("provider", "appeal", "0x12", "--config", config)) == (2, ["error", "why", "do"])


def test_what_nobody_accused_cannot_be_appealed(world: World) -> None:
    submission_id = world.submit()
    with pytest.raises(NotEligible, match="nothing to appeal"):
        appealed(world, submission_id, world.provider)


def test_only_who_is_accused_appeals(world: World) -> None:
    submission_id = accused(world)
    with pytest.raises(NotEligible, match="only who is accused") as refused:
        appealed(world, submission_id, world.validators[2])
    assert world.provider.address in refused.value.why
    assert appealed(world, submission_id, world.provider).sent


def test_after_the_appeal_period_it_is_too_late(world: World) -> None:
    submission_id = accused(world)
    world.chain.pass_time(SETTLING["appeal_period"] + 1)
    with pytest.raises(NotEligible, match="appeal period is over"):
        appealed(world, submission_id, world.provider)
    world.send(world.provider, "court", "enforce", submission_id)
    with pytest.raises(NotEligible, match="the case is over") as refused:
        appealed(world, submission_id, world.provider)
    assert "upheld" in refused.value.why


def test_an_appeal_whose_period_ends_while_it_is_sent_is_told_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    submission_id = accused(world)
    world.chain.pass_time(SETTLING["appeal_period"] + 1)
    monkeypatch.setattr(ChainPool, "time", lambda pool: 0)
    with pytest.raises(NotEligible, match="appeal period is over"):
        appealed(world, submission_id, world.provider)


def test_an_appeal_without_the_bond_is_told_how_much_is_missing(world: World) -> None:
    submission_id = accused(world)
    balance = world.read("credits", "balanceOf", world.provider.address)
    world.send(world.provider, "credits", "transfer", world.trainer.address, balance - CREDIT + 1)
    with pytest.raises(NotEligible, match="takes a bond") as refused:
        appealed(world, submission_id, world.provider)
    assert "0.999999999999999999 of 1 credits" in refused.value.why
    world.send(world.trainer, "credits", "transfer", world.provider.address, 1)
    assert appealed(world, submission_id, world.provider).bond_wei == CREDIT
