"""The pools that are lied to, with vLLM in the place of our engine: for honest work and for every lie.

In: an arena (`tests/attacks/pools.py`). Out: the same one, whose tokens and states come from vLLM. Models that cheats
use are written into folders, since vLLM loads nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp

from protocol.engines.base import Completion, generate, requests_of
from protocol.engines.names import Dtype
from protocol.engines.vllm.engine import VllmEngine
from protocol.engines.vllm.options import VllmOptions
from protocol.prover import in_task_order
from protocol.rollouts import Int32Array
from protocol.rules import SamplingRules
from protocol.weights import save_checkpoint
from tests.attacks.arena import Arena
from tests.attacks.cache import Cache

MAX_LENGTH = 512


@dataclass(frozen=True, eq=False)
class VllmArena(Arena):
    """An arena whose `_generate` asks vLLM. Honest work is always 64 at a time: vLLM batches as it likes anyway."""

    engine: VllmEngine = field(kw_only=True)
    scratch: Path = field(kw_only=True)
    _loaded: list[str] = field(default_factory=list, kw_only=True)

    @cached_property
    def identity(self) -> str:
        return f"{super().identity} vllm"

    def _generate(
        self, name: str, prompts: Sequence[Int32Array], seed: bytes, sampling: SamplingRules, max_batch: int
    ) -> list[Completion]:
        if self._loaded != [name]:
            self.engine.load(self._folder(name))
            self._loaded[:] = [name]
        requests = requests_of(seed, prompts, sampling, self.eos_ids)
        return in_task_order(list(generate(self.engine, requests)), len(prompts))

    def _folder(self, name: str) -> Path:
        folder = self.scratch / name.replace(" ", "-").replace("%", "percent")
        if not folder.exists():
            model = self.model(name)
            save_checkpoint(folder, model.config, model.weights())
        return folder


def by_vllm(arena: Arena, dtype: Dtype = "float32", scratch: Path | None = None) -> VllmArena:
    """The same pool; who computes honestly there does so in `dtype`."""
    longest = min(MAX_LENGTH, arena.world.model.config.max_position_embeddings)
    engine = VllmEngine(arena.max_batch, dtype, VllmOptions(max_length=longest))
    shared = {f.name: getattr(arena, f.name) for f in fields(Arena) if f.init and not f.name.startswith("_")}
    shared |= {"title": f"{arena.title}, vLLM", "cache": Cache(None)}
    return VllmArena(**shared, engine=engine, scratch=scratch or Path(mkdtemp(prefix="proofpool-arena.")))
