"""`python -m trainer`: the same as `proofpool trainer`."""

from __future__ import annotations

import sys

from protocol.cli import run

sys.exit(run(["trainer", *sys.argv[1:]]))
