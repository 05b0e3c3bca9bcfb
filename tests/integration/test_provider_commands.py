"""`proofpool provider …` on a real chain: a cold key takes nodes in, stakes, unbonds; a dry run sends nothing."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.amount import format_amount
from protocol.chain.client import ChainClient
from protocol.errors import NodeRefused
from protocol.signing import Signer
from testnet.chain.genesis import dev_secrets
from tests.integration.conftest import CREDIT, World
from tests.integration.test_promise_commands import NODE, PROVIDER, Command, Keys, call, document, keys, refusal
from worker.provider import holdings

__all__ = ["call", "keys"]

NEWCOMER = dev_secrets(12)[11]
NEW_NODE = bytes(31) + b"\x64"
UNBONDING_SECONDS = 600
LEASE_SECONDS = 60
ERROR = ["error", "why", "do"]


@pytest.fixture
def desk(world: World, keys: Keys, call: Command, tmp_path: Path) -> Desk:
    """A newcomer with 100 credits, and a node of its own."""
    world.send(Signer(NEWCOMER), "credits", "faucet", 100 * CREDIT)
    return Desk(world, keys, call, tmp_path)


class Desk:
    """A provider at a terminal that isn't one: every command gives a document, or refuses."""

    def __init__(self, world: World, keys: Keys, call: Command, folder: Path) -> None:
        self.world = world
        self.keys = keys
        self._call = call
        self.folder = folder
        self.address = Signer(NEWCOMER).address
        self.node = Signer(NEW_NODE).address

    def options(self, secret: bytes = NEWCOMER) -> list[str]:
        return [*self.keys.options(secret), "--pool", str(self.world.pool_id)]

    def run(self, *arguments: str, secret: bytes = NEWCOMER) -> tuple[int, str, str]:
        command, *more = arguments
        return self._call("provider", command, *self.options(secret), *more)

    def done(self, *arguments: str, secret: bytes = NEWCOMER) -> dict[str, Any]:
        """What it did or would do; progress went to stderr."""
        code, out, err = self.run(*arguments, secret=secret)
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        assert found["schema_version"] == 1
        return found

    def consent(self, provider: str | None = None, node: bytes = NEW_NODE, *more: str) -> Path:
        """Made on the node's machine."""
        out = self.folder / f"consent-{node.hex()[-4:]}.json"
        out.unlink(missing_ok=True)
        options = [one for one in self.keys.options(node) if one != "--json"]
        answer = self._call(
            "worker", "consent", "--provider", provider or self.address, "--out", str(out), *options, *more
        )
        assert answer[0] == 0, answer
        return out

    def stake(self, node: str | None = None) -> tuple[int, int, int]:
        """In whole credits: in the wallet, free, allotted to the node."""
        read = self.world.read
        found = (
            read("credits", "balanceOf", self.address),
            read("registry", "freeStake", self.address),
            read("registry", "allotment", node or self.node, self.world.pool_id),
        )
        return tuple(amount // CREDIT for amount in found)  # type: ignore[return-value]

    def nonce(self) -> int:
        return int(self.world.contracts.client.transaction_count(self.address))


def functions(report: dict[str, Any]) -> list[str]:
    return [one["function"] for one in report["transactions"]]


def changes(report: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """By name, in credits."""
    return {
        one["name"]: (format_amount(int(one["before_wei"])), format_amount(int(one["after_wei"])))
        for one in report["changes"]
    }


def test_a_newcomer_registers_with_one_command_that_does_nothing_twice(desk: Desk) -> None:
    consent = str(desk.consent())
    would = desk.done("register", consent, "--stake", "20", "--dry-run")
    assert would["dry_run"] and desk.nonce() == 1, "only the faucet's"
    assert functions(would) == ["approve", "stake", "addNode", "allot"]
    did = desk.done("register", consent, "--stake", "20")
    assert functions(did) == functions(would) and not did["dry_run"]
    assert did["changes"] == would["changes"]
    assert changes(did) == {"wallet_credits": ("100", "80"), "free_stake": ("0", "0"), "allotment": ("0", "20")}
    assert desk.stake() == (80, 0, 20)
    assert desk.world.read("registry", "isEligible", desk.node, desk.world.pool_id)
    again = desk.done("register", consent, "--stake", "20")
    assert again["transactions"] == [] and "already" in again["notes"][0]
    more = desk.done("register", consent, "--stake", "25")
    assert functions(more) == ["approve", "stake", "allot"] and desk.stake() == (75, 0, 25)


def test_a_preview_costs_what_is_then_paid(desk: Desk) -> None:
    consent = str(desk.consent())
    would = desk.done("register", consent, "--dry-run")["transactions"]
    coins = desk.world.contracts.client.balance_wei(desk.address)
    did = desk.done("register", consent)["transactions"]
    assert coins - desk.world.contracts.client.balance_wei(desk.address) == sum(int(one["cost_wei"]) for one in did)
    assert would[0]["gas"] == pytest.approx(did[0]["gas"], rel=0.2)
    if all(one["gas"] for one in would):  # a node that runs several calls
        for expected, paid in zip(would, did, strict=True):
            assert expected["gas"] == pytest.approx(paid["gas"], rel=0.2)
            assert int(expected["most_cost_wei"]) > int(paid["cost_wei"])
    assert [one["to"] for one in did] == [desk.world.contracts.address(one["contract"]) for one in did]
    allot = did[-1]["arguments"]
    assert allot == {"node": desk.node, "pool_id": str(desk.world.pool_id), "amount": str(10 * CREDIT)}, "the least"


def test_a_dry_run_needs_neither_key_nor_password(desk: Desk, call: Command) -> None:
    world = desk.world
    where = ["--chain", world.chain.process.url, "--ledger", world.contracts.addresses.ledger]
    answer = call("provider", "stake", "5", *where, "--dry-run", "--json", "--provider", desk.address)
    assert functions(json.loads(answer[1])) == ["approve", "stake"]
    keystore = desk.keys.keystore(NEWCOMER)
    answer = call("provider", "stake", "5", *where, "--dry-run", "--json", "--keystore", str(keystore))
    assert json.loads(answer[1])["provider"] == desk.address
    answer = call("provider", "stake", "5", *where, "--json", "--keystore", str(keystore))
    assert refusal(answer) == (4, ERROR), "to send takes the password"
    code, out, _ = call("provider", "stake", "5", *where, "--dry-run", "--provider", desk.address)
    assert code == 0 and "would send 2 transactions" in out and "100 -> 95" in out and "coins" in out


def test_a_node_is_taken_in_by_two_signatures_only(desk: Desk) -> None:
    desk.done("stake", "30")
    consent = desk.consent()
    assert refusal(desk.run("authorize", str(consent), "--allot", "101")) == (6, ERROR), "more than there is"
    assert refusal(desk.run("authorize", str(consent), secret=PROVIDER)) == (6, ERROR), "another provider"
    did = desk.done("authorize", str(consent), "--allot", "30")
    assert functions(did) == ["addNode", "allot"] and desk.stake() == (70, 0, 30)
    again = desk.done("authorize", str(consent), "--allot", "10")
    assert again["transactions"] == [] and "30 credits stand behind" in again["notes"][1] and len(again["notes"]) == 2
    more = desk.done("authorize", str(consent), "--allot", "35")
    assert functions(more) == ["approve", "stake", "allot"] and desk.stake() == (65, 0, 35), (
        "the wallet pays what lacks"
    )
    other = json.loads(consent.read_text()) | {"chain_id": 1}
    elsewhere = desk.folder / "elsewhere.json"
    elsewhere.write_text(json.dumps(other))
    assert refusal(desk.run("authorize", str(elsewhere), "--allot", "35")) == (3, ERROR), "whoever has the node"
    desk.done("revoke", desk.node)
    assert desk.done("revoke", desk.node)["transactions"] == []
    code, lines = refusal(desk.run("authorize", str(consent)))
    assert (code, lines) == (6, ERROR), "a consent works once"
    assert functions(desk.done("authorize", str(desk.consent()))) == ["addNode"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"signature": "0x" + "12" * 64 + "1b"}, 3),
        ({"message.deadline": 2**40}, 3),
        ({"message.nonce": 1}, 3),
        ({"chain_id": 1}, 3),
        ({"deployment_salt": "0x" + "99" * 32}, 3),
        ({"kind": "receipt"}, 2),
        ({"schema_version": 2}, 2),
    ],
)
def test_a_consent_that_was_changed_is_refused_before_anything_is_sent(
    desk: Desk, change: dict[str, Any], code: int
) -> None:
    file = desk.consent()
    content = json.loads(file.read_text())
    for path, value in change.items():
        place = content if "." not in path and path in content else content["authorization"]
        for part in path.split(".")[:-1]:
            place = place[part]
        place[path.split(".")[-1]] = value
    file.write_text(json.dumps(content))
    before = desk.nonce()
    assert refusal(desk.run("authorize", str(file))) == (code, ERROR)
    assert refusal(desk.run("authorize", str(file), "--dry-run")) == (code, ERROR)
    assert desk.nonce() == before


