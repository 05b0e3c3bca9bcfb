"""A file of 100 MB is judged within 2 GiB."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.reasons import Outcome


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_file_of_100_mb_is_judged_within_2_gib() -> None:
    program = [sys.executable, "-m", "tests.unit.protocol.checks.large_file"]
    root = Path(__file__).resolve().parents[4]
    done = subprocess.run(program, capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["file_bytes"] > 100_000_000 and found["num_audited"] == 16_000
    assert found["outcomes"]["rewards"] == Outcome.ACCEPT and found["outcomes"]["toploc_exponents"] == Outcome.SLASH
    assert found["peak_bytes"] < 2 << 30
