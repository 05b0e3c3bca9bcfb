"""`python -m worker`: the same as `proofpool worker`."""

from __future__ import annotations

import sys

from protocol.cli import run

sys.exit(run(["worker", *sys.argv[1:]]))
