"""Versions of packages, as environments name them."""

import pytest

from protocol.environments.packages import package_versions, requirements_of
from protocol.errors import ConfigError


def test_versions_are_those_that_are_installed() -> None:
    import numpy

    assert package_versions("numpy") == {"numpy": numpy.__version__}


def test_a_package_that_isnt_here_is_named() -> None:
    with pytest.raises(ConfigError, match="isn't here") as error:
        package_versions("numpy", "no-such-package-at-all")
    assert "no-such-package-at-all" in error.value.todo


def test_requirements_are_names_without_those_of_extras() -> None:
    names = requirements_of("reasoning_gym")
    assert "sympy" in names and "pytest" not in names
    assert requirements_of("numpy") == []
