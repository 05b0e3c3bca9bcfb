"""Options that several commands take: told once, and handed to each of them as one value.

In: a command with a keyword parameter for that value, the options, and what makes the value of them. Out: the same
command with these options after its own, for typer to read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any


def option(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """A parameter as typer reads it: `annotation` is `Annotated[kind, typer.Option(…)]`."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_shared(
    command: Callable[..., Any], shared: Sequence[inspect.Parameter], name: str, collect: Callable[..., Any]
) -> Callable[..., Any]:
    """Example: `with_shared(nodes, [option("chain", Chain)], "given", Given)` calls `nodes(given=Given(chain=…))`."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters if one.name != name]

    @wraps(command)
    def run(**values: Any) -> Any:
        common = {parameter.name: values.pop(parameter.name) for parameter in shared}
        return command(**values, **{name: collect(**common)})

    del run.__wrapped__  # typer would read the parameters of the command alone
    run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *shared)}
    return run
