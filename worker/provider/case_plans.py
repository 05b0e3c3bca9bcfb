"""What standing up for a node's work would send, shown and not sent: a forced intake, an appeal.

In: `WorkerConfig`, a submission's id. Out: `ProviderReport`: transactions, cost, effect. No key is opened: a keystore
says whose it is. What a contract would refuse is said here as it is when it is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from protocol.amount import format_amount
from protocol.chain.cases import CaseState
from protocol.chain.contracts import Read
from protocol.chain.deployment import connect
from protocol.chain.pool import ChainPool
from protocol.clock import SystemClock
from protocol.errors import KeyFailure
from protocol.events import utc
from protocol.keyring import find_key, stated_address
from protocol.keystore import check_private
from worker.appeal import Appeal, bond_to_pay, jury_deadline_of
from worker.config import WorkerConfig
from worker.force import ForcedIntake, check_eligible, check_unpromised, ledger_of, outbox_of, promised_epoch
from worker.provider.carrying import preview
from worker.provider.plan import Call, Plan, wallet_credits
from worker.provider.report import ProviderReport
from worker.provider.wallet import Wallet

ForceIntakeDocument = ForcedIntake | ProviderReport
AppealDocument = Appeal | ProviderReport
"""What the two commands print with `--json`; with `--dry-run`, the report."""


def preview_force_intake(config: WorkerConfig, submission_id: str) -> ProviderReport:
    """Raises as `force_intake` does, and NotEligible where there are too few coins."""
    check_unpromised(outbox_of(config), submission_id)
    with _looking(config, config.keystore) as wallet:
        return preview("force-intake", wallet, plan_force_intake(wallet, config.pool_id, submission_id))


def preview_appeal(config: WorkerConfig, submission_id: str, keystore: Path | None = None) -> ProviderReport:
    """Raises as `appeal` does, and NotEligible where there are too few coins."""
    with _looking(config, keystore or config.keystore) as wallet:
        return preview("appeal", wallet, plan_appeal(wallet, config.pool_id, submission_id))


def plan_force_intake(wallet: Wallet, pool_id: int, submission_id: str) -> Plan:
    """Nothing is to be sent where it is forced in already. Raises NotEligible."""
    if (epoch := promised_epoch(wallet.contracts, pool_id, submission_id)) is not None:
        return Plan((), (), (f"forced in before: the log must answer by the end of epoch {epoch}",))
    check_eligible(wallet.contracts, wallet.address, pool_id)
    call = Call("ledger", "forceIntake", (pool_id, submission_id), f"announce {submission_id}")
    epoch = int(wallet.read("ledger", "epochCount", pool_id)) + 1
    return Plan((call,), (), (f"the log must answer by the end of epoch {epoch}, if epoch {epoch - 1} is still open",))


def plan_appeal(wallet: Wallet, pool_id: int, submission_id: str) -> Plan:
    """Nothing is to be sent where a jury is called already. Raises NotEligible."""
    pool = ChainPool(wallet.contracts, pool_id)
    case = pool.case_of(submission_id)
    if case.state is CaseState.APPEALED:
        return Plan((), (), (f"appealed before: a jury decides by {utc(jury_deadline_of(pool, submission_id))}",))
    bond_wei = bond_to_pay(wallet.contracts, pool, submission_id, case, wallet.address)
    court, words = wallet.contracts.address("court"), f"{format_amount(bond_wei)} credits"
    (allowed_wei,) = wallet.read_all(Read("credits", "allowance", (wallet.address, court)))
    approve = Call("credits", "approve", (court, bond_wei), f"let the Court take {words}")
    appeal = Call("court", "appeal", (submission_id,), f"call a jury over {submission_id}")
    notes = (
        f"the appeal period ends at {utc(case.deadline)}",
        "the bond comes back where the jury overturns the accusation, and where it finds nothing",
    )
    calls = (appeal,) if allowed_wei >= bond_wei else (approve, appeal)
    return Plan(calls, (wallet_credits(wallet, -bond_wei),), notes)


@contextmanager
def _looking(config: WorkerConfig, keystore: Path) -> Iterator[Wallet]:
    file = find_key(keystore)
    check_private(file)
    if (address := stated_address(file)) is None:
        raise KeyFailure("the keystore says no address", str(file), "`proofpool key import` makes one that does")
    contracts = connect(config.chain_url, SystemClock(), deployment=config.deployment, ledger=ledger_of(config))
    with closing(contracts.client.rpc):
        yield Wallet(contracts, address)
