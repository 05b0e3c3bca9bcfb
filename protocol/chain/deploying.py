"""Deploying all contracts from a real account, so that a kill in the middle costs nothing but the time.

    plan (nonce, salt) on disk ─▶ a transaction a contract ─▶ code checked ─▶ deployment file, plan deleted

In: a node, a key, the constructors' parameters, where the file goes. Out: `Deployment`. The addresses follow from the
account's nonce, so the plan is written before the first transaction, and a second run goes on where the first was.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from contracts.artifacts import CONTRACT_NAMES
from contracts.deployment import Addresses, DeploymentError, Parameters, deploy, predict_addresses
from protocol.chain.client import ChainClient
from protocol.chain.contracts import Contracts
from protocol.chain.deployment import Deployment, write_deployment
from protocol.chain.journal import Journal
from protocol.chain.lane import Lane
from protocol.chain.watch import LanePolicy
from protocol.clock import Clock
from protocol.errors import AccountShared, ChainError, ConfigError
from protocol.files import write_atomically
from protocol.signing import Signer


class DeployPlan(BaseModel):
    """What an unfinished deployment must go on with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    chain_id: int
    deployer: str
    first_nonce: int
    block: int
    minter: str
    unbonding_seconds: int
    salt: str

    @property
    def parameters(self) -> Parameters:
        return Parameters(self.minter, self.unbonding_seconds, self.salt)

    @property
    def addresses(self) -> Addresses:
        return predict_addresses(self.deployer, self.first_nonce)


def plan_file(out: Path) -> Path:
    return out.with_name(f"{out.name}.plan")


def journal_file(out: Path) -> Path:
    return out.with_name(f"{out.name}.transactions")


def make_plan(client: ChainClient, signer: Signer, out: Path, parameters: Parameters) -> DeployPlan:
    """The plan that an earlier run left, or a new one, on disk.

    Raises ConfigError where there is a deployment already, or a plan of another account or for another chain.
    """
    if out.exists():
        raise ConfigError("a deployment file is already there", str(out), "choose another name: none is overwritten")
    file = plan_file(out)
    if file.exists():
        plan = _read(file)
        if (plan.chain_id, plan.deployer) != (client.chain_id, signer.address):
            raise ConfigError(
                "an unfinished deployment is somebody else's",
                f"{file}: account {plan.deployer} on chain {plan.chain_id}",
                "go on with that key and chain, or delete the plan and begin anew",
            )
        return plan
    plan = DeployPlan(
        chain_id=client.chain_id,
        deployer=signer.address,
        first_nonce=client.transaction_count(signer.address, "pending"),
        block=client.head().number,
        minter=parameters.minter,
        unbonding_seconds=parameters.unbonding_seconds,
        salt=parameters.salt,
    )
    write_atomically(file, plan.model_dump_json(indent=2).encode() + b"\n")
    return plan


def carry_out(
    client: ChainClient, signer: Signer, clock: Clock, out: Path, plan: DeployPlan, policy: LanePolicy | None = None
) -> Deployment:
    """Send what isn't on chain yet, check everything, write `out`. Raises ChainError, TransactionReverted."""
    journal = Journal(journal_file(out))
    try:
        lane = Lane(client, signer, clock, policy, journal)
        deploy(_Creations(client, lane, plan).send, plan.deployer, plan.first_nonce, plan.parameters)
    except (DeploymentError, AccountShared) as error:
        raise ChainError(
            "the account sent something else while the contracts were being deployed",
            str(error),
            f"delete {plan_file(out)} and deploy anew, with nothing else using the account",
        ) from error
    finally:
        journal.close()
    contracts = Contracts.connect(client.rpc.url, plan.addresses.ledger, clock, chain_id=plan.chain_id)
    try:
        deployment = Deployment.of(contracts, plan.block)
    finally:
        contracts.client.rpc.close()
    write_deployment(out, deployment)
    for file in (plan_file(out), journal_file(out)):
        file.unlink()
    return deployment


class _Creations:
    """The contracts one after the other; those that are on chain already are passed over."""

    def __init__(self, client: ChainClient, lane: Lane, plan: DeployPlan) -> None:
        self._client = client
        self._lane = lane
        self._nonces: Iterator[int] = iter(range(plan.first_nonce, plan.first_nonce + len(CONTRACT_NAMES)))
        self._addresses = iter([plan.addresses.of(name) for name in CONTRACT_NAMES])

    def send(self, init_code: bytes) -> str:
        """The new contract's address. Raises DeploymentError where its nonce is gone."""
        address, nonce = next(self._addresses), next(self._nonces)
        if self._client.code(address):
            return address
        if self._client.transaction_count(self._lane.address) > nonce:
            raise DeploymentError(f"nonce {nonce} of {self._lane.address} is used, and {address} holds no contract")
        return str(self._lane.send(None, init_code).contract_address)


def _read(file: Path) -> DeployPlan:
    try:
        return DeployPlan.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise ConfigError("this is no plan of a deployment", str(file), "delete it and begin anew") from error
