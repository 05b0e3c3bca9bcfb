"""`proofpool provider claim`: what is due is paid, to the wei, and of the rest it is said why not and when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.client import CoordinatorClient
from protocol.errors import CoordinatorUnreachable
from protocol.reasons import Outcome
from testnet.chain.genesis import dev_secrets
from tests.integration.conftest import CREDIT, SETTLING, World
from tests.integration.served import served
from tests.integration.test_bond import new_pool
from tests.integration.test_challenge import outsider
from tests.integration.test_earnings import balance, commit, propose
from tests.integration.test_jury import Bench, bench
from tests.integration.test_promise_commands import PROVIDER, Command, Keys, call, keys, refusal

__all__ = ["bench", "call", "keys"]

NOWHERE = "http://127.0.0.1:9"
ERROR = ["error", "why", "do"]
WINDOWS = sum(SETTLING.values()) + 1


class Claims:
    """The provider's claims, by command."""

    def __init__(self, world: World, keys: Keys, call: Command) -> None:
        self._world = world
        self._keys = keys
        self._call = call

    def run(self, *arguments: str) -> tuple[int, str, str]:
        return self._call("provider", "claim", *self._keys.options(PROVIDER), *arguments)

    def done(self, *arguments: str) -> dict[str, Any]:
        code, out, err = self.run(*arguments)
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    def paid(self) -> int:
        return balance(self._world, self._world.provider.address)


@pytest.fixture
def claims(world: World, keys: Keys, call: Command) -> Claims:
    return Claims(world, keys, call)


def earned(world: World) -> int:
    """By one accepted submission, under a root that can't be claimed from yet."""
    world.accept()
    statement = propose(world)
    commit(world, statement)
    return next(row.cumulative_wei for row in statement.accounts if row.account == world.provider.address)


def test_what_is_due_is_paid_once_and_the_rest_later(world: World, claims: Claims) -> None:
    first_wei = earned(world)
    with served(world) as url:
        code, _, err = claims.run("--coordinator", url)
        assert code == 6 and "more can be claimed from" in err
        world.chain.pass_time(WINDOWS)
        second_wei = earned(world) - first_wei
        before = claims.paid()
        would = claims.done("--coordinator", url, "--dry-run")
        assert claims.paid() == before
        did = claims.done("--coordinator", url)
        assert claims.paid() - before == first_wei
        assert would["changes"] == did["changes"] and [one["function"] for one in did["transactions"]] == ["claim"]
        (pool,) = did["earnings"]
        assert (pool["claimable_wei"], pool["withheld"], pool["faults"]) == (str(first_wei), [], [])
        (later,) = pool["later"]
        assert (later["amount_wei"], later["claimable_time"]) == (str(second_wei), did["due_time"])
        assert refusal(claims.run("--coordinator", url)) == (6, ERROR)
        world.chain.pass_time(WINDOWS)
        assert claims.done("--coordinator", url)["earnings"][0]["claimable_wei"] == str(second_wei)
        assert refusal(claims.run("--coordinator", url)) == (6, ERROR)
    assert claims.paid() - before == first_wei + second_wei


@pytest.mark.slow
def test_several_epochs_are_claimed_by_one_transaction(world: World, claims: Claims) -> None:
    for _ in range(2):
        earned(world)
    world.chain.pass_time(WINDOWS)
    with served(world) as url:
        did = claims.done("--coordinator", url)
    assert len(did["transactions"]) == 1
    assert did["earnings"][0]["claimable_wei"] == did["earnings"][0]["earned_wei"]


def test_a_file_serves_where_no_coordinator_answers(world: World, claims: Claims, tmp_path: Path) -> None:
    total_wei = earned(world)
    file = tmp_path / "earnings.json"
    statement = world.client().newest_earnings()
    assert statement is not None
    file.write_text(statement.model_dump_json())
    world.chain.pass_time(WINDOWS)
    assert refusal(claims.run()) == (2, ERROR), "nothing says what was earned"
    assert refusal(claims.run("--coordinator", NOWHERE)) == (5, ERROR)
    assert refusal(claims.run(str(tmp_path / "none.json"))) == (2, ERROR)
    (tmp_path / "broken.json").write_text("{}")
    assert refusal(claims.run(str(tmp_path / "broken.json"))) == (2, ERROR)
    rows = tuple(row.model_copy(update={"cumulative_wei": 9 * CREDIT}) for row in statement.accounts)
    (tmp_path / "false.json").write_text(statement.model_copy(update={"accounts": rows}).model_dump_json())
    assert refusal(claims.run(str(tmp_path / "false.json"))) == (3, ERROR)
    before, second = claims.paid(), new_pool(world)
    did = claims.done(str(file), "--coordinator", NOWHERE, "--pool", str(second))
    assert claims.paid() - before == total_wei
    amounts = {pool["pool_id"]: int(pool["claimable_wei"]) for pool in did["earnings"]}
    assert amounts == {world.pool_id: total_wei, second: 0}, "of every pool that is named"


def test_a_coordinator_that_states_something_else_is_named(
    world: World, claims: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    earned(world)
    world.chain.pass_time(WINDOWS)
    honest = CoordinatorClient.earnings

    def more(client: CoordinatorClient, epoch: int) -> Any:
        from protocol.merkle.standard import earnings_tree

        found = honest(client, epoch)
        rows = tuple(row.model_copy(update={"cumulative_wei": row.cumulative_wei + 1}) for row in found.accounts)
        tree = earnings_tree({row.account: row.cumulative_wei for row in rows})
        total = sum(row.cumulative_wei for row in rows)
        return found.model_copy(update={"accounts": rows, "root": tree.root, "total_wei": total})

    def silent(client: CoordinatorClient, epoch: int) -> Any:
        raise CoordinatorUnreachable("it doesn't answer")

    with served(world) as url:
        monkeypatch.setattr(CoordinatorClient, "earnings", more)
        code, lines = refusal(claims.run("--coordinator", url))
        assert (code, lines) == (3, ERROR)
        monkeypatch.setattr(CoordinatorClient, "earnings", silent)
        assert refusal(claims.run("--coordinator", url))[0] == 5
        monkeypatch.setattr(CoordinatorClient, "earnings", honest)
        assert claims.done("--coordinator", url)["transactions"]


@pytest.mark.slow
def test_who_has_earned_nothing_is_told_so(world: World, call: Command, keys: Keys) -> None:
    earned(world)
    world.chain.pass_time(WINDOWS)
    stranger = dev_secrets(13)[12]
    with served(world) as url:
        answer = call("provider", "claim", *keys.options(stranger), "--coordinator", url)
    assert refusal(answer) == (6, ERROR)


def test_what_a_case_withholds_is_said_with_its_submission(
    bench: Bench, keys: Keys, call: Command, tmp_path: Path
) -> None:
    world, bench.eyes.outcome = bench.world, Outcome.SLASH
    claims = Claims(world, keys, call)
    case_id, challenger = world.accept(), outsider(world, tmp_path)
    challenger.challenge(case_id)
    statement = propose(world)
    assert challenger.challenge(case_id).held_earnings_wei
    commit(world, statement)
    with served(world) as url:
        bench.until(lambda: bench.state(case_id).is_over)
        world.chain.pass_time(WINDOWS)
        code, _, err = claims.run("--coordinator", url)
    assert code == 6 and f"withheld by the case of {case_id} (upheld)" in err
