"""What transactions cost: the committed figures keep the bounds, and the documents say the same figures.

That the contracts cost this is forge's part (contracts/test/Gas.t.sol, EpochGas.t.sol; tests/chain/test_forge.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SNAPSHOTS = ROOT / "contracts" / "snapshots"
NUM_SUBMISSIONS = (1, 16, 256, 4096)


def figures(name: str) -> dict[str, int]:
    return {what: int(gas) for what, gas in json.loads((SNAPSHOTS / f"{name}.json").read_text()).items()}


def epoch_costs(leaves: str) -> list[int]:
    epochs = figures("epochs")
    return [epochs[f"{leaves} leaves, {n} submission{'s' if n != 1 else ''}"] for n in NUM_SUBMISSIONS]


def test_epochs_claims_and_accusations_keep_their_bounds() -> None:
    transactions = figures("transactions")
    assert max(figures("epochs").values()) <= 95_000
    assert transactions["claim, later"] <= 80_000
    assert transactions["accuse, quorum 2"] <= 250_000


def test_a_submission_costs_at_most_375_of_256_and_24_of_4096() -> None:
    for leaves in ("10^4", "10^6", "10^8"):
        _, _, of_256, of_4096 = epoch_costs(leaves)
        assert of_256 / 256 <= 375
        assert of_4096 / 4096 <= 24


def test_every_figure_of_a_transaction_stands_in_the_contracts_document() -> None:
    said = (ROOT / "docs" / "contracts.md").read_text()
    missing = {what: gas for what, gas in figures("transactions").items() if f"{gas:,}" not in said}
    assert not missing


@pytest.mark.parametrize("row", range(len(NUM_SUBMISSIONS)))
def test_the_table_of_epochs_is_that_of_the_committed_figures(row: int) -> None:
    costs = [epoch_costs(leaves)[row] for leaves in ("10^4", "10^6", "10^8")]
    share = -(-costs[-1] // NUM_SUBMISSIONS[row])
    cells = " | ".join(f"{figure:,}" for figure in (NUM_SUBMISSIONS[row], *costs, share))
    assert f"| {cells} | 235,000 to 303,000 |" in (ROOT / "docs" / "benchmarks.md").read_text()