def test_a_consent_ends_and_is_not_given_for_anothers_node(desk: Desk, call: Command) -> None:
    file = desk.consent(None, NEW_NODE, "--hours", "1")
    desk.world.chain.pass_time(3601)
    code, _, err = desk.run("authorize", str(file))
    assert code == 6 and "expired" in err
    command = ("worker", "consent", "--provider", desk.address)
    assert refusal(call(*command, *desk.keys.options(NODE))) == (6, ERROR)
    assert refusal(call("worker", "consent", "--provider", "0x12", *desk.keys.options(NEW_NODE))) == (2, ERROR)


def test_stake_is_taken_from_what_is_free_first_and_can_be_more_than_the_wallet_has_only_by_that(desk: Desk) -> None:
    desk.done("register", str(desk.consent()))
    desk.done("stake", "50")
    assert desk.stake() == (40, 50, 10)
    assert functions(desk.done("stake", "20", "--node", desk.node)) == ["allot"]
    assert functions(desk.done("stake", "35", "--node", desk.node)) == ["approve", "stake", "allot"]
    assert desk.stake() == (35, 0, 65)
    for more in ([], ["--dry-run"]):
        code, _, err = desk.run("stake", "35.000000000000000001", "--node", desk.node, *more)
        assert code == 6 and "35 of 35.000000000000000001 credits" in err
    assert refusal(desk.run("stake", "1", "--node", Signer(NODE).address)) == (6, ERROR)
    desk.done("revoke", desk.node)
    code, _, err = desk.run("stake", "1", "--node", desk.node)
    assert code == 6 and "the node is removed" in err
    assert desk.stake() == (35, 0, 65)


