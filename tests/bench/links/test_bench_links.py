"""SHARDCAST over shaped links: how near it comes to what the links allow, with clients by number, and with bad relays.

Clients have 100 Mbit/s and are 20 ms away (one way), three relays have 300 Mbit/s each, the origin 200; see
`network.py`. Needs root, `ip`, `tc` and TUN devices. On a busy machine run it with `chrt -r 1` before the command:
what is measured are the links, and processes that wait for a core look like slow ones.

    python -m pytest -m bench -s tests/bench/links
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import pytest

from tests.bench.links.network import trouble
from tests.bench.links.scene import (
    CLIENT_MBIT,
    ORIGIN_MBIT,
    RELAY_MBIT,
    Delivery,
    Scene,
    bound_seconds,
    scene,
)

MEBIBYTE = 1 << 20
RELAYS = ("relay0", "relay1", "relay2")
NUM_CLIENTS = 8
NUM_TURNS = 3
LEAST_SHARE = 0.9
"""Of the bound."""
MOST_TIMES = 1.3
"""The time of a healthy set with the same total capacity."""
CURVE_SCALE = 0.25
"""Of all rates: 32 clients at the full ones are more than two cores can shape."""
CLIENTS = (1, 2, 4, 8, 16, 32)

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]


@pytest.fixture(autouse=True, scope="module")
def possible() -> None:
    if why := trouble():
        pytest.skip(why)


def nothing(made: Scene) -> None:
    """All relays stay well."""


def delivered(
    relays: Sequence[float],
    num_bytes: int,
    shard_bytes: int = MEBIBYTE,
    change: Callable[[Scene], None] = nothing,
    scale: float = 1.0,
) -> Delivery:
    """From relays that have everything, to eight clients; `change` is done to the scene before."""
    near = dict(zip(RELAYS, relays, strict=True))
    with scene(near, NUM_CLIENTS, num_bytes, shard_bytes, scale) as made:
        for relay in RELAYS:
            made.serve(relay)
        change(made)
        for number in range(NUM_CLIENTS):
            made.client(f"client{number}", RELAYS)
        return made.deliver()


def said(name: str, found: Delivery, bound: float) -> float:
    """The share of the bound."""
    share = bound / found.seconds
    print(
        f"{name}: last client after {found.seconds:.2f} s, bound {bound:.2f} s, {100 * share:.0f} % of it; "
        f"{found.cpu_seconds_per_gb:.1f} processor seconds per GB at a client"
    )
    return share


@pytest.mark.parametrize(("scale", "num_bytes"), [(1.0, 128 * MEBIBYTE), (CURVE_SCALE, 64 * MEBIBYTE)])
def test_eight_clients_come_near_what_the_links_allow(scale: float, num_bytes: int) -> None:
    """At full rates the machine has something to do with it as well; at a quarter of them only the links."""
    rates = [RELAY_MBIT] * 3
    bound, shares = bound_seconds(num_bytes, NUM_CLIENTS, sum(rates)) / scale, []
    print()
    for _ in range(NUM_TURNS):
        found = delivered(rates, num_bytes, 2 * MEBIBYTE, scale=scale)
        assert not found.faults
        shares.append(said(f"{scale:g} of all rates, relays that have it", found, bound))
    assert statistics.median(shares) >= LEAST_SHARE


def test_relays_that_have_nothing_yet() -> None:
    """They take it from the origin and each other while clients take it from them, which is part of what they send."""
    num_bytes, rates = 128 * MEBIBYTE, dict.fromkeys(RELAYS, RELAY_MBIT)
    with scene({"origin": ORIGIN_MBIT} | rates, NUM_CLIENTS, num_bytes, 2 * MEBIBYTE) as made:
        made.serve("origin")
        for relay in RELAYS:
            made.forward(relay, ["origin"], RELAYS)
        for number in range(NUM_CLIENTS):
            made.client(f"client{number}", RELAYS)
        found = made.deliver()
        sent = made.sent("origin") / num_bytes
    print()
    said("relays that have nothing yet", found, bound_seconds(num_bytes, NUM_CLIENTS, sum(rates.values())))
    exchanged = NUM_CLIENTS + len(RELAYS) - sent
    own = max(num_bytes * 8e-6 * exchanged / sum(rates.values()), num_bytes * 8e-6 / CLIENT_MBIT)
    print(f"the origin sent {sent:.2f} files; with what relays send each other the bound is {own:.2f} s")
    assert not found.faults


FAULTS: dict[str, tuple[list[float], list[float], Callable[[Scene], None]]] = {
    "one is dead": ([300.0] * 3, [200.0] * 3, lambda made: made.members["relay2"].kill()),
    "one is gone without a word": ([300.0] * 3, [200.0] * 3, lambda made: made.network.lose("relay2")),
    "one has a tenth of its speed": ([300.0, 300.0, 30.0], [210.0] * 3, nothing),
    "one flips bits": ([300.0] * 3, [200.0] * 3, lambda made: made.flip("relay2")),
}
"""Rates of the relays, of a healthy set with the same capacity, and what is done to one of them."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_relay_costs_little(fault: str) -> None:
    rates, healthy_rates, spoil = FAULTS[fault]
    num_bytes = 64 * MEBIBYTE
    bad: list[float] = []
    healthy: list[float] = []
    bound = bound_seconds(num_bytes, NUM_CLIENTS, sum(healthy_rates))
    print()
    for _ in range(NUM_TURNS):
        for found, name in ((healthy, "a healthy set"), (bad, fault)):
            is_bad = found is bad
            one = delivered(rates if is_bad else healthy_rates, num_bytes, change=spoil if is_bad else nothing)
            assert not one.faults
            said(name, one, bound)
            found.append(one.seconds)
    times = statistics.median(bad) / statistics.median(healthy)
    print(f"{fault}: {times:.2f} times the time of a healthy set")
    assert times <= MOST_TIMES


@pytest.mark.parametrize("is_tree", [False, True], ids=["three relays", "a tree of relays"])
def test_time_to_the_last_client_by_their_number(is_tree: bool) -> None:
    """Three relays, or two for every three clients, each but the first behind another: log2 of their number deep."""
    num_bytes, seconds = 16 * MEBIBYTE, {}
    print()
    for num_clients in CLIENTS:
        num_relays = max(3, -(-2 * num_clients // 3)) if is_tree else 3
        found = curve_point(num_clients, num_relays, num_bytes, is_tree)
        assert not found.faults
        bound = bound_seconds(num_bytes, num_clients, num_relays * RELAY_MBIT) / CURVE_SCALE
        said(f"{num_clients} clients, {num_relays} relays", found, bound)
        seconds[num_clients] = found.seconds
    if is_tree:
        assert seconds[32] <= 2 * seconds[4]


def curve_point(num_clients: int, num_relays: int, num_bytes: int, is_tree: bool) -> Delivery:
    relays = [f"relay{number}" for number in range(num_relays)]
    near = {"origin": ORIGIN_MBIT} | dict.fromkeys(relays, RELAY_MBIT)
    with scene(near, num_clients, num_bytes, MEBIBYTE // 4, scale=CURVE_SCALE) as made:
        made.serve("origin")
        for number, relay in enumerate(relays):
            if is_tree:
                made.forward(relay, [relays[(number - 1) // 2] if number else "origin"])
            else:
                made.serve(relay)
        for number in range(num_clients):
            made.client(f"client{number}", relays)
        return made.deliver()
