"""From a plan to mined transactions: previewed, confirmed, sent one after the other, and read back.

    make_plan ─▶ simulate (gas, cost, refusals in words) ─▶ --dry-run ends here ─▶ confirm ─▶ send ─▶ read again

In: a configuration and how to make the plan. Out: `ProviderReport`. The plan is made while the key's journal is held:
it stands on what every earlier command with this key has done. Killed anywhere, the next command sees through what is
on its way, and its own plan holds only what is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from protocol.amount import format_amount
from protocol.canonical import hex0x
from protocol.chain.contracts import NAMES, abi_of, as_text
from protocol.chain.fees import FeePolicy
from protocol.chain.lane import Finished
from protocol.chain.simulation import Simulated, simulate
from protocol.chain.watch import LanePolicy
from protocol.clock import Clock, SystemClock
from protocol.errors import ChainError, NotEligible, ProofpoolError, TransactionReverted, UsageError
from protocol.passwords import is_terminal
from worker.provider.config import ProviderConfig
from worker.provider.manner import Manner
from worker.provider.plan import Call, Plan, faucet_command
from worker.provider.refusals import in_words
from worker.provider.report import ChangedAmount, ProviderReport, SentTransaction
from worker.provider.wallet import Wallet, looking, sending


def carry_out(
    command: str,
    config: ProviderConfig,
    manner: Manner,
    make_plan: Callable[[Wallet], Plan],
    *,
    adds_up: bool = False,
    clock: Clock | None = None,
) -> ProviderReport:
    """Raises NotEligible where a contract would refuse, KeyFailure, ChainError, Abort where somebody says no.

    `adds_up`: done twice, the command does twice as much, so it doesn't go on after one that was interrupted.
    """
    clock = clock or SystemClock()
    if manner.dry_run:
        with looking(config, clock, manner.provider) as wallet:
            return preview(command, wallet, _planned(make_plan, wallet))
    policy = LanePolicy(stuck_seconds=manner.resend_seconds)
    with sending(config, clock, policy, may_ask=not manner.as_json) as wallet:
        _check_meant(wallet, manner.provider)
        _finish_earlier(wallet, may_go_on=not adds_up)
        plan = _planned(make_plan, wallet)
        report = preview(command, wallet, plan)
        if plan.calls and is_asked(manner):
            _confirm(report)
        return _sent(wallet, plan, report)


def is_asked(manner: Manner) -> bool:
    """Whether somebody is shown the transactions and asked before they are sent."""
    return not (manner.dry_run or manner.yes or manner.as_json) and is_terminal()


def _check_meant(wallet: Wallet, provider: str | None) -> None:
    if provider not in (None, wallet.address):
        why = f"--provider {provider}, the key is of {wallet.address}"
        raise UsageError("the key is another account's", why, "name the right --keystore, or leave --provider out")


def _planned(make_plan: Callable[[Wallet], Plan], wallet: Wallet) -> Plan:
    """A view may refuse as well: of a pool that doesn't exist, for instance."""
    try:
        return make_plan(wallet)
    except TransactionReverted as error:
        raise in_words(error) from error


def preview(command: str, wallet: Wallet, plan: Plan) -> ProviderReport:
    """The plan with what the node says of it. Raises NotEligible where it would be refused, or can't be paid."""
    encoded = [call.encoded(wallet) for call in plan.calls]
    simulated = simulate(wallet.contracts.client, wallet.address, encoded)
    for outcome in simulated:
        if outcome.refusal is not None:
            raise in_words(outcome.refusal) from outcome.refusal
    transactions = _priced(wallet, plan.calls, simulated)
    _check_coins(wallet, transactions)
    answers = wallet.read_all(*(effect.read for effect in plan.effects))
    return ProviderReport(
        command=command,
        chain_id=wallet.contracts.client.chain_id,
        provider=wallet.address,
        dry_run=True,
        transactions=transactions,
        changes=tuple(
            ChangedAmount(
                name=effect.name,
                node=effect.node,
                pool_id=effect.pool_id,
                before_wei=effect.value(answer),
                after_wei=effect.value(answer) + effect.change_wei,
            )
            for effect, answer in zip(plan.effects, answers, strict=True)
        ),
        due_time=plan.due_time,
        notes=plan.notes,
    )


def _finish_earlier(wallet: Wallet, *, may_go_on: bool) -> None:
    """See what an interrupted command had sent through. Raises ProofpoolError where to go on might do it twice."""
    assert wallet.lane is not None, "only a wallet that sends comes here"
    told = [_told(wallet, finished) for finished in wallet.lane.finish()]
    for line in told:
        print(f"an interrupted command had sent {line}", file=sys.stderr)
    if told and not may_go_on:
        todo = "`proofpool provider nodes` shows how things stand; give the command again if it is still wanted"
        raise ProofpoolError("an earlier command was interrupted, and is finished now", "; ".join(told), todo)


