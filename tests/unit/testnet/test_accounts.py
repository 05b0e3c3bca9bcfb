"""Keys of a testnet: the same for one seed, other ones for another."""

from __future__ import annotations

from testnet.accounts import Accounts


def test_keys_follow_from_the_seed_and_are_all_different() -> None:
    first, again, other = (Accounts.of(seed, 3, 2, ("wrong-model",)) for seed in (0, 0, 1))
    assert first == again
    assert first.trainer != other.trainer
    addresses = [a.address for a in first.with_gas] + [p.node.address for p in first.providers]
    assert len(set(addresses)) == len(addresses) == 2 + 4 + 2 + 4


def test_cheaters_are_the_last_workers() -> None:
    accounts = Accounts.of(0, 2, 1, ("wrong-model", "cherry-pick"))
    assert [p.cheat for p in accounts.providers] == [None, None, "wrong-model", "cherry-pick"]
    assert [p.name for p in accounts.cheaters] == ["worker-2", "worker-3"]
