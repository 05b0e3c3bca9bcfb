"""`proofpool worker init`: from a coordinator's address to a configuration file, the node's key, and what comes next.

    coordinator /v1/pool ─▶ pool, Ledger, terms ─▶ node at the chain's URL: same id, the code that we know?
        ─▶ key of the node, made where there is none ─▶ worker.toml ─▶ consent.json, where a provider is named

In: a few answers. Out: files, none of them overwritten, and the commands that follow. The Ledger is pinned in the file:
from then on the coordinator can name no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.api import PoolInfo
from protocol.chain.contracts import Contracts
from protocol.chain.deployment import connect
from protocol.chain.pool import ChainPool
from protocol.client import CoordinatorClient
from protocol.clock import SystemClock
from protocol.errors import ConfigError, VerificationFailed
from protocol.files import write_new
from protocol.keystore import LOCAL_CHAIN_IDS, STRONG_SCRYPT_N, check_private, create_keystore, open_keystore
from protocol.signing import Signer
from protocol.wire import Address, Hash32, UInt64, Wei
from worker.config import WorkerConfig
from worker.provider.consent import CONSENT_FILE, make_consent, write_consent

CONSENT_SECONDS = 72 * 3600


@dataclass(frozen=True)
class Answers:
    """What is asked. `provider` None: the node agrees to work for nobody yet."""

    coordinator_url: str
    chain_url: str
    keystore: Path
    password_file: Path | None
    data_dir: Path
    out: Path
    engine: Literal["torch", "vllm"]
    provider: str | None


class InitReport(BaseModel):
    """What was made. `next` are the commands that lead to the first accepted work."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    file: str
    keystore: str
    made_key: bool
    consent_file: str | None
    consent_deadline: UInt64 | None
    """When the consent ends, in chain seconds."""
    node: Address
    pool_id: int
    chain_id: int
    ledger: Address
    rules_hash: Hash32
    price_wei: Wei
    min_allotment_wei: Wei
    next: tuple[str, ...]


def init(answers: Answers, password: str) -> InitReport:
    """`password` is the keystore's. Raises ConfigError where a file is in the way, Unreachable, KeyFailure."""
    _check_free(answers.out)
    consent_file = answers.out.parent / CONSENT_FILE if answers.provider else None
    if consent_file is not None:
        _check_free(consent_file)
    with closing(CoordinatorClient(answers.coordinator_url)) as client:
        pool = client.pool()
    contracts = connect(answers.chain_url, SystemClock(), ledger=pool.contracts.ledger, chain_id=pool.chain_id)
    with closing(contracts.client.rpc):
        _check_pool(contracts, pool)
        is_new = not answers.keystore.exists()
        deadline = None
        node = _key(answers.keystore, password, is_new=is_new)
        if answers.provider is not None and consent_file is not None:
            consent = make_consent(contracts, node, answers.provider, CONSENT_SECONDS)
            write_consent(consent_file, consent)
            deadline = consent.authorization.message.deadline
    write_new(answers.out, "\n".join(config_lines(answers, pool)).encode())
    return InitReport(
        file=str(answers.out),
        keystore=str(answers.keystore),
        made_key=is_new,
        consent_file=str(consent_file) if consent_file else None,
        consent_deadline=deadline,
        node=node.address,
        pool_id=pool.pool_id,
        chain_id=pool.chain_id,
        ledger=pool.contracts.ledger,
        rules_hash=pool.rules_hash,
        price_wei=pool.price_wei,
        min_allotment_wei=pool.min_allotment_wei,
        next=tuple(_next(answers, pool, consent_file)),
    )


def _check_free(file: Path) -> None:
    if file.exists():
        raise ConfigError("there is a file already", str(file), "choose another name with --out, or move it away")


def _check_pool(contracts: Contracts, pool: PoolInfo) -> None:
    """The chain's word on what the coordinator says of itself."""
    record = ChainPool(contracts, pool.pool_id).record()
    if record.coordinator != pool.coordinator:
        raise VerificationFailed(
            "the chain names another coordinator for this pool",
            f"{record.coordinator}, not {pool.coordinator}",
            "ask whoever gave you the address",
        )


def _key(keystore: Path, password: str, *, is_new: bool) -> Signer:
    if is_new:
        return create_keystore(keystore, password, scrypt_n=STRONG_SCRYPT_N)
    check_private(keystore)
    return open_keystore(keystore, password)


def config_lines(answers: Answers, pool: PoolInfo) -> Iterator[str]:
    """The file: what was asked, and the settings that people change, as comments with their defaults."""
    yield f"# Worker of pool {pool.pool_id} on chain {pool.chain_id}; all settings: docs/worker.md."
    yield f"coordinator_url = {_text(answers.coordinator_url)}"
    yield f"chain_url = {_text(answers.chain_url)}       # a node that you trust: beacons and weights are checked by it"
    yield f"pool_id = {pool.pool_id}"
    yield f"ledger = {_text(pool.contracts.ledger)}   # pinned: its code was checked when this file was made"
    yield ""
    yield "# The node's key signs work and holds no money. The provider's key has no place on this machine."
    yield f"keystore = {_text(str(answers.keystore.absolute()))}"
    if answers.password_file is not None:
        yield f"password_file = {_text(str(answers.password_file.absolute()))}"
    else:
        yield '# password_file = "…"          # mode 0600; without it the variable PROOFPOOL_PASSWORD'
    yield f"data_dir = {_text(str(answers.data_dir.absolute()))}"
    yield ""
    yield f"engine = {_text(answers.engine)}"
    for name, meaning in COMMENTED.items():
        yield f"# {name} = {_default(name)}".ljust(38) + f"# {meaning}"
    yield ""


COMMENTED = {
    "max_batch": "rollouts that decode together: more is faster, and takes memory",
    "num_threads": "as many as there are cores to spare",
    "metrics_address": "Prometheus and /healthz: docs/metrics.md",
    "alert_webhook_file": "its first line is the URL that alerts are posted to",
    "alert_minutes": "an alert once nothing was accepted for so long",
}
_EXAMPLES = {"metrics_address": '"127.0.0.1:9464"', "alert_webhook_file": '"webhook"'}


def _default(name: str) -> str:
    return _EXAMPLES.get(name) or str(WorkerConfig.model_fields[name].default)


def _text(value: str) -> str:
    """As TOML writes it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _next(answers: Answers, pool: PoolInfo, consent_file: Path | None) -> Iterator[str]:
    if pool.chain_id in LOCAL_CHAIN_IDS:
        who = answers.provider or "ADDRESS"
        yield f"proofpool chain faucet {who} --chain {answers.chain_url} --ledger {pool.contracts.ledger}"
    if consent_file is None:
        yield f"proofpool worker consent --config {answers.out} --provider ADDRESS --out {CONSENT_FILE}"
    consent = consent_file or CONSENT_FILE
    where = f"--coordinator {answers.coordinator_url} --chain {answers.chain_url}"
    yield f"proofpool provider register {consent} {where}"
    yield f"proofpool worker run --config {answers.out}"
    yield f"proofpool worker status --config {answers.out}"