def test_stake_comes_back_once_it_is_due_and_it_says_when(desk: Desk) -> None:
    desk.done("register", str(desk.consent()), "--stake", "40")
    start = desk.world.contracts.client.head().timestamp
    did = desk.done("unstake", "35", "--node", desk.node)
    assert changes(did) == {"allotment": ("40", "5"), "unbonding": ("0", "35"), "free_stake": ("0", "0")}
    assert any("no more leases" in note for note in did["notes"])
    assert abs(did["due_time"] - start - UNBONDING_SECONDS - LEASE_SECONDS) <= 5
    for more in ([], ["--dry-run"]):
        code, _, err = desk.run("withdraw", *more)
        assert code == 6 and "unbonding until" in err and "s from now" in err
    desk.world.chain.pass_time(UNBONDING_SECONDS + LEASE_SECONDS + 10)
    assert functions(desk.done("withdraw", "30")) == ["release", "withdraw"]
    assert desk.stake() == (90, 5, 5)
    assert functions(desk.done("withdraw")) == ["withdraw"]
    assert desk.stake() == (95, 0, 5)
    assert refusal(desk.run("withdraw")) == (6, ERROR)
    assert refusal(desk.run("unstake", "6", "--node", desk.node)) == (6, ERROR)
    assert changes(desk.done("unstake", "all", "--node", desk.node))["allotment"] == ("5", "0")


def test_what_is_unbonding_already_waits_along_and_is_said_to(desk: Desk) -> None:
    desk.done("register", str(desk.consent()), "--stake", "40")
    desk.done("unstake", "10", "--node", desk.node)
    desk.world.chain.pass_time(300)
    second = desk.done("unstake", "10", "--node", desk.node)
    assert any("wait along" in note for note in second["notes"])
    assert changes(second)["unbonding"] == ("10", "20")
    desk.world.chain.pass_time(UNBONDING_SECONDS + LEASE_SECONDS + 10)
    third = desk.done("unstake", "10", "--node", desk.node)
    assert changes(third) == {"allotment": ("20", "10"), "unbonding": ("20", "10"), "free_stake": ("0", "20")}


