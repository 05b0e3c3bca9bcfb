"""The contracts of a deployment: their addresses, calls in words, and which event a log is.

In: a node's URL and the Ledger's address. Out: `Contracts`, after the chain's code at every address was compared
with the committed artifacts. Contracts go by lower-case name ("ledger"), functions and events by the name in the
contract, values as `protocol/chain/abi.py` says. The other addresses and the salt are asked of the Ledger, so one
address names a deployment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from contracts import artifacts
from protocol.address import small
from protocol.api import ContractAddresses
from protocol.canonical import JsonValue, hex0x
from protocol.chain.abi import ContractAbi, ErrorTable
from protocol.chain.block import Log, Receipt, bytes_of, number_of
from protocol.chain.client import ChainClient
from protocol.chain.lane import Lane
from protocol.chain.rpc import JsonRpc, block_tag
from protocol.clock import Clock
from protocol.errors import NodeRefused, WrongChain
from protocol.signing import SigningDomain

_ARTIFACT_OF = {name.lower(): name for name in artifacts.CONTRACT_NAMES}
NAMES = tuple(_ARTIFACT_OF)
EVENT_SOURCES = ("registry", "pools", "ledger", "court", "jury")
"""The contracts whose events say something about a pool."""


@dataclass(frozen=True)
class NamedEvent:
    """A contract's event, with arguments by snake_case name."""

    contract: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Read:
    """A view to ask, for `Contracts.read_all`.

    Example: `Read("ledger", "epochBeacon", (1, 0))`.
    """

    contract: str
    function: str
    arguments: tuple[Any, ...] = ()


@cache
def abi_of(contract: str) -> ContractAbi:
    """The binding of a contract by its lower-case name."""
    return ContractAbi(artifacts.load(_ARTIFACT_OF[contract]).abi)


class Contracts:
    """One deployment at one node.

    Example: `Contracts.connect(url, ledger, clock).read("ledger", "epochCount", 1)`.
    """

    def __init__(self, client: ChainClient, addresses: ContractAddresses, salt: str) -> None:
        self.client = client
        self.addresses = addresses
        self.salt = salt
        self._name_at = {self.address(name): name for name in NAMES}

    @classmethod
    def connect(cls, url: str, ledger: str, clock: Clock, *, chain_id: int | None = None) -> Contracts:
        """Find the deployment and check it. `chain_id` None takes the node's, for who learns it only here.

        Raises WrongChain for another chain id or code, ChainError where nobody answers.
        """
        rpc = JsonRpc(url, clock=clock)
        try:
            return cls._checked(rpc, small(ledger, "the Ledger"), chain_id)
        except BaseException:
            rpc.close()
            raise

    @classmethod
    def _checked(cls, rpc: JsonRpc, ledger: str, chain_id: int | None) -> Contracts:
        expected = number_of(rpc.call("eth_chainId"), "eth_chainId") if chain_id is None else chain_id
        client = ChainClient(rpc, expected, ErrorTable.of(map(abi_of, NAMES)))
        client.check_chain()
        _check_code(client, "ledger", ledger)
        contracts = cls(client, *_deployment(client, ledger))
        contracts.check_code()
        return contracts

    @property
    def domain(self) -> SigningDomain:
        """Of every message but node authorizations."""
        return SigningDomain(self.client.chain_id, self.addresses.ledger, self.salt)

    @property
    def registry_domain(self) -> SigningDomain:
        """Of node authorizations."""
        return SigningDomain(self.client.chain_id, self.addresses.registry, self.salt)

    @property
    def event_addresses(self) -> list[str]:
        """Of the contracts in `EVENT_SOURCES`."""
        return [self.address(name) for name in EVENT_SOURCES]

    def address(self, contract: str) -> str:
        return str(getattr(self.addresses, contract))

    def check(self) -> None:
        """Raises WrongChain unless the node still serves this chain with this very deployment."""
        self.client.check_chain()
        self.check_code()
        if (found := _deployment(self.client, self.addresses.ledger)) != (self.addresses, self.salt):
            raise WrongChain(
                "the contracts were deployed again while they were in use",
                f"salt {found[1]} at Ledger {self.addresses.ledger}, it was {self.salt}",
                "start anew with the deployment that the chain has now",
            )

    def check_code(self) -> None:
        """Raises WrongChain unless each address holds the code that this version was built for."""
        for name in NAMES:
            _check_code(self.client, name, self.address(name))

    def read(self, contract: str, function: str, *arguments: Any, block: int | str = "latest") -> Any:
        """A view's answer at a block. Raises TransactionReverted."""
        answer = self.client.call(self.address(contract), encode(contract, function, *arguments), block=block)
        return abi_of(contract).decode_result(function, answer)

    def read_all(self, reads: Sequence[Read], block: int | str = "latest") -> list[Any]:
        """The answers of several views, from one request. Raises TransactionReverted for the first refused one."""
        calls = []
        for read in reads:
            data = hex0x(encode(read.contract, read.function, *read.arguments))
            calls.append(("eth_call", [{"to": self.address(read.contract), "data": data}, block_tag(block)]))
        try:
            answers = self.client.rpc.batch(calls)
        except NodeRefused as error:
            raise self.client.explain(error) from error
        return [
            abi_of(read.contract).decode_result(read.function, bytes_of(answer, read.function))
            for read, answer in zip(reads, answers, strict=True)
        ]

    def send(self, lane: Lane, contract: str, function: str, *arguments: Any) -> Receipt:
        """Send a call and wait until it's mined. Raises TransactionReverted, ChainError."""
        return lane.send(self.address(contract), encode(contract, function, *arguments))

    def decode(self, log: Log) -> NamedEvent | None:
        """None where the log is no event of these contracts."""
        name = self._name_at.get(log.address)
        event = None if name is None else abi_of(name).decode_event(log.topics, log.data)
        return None if name is None or event is None else NamedEvent(name, event.name, event.arguments)

    def events(self, receipt: Receipt) -> list[NamedEvent]:
        """What a transaction did, in order."""
        return [event for log in receipt.logs if (event := self.decode(log)) is not None]


def as_text(value: Any) -> JsonValue:
    """Arguments as the log has them: integers are decimal strings, since amounts pass 2^53."""
    if isinstance(value, dict):
        return {name: as_text(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_text(item) for item in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def encode(contract: str, function: str, *arguments: Any) -> bytes:
    """The data of a call."""
    return abi_of(contract).encode_call(function, *arguments)


def _check_code(client: ChainClient, name: str, address: str) -> None:
    if not artifacts.load(_ARTIFACT_OF[name]).matches(client.code(address)):
        raise WrongChain(
            f"the code at the {name}'s address isn't the one that this version was built for",
            f"{address} on chain {client.chain_id}",
            "check the Ledger's address and `chain_url`, or install the version that the pool names",
        )


def _deployment(client: ChainClient, ledger: str) -> tuple[ContractAddresses, str]:
    """The other contracts' addresses and the salt, as the Ledger and the Registry name them."""

    def ask(contract: str, at: str, function: str) -> str:
        return str(abi_of(contract).decode_result(function, client.call(at, encode(contract, function))))

    found: Mapping[str, str] = {name: ask("ledger", ledger, name) for name in ("registry", "pools", "court", "jury")}
    credits = ask("registry", found["registry"], "credits")
    addresses = ContractAddresses(credits=credits, ledger=ledger, **found)
    return addresses, ask("ledger", ledger, "deploymentSalt")
