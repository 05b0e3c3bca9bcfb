"""Nothing here is collected without vLLM; engines are started once, since that takes seconds."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from protocol.engines.names import Dtype
from protocol.engines.vllm.engine import VllmEngine
from protocol.engines.vllm.options import VllmOptions
from protocol.weights import CONFIG_FILE
from protocol.weights_parts import WEIGHTS_FILE
from testnet.plan import BASE_MODEL, OTHER_WEIGHTS

collect_ignore_glob = [] if find_spec("vllm") else ["test_*.py"]

StartEngine = Callable[..., VllmEngine]


class Engines:
    """vLLM's state is of the process: there is one engine at a time, and closing it ends any other."""

    def __init__(self) -> None:
        self._asked: object = None
        self._engine: VllmEngine | None = None

    def start(self, max_batch: int = 64, dtype: Dtype = "float32", **options: object) -> VllmEngine:
        """An engine with these options: the last one where it has them, since starting takes seconds."""
        asked = (max_batch, dtype, VllmOptions(**options))  # type: ignore[arg-type]
        if self._engine is None or self._asked != asked:
            self.end()
            self._asked, self._engine = asked, VllmEngine(*asked)
        self._engine.abort()
        return self._engine

    def end(self) -> None:
        """Before an engine that is made elsewhere."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    made = Engines()
    yield made
    made.end()


@pytest.fixture(scope="session")
def start_engine(engines: Engines) -> StartEngine:
    return engines.start


@pytest.fixture(scope="session")
def tiny_versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two policy versions of the testnet's model, as a worker keeps them: a configuration and weights each."""
    folders = []
    for name, weights in (("v0", BASE_MODEL / WEIGHTS_FILE), ("v1", OTHER_WEIGHTS)):
        folder = tmp_path_factory.mktemp(name)
        shutil.copyfile(BASE_MODEL / CONFIG_FILE, folder / CONFIG_FILE)
        shutil.copyfile(weights, folder / WEIGHTS_FILE)
        folders.append(folder)
    return folders[0], folders[1]
