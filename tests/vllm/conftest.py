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


@pytest.fixture(scope="session")
def start_engine() -> Iterator[StartEngine]:
    """An engine with these options: the last one where it has them, since starting takes seconds."""
    last: list[tuple[object, VllmEngine]] = []

    def start(max_batch: int = 64, dtype: Dtype = "float32", **options: object) -> VllmEngine:
        asked = (max_batch, dtype, VllmOptions(**options))  # type: ignore[arg-type]
        if last and last[0][0] == asked:
            last[0][1].abort()
            return last[0][1]
        if last:
            last.pop()[1].close()
        last.append((asked, VllmEngine(*asked)))
        return last[0][1]

    yield start
    for _, engine in last:
        engine.close()


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
