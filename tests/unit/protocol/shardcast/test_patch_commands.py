"""`proofpool shardcast diff` and `apply`: what they write, print, and refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.cli import run
from protocol.shardcast.patches import file_hash
from tests.documents import checked
from tests.unit.protocol.shardcast.stored import bf16_tensors, stepped, write


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and errors."""
    words = [str(argument) for argument in arguments]
    code = run(words)
    captured = capsys.readouterr()
    return code, checked(words, captured.out), captured.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`v0/model.safetensors` and the two versions after it."""
    model = bf16_tensors(0)
    for number in range(3):
        (tmp_path / f"v{number}").mkdir()
        write(tmp_path / f"v{number}" / "model.safetensors", model)
        model = {name: stepped(tensor, 0.01, number) for name, tensor in model.items()}
    return tmp_path


def make(capsys: pytest.CaptureFixture[str], folder: Path, number: int, *more: str) -> tuple[int, str, str]:
    versions = ["--base-version", number - 1, "--policy-version", number, "--out", folder / f"p{number}"]
    return printed(capsys, "shardcast", "diff", folder / f"v{number - 1}", folder / f"v{number}", *versions, *more)


def test_patches_are_made_and_applied(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = make(capsys, folder, 1, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["patch_bytes"] == (folder / "p1").stat().st_size
    assert document["result_hash"] == file_hash(folder / "v1" / "model.safetensors")
    code, out, _ = make(capsys, folder, 2)
    assert code == 0 and "of 13,000 values changed" in out
    apply = ["shardcast", "apply", folder / "v0", folder / "p1", folder / "p2", "--out", folder / "new"]
    code, out, _ = printed(capsys, *apply, "--json")
    assert code == 0 and json.loads(out)["num_patches"] == 2
    assert (folder / "new").read_bytes() == (folder / "v2" / "model.safetensors").read_bytes()
    code, out, _ = printed(capsys, *apply)
    assert code == 0 and "policy version 2" in out


def test_a_patch_for_another_base_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(capsys, folder, 1)
    code, out, errors = printed(
        capsys, "shardcast", "apply", folder / "v2", folder / "p1", "--out", folder / "new", "--json"
    )
    assert (code, out) == (3, "")
    assert "isn't version 0's file" in errors
    assert not (folder / "new").exists()


def test_what_is_no_weights_file_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "v1" / "model.safetensors").write_bytes(b"nothing")
    assert make(capsys, folder, 1)[0] == 3
    (folder / "v1" / "model.safetensors").unlink()
    assert make(capsys, folder, 1)[0] == 1
    assert not (folder / "p1").exists()


def test_a_patch_leads_to_a_later_version_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, asked = folder / "p", ["shardcast", "diff", folder / "v0", folder / "v1", "--out", folder / "p"]
    code, _, errors = printed(capsys, *asked, "--base-version", 1, "--policy-version", 1)
    assert code == 2 and "isn't before" in errors and not out.exists()
    code, _, _ = printed(capsys, *asked, "--base-version", 1, "--policy-version", 2)
    assert code == 0 and out.exists()
