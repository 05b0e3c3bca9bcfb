"""A node's consent to work for a provider: signed where the node's key lies, sent from where the provider's does.

    worker's machine: node key ─ signs provider, nonce, deadline ─▶ consent.json ─▶ provider's machine: addNode

In: the chain's nonce of the node, and who the provider is. Out: `NodeConsent`, a small file that isn't secret: it is of
use to that provider only, once, on that deployment, until the deadline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from protocol.chain.contracts import Contracts, Read
from protocol.errors import NotEligible, SignatureInvalid, UsageError, VerificationFailed
from protocol.events import utc
from protocol.files import write_new
from protocol.signing import Signer, SigningDomain
from protocol.wire import ZERO_ADDRESS, Address, Hash32, NodeAuthorization, Signed, UInt64
from worker.provider.wallet import Wallet

CONSENT_FILE = "consent.json"
"""Where `worker init` puts it, beside the configuration."""
MAX_FILE_BYTES = 64 << 10


class NodeConsent(BaseModel):
    """The document of `proofpool worker consent`, and the file that `provider authorize` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    kind: Literal["node-consent"] = "node-consent"
    chain_id: UInt64
    registry: Address
    deployment_salt: Hash32
    authorization: Signed[NodeAuthorization]

    @property
    def node(self) -> str:
        return self.authorization.message.node

    def check(self, domain: SigningDomain) -> NodeAuthorization:
        """Raises VerificationFailed unless the node signed this for this deployment."""
        own = (self.chain_id, self.registry, self.deployment_salt)
        if own != (domain.chain_id, domain.contract, domain.salt):
            theirs, ours = f"{self.registry} on {self.chain_id}", f"{domain.contract} on {domain.chain_id}"
            why = f"for Registry {theirs}, here it is {ours}"
            raise VerificationFailed("the consent is for another deployment", why, "have it made for this one")
        try:
            return self.authorization.check(self.node, domain)
        except SignatureInvalid as error:
            todo = "take the file as the node's machine wrote it, or have it made anew"
            raise VerificationFailed("the consent isn't signed by its node", error.why, todo) from error


def make_consent(contracts: Contracts, node: Signer, provider: str, valid_seconds: int) -> NodeConsent:
    """Signed by the node's key, good for so long. Raises NotEligible where another provider has the node."""
    owner, is_active_for, nonce = contracts.read_all(
        [Read("registry", name, (node.address,)) for name in ("ownerOf", "providerOf", "nonces")]
    )
    if owner not in (ZERO_ADDRESS, provider):
        why = f"{node.address} is of {owner}"
        raise NotEligible("the node is another provider's", why, "a key never moves: `proofpool key new` makes one")
    if is_active_for == provider:
        raise NotEligible("the node works for this provider already", node.address, "it needs no consent: run it")
    message = NodeAuthorization(
        provider=provider,
        node=node.address,
        nonce=nonce,
        deadline=contracts.client.head().timestamp + valid_seconds,
    )
    domain = contracts.registry_domain
    return NodeConsent(
        chain_id=domain.chain_id,
        registry=domain.contract,
        deployment_salt=domain.salt,
        authorization=Signed[NodeAuthorization].by(node, message, domain),
    )


def write_consent(file: Path, consent: NodeConsent) -> None:
    """Raises UsageError where there is a file already."""
    check_free(file)
    try:
        write_new(file, consent.model_dump_json(indent=1).encode() + b"\n")
    except FileExistsError:
        check_free(file)
        raise


def check_free(file: Path) -> None:
    """Raises UsageError where there is a file: a consent that is there already may be on its way."""
    if file.exists() or file.is_symlink():
        raise UsageError("there is a file already", str(file), "choose another name with --out, or move it away")


def read_consent(file: Path) -> NodeConsent:
    """Raises UsageError for any other file."""
    todo = "name the file that `proofpool worker consent` wrote on the node's machine"
    try:
        with file.open("rb") as opened:
            return NodeConsent.model_validate_json(opened.read(MAX_FILE_BYTES))
    except OSError as error:
        raise UsageError("the consent can't be read", f"{file}: {error.strerror}", todo) from error
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{file}: {first['msg']} at `{'.'.join(map(str, first['loc']))}`"
        raise UsageError("that is no node's consent", why, todo) from error


def check_usable(consent: NodeConsent, wallet: Wallet) -> NodeAuthorization:
    """Raises VerificationFailed for a false one, NotEligible where the Registry would refuse it now."""
    message = consent.check(wallet.contracts.registry_domain)
    if message.provider != wallet.address:
        why = f"the node agrees to work for {message.provider}, this is {wallet.address}"
        raise NotEligible("the consent is for another provider", why, "use that provider's key, or have it made anew")
    if wallet.time() > message.deadline:
        why = f"it was good until {utc(message.deadline)}"
        raise NotEligible("the consent has expired", why, "have it made anew: `proofpool worker consent`")
    if (nonce := wallet.read("registry", "nonces", message.node)) != message.nonce:
        why = f"it has nonce {message.nonce}, the node is at {nonce}"
        raise NotEligible("the consent is used up", why, "have it made anew: `proofpool worker consent`")
    return message
