"""Joining a pool: from configuration to a `Membership` that the chain vouches for.

    coordinator /v1/pool ─ names ─▶ chain id, Ledger ─▶ node at chain_url: same id? the code that we know?
        ─▶ the Ledger names the other contracts and the salt ─▶ signing domain ─▶ signed requests

In: `WorkerConfig`. Out: `Membership`. Nothing that the coordinator says is used for signing or money
before the chain has confirmed it. Errors travel; the caller decides which ones to wait out.
"""

from __future__ import annotations

from contextlib import closing

from protocol.api import PoolInfo
from protocol.chain.deployment import connect
from protocol.chain.pool import ChainPool
from protocol.client import CoordinatorClient
from protocol.clock import Clock
from protocol.http import RequestSigner
from protocol.keystore import load_signer
from worker.config import WorkerConfig
from worker.membership import Membership


def join(config: WorkerConfig, clock: Clock) -> Membership:
    """This node's membership. Raises Unreachable, WrongChain, KeyFailure or ConfigError."""
    pool = _described(config)
    ledger = config.ledger or pool.contracts.ledger
    contracts = connect(config.chain_url, clock, deployment=config.deployment, ledger=ledger, chain_id=pool.chain_id)
    signer = load_signer(pool.chain_id, config.keystore, config.password_file)
    auth = RequestSigner(signer, contracts.domain, clock)
    confirmations = int(contracts.read("pools", "configOf", config.pool_id)["confirmations"])
    return Membership(
        pool_id=config.pool_id,
        signer=signer,
        domain=contracts.domain,
        coordinator=CoordinatorClient(config.coordinator_url, auth),
        chain=ChainPool(contracts, config.pool_id, confirmations=confirmations),
    )


def _described(config: WorkerConfig) -> PoolInfo:
    """The pool as its coordinator describes it, if it is the configured one."""
    with closing(CoordinatorClient(config.coordinator_url)) as client:
        return client.configured_pool(config.pool_id, config.ledger)