def test_the_nodes_of_a_provider_are_listed_with_what_stands_behind_them(desk: Desk, call: Command) -> None:
    empty = desk.done("nodes")
    assert (empty["nodes"], empty["wallet_credits_wei"]) == ([], str(100 * CREDIT))
    desk.done("register", str(desk.consent()), "--stake", "40")
    desk.done("unstake", "35", "--node", desk.node)
    second = bytes(31) + b"\x65"
    desk.done("register", str(desk.consent(None, second)))
    desk.done("revoke", Signer(second).address)
    found = desk.done("nodes")
    first, other = found["nodes"]
    assert (first["node"], first["is_active"]) == (desk.node, True)
    (stake,) = first["pools"]
    assert (stake["state"], stake["allotment_wei"], stake["unbonding_wei"]) == (
        "understaked",
        str(5 * CREDIT),
        str(35 * CREDIT),
    )
    assert stake["release_time"] > found["time"] and stake["releasable_wei"] == "0"
    assert (other["is_active"], other["pools"][0]["state"]) == (False, "removed")
    printed = call("provider", "nodes", *[one for one in desk.options() if one != "--json"])[1]
    assert desk.node in printed and "35 unbonding, due" in printed
    desk.world.chain.pass_time(UNBONDING_SECONDS + LEASE_SECONDS + 10)
    assert desk.done("nodes")["nodes"][0]["pools"][0]["releasable_wei"] == str(35 * CREDIT)


