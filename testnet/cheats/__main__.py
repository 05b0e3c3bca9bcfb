"""`python -m testnet.cheats KIND --config worker.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocol.errors import UsageError
from testnet.cheats.cherry_pick import CherryPick
from testnet.cheats.dishonest import Dishonest
from testnet.cheats.false_reward import FalseReward
from testnet.cheats.forged_proof import ForgedProof
from testnet.cheats.wrong_model import WrongModel
from worker.process import run_worker

KINDS: dict[str, type[Dishonest]] = {
    "wrong-model": WrongModel,
    "forged-proof": ForgedProof,
    "false-reward": FalseReward,
    "cherry-pick": CherryPick,
}


def cheat(kind: str, config: Annotated[Path, typer.Option(help="The worker's TOML file.")]) -> None:
    """Run a worker that cheats in one way."""
    if kind not in KINDS:
        raise UsageError("no such cheat", kind, f"choose from {', '.join(KINDS)}")
    run_worker(config, KINDS[kind])


if __name__ == "__main__":
    typer.run(cheat)
