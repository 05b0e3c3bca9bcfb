"""Relays of one origin that share out its work: what it sends how often, with peers that are there, dead, or liars."""

from __future__ import annotations

import shutil
import socket
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from protocol.clock import SteadyClock
from protocol.shardcast.exchange import GREETING_SECONDS, UPSTREAM_IN_FLIGHT, Exchange, Patience
from protocol.shardcast.file_server import FileServer
from protocol.shardcast.forwarder import Forwarder
from protocol.shardcast.holding import HOLDING_FILE, MOST_FETCHING, Holding, read_holding
from protocol.shardcast.line import weights_client
from protocol.shardcast.manifest import Manifest
from protocol.shardcast.relays import Lie, Relays
from protocol.shardcast.work import Outcome
from tests.unit.protocol.shardcast.chain_world import run_of
from tests.unit.protocol.shardcast.relay_world import Asked, published, relay, release_of, send
from tests.unit.protocol.shardcast.test_forwarder import Announced, cut_off, go_on, shards_in

NO_HURRY = Patience(silent=600.0, idle=600.0, claim=600.0, poll=0.02)
"""Who waits so long never asks for another's share: what the origin sends then doesn't depend on the machine's pace."""
HURRY = Patience(silent=0.5, idle=0.2, claim=0.5, poll=0.02, answer=0.5)


@dataclass
class Site:
    """A relay that runs."""

    root: Path
    url: str
    forwarder: Forwarder


@contextmanager
def sites(
    tmp_path: Path,
    announced: Announced,
    upstream: str,
    num_relays: int = 3,
    peers: Sequence[str] = (),
    patience: Patience | None = NO_HURRY,
    name: str = "relay",
) -> Iterator[list[Site]]:
    """So many relays that know each other and `peers`; None for relays that share nothing out."""
    stop = threading.Event()
    with ExitStack() as stack:
        servers = [
            stack.enter_context(FileServer(tmp_path / f"{name}{number}", ("127.0.0.1", 0)))
            for number in range(num_relays)
        ]
        urls = [*(server.url for server in servers), *peers]
        found, threads = [], []
        for number, server in enumerate(servers):
            http, relays = stack.enter_context(weights_client()), Relays([upstream])
            exchange = None
            if patience is not None:
                exchange = Exchange(server.url, lambda: urls, [upstream], relays, SteadyClock(), patience)
                stack.enter_context(exchange)
            root = tmp_path / f"{name}{number}"
            forwarder = Forwarder(root, [upstream], announced, http, 5, SteadyClock(), exchange, relays)
            found.append(Site(root, server.url, forwarder))
            threads.append(threading.Thread(target=forwarder.run, args=(stop,)))
        try:
            for thread in threads:
                thread.start()
            yield found
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def wait_for(found: Sequence[Site], version: int) -> None:
    while any(site.forwarder.policy_version != version for site in found):
        threading.Event().wait(0.02)


def num_held(root: Path, version: int) -> int:
    """Shards that a relay says it has."""
    file = root / "versions" / str(version) / HOLDING_FILE
    return len(read_holding(file.read_bytes(), version).shards) if file.exists() else 0


def shares(origin: Asked) -> Counter[str]:
    return Counter(origin.shards)


def test_the_origin_sends_each_shard_once_to_relays_that_share_them_out(tmp_path: Path, announced: Announced) -> None:
    manifest = published(tmp_path)
    announced.release = release_of(manifest)
    with relay(tmp_path / "origin") as origin, sites(tmp_path, announced, origin.url) as found:
        wait_for(found, 0)
        sent = shares(origin)
    assert len(sent) == len(manifest.shards) and sent.total() <= 1.1 * len(manifest.shards)
    for site in found:
        assert shards_in(site.root, 0) == shards_in(tmp_path / "origin", 0)


def test_relays_that_share_nothing_out_are_sent_everything_each(tmp_path: Path, announced: Announced) -> None:
    manifest = published(tmp_path, num_bytes=5000)
    announced.release = release_of(manifest)
    with (
        relay(tmp_path / "origin") as origin,
        sites(tmp_path, announced, origin.url, patience=None) as found,
    ):
        wait_for(found, 0)
        assert set(shares(origin).values()) == {3}


