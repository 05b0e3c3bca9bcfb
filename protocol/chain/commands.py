"""`proofpool chain …`: deploy, info, faucet. Nothing heavy is imported until one of them runs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.address import parse_address
from protocol.amount import format_amount, parse_amount

if TYPE_CHECKING:
    from protocol.chain.client import ChainClient
    from protocol.chain.info import ChainInfo
    from protocol.signing import Signer

app = typer.Typer(no_args_is_help=True, help="Deploy the contracts, look at them, get credits on a test chain.")

DAY_SECONDS = 24 * 3600
MAX_UNBONDING_SECONDS = 10 * 365 * DAY_SECONDS

ChainUrl = Annotated[str, typer.Option("--chain", envvar="PROOFPOOL_CHAIN_URL", help="JSON-RPC of a node.")]
DeploymentFile = Annotated[
    Path | None,
    typer.Option("--deployment", envvar="PROOFPOOL_DEPLOYMENT", help="File that `deploy` wrote."),
]
LedgerAddress = Annotated[
    str | None, typer.Option("--ledger", help="The Ledger, where there is no file: it names the others.")
]
Keystore = Annotated[
    Path | None,
    typer.Option("--keystore", help="Who signs; without it, PROOFPOOL_PRIVATE_KEY, on test chains only."),
]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", help="Opens the keystore; else PROOFPOOL_PASSWORD.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@app.command()
def deploy(
    chain: ChainUrl,
    out: Annotated[Path, typer.Option("--out", help="The deployment file to write.")] = Path("deployment.json"),
    keystore: Keystore = None,
    password_file: PasswordFile = None,
    minter: Annotated[
        str | None, typer.Option("--minter", help="May mint credits until renounced; else the deployer.")
    ] = None,
    unbonding_seconds: Annotated[
        int,
        typer.Option(
            min=1,
            max=MAX_UNBONDING_SECONDS,
            help="From the end of a duty until its stake is free; windows of pools must fit in.",
        ),
    ] = 7 * DAY_SECONDS,
    as_json: Json = False,
) -> None:
    """Put the contracts on a chain. Killed in the middle, the same command goes on where it was."""
    import secrets

    from contracts.deployment import Parameters
    from protocol.chain.deploying import carry_out, make_plan
    from protocol.clock import SystemClock

    client = _client(chain)
    with closing(client.rpc):
        signer = _signer(client, keystore, password_file)
        salt = "0x" + secrets.token_hex(32)
        parameters = Parameters(_address(minter, "--minter") or signer.address, unbonding_seconds, salt)
        plan = make_plan(client, signer, out, parameters)
        deployment = carry_out(client, signer, SystemClock(), out, plan)
    if as_json:
        typer.echo(deployment.model_dump_json())
        return
    for name, contract in deployment.contracts.items():
        typer.echo(f"{name:<9} {contract.address}")
    typer.echo(f"chain {deployment.chain_id}, block {deployment.block}, written to {out}")


@app.command()
def info(
    chain: ChainUrl,
    deployment: DeploymentFile = None,
    ledger: LedgerAddress = None,
    as_json: Json = False,
) -> int:
    """Show the chain, whether each contract is what it should be, and the pools. Exit code 5 where one isn't."""
    from protocol.chain.contracts import Contracts
    from protocol.chain.deployment import read_deployment
    from protocol.chain.info import look
    from protocol.clock import SystemClock
    from protocol.errors import ConfigError, WrongChain

    expected, given = None if deployment is None else read_deployment(deployment), _address(ledger, "--ledger")
    if expected is not None and given is not None and given != expected.ledger:
        why = f"Ledger {given}, and {expected.ledger} in {deployment}"
        raise ConfigError("two deployments are named", why, "name one")
    named = given if expected is None else expected.ledger
    client = _client(chain, None if expected is None else expected.chain_id)
    with closing(client.rpc):
        contracts = None
        if named is not None:
            try:
                contracts = Contracts.connect(chain, named, SystemClock(), chain_id=client.chain_id)
            except WrongChain:
                if expected is None:
                    raise
        try:
            found = look(client, contracts, expected)
        finally:
            if contracts is not None:
                contracts.client.rpc.close()
    if as_json:
        typer.echo(found.model_dump_json())
    else:
        _print_info(found)
    return 0 if found.is_sound else WrongChain.exit_code


