"""`python -m verifier run --config verifier.toml`: the same as `proofpool verifier run`."""

import sys

from protocol.cli import run

if __name__ == "__main__":
    sys.exit(run(["verifier", *sys.argv[1:]]))