def test_what_is_being_written_is_shared_out_as_well(tmp_path: Path, announced: Announced) -> None:
    announced.release = release_of(published(tmp_path, num_bytes=3000))
    second = published(tmp_path, version=1)
    cut_off(tmp_path, second, 25)
    with relay(tmp_path / "origin") as origin, sites(tmp_path, announced, origin.url) as found:
        wait_for(found, 0)
        while any(num_held(site.root, 1) < 25 for site in found):
            threading.Event().wait(0.02)
        go_on(tmp_path, second)
        announced.release = release_of(second)
        wait_for(found, 1)
        sent = Counter(path for path, _ in origin.requests if path.startswith("/versions/1/shards/"))
    assert len(sent) == len(second.shards) and sent.total() <= 1.1 * len(second.shards)
    for site in found:
        assert shards_in(site.root, 1) == shards_in(tmp_path / "origin", 1)


def test_the_share_of_a_dead_peer_goes_to_the_others(tmp_path: Path, announced: Announced) -> None:
    manifest = published(tmp_path)
    announced.release = release_of(manifest)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and doesn't listen: whoever connects is refused
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with relay(tmp_path / "origin") as origin, sites(tmp_path, announced, origin.url, 2, [dead]) as found:
            wait_for(found, 0)
            sent = shares(origin)
    assert sent.total() <= 1.1 * len(manifest.shards)
    for site in found:
        assert shards_in(site.root, 0) == shards_in(tmp_path / "origin", 0)


def test_a_peer_that_never_answers_is_waited_for_a_while(tmp_path: Path, announced: Announced) -> None:
    announced.release = release_of(published(tmp_path))
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        with (
            relay(tmp_path / "origin") as origin,
            sites(tmp_path, announced, origin.url, 2, [url], HURRY) as found,
        ):
            wait_for(found, 0)
    for site in found:
        assert shards_in(site.root, 0) == shards_in(tmp_path / "origin", 0)