@app.command()
def faucet(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Who gets it.")],
    chain: ChainUrl,
    deployment: DeploymentFile = None,
    ledger: LedgerAddress = None,
    num_credits: Annotated[str, typer.Option("--credits", help="How many, such as 100 or 0.5.")] = "100",
    num_coins: Annotated[str, typer.Option("--gas", help="Native coins for gas, such as 1; 0 for none.")] = "1",
    keystore: Annotated[
        Path | None, typer.Option("--keystore", help="Who pays the gas where the node gives none.")
    ] = None,
    password_file: PasswordFile = None,
    as_json: Json = False,
) -> None:
    """Give an address credits and gas, on test chains only."""
    from protocol.chain.deployment import connect
    from protocol.chain.faucet import check_test_chain, give
    from protocol.clock import SystemClock
    from protocol.keystore import open_keystore, read_password

    receiver, clock = parse_address(address, "ADDRESS"), SystemClock()
    credits_wei, gas_wei = parse_amount(num_credits, "--credits"), parse_amount(num_coins, "--gas")
    client = _client(chain)
    with closing(client.rpc):
        check_test_chain(client.chain_id)
    signer = None if keystore is None else open_keystore(keystore, read_password(password_file))
    contracts = connect(chain, clock, deployment=deployment, ledger=_address(ledger, "--ledger"))
    with closing(contracts.client.rpc):
        gift = give(contracts, receiver, credits_wei, gas_wei, clock, signer)
    if as_json:
        typer.echo(gift.model_dump_json())
    else:
        typer.echo(
            f"{gift.address} has {format_amount(gift.credits_wei)} credits, and {format_amount(gift.gas_wei)} for gas"
        )


def _client(url: str, chain_id: int | None = None) -> ChainClient:
    """Raises WrongChain where the node serves another chain than `chain_id`, ChainError where it doesn't answer."""
    from protocol.chain.abi import ErrorTable
    from protocol.chain.block import number_of
    from protocol.chain.client import ChainClient
    from protocol.chain.contracts import NAMES, abi_of
    from protocol.chain.rpc import JsonRpc

    rpc = JsonRpc(url)
    try:
        found = number_of(rpc.call("eth_chainId"), "eth_chainId")
        client = ChainClient(rpc, found if chain_id is None else chain_id, ErrorTable.of(map(abi_of, NAMES)))
        client.check_chain()
    except BaseException:
        rpc.close()
        raise
    return client


def _signer(client: ChainClient, keystore: Path | None, password_file: Path | None) -> Signer:
    from protocol.keystore import load_signer

    return load_signer(client.chain_id, keystore, password_file)


def _address(text: str | None, name: str) -> str | None:
    return None if text is None else parse_address(text, name)


def _print_info(found: ChainInfo) -> None:
    typer.echo(f"chain {found.chain_id} at {found.url} ({found.node})")
    typer.echo(f"head  block {found.head_block}, time {found.head_time}, base fee {found.base_fee_wei} wei")
    for contract in found.contracts:
        mark = "✓" if contract.code == "ok" else f"✗ {contract.code}"
        typer.echo(f"{contract.name:<9} {contract.address}  {mark}")
    if found.salt is not None:
        typer.echo(f"salt  {found.salt}")
        typer.echo(f"pools {found.num_pools}")
    for pool in found.pools:
        missing = f" (the coordinator's bond lacks {format_amount(pool.missing_bond_wei)})"
        lacks = missing if pool.state == "unbonded" else ""
        funds, paid = format_amount(pool.funds_wei), format_amount(pool.paid_wei)
        typer.echo(
            f"  {pool.pool_id}: {pool.state}{lacks}, {funds} in funds, {paid} paid,"
            f" {format_amount(pool.price_wei)} a unit, {pool.num_epochs} epochs, {pool.num_versions} versions,"
            f" {pool.num_seats} seats, coordinator {pool.coordinator}"
        )
        stakes = (pool.min_allotment_wei, pool.seat_bond_wei, pool.appeal_bond_wei, pool.challenge_bond_wei)
        node, seat, appeal, challenge = map(format_amount, stakes)
        typer.echo(
            f"     takes at least {node} of a node, {seat} of a seat, {appeal} of an appeal, {challenge} of a challenge"
        )
