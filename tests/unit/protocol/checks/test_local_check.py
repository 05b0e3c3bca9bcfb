"""Files named by hand: what can't be read is a usage error, and nothing is read without end."""

from pathlib import Path

import pytest

from protocol.checks.basis import read_document
from protocol.checks.local_check import read_bytes
from protocol.errors import UsageError
from protocol.rules import Rules


def test_of_a_large_file_only_what_shows_that_it_is_too_large_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    assert (len(read_bytes(path)), len(read_bytes(path, 100)), len(read_bytes(path, 60))) == (100, 100, 61)


def test_what_never_ends_is_read_to_the_bound() -> None:
    assert len(read_bytes(Path("/dev/zero"), 1000)) == 1001


def test_folders_and_nothing_at_all_are_usage_errors(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match="can't be read"):
            read_bytes(path)


def test_bytes_that_are_no_text_are_no_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(UsageError, match="this isn't a rules document.*GET /v1/rules"):
        read_document(tmp_path / "rules.json", Rules)
    with pytest.raises(UsageError, match="can't be read"):
        read_document(tmp_path, Rules)
