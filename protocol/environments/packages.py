"""Versions of the packages that decide problems and scores: two machines with others may judge otherwise.

In: names as they are installed. Out: what an environment's `identity` says of them, and so its hash.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires, version

from protocol.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def package_versions(*names: str) -> dict[str, str]:
    """Name to installed version; raises ConfigError where one isn't installed.

    Example: `package_versions("sympy")` is `{"sympy": "1.14.0"}`.
    """
    try:
        return {name: version(name) for name in sorted(names)}
    except PackageNotFoundError as error:
        todo = f"pip install '{error.name}', or the extra that has it: pip install 'proofpool[environments]'"
        raise ConfigError("the environment needs a package that isn't here", str(error), todo) from error


def requirements_of(name: str) -> list[str]:
    """What a package always requires, extras left out, by name."""
    always = [one for one in requires(name) or () if "extra ==" not in one]
    return sorted({found.group() for one in always if (found := NAME.match(one))})
