"""Blobs: named by content, whole or not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from coordinator.blobs import BlobStore
from protocol.canonical import hex0x, sha256
from protocol.errors import ProofpoolError, Rejected
from protocol.reasons import RejectReason


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_blob_is_kept_once_under_its_digest(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    assert store.put(b"abc") == store.put(b"abc") == hex0x(sha256(b"abc"))
    assert store.get(store.put(b"abc")) == b"abc"
    assert len(files(tmp_path)) == 1


def test_a_missing_blob_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProofpoolError, match="missing"):
        BlobStore(tmp_path).get("0x" + "ab" * 32)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Rejected) as refusal:
        BlobStore(tmp_path).put(b"abc")
    assert refusal.value.reason is RejectReason.STORAGE_FULL
    assert files(tmp_path) == []


def test_another_fault_of_the_disk_isnt_called_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="broken"):
        BlobStore(tmp_path).put(b"abc")
