"""Which relay is asked: in proportion to success rate × bandwidth, and what moves the two."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack

import pytest

from protocol.shardcast.relays import Lie, Relays


def test_relays_are_drawn_in_proportion_to_success_rate_times_bandwidth() -> None:
    relays = Relays(["http://a", "http://b"], random.Random(1))
    fast, slow = relays.all
    fast.bytes_per_second, slow.bytes_per_second, slow.success_rate = 300.0, 200.0, 0.5
    drawn = Counter(one.url for _ in range(4000) if (one := relays.draw((), 0.0)))
    assert drawn["http://a"] / 4000 == pytest.approx(0.75, abs=0.03)


def test_both_averages_move_by_three_tenths() -> None:
    relays = Relays(["http://a"])
    relay = relays.all[0]
    relays.succeeded(relay, 100, 1.0)
    assert relay.bytes_per_second == 100
    relays.succeeded(relay, 200, 1.0)
    assert relay.bytes_per_second == pytest.approx(130)
    relays.failed(relay)
    assert relay.success_rate == pytest.approx(0.7 + 0.01)


def test_a_failure_says_nothing_of_bandwidth_and_all_heal_with_each_observation() -> None:
    relays = Relays(["http://a", "http://b"])
    bad, good = relays.all
    relays.succeeded(bad, 100, 1.0)
    for _ in range(20):
        relays.failed(bad)
    assert bad.bytes_per_second == 100 and bad.success_rate < 0.05
    before = bad.success_rate
    for _ in range(30):
        relays.succeeded(good, 100, 1.0)
    assert bad.success_rate == pytest.approx(before + 0.3)


def test_a_relay_that_was_never_measured_counts_as_an_average_one() -> None:
    relays = Relays(["http://a", "http://b", "http://new"], random.Random(1))
    relays.all[0].bytes_per_second, relays.all[1].bytes_per_second = 100.0, 300.0
    drawn = Counter(one.url for _ in range(6000) if (one := relays.draw((), 0.0)))
    assert drawn["http://new"] / 6000 == pytest.approx(1 / 3, abs=0.03)


def test_a_relay_that_leaves_questions_unanswered_is_drawn_less_often() -> None:
    relays = Relays(["http://a", "http://b"], random.Random(1))
    silent, good = relays.all
    with ExitStack() as stack:
        answered = [stack.enter_context(relays.asked(silent, f"versions/0/shards/{number}")) for number in range(3)]
        drawn = Counter(one.url for _ in range(4000) if (one := relays.draw((), 0.0)))
        assert drawn["http://a"] / 4000 == pytest.approx(1 / 5, abs=0.03)
        for each in answered:
            each()
        drawn = Counter(one.url for _ in range(4000) if (one := relays.draw((), 0.0)))
        assert drawn["http://a"] / 4000 == pytest.approx(1 / 2, abs=0.03)
    assert not silent.waiting and not silent.paces


def test_a_relay_that_brought_nothing_in_its_time_is_no_average_one() -> None:
    relays = Relays(["http://a", "http://b"], random.Random(1))
    relays.succeeded(relays.all[0], 0, 2.0)
    relays.succeeded(relays.all[1], 1000, 1.0)
    assert {one.url for _ in range(50) if (one := relays.draw((), 0.0))} == {"http://b"}


def test_the_pace_of_a_relay_is_that_of_its_running_transfers() -> None:
    relays = Relays(["http://a", "http://b"])
    one, other = relays.all
    relays.succeeded(one, 100, 1.0)
    assert relays.pace(one) == relays.best_pace_but(other) == 100
    with relays.asked(one, "x"), relays.asked(one, "y"):
        relays.paced(one, "x", 10.0, 0.1)
        assert relays.pace(one) == 100, "too early to say"
        relays.paced(one, "x", 10.0, 5.0)
        relays.paced(one, "y", 30.0, 5.0)
        assert relays.pace(one) == 20
    assert relays.pace(one) == 100


def test_a_liar_is_asked_last_and_who_rests_before_it() -> None:
    relays = Relays(["http://liar", "http://rests", "http://good"])
    liar, rests, good = relays.all
    relays.lied(liar, Lie(liar.url, "versions/0/shards/0", "0x01", "0x02"))
    relays.failed(rests, rests_until=100.0)
    urls = [one.url for _ in range(50) if (one := relays.draw((), 50.0))]
    assert set(urls) == {"http://good"}
    assert (one := relays.draw({good.url}, 50.0)) and one is rests
    assert (one := relays.draw({good.url, rests.url}, 50.0)) and one is liar
    assert relays.draw({good.url, rests.url, liar.url}, 50.0) is None
    assert {one.url for _ in range(99) if (one := relays.draw((), 100.0))} == {"http://good", "http://rests"}
    assert [lie.url for lie in relays.lies] == ["http://liar"]


def test_a_url_that_is_named_twice_is_one_relay() -> None:
    assert [one.url for one in Relays(["http://a/", "http://a/", "http://b"]).all] == ["http://a", "http://b"]
