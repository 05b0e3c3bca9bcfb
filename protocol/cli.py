"""The `proofpool` command: a table of sub-commands, each loaded only when it is called.

In: argv. Out: data on stdout, everything else on stderr, and an exit code (`protocol/errors.py`).
`proofpool --help` loads none of torch, web3 or fastapi: help texts of the table stand here.
"""

from __future__ import annotations

import importlib
import sqlite3
import sys
import traceback
from typing import Annotated, Any

import typer
from pydantic_core import ValidationError
from typer.core import TyperGroup
from typer.main import get_command as build_command

from protocol.errors import ProofpoolError
from protocol.plain import plain

COMMANDS: dict[str, tuple[str, str]] = {
    "testnet": ("testnet.commands:app", "Run all of proofpool on this machine."),
    "worker": ("worker.commands:app", "Provide rollouts for credits."),
    "provider": ("worker.provider.commands:app", "Stake, nodes, earnings; and stand up for your nodes' work."),
    "key": ("protocol.key_commands:app", "Make, import, list and export keys."),
    "verifier": ("verifier.commands:app", "Check submissions for credits."),
    "trainer": ("trainer.commands:app", "Take optimizer steps and broadcast weights."),
    "coordinator": ("coordinator.commands:app", "Lease tasks, take submissions, keep the log."),
    "environments": ("protocol.environments.commands:app", "List environments, show their problems, try answers."),
    "shardcast": ("protocol.shardcast.commands:app", "Publish, serve, forward, fetch and patch policy versions."),
    "chain": ("protocol.chain.commands:app", "Deploy the contracts, look at them, get credits on a test chain."),
    "audit": ("verifier.audit.commands:app", "Check the history: submissions, money, the log."),
    "trace": ("verifier.audit.trace:trace", "Print the whole row of one submission."),
    "doctor": ("protocol.doctor:doctor", "Check this installation; each finding with its fix."),
}

WITHIN: dict[str, dict[str, str]] = {
    "audit": {"replay-step": "trainer.replay_commands:replay_step"},
}
"""Commands of a group that another role's package has: roles don't import each other."""

EXIT_CODES = (
    "Exit codes: 0 ok, 1 failure, 2 usage, 3 verification failed, 4 key, "
    "5 network or chain, 6 not eligible, 7 rejected, 130 interrupted."
)

INTERRUPTED = 130
USAGE_ERROR: type[Any] = typer.BadParameter.__bases__[0]


class LazyCommands(TyperGroup):
    """A group whose sub-commands are imported when they are called, not when they are listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What the root's help prints of a sub-command."""
        return _listed(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """What runs."""
        if args[0] in COMMANDS:
            return args[0], load_command(args[0]), args[1:]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=LazyCommands, no_args_is_help=True, add_completion=True, epilog=EXIT_CODES, pretty_exceptions_enable=False
)


@app.callback()
def proofpool(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=lambda asked: _print_version(asked), help="Print it.")
    ] = False,
) -> None:
    """Strangers' computers as one reinforcement-learning run that anyone can audit."""


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; its exit code."""
    command = build_command(app)
    try:
        result = command.main(args=arguments, prog_name="proofpool", standalone_mode=False)
    except ProofpoolError as error:
        _print_error(error, arguments)
        return error.exit_code
    except (OSError, sqlite3.Error) as error:  # a disk, a folder, a permission: nothing that a traceback would explain
        todo = "check the path, its permissions, the disk; restore what is damaged"
        refused = ProofpoolError("this machine refused", str(error), todo)
        _print_error(refused.with_traceback(error.__traceback__), arguments)
        return ProofpoolError.exit_code
    except USAGE_ERROR as error:
        error.show()
        return 2
    except (typer.Abort, KeyboardInterrupt):
        result = INTERRUPTED
    if result == INTERRUPTED:  # typer makes this code of Ctrl-C, and says nothing
        print("interrupted", file=sys.stderr)
    return result if isinstance(result, int) else 0


def _print_error(error: ProofpoolError, arguments: list[str]) -> None:
    """What, why and what to do: a line each; with --debug the traceback before them."""
    if "--debug" in arguments:
        print(_traceback(error), file=sys.stderr)
    print(f"error: {plain(error.what)}", file=sys.stderr)
    if error.why:
        print(f"  why: {plain(error.why)}", file=sys.stderr)
    if error.todo:
        print(f"  do:  {plain(error.todo)}", file=sys.stderr)


def _traceback(error: BaseException) -> str:
    """Where an error comes from, its causes first.

    What pydantic couldn't read isn't repeated: a file that was named by mistake may hold a key or a password.
    """
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    lines = [] if earlier is None else [_traceback(earlier), "\nwhich led to:\n"]
    lines += ["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__)]
    text = _without_input(error) if isinstance(error, ValidationError) else str(error)
    return "".join([*lines, f"{type(error).__module__}.{type(error).__qualname__}: {plain(text)}"])


def _without_input(error: ValidationError) -> str:
    return "; ".join(
        f"{one['type']} at `{'.'.join(map(str, one['loc']))}`" for one in error.errors(include_input=False)
    )


def _print_version(asked: bool) -> None:
    if asked:
        from protocol.doctor import installed_version

        print(f"proofpool {installed_version('proofpool')}")
        raise typer.Exit


def _listed(name: str) -> Any:
    group = typer.Typer(help=COMMANDS[name][1], add_completion=False)
    group.callback(invoke_without_command=True)(lambda: None)
    command = build_command(group)
    command.name = name
    return command


def load_command(name: str) -> Any:
    """The command behind a name of the table, imported now."""
    command = _command_at(COMMANDS[name][0], name)
    for within, place in WITHIN.get(name, {}).items():
        command.commands[within] = _command_at(place, within)
    return command


def _command_at(place: str, name: str) -> Any:
    """The group or the function at `module:attribute`."""
    module_name, _, attribute = place.partition(":")
    found = getattr(importlib.import_module(module_name), attribute)
    if not isinstance(found, typer.Typer):
        single = typer.Typer()
        single.command()(found)
        found = single
    found._add_completion = False
    command = build_command(found)
    command.name = name
    return command


if __name__ == "__main__":
    main()