def flips(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    send(handler, bytes([data[0] ^ 1]) + data[1:])


@contextmanager
def liar(tmp_path: Path, manifest: Manifest, kind: str) -> Iterator[str]:
    """A peer that says what isn't so."""
    root = tmp_path / "liar"
    folder, numbers = root / "versions/0", tuple(range(len(manifest.shards)))
    folder.mkdir(parents=True)
    if kind == "wrong bytes":
        (folder / "shards").symlink_to(tmp_path / "origin/versions/0/shards")
    claimed = numbers[:10] if kind == "claims" else ()
    Holding(policy_version=0, shards=() if claimed else numbers, fetching=claimed).write(folder)
    with relay(root, flips) as asked:
        yield asked.url


@pytest.mark.parametrize("kind", ["wrong bytes", "nothing there", "claims"])
def test_a_peer_that_lies_costs_time_and_no_bytes(tmp_path: Path, announced: Announced, kind: str) -> None:
    manifest = published(tmp_path)
    announced.release = release_of(manifest)
    with (
        liar(tmp_path, manifest, kind) as url,
        relay(tmp_path / "origin") as origin,
        sites(tmp_path, announced, origin.url, 2, [url], HURRY) as found,
    ):
        wait_for(found, 0)
    for site in found:
        assert shards_in(site.root, 0) == shards_in(tmp_path / "origin", 0)
        lies = site.forwarder.relays.lies
        assert {lie.url for lie in lies} == ({url} if kind == "wrong bytes" else set())


def test_relays_of_relays_share_out_what_the_first_ones_have(tmp_path: Path, announced: Announced) -> None:
    manifest = published(tmp_path)
    announced.release = release_of(manifest)
    with (
        relay(tmp_path / "origin") as origin,
        sites(tmp_path, announced, origin.url, 1) as near,
        sites(tmp_path, announced, near[0].url, 2, name="far") as far,
    ):
        wait_for([*near, *far], 0)
        assert shares(origin).total() == len(manifest.shards)
    for site in far:
        assert shards_in(site.root, 0) == shards_in(tmp_path / "origin", 0)


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        return stop.wait(0.01)


class Said:
    """What a relay says it is asking for."""

    numbers: tuple[int, ...] = ()

    def ask(self, numbers: Iterable[int]) -> None:
        self.numbers = tuple(numbers)


ORIGIN, OWN, OTHER, THIRD = "http://origin", "http://own", "http://other", "http://third"


@pytest.fixture
def announced() -> Announced:
    return Announced()


@pytest.fixture
def clock() -> Hands:
    return Hands()


def alone(clock: Hands, own: str = OWN, members: Sequence[str] = (OWN, OTHER, THIRD)) -> Exchange:
    """An exchange that hears of peers only what the test tells it."""
    return Exchange(own, lambda: members, [ORIGIN], Relays([ORIGIN]), clock, Patience())


def test_an_upstream_relay_is_asked_for_what_it_has_and_an_origin_for_everything(clock: Hands) -> None:
    exchange = alone(clock, members=())
    said = follow(exchange)
    assert exchange.ready() == set(range(60)), "it says nothing"
    exchange._heard(ORIGIN, Holding(policy_version=3, shards=(4, 5)))
    assert exchange.ready() == {4, 5}
    assert exchange.take(6, ()) == () and exchange.take(4, ()) == [ORIGIN] and said.numbers == (4,)
    exchange.end(4, ORIGIN, Outcome.HERE)
    clock.time += 5.0
    exchange._heard(ORIGIN, Holding(policy_version=3, shards=(4, 5, 6)))
    assert exchange.ready() == {5, 6}


def test_what_nobody_is_asked_for_is_not_in_hand(clock: Hands) -> None:
    """The news that an upstream hasn't got it came since shares were thought over."""
    exchange = alone(clock, members=())
    said = follow(exchange)
    assert 7 in exchange.ready()
    exchange._heard(ORIGIN, Holding(policy_version=3, shards=(4, 5)))
    assert exchange.take(7, ()) in ((), []) and said.numbers == ()
    exchange._heard(ORIGIN, Holding(policy_version=3, shards=(4, 5, 7)))
    assert 7 in exchange.ready() and exchange.take(7, ()) == [ORIGIN]


def test_an_upstream_that_says_it_has_nothing_is_asked_all_the_same_once_nothing_comes(clock: Hands) -> None:
    exchange = alone(clock, members=())
    follow(exchange)
    clock.time += 59.0
    exchange._heard(ORIGIN, Holding(policy_version=3, shards=()))
    assert exchange.ready() == set()
    clock.time += 1.1
    exchange._heard(ORIGIN, Holding(policy_version=3, shards=()))
    assert exchange.ready() == set(range(60))


def test_an_upstream_that_fell_silent_may_have_more_by_now(clock: Hands) -> None:
    exchange = alone(clock, members=())
    follow(exchange)
    exchange._heard(ORIGIN, Holding(policy_version=3, shards=(1,)))
    assert exchange.ready() == {1}
    clock.time += 10.0
    assert exchange.ready() == set(range(60))


def follow(exchange: Exchange, num_shards: int = 60) -> Said:
    said = Said()
    exchange._watched.update((OWN, OTHER, THIRD, ORIGIN))  # nobody to ask: no thread is started
    exchange.follow(3, "shards", range(num_shards), said)
    for url in exchange._peers:
        heard(exchange, url)
    return said


def heard(exchange: Exchange, url: str, shards: Sequence[int] = (), fetching: Sequence[int] = ()) -> None:
    exchange._heard(url, Holding(policy_version=3, shards=tuple(shards), fetching=tuple(fetching)))


def asked_of_origin(exchange: Exchange, num_shards: int = 60) -> list[int]:
    """What the exchange would have asked of the origin, one after the other."""
    found = []
    for number in range(num_shards):
        if exchange.take(number, ()) == [ORIGIN]:
            found.append(number)
            exchange.end(number, ORIGIN, Outcome.HERE)
    return found


def test_every_shard_is_in_the_share_of_exactly_one(clock: Hands) -> None:
    found = []
    for own in (OWN, OTHER, THIRD):
        exchange = alone(clock, own)
        follow(exchange)
        found.append(asked_of_origin(exchange))
    assert sorted(number for share in found for number in share) == list(range(60))
    assert all(len(share) > 60 / 3 / 2 for share in found), "about a third each"


def test_a_peers_share_is_left_to_it_until_it_is_silent(clock: Hands) -> None:
    exchange = alone(clock)
    follow(exchange)
    own = asked_of_origin(exchange)
    clock.time += 2.9
    heard(exchange, OTHER)
    heard(exchange, THIRD)
    assert asked_of_origin(exchange) == []
    exchange._lost(OTHER)
    clock.time += 0.05
    assert asked_of_origin(exchange) == [], "what is known is thought over now and then, not at each question"
    clock.time += 0.3
    taken_over = asked_of_origin(exchange)
    assert taken_over and not set(taken_over) & set(own) and len(taken_over) < 60 - len(own), "half of its share"


def test_who_is_idle_asks_for_what_others_are_slow_to_bring_from_its_far_end(clock: Hands) -> None:
    exchange = alone(clock, members=(OWN, OTHER))
    follow(exchange)
    own = asked_of_origin(exchange)
    left = sorted(set(range(60)) - set(own))
    heard(exchange, OTHER, fetching=left[-2:])
    clock.time += 3.1
    heard(exchange, OTHER, fetching=left[-2:])
    assert asked_of_origin(exchange) == left[-2 - UPSTREAM_IN_FLIGHT : -2], "what it is being sent is left to it"
    for _ in range(10):
        clock.time += 6.0
        heard(exchange, OTHER, fetching=left[-2:])
    clock.time += 0.3
    assert asked_of_origin(exchange)[-1] in left[-2:], "but not for ever"


def test_nothing_is_asked_of_the_origin_before_peers_have_said_what_they_have(clock: Hands) -> None:
    exchange = alone(clock)
    exchange._watched.update((OTHER, THIRD, ORIGIN))
    exchange.follow(3, "shards", range(60), Said())
    assert exchange.ready() == set()
    heard(exchange, OTHER, range(20))
    assert exchange.ready() == set(range(20))
    clock.time += GREETING_SECONDS
    assert set(range(20)) < exchange.ready(), "who is slow to say it isn't waited for"


def test_what_another_is_being_sent_already_is_left_to_it_even_of_ones_own_share(clock: Hands) -> None:
    exchange = alone(clock)
    follow(exchange)
    own = sorted(exchange.ready())
    heard(exchange, OTHER, fetching=own[:3])
    assert sorted(exchange.ready()) == own[3:]
    clock.time += 60.1
    heard(exchange, THIRD)
    heard(exchange, OTHER, fetching=own[:3])
    assert sorted(exchange.ready()) == own


@pytest.mark.parametrize("brings", [False, True])
def test_claims_that_came_to_nothing_are_believed_once(clock: Hands, brings: bool) -> None:
    """Else a peer that only says so would cost a minute with every version, and with its patch another one."""
    exchange = alone(clock)
    follow(exchange)
    own = sorted(exchange.ready())
    heard(exchange, OTHER, fetching=own[:3])
    clock.time += 60.1
    heard(exchange, THIRD)
    heard(exchange, OTHER, fetching=own[:3])
    assert sorted(exchange.ready()) == own
    if brings:
        heard(exchange, OTHER, shards=own[:1])
        assert exchange.take(own[0], ()) == [OTHER]
        exchange.end(own[0], OTHER, Outcome.HERE)
    exchange.rest()
    follow(exchange)
    own = sorted(exchange.ready())
    heard(exchange, OTHER, fetching=own[-3:])
    assert sorted(exchange.ready()) == (own[:-3] if brings else own)


def test_who_waits_for_an_answer_is_not_idle(clock: Hands) -> None:
    exchange = alone(clock, members=(OWN, OTHER))
    said = follow(exchange)
    own = sorted(exchange.ready())
    for number in own[1:]:
        exchange.take(number, ())
        exchange.end(number, ORIGIN, Outcome.HERE)
    exchange.take(own[0], ())
    assert said.numbers == (own[0],), "peers see what this relay is being sent"
    clock.time += 60.0
    heard(exchange, OTHER)
    assert asked_of_origin(exchange) == []
    exchange.end(own[0], ORIGIN, Outcome.HERE)
    clock.time += 3.1
    heard(exchange, OTHER)
    assert asked_of_origin(exchange) != []


@pytest.mark.parametrize(("members", "limit"), [((OWN, OTHER), UPSTREAM_IN_FLIGHT), ((), MOST_FETCHING)])
def test_upstreams_are_asked_for_a_few_at_a_time(clock: Hands, members: tuple[str, ...], limit: int) -> None:
    exchange = alone(clock, members=members)
    said = follow(exchange)
    own = sorted(exchange.ready())
    asked = [number for number in range(60) if exchange.take(number, ())]
    assert asked == own[:limit] == list(said.numbers)
    assert exchange.take(own[limit], ()) == ()
    exchange.end(asked[2], ORIGIN, Outcome.HERE)
    assert exchange.take(own[limit], ()) == [ORIGIN] and exchange.take(asked[2], ()) == ()


def test_what_a_peer_has_is_asked_of_it_unless_it_failed_or_lied(clock: Hands) -> None:
    exchange = alone(clock, members=(OWN, OTHER))
    follow(exchange)
    heard(exchange, OTHER, range(60))
    assert exchange.take(7, ()) == [OTHER]
    assert exchange.take(7, (OTHER,)) in ((), [ORIGIN])
    exchange.end(7, OTHER, Outcome.FAILED)
    assert exchange.take(8, ()) == [OTHER], "once is no reason"
    exchange.end(8, OTHER, Outcome.NOT_THERE)
    assert exchange.take(9, ()) != [OTHER], "it said that it had it"
    lied = alone(clock, members=(OWN, OTHER))
    follow(lied)
    heard(lied, OTHER, range(60))
    one = next(relay for relay in lied._relays.all if relay.url == OTHER)
    lied._relays.lied(one, Lie(OTHER, "versions/3/shards/0", "0x01", "0x02"))
    assert lied.take(9, ()) != [OTHER]


def test_a_peer_that_was_dead_is_not_waited_for_at_the_next_version(clock: Hands) -> None:
    exchange = alone(clock, members=(OWN, OTHER))
    follow(exchange)
    exchange._lost(OTHER)
    exchange.rest()
    clock.time += 100.0
    exchange.follow(4, "shards", range(60), Said())
    clock.time += GREETING_SECONDS
    assert len(exchange.ready()) == 60
    exchange._heard(OTHER, Holding(policy_version=4, shards=()))
    assert len(exchange.ready()) < 60


def test_a_patch_is_shared_out_as_well_and_what_peers_have_is_known_by_kind(clock: Hands) -> None:
    exchange = alone(clock, members=(OWN, OTHER))
    follow(exchange)
    own = exchange.ready()
    exchange._heard(OTHER, Holding(policy_version=3, shards=(1, 2), patch=(0,), patch_fetching=(1,)))
    assert exchange.take(1, ()) == [OTHER]
    exchange.follow(3, "patch", range(60), Said())
    assert exchange.ready() != own, "another share"
    assert exchange.take(0, ()) == [OTHER] and exchange.take(1, ()) == ()


def test_patches_come_from_the_origin_once(tmp_path: Path, announced: Announced) -> None:
    run = run_of(tmp_path, 3, snapshot_every=4)
    with relay(run.origin) as origin, sites(tmp_path, announced, origin.url) as found:
        announced.release = release_of(run.manifests[2])
        wait_for(found, 2)
        sent = Counter(path for path, _ in origin.requests if not path.endswith(".json"))
    assert any("/patch/" in path for path in sent) and sent.total() <= 1.1 * len(sent)
    for site in found:
        for version, manifest in enumerate(run.manifests):
            folders = [root / "versions" / str(version) for root in (site.root, run.origin)]
            for kind, shards in (("patch", manifest.patch_shards), ("shards", manifest.published_shards)):
                for number in shards:
                    one, other = (folder / kind / str(number) for folder in folders)
                    assert one.read_bytes() == other.read_bytes()


def test_who_comes_back_with_a_part_takes_over_what_it_lacks(tmp_path: Path, announced: Announced) -> None:
    """The last shards of a silent peer's share are here: it is the others of that share that are asked for."""
    manifest = published(tmp_path)
    announced.release = release_of(manifest)
    kept = tmp_path / "relay0/versions/0/shards"
    kept.mkdir(parents=True)
    for number in range(20, len(manifest.shards)):
        shutil.copy(tmp_path / f"origin/versions/0/shards/{number}", kept)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        patience = Patience(silent=600.0, idle=0.2, claim=600.0, poll=0.02, answer=0.5)
        with (
            relay(tmp_path / "origin") as origin,
            sites(tmp_path, announced, origin.url, 1, [url], patience) as found,
        ):
            wait_for(found, 0)
    assert sorted(map(int, origin.shards)) == list(range(20))
    assert shards_in(found[0].root, 0) == shards_in(tmp_path / "origin", 0)
