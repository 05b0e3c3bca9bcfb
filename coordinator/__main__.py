"""`python -m coordinator`: the same as `proofpool coordinator`."""

from __future__ import annotations

import sys

from protocol.cli import run

sys.exit(run(["coordinator", *sys.argv[1:]]))
