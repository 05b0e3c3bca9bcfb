"""All contracts come to stand where they were told that the others would be, and know each other."""

import pytest
import sha3
from eth_abi import decode
from eth_tester import EthereumTester, PyEVMBackend

from contracts.artifacts import CONTRACT_NAMES, load
from contracts.deployment import Addresses, DeploymentError, Parameters, deploy, predict_address

SALT = "0x" + "5a" * 32
WIRING = {
    "registry": ("credits", "pools", "ledger", "court", "jury"),
    "pools": ("credits", "registry", "ledger"),
    "ledger": ("pools", "registry", "court", "jury"),
    "court": ("credits", "registry", "pools", "ledger", "jury"),
    "jury": ("credits", "registry", "pools", "ledger", "court"),
}


@pytest.fixture(scope="module")
def chain() -> EthereumTester:
    return EthereumTester(PyEVMBackend())


@pytest.fixture(scope="module")
def parameters(chain) -> Parameters:
    return Parameters(minter=chain.get_accounts()[1].lower(), unbonding_seconds=60, salt=SALT)


@pytest.fixture(scope="module")
def deployed(chain, parameters) -> Addresses:
    deployer = chain.get_accounts()[0]
    return deploy(lambda code: create(chain, deployer, code), deployer, chain.get_nonce(deployer), parameters)


def create(chain, deployer: str, code: bytes) -> str:
    sent = chain.send_transaction({"from": deployer, "data": "0x" + code.hex(), "gas": 6_000_000, "value": 0})
    return chain.get_transaction_receipt(sent)["contract_address"]


def call(chain, address: str, signature: str, kind: str):
    data = "0x" + sha3.keccak_256(signature.encode()).hexdigest()[:8]
    result = chain.call({"from": chain.get_accounts()[0], "to": address, "data": data, "gas": 1_000_000})
    return decode([kind], bytes.fromhex(result.removeprefix("0x")))[0]


def test_every_contract_names_the_others(chain, deployed):
    for contract, others in WIRING.items():
        for other in others:
            found = call(chain, getattr(deployed, contract), f"{other}()", "address")
            assert found == getattr(deployed, other), f"{contract} names another {other}"


def test_parameters_reach_the_contracts(chain, deployed, parameters):
    assert call(chain, deployed.credits, "minter()", "address") == parameters.minter
    assert call(chain, deployed.registry, "unbonding()", "uint64") == 60
    for contract in ("registry", "ledger"):
        assert call(chain, getattr(deployed, contract), "deploymentSalt()", "bytes32") == bytes.fromhex("5a" * 32)


def test_code_on_chain_matches_its_artifact_and_no_other(chain, deployed):
    for contract in CONTRACT_NAMES:
        code = bytes.fromhex(chain.get_code(deployed.of(contract)).removeprefix("0x"))
        assert [name for name in CONTRACT_NAMES if load(name).matches(code)] == [contract]
        assert not load(contract).matches(code[:-1] + bytes([code[-1] ^ 1]))


def test_a_wrong_nonce_is_noticed_at_the_first_contract(chain, parameters):
    deployer = chain.get_accounts()[2]
    codes: list[bytes] = []

    def send(code: bytes) -> str:
        codes.append(code)
        return create(chain, deployer, code)

    with pytest.raises(DeploymentError, match="Credits is at"):
        deploy(send, deployer, chain.get_nonce(deployer) + 1, parameters)
    assert len(codes) == 1


def test_predicted_addresses_are_ethereums():
    # The example that is usually given for the rule of CREATE.
    deployer = "0x6ac7ea33f8831ea9dcc53393aaa88b25a785dbf0"
    assert predict_address(deployer, 0) == "0xcd234a471b72ba2f1ccf0a70fcaba648a5eecd8d"
    assert predict_address(deployer, 1) == "0x343c43a37d37dff08ae8c4a11544c718abb4fcf8"
