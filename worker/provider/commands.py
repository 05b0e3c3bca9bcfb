"""`proofpool provider …`: stake, nodes and earnings, with the cold key; and standing up for a node's work.

Nothing heavy is imported until one of them runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from worker.provider.case_commands import appeal, force_intake
from worker.provider.options import Given, looks, sends

if TYPE_CHECKING:
    from worker.provider.plan import Plan
    from worker.provider.report import ProviderReport
    from worker.provider.wallet import Wallet

app = typer.Typer(no_args_is_help=True, help="Stake, nodes, earnings; and stand up for your nodes' work.")

Amount = Annotated[str, typer.Argument(metavar="AMOUNT", help="Credits, such as 1.5; or base units: 15wei.")]
NodeOption = Annotated[str | None, typer.Option("--node", metavar="ADDRESS", help="One of your nodes.")]
Consent = Annotated[Path, typer.Argument(metavar="CONSENT", help="The file of `proofpool worker consent`.")]


@app.callback()
def provider() -> None:
    """Stake, nodes, earnings; and stand up for your nodes' work."""


@app.command()
@sends
def register(
    consent: Annotated[
        Path | None, typer.Argument(metavar="[CONSENT]", help="The first node's file of `proofpool worker consent`.")
    ] = None,
    stake: Annotated[
        str | None, typer.Option("--stake", metavar="AMOUNT", help="Credits; else what the pool asks of a node.")
    ] = None,
    *,
    given: Given,
) -> None:
    """Become a provider in one go: deposit stake, take the first node in, let the stake stand behind it in the pool.

    Without CONSENT the stake is deposited only. Given again, it does what is missing, and nothing twice.
    """
    from protocol.errors import UsageError
    from worker.provider.carrying import carry_out
    from worker.provider.consent import read_consent
    from worker.provider.registration import plan_deposit, plan_node
    from worker.provider.wallet import pool_of

    amount_wei = _amount(stake, "--stake")
    if consent is None:
        if amount_wei is None:
            todo = "give the file of `proofpool worker consent` on the node's machine, or --stake AMOUNT"
            raise UsageError("what should be registered?", "neither a node's consent nor --stake", todo)
        _show(carry_out("register", given.config, given.manner, lambda wallet: plan_deposit(wallet, amount_wei)), given)
        return
    signed, pool_id = read_consent(consent), pool_of(given.config)
    report = carry_out(
        "register",
        given.config,
        given.manner,
        lambda wallet: plan_node(wallet, signed, pool_id, amount_wei),
    )
    _show(report, given)


@app.command()
@sends
def authorize(
    consent: Consent,
    allot: Annotated[
        str | None,
        typer.Option(
            "--allot",
            metavar="AMOUNT",
            help="Credits that stand behind it in --pool then: free stake first, then the wallet's.",
        ),
    ] = None,
    *,
    given: Given,
) -> None:
    """Take a node in by its signed consent. The node's key stays where it is.

    Given again, it does what is missing: AMOUNT is what stands behind the node afterwards.
    """
    from worker.provider.carrying import carry_out
    from worker.provider.consent import read_consent
    from worker.provider.registration import plan_node
    from worker.provider.wallet import pool_of

    signed, amount_wei = read_consent(consent), _amount(allot, "--allot")
    pool_id = None if amount_wei is None else pool_of(given.config)
    report = carry_out(
        "authorize",
        given.config,
        given.manner,
        lambda wallet: plan_node(wallet, signed, pool_id, amount_wei),
    )
    _show(report, given)


@app.command()
@sends
def stake(amount: Amount, node: NodeOption = None, *, given: Given) -> None:
    """Let AMOUNT more stand behind a node in the pool: free stake first, then credits of the wallet.

    Without --node it is deposited as free stake, which backs nothing yet.
    """
    from worker.provider.carrying import carry_out
    from worker.provider.registration import plan_more_stake, plan_stake
    from worker.provider.wallet import pool_of

    amount_wei, address = _needed(amount), _address(node, "--node")
    pool_id = pool_of(given.config) if address is not None else None

    def make_plan(wallet: Wallet) -> Plan:
        if address is None or pool_id is None:
            return plan_more_stake(wallet, amount_wei)
        return plan_stake(wallet, address, pool_id, amount_wei)

    _show(carry_out("stake", given.config, given.manner, make_plan, adds_up=True), given)


@app.command()
@sends
def unstake(
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="Credits, such as 1.5; base units: 15wei; or all.")],
    node: Annotated[str, typer.Option("--node", metavar="ADDRESS", help="One of your nodes.")],
    *,
    given: Given,
) -> None:
    """Start the unbonding of a node's stake in the pool. It says when it is due; a slash reaches it until then."""
    from protocol.address import parse_address
    from worker.provider.carrying import carry_out
    from worker.provider.unbonding import plan_unstake
    from worker.provider.wallet import pool_of

    amount_wei = None if amount == ALL else _needed(amount)
    address, pool_id = parse_address(node, "--node"), pool_of(given.config)
    report = carry_out(
        "unstake",
        given.config,
        given.manner,
        lambda wallet: plan_unstake(wallet, address, pool_id, amount_wei),
        adds_up=amount_wei is not None,
    )
    _show(report, given)