def test_the_chain_is_read_from_the_contracts_first_block_on(
    desk: Desk, call: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, honest = list[int](), ChainClient.logs

    def logs(client: ChainClient, addresses: Any, first_block: int, *more: Any) -> Any:
        asked.append(first_block)
        return honest(client, addresses, first_block, *more)

    def forgetful(client: ChainClient, address: str, block: int | str = "latest") -> bytes:
        if block == "latest":
            return code(client, address)
        raise NodeRefused("eth_getCode", -32000, "missing trie node")

    def archive(client: ChainClient, address: str, block: int | str = "latest") -> bytes:
        """The local node may have dropped the state by now; one that keeps all answers so."""
        return code(client, address) if block == "latest" or int(block) >= made else b""

    monkeypatch.setattr(ChainClient, "logs", logs)
    code, client, registry = ChainClient.code, desk.world.contracts.client, desk.world.contracts.addresses.registry
    made = next(iter(honest(client, [registry], 0, client.head().number, []))).block_number
    monkeypatch.setattr(ChainClient, "code", archive)
    exit_code, out, err = desk.run("nodes")
    assert set(asked) == {made} and made > 0 and (exit_code, err) == (0, "")
    monkeypatch.setattr(ChainClient, "code", forgetful)
    assert (desk.run("nodes")[2], asked[-1]) == ("", 0)  # few blocks are no trouble
    monkeypatch.setattr(holdings, "FEW_BLOCKS", 0)
    exit_code, forgotten, err = desk.run("nodes")
    assert asked[-1] == 0 and json.loads(forgotten)["nodes"] == json.loads(out)["nodes"]
    assert "from block 0: set `first_block`" in err
    monkeypatch.setenv("PROOFPOOL_PROVIDER_FIRST_BLOCK", str(made))
    assert (desk.run("nodes")[2], asked[-1]) == ("", made)


def test_a_node_revokes_itself_with_its_own_key(desk: Desk) -> None:
    desk.done("register", str(desk.consent()))
    gas = desk.world.contracts.client
    gas.rpc.call("anvil_setBalance", desk.node, hex(10**18))
    assert refusal(desk.run("revoke", desk.node, secret=PROVIDER)) == (6, ERROR)
    assert functions(desk.done("revoke", desk.node, secret=NEW_NODE)) == ["removeNode"]
    assert int(desk.world.read("registry", "providerOf", desk.node), 16) == 0


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_closed_or_unknown_pool_and_an_empty_account_are_refused_in_words(desk: Desk, more: list[str]) -> None:
    desk.done("register", str(desk.consent()))
    assert desk.run("stake", "1", "--node", desk.node, *more)[0] == 0
    before = desk.nonce()
    code, _, err = desk.run("register", str(desk.consent(None, bytes(31) + b"\x66")), *more, "--pool", "99")
    assert code == 6 and "no such pool" in err and "chain info" in err
    penniless = bytes(31) + b"\x67"
    desk.world.send(desk.world.provider, "credits", "faucet", CREDIT)
    desk.world.send(desk.world.provider, "credits", "transfer", Signer(penniless).address, CREDIT)
    code, _, err = desk.run("stake", "1", *more, secret=penniless)
    assert code == 6 and "too few coins for gas" in err and "--chain http" in err
    desk.world.send(desk.world.chain.creator, "pools", "close", desk.world.pool_id)
    code, _, err = desk.run("stake", "1", "--node", desk.node, *more)
    assert code == 6 and "the pool isn't open" in err
    assert desk.nonce() == before


class Terminal(io.StringIO):
    """Somebody sits there, and has typed this."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "more", "code"), [("n\n", [], 130), ("y\n", [], 0), ("", ["--yes"], 0)])
def test_on_a_terminal_it_is_shown_and_asked_first(
    desk: Desk, call: Command, monkeypatch: pytest.MonkeyPatch, typed: str, more: list[str], code: int
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    before = desk.nonce()
    options = [one for one in desk.options() if one != "--json"]
    found, out, err = call("provider", "stake", "5", *options, *more)
    assert (found, desk.nonce() - before) == (code, 0 if code else 2)
    assert ("would send 2 transactions" in err and "Send this?" in err) == (not more)
    assert ("sent 2 transactions" in out) == (code == 0)
    if code == 0:
        assert "stake(amount=" in out, "a file that it goes to has it all"


@pytest.mark.parametrize(("typed", "more"), [("y\n", []), ("", ["--yes"])])
def test_what_was_confirmed_is_listed_once_and_then_said_to_be_mined(
    desk: Desk, call: Command, monkeypatch: pytest.MonkeyPatch, typed: str, more: list[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    monkeypatch.setattr("worker.provider.commands.goes_to_terminal", lambda: True)
    options = [one for one in desk.options() if one != "--json"]
    code, out, err = call("provider", "stake", "5", *options, *more)
    assert code == 0 and len(re.findall("0x[0-9a-f]{64} in block [0-9]+, gas", out)) == 2
    for function in ("approve(", "stake(amount="):
        assert (out + err).count(function) == 1


def test_what_cannot_be_asked_is_a_usage_error(desk: Desk, call: Command) -> None:
    nowhere = ["--ledger", desk.world.contracts.addresses.ledger]
    for arguments in (
        ("register",),
        ("stake", "0"),
        ("stake", "many"),
        ("unstake", "1", "--node", "0x12"),
        ("revoke", "0x12"),
        ("authorize", str(desk.folder / "none.json")),
        ("stake", "1", "--provider", "0x" + "12" * 20),
    ):
        assert refusal(desk.run(*arguments)) == (2, ERROR), arguments
    assert refusal(call("provider", "nodes", *nowhere)) == (2, ERROR), "no chain"
    assert refusal(call("provider", "nodes", "--chain", desk.world.chain.process.url, *nowhere)) == (4, ERROR), "no key"
    somebody = ("--provider", desk.address)
    assert refusal(call("provider", "nodes", "--chain", "http://127.0.0.1:9", *nowhere, *somebody)) == (5, ERROR)


def test_a_configuration_file_serves_every_command(desk: Desk, call: Command) -> None:
    world = desk.world
    file = desk.folder / "provider.toml"
    lines = {
        "chain_url": world.chain.process.url,
        "ledger": world.contracts.addresses.ledger,
        "pool_id": world.pool_id,
        "keystore": str(desk.keys.keystore(NEWCOMER)),
        "password_file": str(desk.folder / "password"),
    }
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()))
    assert call("provider", "stake", "1", "--config", str(file))[0] == 0
    assert json.loads(call("provider", "nodes", "--config", str(file), "--json")[1])["free_stake_wei"] == str(CREDIT)
    file.write_text(file.read_text() + "colour = 1\n")
    assert refusal(call("provider", "nodes", "--config", str(file))) == (2, ERROR)
    consent = document(call("worker", "consent", "--provider", desk.address, *desk.keys.options(NEW_NODE)))
    assert consent["authorization"]["message"]["provider"] == desk.address
