"""`proofpool chain …` on either local node: deploy, kills in the middle of it, info, faucet, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.chain import deploying
from protocol.chain.client import ChainClient
from protocol.chain.contracts import NAMES
from protocol.chain.deployment import connect, read_deployment, stay_with
from protocol.chain.lane import Lane
from protocol.chain.rpc import JsonRpc
from protocol.cli import run
from protocol.clock import SystemClock
from protocol.errors import ConfigError, WrongChain
from protocol.keystore import CHEAP_SCRYPT_N, create_keystore
from testnet.chain.genesis import CHAIN_ID, dev_secrets, dev_signers
from testnet.chain.process import NodeProcess
from tests.documents import fitting

NOBODY = "0x" + "6e" * 20
ACCOUNT = 9


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """A development key in the environment; its address."""
    monkeypatch.setenv("PROOFPOOL_PRIVATE_KEY", "0x" + dev_secrets(ACCOUNT + 1)[ACCOUNT].hex())
    return dev_signers(ACCOUNT + 1)[ACCOUNT].address


@pytest.fixture(scope="module")
def deployment(node: NodeProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployment that the command made."""
    folder = tmp_path_factory.mktemp("deployed")
    password = folder / "password"
    password.write_text("of no value")
    password.chmod(0o600)
    create_keystore(folder / "key.json", "of no value", secret=dev_secrets(9)[8], scrypt_n=CHEAP_SCRYPT_N)
    code = run(
        ["chain", "deploy", "--chain", node.url, "--out", str(folder / "deployment.json"), "--unbonding-seconds", "60"]
        + ["--keystore", str(folder / "key.json"), "--password-file", str(password)]
    )
    assert code == 0
    return folder / "deployment.json"


def document(capsys: pytest.CaptureFixture[str], command: str = "chain info") -> Any:
    return fitting(command, capsys.readouterr().out)


def test_a_deployment_is_in_its_file_and_roles_connect_to_it(node: NodeProcess, deployment: Path) -> None:
    found = read_deployment(deployment)
    assert (found.chain_id, set(found.contracts)) == (CHAIN_ID, set(NAMES))
    contracts = connect(node.url, SystemClock(), deployment=deployment)
    assert contracts.addresses == found.addresses
    assert contracts.salt == found.salt
    assert contracts.read("credits", "minter") == dev_signers(9)[8].address
    assert contracts.read("registry", "unbonding") == 60
    assert sorted(file.name for file in deployment.parent.iterdir()) == ["deployment.json", "key.json", "password"]
    contracts.client.rpc.close()