@app.command()
@sends
def withdraw(
    amount: Annotated[
        str, typer.Argument(metavar="[AMOUNT]", help="Credits, such as 1.5; base units: 15wei; or all.")
    ] = "all",
    *,
    given: Given,
) -> None:
    """Move stake that is due, and free stake, into the wallet. Says when more is due."""
    from worker.provider.carrying import carry_out
    from worker.provider.holdings import find_roster, first_block_of
    from worker.provider.unbonding import plan_withdraw

    amount_wei = None if amount == ALL else _needed(amount)
    report = carry_out(
        "withdraw",
        given.config,
        given.manner,
        lambda wallet: plan_withdraw(
            wallet, find_roster(wallet, first_block_of(given.config, wallet.contracts)).holdings, amount_wei
        ),
        adds_up=amount_wei is not None,
    )
    _show(report, given)


@app.command()
@looks
def nodes(*, given: Given) -> None:
    """List your nodes: what stands behind each in each pool, what is unbonding or held, and whether it gets leases."""
    from protocol.clock import SystemClock
    from worker.provider.holdings import first_block_of
    from worker.provider.nodes import lines_of, list_nodes
    from worker.provider.wallet import looking

    with looking(given.config, SystemClock(), given.manner.provider) as wallet:
        found = list_nodes(wallet, first_block_of(given.config, wallet.contracts))
    typer.echo(found.model_dump_json() if given.manner.as_json else "\n".join(lines_of(found)))


@app.command()
@sends
def revoke(
    node: Annotated[str, typer.Argument(metavar="ADDRESS", help="One of your nodes; or the key's own node.")],
    *,
    given: Given,
) -> None:
    """Send a node away at once: it can lease and submit nothing any more. Its stake stays until it is unbonded."""
    from protocol.address import parse_address
    from worker.provider.carrying import carry_out
    from worker.provider.revocation import plan_revoke

    address = parse_address(node, "ADDRESS")
    _show(carry_out("revoke", given.config, given.manner, lambda wallet: plan_revoke(wallet, address)), given)


@app.command()
@sends
def claim(
    statements: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[STATEMENT]…", help="Files of statements, where no coordinator serves them."),
    ] = None,
    others: Annotated[
        list[str] | None, typer.Option("--from", metavar="URL", help="A further pool's coordinator; again for more.")
    ] = None,
    *,
    given: Given,
) -> None:
    """Have all that can be claimed paid into the wallet: one transaction a pool, however many epochs it is of.

    Says what cases withhold, and when the rest can be claimed. Statements are held against the chain's roots.
    """
    from worker.provider.carrying import carry_out
    from worker.provider.claiming import ClaimReport, PoolEarnings, plan_claim
    from worker.provider.earnings_source import sources_of
    from worker.provider.holdings import first_block_of

    found = list[PoolEarnings]()
    with sources_of(given.config, statements or (), others or ()) as sources:

        def make_plan(wallet: Wallet) -> Plan:
            plan, pools = plan_claim(wallet, sources, lambda: first_block_of(given.config, wallet.contracts))
            found[:] = pools
            return plan

        report = carry_out("claim", given.config, given.manner, make_plan)
    _show(ClaimReport(**dict(report), earnings=tuple(found)), given)


@app.command()
@looks
def statement(
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="DAY", help="From this day or UTC time on: 2026-11-01, or with T08:30."),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="DAY", help="Up to this day, with it; or to before a UTC time.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="A line a credit or claim, with a header.")] = False,
    log: Annotated[
        Path | None, typer.Option("--log", help="A log of `audit export --format jsonl`, instead of a coordinator's.")
    ] = None,
    *,
    given: Given,
) -> int:
    """Every credit with its submission, verdicts and transactions, and a balance that adds up to the contracts'.

    Exit code 3, and each difference named, where log and contracts contradict each other.
    """
    from worker.provider.statement_run import print_statement, run_statement
    from worker.provider.statement_table import period_of

    found = run_statement(given.config, given.manner.provider, log, period_of(start, end))
    return print_statement(found, as_csv=as_csv, as_json=given.manner.as_json)


app.command()(force_intake)
app.command()(appeal)

ALL = "all"


def _needed(text: str) -> int:
    """Raises UsageError for no amount, and for none at all."""
    from protocol.amount import parse_amount
    from protocol.errors import UsageError

    if (amount_wei := parse_amount(text, "AMOUNT")) == 0:
        raise UsageError("nothing would be moved", "AMOUNT is zero", "give an amount")
    return amount_wei


def _amount(text: str | None, name: str) -> int | None:
    from protocol.amount import parse_amount

    return None if text is None else parse_amount(text, name)


def _address(text: str | None, name: str) -> str | None:
    from protocol.address import parse_address

    return None if text is None else parse_address(text, name)


def goes_to_terminal() -> bool:
    """Whether what is printed is read right away."""
    return sys.stdout.isatty()


def _show(report: ProviderReport, given: Given) -> None:
    from worker.provider.carrying import is_asked
    from worker.provider.printing import lines_of

    if given.manner.as_json:
        typer.echo(report.model_dump_json())
        return
    were_shown = is_asked(given.manner) and goes_to_terminal()  # a file that this goes to is to have it all
    typer.echo("\n".join(lines_of(report, were_shown=were_shown)))
