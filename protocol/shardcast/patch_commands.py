"""`proofpool shardcast diff` and `apply`: patches by hand. Nothing heavy is imported until one of them runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import BaseModel, ConfigDict

from protocol.errors import UsageError
from protocol.wire import Hash32, UInt64

WEIGHTS_FILE = "model.safetensors"

Base = Annotated[Path, typer.Argument(metavar="BASE", help="A safetensors file, or the model's folder that has it.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


class PatchMade(BaseModel):
    """The document of `shardcast diff`: what the patch is about, and how small it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    file: str
    base_version: UInt64
    policy_version: UInt64
    base_hash: Hash32
    result_hash: Hash32
    result_bytes: UInt64
    patch_bytes: UInt64
    num_words: UInt64
    """Values of the result."""
    num_changed: UInt64
    whole: tuple[str, ...]
    """Tensors that the base hasn't in their dtype and shape."""


class PatchApplied(BaseModel):
    """The document of `shardcast apply`: the file that was made, whose hash is the promised one."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    file: str
    policy_version: UInt64
    result_hash: Hash32
    result_bytes: UInt64
    num_patches: UInt64


def diff(
    base: Base,
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The later version's, likewise.")],
    out: Annotated[Path, typer.Option("--out", help="The patch to write.")],
    base_version: Annotated[int, typer.Option(min=0, help="BASE's policy version.")],
    policy_version: Annotated[int, typer.Option(min=0, help="NEW's policy version.")],
    as_json: Json = False,
) -> None:
    """Write the patch that makes NEW's weights of BASE's, to the bit."""
    from protocol.shardcast.patches import diff as make

    if base_version >= policy_version:
        why = f"--base-version {base_version} isn't before --policy-version {policy_version}"
        raise UsageError("a patch leads to a later version", why)
    found = make(_weights(base), _weights(new), out, base_version=base_version, policy_version=policy_version)
    made = PatchMade(
        file=str(out),
        **found.header.model_dump(exclude={"schema_version", "block_bytes"}),
        patch_bytes=found.patch_bytes,
        num_words=found.num_words,
        num_changed=found.num_changed,
    )
    if as_json:
        typer.echo(made.model_dump_json())
        return
    share, ratio = made.num_changed / max(1, made.num_words), made.result_bytes / made.patch_bytes
    typer.echo(f"{out}: {made.patch_bytes:,} bytes for {made.result_bytes:,}, {ratio:.1f} times less")
    typer.echo(f"{made.num_changed:,} of {made.num_words:,} values changed ({share:.3%})")
    typer.echo(f"makes {made.result_hash} of {made.base_hash}")


def apply(
    base: Base,
    patches: Annotated[list[Path], typer.Argument(metavar="PATCH...", help="One, or a chain of them in order.")],
    out: Annotated[Path, typer.Option("--out", help="The weights file to write; BASE's own may be replaced.")],
    as_json: Json = False,
) -> None:
    """Write the weights that the patches make of BASE's, if their hash is the promised one (else exit code 3)."""
    from protocol.shardcast.patches import apply_patches

    header = apply_patches(_weights(base), patches, out)
    made = PatchApplied(
        file=str(out),
        **header.model_dump(include={"policy_version", "result_hash", "result_bytes"}),
        num_patches=len(patches),
    )
    told = f"{out}: policy version {made.policy_version}, {made.result_bytes:,} bytes, {made.result_hash}"
    typer.echo(made.model_dump_json() if as_json else told)


def _weights(path: Path) -> Path:
    return path / WEIGHTS_FILE if path.is_dir() else path
