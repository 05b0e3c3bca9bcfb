"""The testnet's parameters: design profile of seconds, not of days; amounts that are easy to read.

In: hashes and addresses of a run. Out: the `PoolConfig` that `Pools.createPool` takes, as a dict by
snake_case name. Times are in seconds, amounts in base units of the credit.
"""

from __future__ import annotations

from typing import Any

from protocol.merkle.note import public_key_of
from protocol.reasons import SLASHABLE_MASK
from protocol.rules import Rules
from protocol.wire import ZERO_ADDRESS
from testnet.accounts import Accounts

CREDIT = 10**18
BLOCK_SECONDS = 1.0
EPOCH_SECONDS = 5.0
SNAPSHOT_EVERY = 4
"""Every fourth version is published in full, the others as patches."""
UNBONDING_SECONDS = 240
POOL_FUNDS = 1_000_000 * CREDIT
GAS_WEI = 10 * 10**18

STAKE = 100 * CREDIT
"""Each provider's, all of it allotted to its one node."""
SEAT_BOND = 50 * CREDIT
COORDINATOR_BOND = 100 * CREDIT

TIMES = {
    "epoch_max": 30,
    "judge_period": 60,
    "challenge_window": 15,
    "appeal_period": 15,
    "jury_period": 90,
    "retention": 300,
    "lease_max": 60,
    "coordinator_timeout": 120,
}
"""Half of the jury's period is there to judge a whole file in, on a busy machine. What is earned can be claimed after
judging, window, appeal and jury: nothing else waits for that."""
WINDOW_SECONDS = sum(TIMES[name] for name in ("judge_period", "challenge_window", "appeal_period", "jury_period"))
"""From the commit of earnings until they can be claimed."""
QUORUMS = {"accept_quorum": 1, "slash_quorum": 2, "jury_size": 3, "draw_limit": 8}
SHARES = {"first_slash_bps": 1_000, "later_slash_bps": 10_000, "bounty_bps": 1_000, "reaudit_bps": 1_000}
AMOUNTS = {
    "price": CREDIT // 1_000,
    "verify_price": CREDIT // 10_000,
    "min_allotment": 50 * CREDIT,
    "seat_bond": SEAT_BOND,
    "appeal_bond": 5 * CREDIT,
    "challenge_bond": 5 * CREDIT,
    "bounty_cap": 10 * CREDIT,
    "coordinator_bond": COORDINATOR_BOND,
}


def pool_config(accounts: Accounts, rules: Rules, model_hash: str, max_async: int) -> dict[str, Any]:
    """What the testnet's pool is created with."""
    return {
        **TIMES,
        **QUORUMS,
        **SHARES,
        **AMOUNTS,
        "model_hash": model_hash,
        "environment_hash": rules.environment.environment_hash,
        "rules_hash": rules.rules_hash,
        "checkpoint_key": "0x" + public_key_of(accounts.log.secret).hex(),
        "slashable_mask": SLASHABLE_MASK,
        "max_async": max_async,
        "max_units": rules.max_units,
        "coordinator": accounts.coordinator.address,
        "trainer": accounts.trainer.address,
        "confirmations": 1,
        "token": ZERO_ADDRESS,
    }
