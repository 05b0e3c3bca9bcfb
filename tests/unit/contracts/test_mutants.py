"""The mutants of the contracts change logic, one place each, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.mutant import Mutant, mutants_of, sample

CONTRACTS = Path(__file__).parents[3] / "contracts"
SOURCE = """\
/// A comment with a < b and a + b.
contract One {
    uint256 private constant BPS = 10_000 + 1;
    event Paid(uint256 amount);
    function pay(uint256 amount) external onlyCourt {
        if (amount < 1) revert TooLittle(amount); // less than 1 == nothing
        total += amount;
        emit Paid(amount);
        _send(amount);
    }
}"""


def changed_lines(found: list[Mutant]) -> dict[int, list[str]]:
    lines: dict[int, list[str]] = {}
    for mutant in found:
        lines.setdefault(mutant.line, []).append(mutant.after.strip())
    return lines


def test_comparisons_guards_writes_calls_and_modifiers_are_changed() -> None:
    assert changed_lines(mutants_of("One.sol", SOURCE)) == {
        5: ["function pay(uint256 amount) external {"],
        6: ["if (amount <= 1) revert TooLittle(amount); // less than 1 == nothing", ""],
        7: ["total -= amount;", ""],
        9: [""],
    }


def test_what_the_compiler_asks_for_is_not_left_out() -> None:
    """The calls are those of a constant's value and of a storage pointer; a call that nobody asks for goes."""
    source = """\
    bytes32 private constant KIND =
        keccak256("Kind(uint64 poolId)");
    modifier onlyCourt() {
        _check(poolId);
    function _open(uint64 poolId) private view returns (Pool storage pool) {
        pool = _existing(poolId);
        state = _existing(poolId);"""
    assert changed_lines(mutants_of("One.sol", source)) == {4: [""], 7: [""]}


def test_a_mutant_is_applied_to_its_own_source_only() -> None:
    mutant = mutants_of("One.sol", SOURCE)[1]
    assert mutant.apply(SOURCE).split("\n")[5] == mutant.after
    assert mutant.apply(SOURCE).split("\n")[:5] == SOURCE.split("\n")[:5]
    with pytest.raises(ValueError, match="has changed"):
        mutant.apply(SOURCE.replace("amount < 1", "amount < 2"))


def test_a_seed_names_the_same_mutants_and_every_contract_has_some() -> None:
    assert sample(CONTRACTS, 60, 1) == sample(CONTRACTS, 60, 1) != sample(CONTRACTS, 60, 2)
    files = {mutant.file for mutant in sample(CONTRACTS, 10_000, 1)}
    assert {
        "Court.sol",
        "Ledger.sol",
        "Pools.sol",
        "Registry.sol",
        "Seats.sol",
        "PoolRules.sol",
        "LogProof.sol",
    } <= files
