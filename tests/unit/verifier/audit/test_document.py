"""Files that strangers hand over: of the shape that is wanted, or a usage error that says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.bundle import HeadFact
from protocol.errors import UsageError
from protocol.unfolding import MAX_VALUES
from verifier.audit import document
from verifier.audit.bundle.evidence import read_head
from verifier.audit.document import read_document

ROOT = "0x" + "ab" * 32
HEAD = f'{{"epoch": 3, "size": 12, "root": "{ROOT}", "beacon_hash": null}}'


def read(file: Path) -> HeadFact:
    return read_document(file, HeadFact, "a log head", "make one")


def test_a_document_is_read_whole(tmp_path: Path) -> None:
    (file := tmp_path / "head.json").write_text(HEAD)
    assert (read(file).epoch, read(file).size) == (3, 12)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "EOF"),
        (b"{}", "Field required at `epoch`"),
        (b"[" * 100_000, "recursion limit"),
        (HEAD.replace("12", "NaN").encode(), "finite number at `size`"),
        (HEAD.replace("12", "1" + "0" * 5000).encode(), "out of range"),
        (HEAD.replace("null", '"\\ud800"').encode(), "hex escape"),
        (HEAD.replace('"size"', '"ѕize"').encode(), "Field required at `size`"),
        (b"[" + b"[]," * (MAX_VALUES // 2) + b"[]]", "values, and"),
        (b"\xff\xfe", "expected value"),
        (HEAD.replace("}", ', "size": 13}').encode(), "a name stands twice in an object: size"),
        (HEAD.replace("}", ', "s\\u0069ze": 13}').encode(), "a name stands twice in an object: size"),
    ],
)
def test_what_is_no_document_is_a_usage_error(tmp_path: Path, content: bytes, why: str) -> None:
    (file := tmp_path / "head.json").write_bytes(content)
    with pytest.raises(UsageError, match="this is not a log head") as found:
        read(file)
    assert str(file) in found.value.why and why in found.value.why


def test_a_file_that_isnt_there_or_has_no_end_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        read(tmp_path)
    monkeypatch.setattr(document, "MAX_BYTES", 1000)
    with pytest.raises(UsageError, match="this is not") as found:
        read(Path("/dev/zero"))
    assert "longer than 1000 bytes" in found.value.why


def test_a_testnets_head_is_a_trusted_head(tmp_path: Path) -> None:
    (file := tmp_path / "head.json").write_text(HEAD)
    assert read_head(str(file)) == read_head(f"3:12:{ROOT}")
    file.write_text("{}")
    with pytest.raises(UsageError, match="log head"):
        read_head(str(file))