def test_a_deployment_file_is_never_overwritten(
    node: NodeProcess, deployment: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = deployment.read_bytes()
    assert run(["chain", "deploy", "--chain", node.url, "--out", str(deployment)]) == 2
    assert "a deployment file is already there" in capsys.readouterr().err
    assert deployment.read_bytes() == before


@pytest.mark.parametrize("num_before", range(6))
@pytest.mark.parametrize("is_sent", [False, True])
def test_a_deployment_that_was_killed_goes_on(
    node: NodeProcess,
    client: ChainClient,
    tmp_path: Path,
    key: str,
    num_before: int,
    is_sent: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, nonce, sent = tmp_path / "new.json", client.transaction_count(key), []
    send_raw = ChainClient.send_raw

    def die_at(self: ChainClient, raw: str) -> str:
        if len(sent) == num_before:
            if is_sent:
                send_raw(self, raw)
            raise Killed
        sent.append(raw)
        return send_raw(self, raw)

    with monkeypatch.context() as patched:
        patched.setattr(ChainClient, "send_raw_mined", die_at)
        with pytest.raises(Killed):
            run(["chain", "deploy", "--chain", node.url, "--out", str(out)])
    plan = deploying.plan_file(out).read_bytes()
    assert not out.exists()
    assert run(["chain", "deploy", "--chain", node.url, "--out", str(out)]) == 0
    assert json.loads(plan)["salt"] == read_deployment(out).salt
    assert client.transaction_count(key) == nonce + 6
    assert sorted(file.name for file in tmp_path.iterdir()) == ["new.json"]


@pytest.mark.parametrize("seconds", ["0", "-1", "99999999999999999999999"])
def test_an_unbonding_time_that_cant_be_leaves_no_plan(
    node: NodeProcess, tmp_path: Path, seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deployment.json"
    command = ["chain", "deploy", "--chain", node.url, "--out", str(out), "--unbonding-seconds"]
    assert run([*command, seconds]) == 2 and "unbonding-seconds" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_plan_whose_nonces_went_elsewhere_is_no_deployment(
    node: NodeProcess, client: ChainClient, tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, signer = tmp_path / "new.json", dev_signers(ACCOUNT + 1)[ACCOUNT]
    parameters = deploying.Parameters(key, 60, "0x" + "12" * 32)
    deploying.make_plan(client, signer, out, parameters)
    Lane(client, signer, SystemClock()).send(NOBODY, b"", value_wei=1)
    assert run(["chain", "deploy", "--chain", node.url, "--out", str(out)]) == 5
    printed = capsys.readouterr().err
    assert "sent something else" in printed and str(deploying.plan_file(out)) in printed
    with pytest.raises(ConfigError, match="somebody else's"):
        deploying.make_plan(client, dev_signers(1)[0], out, parameters)
    assert not out.exists()


def test_info_says_what_is_there(node: NodeProcess, deployment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chain", "info", "--chain", node.url, "--deployment", str(deployment), "--json"]) == 0
    found = document(capsys)
    assert (found["chain_id"], found["num_pools"], found["pools"]) == (CHAIN_ID, 0, [])
    assert [contract["code"] for contract in found["contracts"]] == ["ok"] * 6
    assert found["head_block"] > 0 and int(found["base_fee_wei"]) > 0
    assert run(["chain", "info", "--chain", node.url, "--ledger", read_deployment(deployment).ledger]) == 0
    assert capsys.readouterr().out.count("✓") == 6
    both = ["chain", "info", "--chain", node.url, "--deployment", str(deployment), "--ledger"]
    assert run([*both, read_deployment(deployment).ledger]) == 0
    assert run([*both, NOBODY]) == 2
    assert "two deployments are named" in capsys.readouterr().err
    assert run(["chain", "info", "--chain", node.url, "--json"]) == 0
    assert document(capsys)["contracts"] == []


def test_info_marks_what_isnt_what_it_should_be(
    node: NodeProcess, deployment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(deployment.read_text())
    content["contracts"]["court"]["address"] = NOBODY
    content["contracts"]["pools"]["code_hash"] = "0x" + "00" * 32
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(content))
    assert run(["chain", "info", "--chain", node.url, "--deployment", str(wrong), "--json"]) == 5
    states = {contract["name"]: contract["code"] for contract in document(capsys)["contracts"]}
    assert states == {
        "credits": "ok",
        "registry": "ok",
        "pools": "redeployed",
        "ledger": "ok",
        "court": "missing",
        "jury": "ok",
    }
    content["contracts"]["court"]["address"] = content["contracts"]["credits"]["address"]
    wrong.write_text(json.dumps(content))
    assert run(["chain", "info", "--chain", node.url, "--deployment", str(wrong)]) == 5
    assert "✗ other" in capsys.readouterr().out
    content["chain_id"] = 1
    wrong.write_text(json.dumps(content))
    assert run(["chain", "info", "--chain", node.url, "--deployment", str(wrong)]) == 5
    assert "the node serves another chain" in capsys.readouterr().err


def test_a_faucet_gives_credits_and_gas(
    node: NodeProcess, client: ChainClient, deployment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gas = client.balance_wei(NOBODY)
    command = ["chain", "faucet", NOBODY.upper().replace("0X", "0x"), "--chain", node.url]
    command += ["--deployment", str(deployment), "--json"]
    assert run([*command, "--credits", "2.5", "--gas", "0.25"]) == 0
    assert document(capsys, "chain faucet") == {
        "schema_version": 2,
        "address": NOBODY,
        "credits_wei": str(25 * 10**17),
        "gas_wei": str(gas + 25 * 10**16),
    }
    assert run([*command[:-1], "--credits", "1", "--gas", "0"]) == 0
    assert "3.5 credits" in capsys.readouterr().out


@pytest.mark.parametrize("amount", ["-1", "1e3", "0.0000000000000000001", "many", ""])
def test_amounts_are_exact_or_refused(node: NodeProcess, amount: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chain", "faucet", NOBODY, "--chain", node.url, f"--credits={amount}"]) == 2
    assert "that is no amount" in capsys.readouterr().err


def test_a_faucet_is_for_test_chains(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(JsonRpc, "call", lambda self, method, *params: "0x1")
    assert run(["chain", "faucet", NOBODY, "--chain", "http://127.0.0.1:1"]) == 2
    assert "for test chains only" in capsys.readouterr().err


def test_a_raw_key_deploys_on_test_chains_only(
    tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(JsonRpc, "call", lambda self, method, *params: "0x1")
    assert run(["chain", "deploy", "--chain", "http://127.0.0.1:1", "--out", str(tmp_path / "new.json")]) == 4
    assert "for local chains only" in capsys.readouterr().err


def test_a_redeployed_contract_is_another_deployment(
    node: NodeProcess, client: ChainClient, deployment: Path, tmp_path: Path
) -> None:
    """What a local chain that was started anew has: the same id and addresses, the same source, another salt."""
    contracts = connect(node.url, SystemClock(), deployment=deployment)
    stay_with(tmp_path, contracts)
    stay_with(tmp_path, contracts)
    content = json.loads((tmp_path / "deployment.json").read_text())
    content["salt"] = "0x" + "99" * 32
    (tmp_path / "deployment.json").write_text(json.dumps(content))
    with pytest.raises(WrongChain, match="another deployment") as caught:
        stay_with(tmp_path, contracts)
    assert caught.value.why.startswith("salt of Ledger")
    assert "new data folder" in caught.value.todo
    content = json.loads(deployment.read_text())
    content["contracts"]["ledger"]["code_hash"] = "0x" + "99" * 32
    (tmp_path / "other.json").write_text(json.dumps(content))
    with pytest.raises(WrongChain, match="another deployment") as caught:
        connect(node.url, SystemClock(), deployment=tmp_path / "other.json")
    assert caught.value.why.startswith("ledger of Ledger")
    contracts.client.rpc.close()


def test_what_is_named_must_agree(node: NodeProcess, deployment: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no contracts are named"):
        connect(node.url, SystemClock())
    with pytest.raises(ConfigError, match="two deployments"):
        connect(node.url, SystemClock(), deployment=deployment, ledger=NOBODY)
    with pytest.raises(ConfigError, match="two chains"):
        connect(node.url, SystemClock(), deployment=deployment, chain_id=1)
    with pytest.raises(ConfigError, match="can't be read"):
        connect(node.url, SystemClock(), deployment=tmp_path / "none.json")
    (tmp_path / "bad.json").write_text('{"chain_id": "x"}')
    with pytest.raises(ConfigError, match="no deployment file"):
        connect(node.url, SystemClock(), deployment=tmp_path / "bad.json")
