"""What of the node's world a worker needs: key, coordinator, clock, chain, registration, stake, rules, whole weights.

In: `WorkerConfig`. Out: findings. Who doesn't answer is one finding; what hangs on the answer is left out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from protocol.amount import format_amount
from protocol.api import PoolInfo
from protocol.chain.contracts import Contracts
from protocol.chain.deployment import connect
from protocol.chain.pool import ChainPool
from protocol.client import CoordinatorClient, base_url
from protocol.clock import SystemClock
from protocol.doctor import Finding
from protocol.environments.registry import environment_of
from protocol.errors import ProofpoolError, Rejected, UsageError
from protocol.http import LIFETIME_SECONDS, RequestSigner, todo_for_host
from protocol.keystore import load_signer
from protocol.patience import impatient
from protocol.reasons import RejectReason
from protocol.shardcast.folder import is_intact, version_folder
from protocol.tokenizer import Tokenizer
from protocol.wire import ZERO_ADDRESS
from worker.config import WorkerConfig
from worker.folder import contents, owner_of
from worker.provider.consent import CONSENT_FILE, read_consent
from worker.status import node_of

ELIGIBILITY = ("registration", "stake")
"""Checks whose failure is no fault of the machine: exit code 6."""
MAX_SKEW_SECONDS = LIFETIME_SECONDS / 2
MAX_BLOCK_AGE_SECONDS = 120
ASK_SECONDS = 10.0


def node_findings(config: WorkerConfig) -> Iterator[Finding]:
    yield _keystore(config)
    with closing(CoordinatorClient(config.coordinator_url)) as client:
        try:
            pool = client.configured_pool(config.pool_id, config.ledger)
        except ProofpoolError as error:
            yield _failed("coordinator", error)
            pool = None
        if pool is not None:
            yield _coordinator(config, pool)
            yield _clock(config)
        contracts, finding = _chain(config, pool)
        yield finding
        if pool is not None and contracts is not None:
            yield from _requests(config, contracts)
        if contracts is not None:
            with closing(contracts.client.rpc):
                yield from _on_chain(config, ChainPool(contracts, config.pool_id), pool)
        else:
            yield from _weights(config, None)
        if pool is not None:
            yield _rules(config, client, pool)


def _keystore(config: WorkerConfig) -> Finding:
    try:
        signer = load_signer(0, config.keystore, config.password_file)
    except ProofpoolError as error:
        return _failed("keystore", error)
    owner = owner_of(config.data_dir)
    if owner not in (None, signer.address):
        why = f"it is {signer.address}'s, and {config.data_dir} belongs to {owner}"
        return Finding("keystore", "error", why, "give each node a `data_dir` of its own")
    return Finding("keystore", "ok", f"{config.keystore} opens, mode 0600, node {signer.address}")


def _coordinator(config: WorkerConfig, pool: PoolInfo) -> Finding:
    lag = pool.freshness.lag_seconds
    said = f"{config.coordinator_url} serves pool {pool.pool_id}, {lag:.0f} s behind the chain"
    if lag > MAX_BLOCK_AGE_SECONDS:
        return Finding("coordinator", "warning", said, "nothing here: its operator must see to it")
    return Finding("coordinator", "ok", said)


def _requests(config: WorkerConfig, contracts: Contracts) -> Iterator[Finding]:
    """Whether a request that the node signs is taken: it is made out to one host, and a tunnel or proxy is another."""
    try:
        signer = load_signer(contracts.client.chain_id, config.keystore, config.password_file)
    except ProofpoolError:  # the keystore's own finding says why
        return
    auth = RequestSigner(signer, contracts.domain, SystemClock())
    with closing(CoordinatorClient(config.coordinator_url, auth)) as client:
        try:
            client.open_tasks()
        except Rejected as refusal:
            if refusal.reason is RejectReason.SIGNATURE_INVALID:
                todo = todo_for_host(refusal.why) or refusal.todo
                yield Finding("requests", "error", f"{refusal.what}: {refusal.why}", todo)
                return
        except ProofpoolError as error:
            yield _failed("requests", error)
            return
    yield Finding("requests", "ok", f"what the node signs is taken at {config.coordinator_url}")


def _clock(config: WorkerConfig) -> Finding:
    """Signed requests expire: a clock that is off has all of them refused."""
    before = datetime.now(UTC)
    try:
        url = f"{base_url(config.coordinator_url)}/v1/healthz"
        with impatient(httpx.Client(timeout=ASK_SECONDS)) as http, http.stream("GET", url) as answer:
            there = parsedate_to_datetime(answer.headers["Date"])
    except (httpx.HTTPError, httpx.InvalidURL, KeyError, ValueError):
        return Finding("clock", "warning", "the coordinator doesn't say its time", "compare it with another clock")
    here = before + (datetime.now(UTC) - before) / 2
    # RFC 5322, 3.3: the zone -0000 is UTC as well, and Python tells it as none.
    skew = (here - (there if there.tzinfo else there.replace(tzinfo=UTC))).total_seconds()
    said = f"{skew:+.0f} s against the coordinator's"
    if abs(skew) > MAX_SKEW_SECONDS:
        return Finding("clock", "error", said, "set this machine's clock (NTP): signed requests are refused else")
    return Finding("clock", "ok", said)


def _chain(config: WorkerConfig, pool: PoolInfo | None) -> tuple[Contracts | None, Finding]:
    ledger = config.ledger or (pool.contracts.ledger if pool else None)
    if ledger is None and config.deployment is None:
        why = "not asked: neither configuration nor coordinator names the Ledger"
        return None, Finding("chain", "warning", why, "set `ledger`, or mend `coordinator_url`")
    try:
        contracts = connect(
            config.chain_url,
            SystemClock(),
            deployment=config.deployment,
            ledger=ledger,
            chain_id=pool.chain_id if pool else None,
        )
        head = contracts.client.head()
    except ProofpoolError as error:
        return None, _failed("chain", error)
    age = datetime.now(UTC).timestamp() - head.timestamp
    said = f"chain {contracts.client.chain_id}, the contracts' code is right, block {head.number} is {age:.0f} s old"
    if age > MAX_BLOCK_AGE_SECONDS:
        return contracts, Finding("chain", "warning", said, "is the node at `chain_url` in sync?")
    return contracts, Finding("chain", "ok", said)


def _on_chain(config: WorkerConfig, chain: ChainPool, pool: PoolInfo | None) -> Iterator[Finding]:
    try:
        node = node_of(config)
        provider, allotted = chain.provider_of(node), chain.allotment_wei(node)
    except ProofpoolError as error:
        yield _failed("registration", error)
        return
    if provider == ZERO_ADDRESS:
        yield Finding("registration", "error", f"node {node} isn't registered", _registering(config, node))
    else:
        yield Finding("registration", "ok", f"node {node} of provider {provider}")
    if pool is not None:
        yield _stake(config, node, allotted, pool.min_allotment_wei)
    yield from _weights(config, chain)


def _registering(config: WorkerConfig, node: str) -> str:
    """What takes the node in; `worker init` lays a consent beside the data folder."""
    where = f"--coordinator {base_url(config.coordinator_url)} --chain {config.chain_url}"
    file = config.data_dir.parent / CONSENT_FILE
    try:
        is_made = file.exists() and read_consent(file).node == node
    except UsageError:  # it is no consent: as good as none
        is_made = False
    register = f"proofpool provider register {shlex.quote(str(file)) if is_made else CONSENT_FILE} {where}"
    if is_made:
        return f"`{register}` with the provider's key"
    return (
        f"`proofpool worker consent --provider ADDRESS --out {CONSENT_FILE}`, then `{register}` with the provider's key"
    )


def _stake(config: WorkerConfig, node: str, allotted_wei: int, least_wei: int) -> Finding:
    said = f"{format_amount(allotted_wei)} of {format_amount(least_wei)} credits allotted"
    if allotted_wei < least_wei:
        where = f"--coordinator {base_url(config.coordinator_url)} --chain {config.chain_url}"
        stake = f"proofpool provider stake {format_amount(least_wei - allotted_wei)} --node {node} {where}"
        return Finding("stake", "error", said, f"`{stake}` with the provider's key")
    return Finding("stake", "ok", said)


def _weights(config: WorkerConfig, chain: ChainPool | None) -> Iterator[Finding]:
    """Every byte of what is here, against the hash on chain."""
    versions = contents(config.data_dir).policy_versions
    if not versions:
        yield Finding("weights", "ok", "none here yet: `worker run` fetches them")
    for version in versions:
        if chain is None:
            yield Finding(
                "weights", "warning", f"v{version} is here, unchecked", "the chain has its hash: mend `chain`"
            )
            continue
        folder = version_folder(config.data_dir / "weights", version)
        try:
            whole = is_intact(folder, chain.version(version).manifest_hash)
        except ProofpoolError as error:
            yield _failed("weights", error)
            continue
        if whole:
            yield Finding("weights", "ok", f"v{version} is whole")
        else:
            fix = f"delete {folder}: it is fetched again; if it comes back, check disk and memory"
            yield Finding("weights", "error", f"v{version} isn't what was published", fix)


def _rules(config: WorkerConfig, client: CoordinatorClient, pool: PoolInfo) -> Finding:
    """Whether work that is done here would be judged by the same environment."""
    newest = max(contents(config.data_dir).policy_versions, default=None)
    try:
        rules = client.rules(pool.rules_hash)
        if newest is None:
            return Finding("rules", "ok", "the environment is checked once weights, with their tokenizer, are here")
        tokenizer = Tokenizer.load(version_folder(config.data_dir / "weights", newest))
        environment = environment_of(rules.environment, tokenizer)
    except ProofpoolError as error:
        return _failed("rules", error)
    return Finding(
        "rules", "ok", f"{rules.environment.name}, as the pool has it ({environment.environment_hash[:10]}…)"
    )


def _failed(check: str, error: ProofpoolError) -> Finding:
    detail = ": ".join(part for part in (error.what, error.why) if part)
    return Finding(check, "error", detail, error.todo)