def _told(wallet: Wallet, finished: Finished) -> str:
    name = next((name for name in NAMES if wallet.contracts.address(name) == finished.call.to), None)
    function = abi_of(name).decode_call(finished.call.data)[0] if name is not None else f"a call to {finished.call.to}"
    receipt = finished.receipt
    became = "without effect" if receipt is None else f"mined in block {receipt.block_number}"
    return f"{function} with nonce {finished.call.nonce}: {became}"


def _priced(wallet: Wallet, calls: Sequence[Call], simulated: Sequence[Simulated]) -> tuple[SentTransaction, ...]:
    base_fee_wei, fees = wallet.contracts.client.head().base_fee_wei, FeePolicy()
    return tuple(
        _transaction(wallet, call, outcome.gas, base_fee_wei, fees)
        for call, outcome in zip(calls, simulated, strict=True)
    )


def _transaction(wallet: Wallet, call: Call, gas: int | None, base_fee_wei: int, fees: FeePolicy) -> SentTransaction:
    encoded = call.encoded(wallet)
    names = [parameter.name for parameter in abi_of(call.contract).functions[call.function].inputs]
    return SentTransaction(
        purpose=call.purpose,
        contract=call.contract,
        to=encoded.to,
        function=call.function,
        arguments={name: as_text(value) for name, value in zip(names, call.arguments, strict=True)},
        value_wei=encoded.value_wei,
        data=hex0x(encoded.data),
        gas=gas,
        cost_wei=None if gas is None else gas * min(base_fee_wei + fees.tip_wei, fees.max_fee_wei),
        most_cost_wei=None if gas is None else fees.gas_limit(gas) * fees.fee_wei(base_fee_wei),
    )


def _check_coins(wallet: Wallet, transactions: Sequence[SentTransaction]) -> None:
    costs = [transaction.cost_wei for transaction in transactions if transaction.cost_wei is not None]
    if (needed := sum(costs)) and (balance := wallet.contracts.client.balance_wei(wallet.address)) < needed:
        why = f"{format_amount(balance)} of about {format_amount(needed)} coins in {wallet.address}"
        todo = f"send coins there; on a test chain: `{faucet_command(wallet)}`"
        raise NotEligible("there are too few coins for gas", why, todo)


def _confirm(report: ProviderReport) -> None:
    import typer

    from worker.provider.printing import lines_of

    typer.echo("\n".join(lines_of(report)), err=True)
    typer.confirm("Send this?", abort=True, err=True)


def _sent(wallet: Wallet, plan: Plan, report: ProviderReport) -> ProviderReport:
    """Each transaction once it is mined, and the amounts as the chain has them then."""
    done = list[SentTransaction]()
    for number, (call, previewed) in enumerate(zip(plan.calls, report.transactions, strict=True), 1):
        place = f"{number}/{len(plan.calls)}"
        print(f"{place} {call.purpose} …", file=sys.stderr)
        done.append(_sent_one(wallet, call, previewed, done))
        print(f"{place} mined in block {done[-1].block}", file=sys.stderr)
    answers = wallet.read_all(*(effect.read for effect in plan.effects))
    changes = tuple(
        change.model_copy(update={"after_wei": effect.value(answer)})
        for change, effect, answer in zip(report.changes, plan.effects, answers, strict=True)
    )
    return report.model_copy(update={"dry_run": False, "transactions": tuple(done), "changes": changes})


def _sent_one(
    wallet: Wallet, call: Call, previewed: SentTransaction, done: Sequence[SentTransaction]
) -> SentTransaction:
    assert wallet.lane is not None, "only a wallet that sends comes here"
    try:
        receipt = wallet.contracts.send(wallet.lane, call.contract, call.function, *call.arguments)
    except TransactionReverted as error:
        raise _after(in_words(error), done) from error
    except ChainError as error:
        raise _after(error, done) from error.__cause__
    return previewed.model_copy(
        update={
            "gas": receipt.gas_used,
            "cost_wei": receipt.gas_used * receipt.gas_price_wei,
            "most_cost_wei": receipt.gas_used * receipt.gas_price_wei,
            "transaction_hash": receipt.transaction_hash,
            "block": receipt.block_number,
        }
    )


ErrorT = ChainError | NotEligible


def _after(error: ErrorT, done: Sequence[SentTransaction]) -> ErrorT:
    """Said with what is mined already: the same command goes on from there."""
    if done:
        mined = ", ".join(f"{one.function} {one.transaction_hash}" for one in done)
        error.todo = f"{error.todo}; mined before it: {mined}. The same command goes on from there".lstrip("; ")
    return error
