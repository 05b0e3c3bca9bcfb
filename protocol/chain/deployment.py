"""The deployment file: which contracts on which chain, so that a role that is pointed to it can't mistake another.

In: `Contracts`, or a file of `proofpool chain deploy`. Out: `Deployment`. It says more than the Ledger's address does:
a local chain that was started anew has the same chain id and, at the same addresses, the same code with another salt.
Each role also keeps one in its data folder, and goes on only with the contracts that it began with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from protocol.address import small
from protocol.api import ContractAddresses
from protocol.chain.contracts import NAMES, Contracts
from protocol.clock import Clock
from protocol.errors import ConfigError, WrongChain
from protocol.files import write_atomically
from protocol.wire import Address, Hash32, UInt64

FILE_NAME = "deployment.json"


class DeployedContract(BaseModel):
    """Where a contract is, and keccak256 of the code that was there when the file was written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: Address
    code_hash: Hash32


class Deployment(BaseModel):
    """Example: `read_deployment(Path("deployment.json")).ledger`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    chain_id: UInt64
    block: UInt64
    """Nothing of this deployment is in an earlier one."""
    salt: Hash32
    contracts: dict[Literal["credits", "registry", "pools", "ledger", "court", "jury"], DeployedContract]

    @model_validator(mode="after")
    def _names_all(self) -> Deployment:
        if missing := [name for name in NAMES if name not in self.contracts]:
            raise ValueError(f"there is no {', no '.join(missing)}")
        return self

    @classmethod
    def of(cls, contracts: Contracts, block: int) -> Deployment:
        """What a node serves now."""
        found = {
            name: DeployedContract(
                address=contracts.address(name), code_hash=contracts.client.code_hash(contracts.address(name))
            )
            for name in NAMES
        }
        return cls.model_validate(
            {"chain_id": contracts.client.chain_id, "block": block, "salt": contracts.salt, "contracts": found}
        )

    @property
    def ledger(self) -> str:
        return self.contracts["ledger"].address

    @property
    def addresses(self) -> ContractAddresses:
        return ContractAddresses.model_validate({name: one.address for name, one in self.contracts.items()})

    def connect(self, url: str, clock: Clock) -> Contracts:
        """This very deployment at a node. Raises WrongChain for any other, ChainError where nobody answers."""
        contracts = Contracts.connect(url, self.ledger, clock, chain_id=self.chain_id)
        try:
            self.check(contracts)
        except BaseException:
            contracts.client.rpc.close()
            raise
        return contracts

    def check(self, contracts: Contracts) -> None:
        """Raises WrongChain where a node serves another deployment."""
        found = Deployment.of(contracts, self.block)
        for name in ("chain_id", "salt", "contracts"):
            if (theirs := getattr(found, name)) != (ours := getattr(self, name)):
                differing = name if name != "contracts" else ", ".join(n for n in NAMES if theirs[n] != ours[n])
                raise WrongChain(
                    "the chain has another deployment than the one that was expected",
                    f"{differing} of Ledger {found.ledger} on chain {found.chain_id} at {contracts.client.rpc.url}",
                    "the contracts were deployed again, or the chain was started anew: name the deployment file that "
                    "belongs to it, and give the role a new data folder",
                )


def connect(
    url: str, clock: Clock, *, deployment: Path | None = None, ledger: str | None = None, chain_id: int | None = None
) -> Contracts:
    """What a role was told to use: a deployment file, or the Ledger's address, checked against each other.

    Raises ConfigError where nothing is named or two things differ, WrongChain, ChainError.
    """
    expected = named_deployment(deployment, ledger)
    if expected is None:
        assert ledger is not None
        return Contracts.connect(url, ledger, clock, chain_id=chain_id)
    if chain_id is not None and chain_id != expected.chain_id:
        raise ConfigError(
            "two chains are named", f"chain {chain_id}, and {expected.chain_id} in {deployment}", "name one"
        )
    return expected.connect(url, clock)


def named_deployment(deployment: Path | None, ledger: str | None) -> Deployment | None:
    """What the file says; None where the Ledger's address is all that is named. No node is asked.

    Raises ConfigError where neither is named, the file can't be read, or it has another Ledger.
    """
    if deployment is None:
        if ledger is None:
            raise ConfigError(
                "no contracts are named",
                "neither `deployment` nor `ledger` is set",
                "give --deployment or --ledger, or set one of them in the file",
            )
        return None
    expected = read_deployment(deployment)
    if ledger is not None and small(ledger, "the Ledger") != expected.ledger:
        raise ConfigError(
            "two deployments are named", f"Ledger {ledger}, and {expected.ledger} in {deployment}", "name one"
        )
    return expected


def stay_with(folder: Path, contracts: Contracts) -> None:
    """Bind a data folder to its deployment at the first start; later, refuse any other. Raises WrongChain."""
    file = folder / FILE_NAME
    if file.exists():
        read_deployment(file).check(contracts)
    else:
        write_deployment(file, Deployment.of(contracts, contracts.client.head().number))


def write_deployment(file: Path, deployment: Deployment) -> None:
    write_atomically(file, deployment.model_dump_json(indent=2).encode() + b"\n")


WRITTEN_BY = "`proofpool chain deploy` writes one; that of a data folder may be moved away, and is then written anew"


def read_deployment(file: Path) -> Deployment:
    """Raises ConfigError."""
    try:
        return Deployment.model_validate_json(file.read_bytes())
    except OSError as error:
        why = f"{file}: {error.strerror}"
        raise ConfigError("a deployment file can't be read", why, WRITTEN_BY) from error
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{file}: {first['msg']} at `{'.'.join(map(str, first['loc']))}`"
        raise ConfigError("this is no deployment file", why, WRITTEN_BY) from error
