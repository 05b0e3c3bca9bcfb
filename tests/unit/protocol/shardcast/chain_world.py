"""A run of policy versions for tests of patches: a small model that takes steps, published by an origin."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from protocol.shardcast.manifest import Manifest
from protocol.shardcast.origin import Base, publish
from tests.unit.protocol.shardcast.stored import Tensors, bf16_tensors, stepped, write

SHARD_BYTES = 8192


@dataclass
class Run:
    """Checkpoints at `ROOT/checkpoints/N`, published into `ROOT/origin`."""

    root: Path
    snapshot_every: int = 1
    manifests: list[Manifest] = field(default_factory=list)
    tensors: Tensors = field(default_factory=lambda: bf16_tensors(0))

    @property
    def origin(self) -> Path:
        return self.root / "origin"

    def checkpoint(self, policy_version: int) -> Path:
        return self.root / "checkpoints" / str(policy_version)

    def step(self, with_base: bool = True) -> Manifest:
        """The next version: one value in a hundred moved, another record, the same tokenizer."""
        version = len(self.manifests)
        if version:
            self.tensors = {name: stepped(one, 0.01, version) for name, one in self.tensors.items()}
        folder = self.checkpoint(version)
        folder.mkdir(parents=True)
        (folder / "config.json").write_bytes(b"{}")
        (folder / "tokenizer.json").write_bytes(b"tokens" * 500)
        (folder / "training.json").write_bytes(b"%d" % version)
        write(folder / "model.safetensors", self.tensors)
        self.manifests.append(self.publish(version, with_base))
        return self.manifests[-1]

    def publish(self, version: int, with_base: bool = True) -> Manifest:
        base = Base(self.checkpoint(version - 1), self.manifests[version - 1]) if version and with_base else None
        return publish(
            self.checkpoint(version),
            self.origin,
            1,
            version,
            SHARD_BYTES,
            base=base,
            snapshot_every=self.snapshot_every,
        )


def run_of(root: Path, num_versions: int, snapshot_every: int = 1) -> Run:
    """A run that has published versions 0 to `num_versions` − 1."""
    run = Run(root, snapshot_every)
    for _ in range(num_versions):
        run.step()
    return run
