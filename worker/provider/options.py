"""Options that a provider's commands share: where the chain is, whose key it is, and how to go about it.

In: a command with a parameter `given`. Out: the same command with these options after its own, for typer to read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from protocol.shared_options import option, with_shared
from worker.provider.config import ProviderConfig, settings
from worker.provider.manner import RESEND_SECONDS, Manner


@dataclass(frozen=True)
class Given:
    """The options, resolved."""

    config: ProviderConfig
    manner: Manner


def _option(kind: Any, name: str, help_text: str, default: Any = None, **more: Any) -> inspect.Parameter:
    annotation = Annotated[kind, typer.Option(f"--{name}", help=help_text, **more)]
    return option(name.replace("-", "_"), annotation, default)


_PLACE = (
    _option(Path | None, "config", "TOML file; environment and flags override it."),
    _option(str | None, "chain", "JSON-RPC of a node.", envvar="PROOFPOOL_CHAIN_URL"),
    _option(Path | None, "deployment", "Deployment file of the contracts.", envvar="PROOFPOOL_DEPLOYMENT"),
    _option(str | None, "ledger", "The pool's Ledger, where there is no such file."),
    _option(str | None, "coordinator", "Or its coordinator's URL, which names Ledger and pool."),
    _option(int | None, "pool", "The pool's number.", min=1),
    _option(Path | None, "keystore", "The provider's key: a file, or a name of `proofpool key list`; else `provider`."),
    _option(Path | None, "password-file", "Opens the keystore; else PROOFPOOL_PASSWORD, or it is asked."),
    _option(str | None, "provider", "Whose account to look at, without a key.", metavar="ADDRESS"),
)
_AS_JSON = _option(bool, "json", "One JSON document on stdout; nothing is asked.", default=False)
_SENDING = (
    _option(bool, "dry-run", "Show transactions, cost and effect; send nothing. Needs no password.", default=False),
    _option(bool, "yes", "Don't ask on a terminal.", default=False),
    _option(float, "resend-seconds", "Send again at a higher fee after this long.", default=RESEND_SECONDS, min=0.0),
)


def looks(command: Callable[..., Any]) -> Callable[..., Any]:
    """For a command that sends nothing."""
    return with_shared(command, (*_PLACE, _AS_JSON), "given", _given)


def sends(command: Callable[..., Any]) -> Callable[..., Any]:
    """For a command that sends transactions."""
    return with_shared(command, (*_PLACE, *_SENDING, _AS_JSON), "given", _given)


def _given(
    config: Path | None,
    chain: str | None,
    coordinator: str | None,
    pool: int | None,
    provider: str | None,
    dry_run: bool = False,
    yes: bool = False,
    resend_seconds: float = RESEND_SECONDS,
    json: bool = False,
    **others: Any,
) -> Given:
    from protocol.address import parse_address

    address = None if provider is None else parse_address(provider, "--provider")
    return Given(
        settings(config, chain_url=chain, coordinator_url=coordinator, pool_id=pool, **others),
        Manner(dry_run, yes, json, address, resend_seconds),
    )
