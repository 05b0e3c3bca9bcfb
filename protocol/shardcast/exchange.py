"""The exchange: relays of one origin share out who asks it for which shard, and take the others from each other.

In: this relay's URL and its peers', what peers say they have (`here.json`), and which shards are missing. Out: whom to
ask for a shard now, if anybody. A shard is first asked of the origin by the relay whose hash with it is the least among
those that are alive (rendezvous hashing), so that the origin sends it once, and a relay that comes or goes moves only
its own share. Upstreams that are relays themselves are asked for what they have. Nobody is waited for without end: who
is silent loses its share, who says what isn't so its say, and whoever has nothing else to do asks for what others are
slow to bring, from the far end of their share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, Self

import httpx
from blake3 import blake3

from protocol.clock import Clock
from protocol.errors import ProofpoolError
from protocol.shardcast.document import read_document
from protocol.shardcast.holding import HOLDING_FILE, MAX_HOLDING_BYTES, MOST_FETCHING, Holding, read_holding
from protocol.shardcast.line import weights_client
from protocol.shardcast.manifest import Kind, version_path
from protocol.shardcast.relays import Relays
from protocol.shardcast.work import Outcome

UPSTREAM_IN_FLIGHT = 4
"""Shards asked of upstreams at a time: fewer than in all, so that the first is soon whole and can be handed on."""
GREETING_SECONDS = 1.0
"""Nothing is asked of upstreams until all peers have said what they have, or this is over."""
MOST_STRIKES = 3
"""A peer that failed so often, more than it gave, isn't asked for this version any more."""


@dataclass(frozen=True)
class Patience:
    """Seconds that peers are waited for."""

    silent: float = 10.0
    """A peer that can't be asked what it has is taken for dead after this."""
    idle: float = 3.0
    """After so long with nothing of one's own to do, and nothing from peers, their share is asked of upstreams."""
    upstream: float = 60.0
    """What an upstream says it hasn't got isn't asked of it while something has come within this."""
    claim: float = 60.0
    """What a peer says it is being sent is left to it for so long."""
    poll: float = 0.25
    """Between two looks at what a peer has."""
    answer: float = 5.0
    """For the answer to such a look."""


class Claims(Protocol):
    """Where this relay says what it is asking upstreams for."""

    def ask(self, numbers: Iterable[int]) -> None:
        """These and no others."""
        ...


@dataclass
class _Peer:
    url: str
    heard_at: float
    is_dead: bool = False
    """At the end of the version before."""
    was_asked: bool = False
    """What it has of this version is known, be it nothing."""
    holding: Holding | None = None
    shards: frozenset[int] = frozenset()
    claimed_at: dict[int, float] = field(default_factory=dict)
    """When it first said that it is being sent a shard."""
    strikes: int = 0


class _Way(Enum):
    """How a shard is had that is on its way."""

    OWN = "own"
    STOLEN = "stolen"
    PEER = "peer"


class Exchange:
    """Threads share it. Example: `with Exchange(url, peers, upstreams, relays, clock) as exchange: exchange.follow(…)`.

    `members`: who takes part, asked for each version; this relay and upstreams may be among them.
    """

    def __init__(
        self,
        own_url: str,
        members: Callable[[], Sequence[str]],
        upstreams: Sequence[str],
        relays: Relays,
        clock: Clock,
        patience: Patience | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        self._own, self._members, self._relays, self._clock = own_url.rstrip("/"), members, relays, clock
        self._upstreams = tuple(url.rstrip("/") for url in upstreams)
        self._patience = patience or Patience()
        self._peers: dict[str, _Peer] = {}
        self._sources: dict[str, _Peer] = {}
        """Upstreams, of which origins hold everything and say nothing."""
        self._lock = threading.Lock()
        self._over, self._following = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._watched: set[str] = set()
        self._given, self._http = http, http
        self._policy_version: int | None = None
        self._kind: Kind = "shards"
        self._missing: set[int] = set()
        self._ranks: dict[int, list[str]] = {}
        self._in_hand: dict[int, _Way] = {}
        self._claims: Claims | None = None
        self._busy_at = self._thought_at = self._met_at = self._came_at = 0.0
        self._own_share: set[int] = set()
        self._stolen: set[int] = set()
        self._all_talk: set[str] = set()
        """Peers whose claims came to nothing, in this version or one before."""

    def __enter__(self) -> Self:
        self._http = self._given or weights_client(self._patience.answer)
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        self._following.set()
        for thread in self._threads:
            thread.join()
        if self._http is not None and self._given is None:
            self._http.close()

    def follow(self, policy_version: int, kind: Kind, missing: Collection[int], claims: Claims | None = None) -> None:
        """These shards are wanted from now on; peers are looked at until `rest`."""
        now, is_new = self._clock.now(), policy_version != self._policy_version
        if is_new:
            self._meet(policy_version, now)
        with self._lock:
            self._claims, self._missing = claims, set(missing)
            self._in_hand.clear()
            if is_new or kind != self._kind:
                self._kind, self._ranks, self._busy_at = kind, {}, now
                for peer in (*self._peers.values(), *self._sources.values()):
                    self._read(peer, now)
            self._think(now)
        self._following.set()

    def rest(self) -> None:
        """All of the version is here."""
        self._following.clear()
        now = self._clock.now()
        with self._lock:
            for peer in self._peers.values():
                peer.is_dead = now - peer.heard_at >= self._patience.silent

    def take(self, number: int, tried: Collection[str]) -> Collection[str]:
        """Whom to ask for a shard now, which counts as asked until `end`; nobody where a peer is about to have it."""
        with self._lock:
            now = self._clock.now()
            if now - self._thought_at > self._patience.poll:
                self._think(now)
            having = self._having(number, tried)
            if having:
                self._in_hand[number] = _Way.PEER
                return having
            is_due = number in self._own_share or number in self._stolen
            sources = self._sources_of(number, now) if is_due and self._num_asked < self._most_asked else []
            if not sources:
                return ()
            self._in_hand[number] = _Way.OWN if number in self._own_share else _Way.STOLEN
            self._say()
            return sources

    def end(self, number: int, url: str, outcome: Outcome) -> None:
        """What asking came to."""
        with self._lock:
            if outcome is Outcome.HERE:
                self._came_at = self._clock.now()
                self._all_talk.discard(url)
                for numbers in (self._missing, self._own_share, self._stolen):
                    numbers.discard(number)
            way = self._in_hand.pop(number, None)
            if way is not _Way.STOLEN:
                self._busy_at = self._clock.now()
            if way is not _Way.PEER:
                self._say()
            peer = self._peers.get(url)
            if peer is not None:
                peer.strikes += {Outcome.HERE: -1, Outcome.NOT_THERE: MOST_STRIKES, Outcome.FAILED: 1}[outcome]
                peer.strikes = max(0, peer.strikes)

    def rivals(self, url: str) -> Collection[str] | None:
        """Upstreams have rivals in each other only: peers that are faster haven't got what is asked of upstreams."""
        return self._upstreams if url in self._upstreams else None

    def ready(self) -> set[int]:
        """Missing shards that somebody would be asked for now."""
        with self._lock:
            self._think(self._clock.now())
            had = {number for number in self._missing if self._having(number, ())}
            return had | self._own_share | self._stolen

    def _say(self) -> None:
        if self._claims is not None:
            self._claims.ask(number for number, way in self._in_hand.items() if way is not _Way.PEER)

    @property
    def _most_asked(self) -> int:
        """Of upstreams at a time; who has nobody to hand anything on to needn't have the first ones early."""
        return UPSTREAM_IN_FLIGHT if self._peers else MOST_FETCHING

    def _sources_of(self, number: int, now: float) -> list[str]:
        """Upstreams that may have it."""
        is_patient = now - self._came_at < self._patience.upstream
        return [
            source.url
            for source in self._sources.values()
            if source.holding is None
            or number in source.shards
            or not is_patient
            or now - source.heard_at >= self._patience.silent
        ]

    @property
    def _num_asked(self) -> int:
        return sum(way is not _Way.PEER for way in self._in_hand.values())

    def _having(self, number: int, tried: Collection[str]) -> list[str]:
        """Peers that say they have it, and may."""
        return [
            peer.url
            for peer in self._peers.values()
            if number in peer.shards and peer.url not in tried and self._is_trusted(peer)
        ]

    def _is_trusted(self, peer: _Peer) -> bool:
        return peer.strikes < MOST_STRIKES and not self._relays.has_lied(peer.url)

    def _think(self, now: float) -> None:
        """Who asks upstreams for what. Under the lock."""
        self._thought_at = now
        trusted = [peer for peer in self._peers.values() if self._is_trusted(peer)]
        had = set().union(*(peer.shards for peer in trusted))
        living = [peer for peer in trusted if now - peer.heard_at < self._patience.silent]
        alive = {self._own, *(peer.url for peer in living)}
        claimed = {number for peer in living for number in self._claims_of(peer, now)}
        wanted = self._missing - had - self._in_hand.keys() - claimed
        wanted = {number for number in wanted if self._sources_of(number, now)}
        orders = {number: [url for url in self._rank(number) if url in alive] for number in wanted}
        if now - self._met_at < GREETING_SECONDS and not all(peer.was_asked for peer in self._peers.values()):
            orders = {}
        self._own_share = {number for number, order in orders.items() if order[0] == self._own}
        self._stolen = self._to_steal(orders, now) if not self._own_share else set()

    def _to_steal(self, orders: dict[int, list[str]], now: float) -> set[int]:
        """The last ones of others' shares; first those whose next owner this relay is."""
        is_busy = any(way is not _Way.STOLEN for way in self._in_hand.values())
        idle = now - self._busy_at
        if is_busy or idle < self._patience.idle:
            return set()
        next_ones = [number for number, order in orders.items() if order[1] == self._own]
        if not next_ones and idle > 2 * self._patience.idle:
            next_ones = list(orders)
        return set(sorted(next_ones)[-UPSTREAM_IN_FLIGHT:])

    def _claims_of(self, peer: _Peer, now: float) -> list[int]:
        """What it is being sent, while that is believed: who claimed for too long must bring something first."""
        waited = (now - at for number, at in peer.claimed_at.items() if number in self._missing)
        if max(waited, default=0.0) >= self._patience.claim:
            self._all_talk.add(peer.url)
        return [] if peer.url in self._all_talk else list(peer.claimed_at)

    def _rank(self, number: int) -> list[str]:
        """All who take part, in the order in which they are to ask for a shard: the same at each of them."""
        if number not in self._ranks:

            def score(url: str) -> bytes:
                return blake3(f"{self._policy_version}/{self._kind}/{number}/{url}".encode()).digest()

            self._ranks[number] = sorted((self._own, *self._peers), key=score)
        return self._ranks[number]

    def _meet(self, policy_version: int, now: float) -> None:
        """Who takes part in this version. One who was dead is dead until it is heard again."""
        members = dict.fromkeys(url.rstrip("/") for url in self._members())
        urls = [url for url in members if url != self._own and url not in self._upstreams]
        with self._lock:
            self._policy_version = policy_version
            self._met_at = self._came_at = now
            self._sources = {url: _Peer(url, now) for url in self._upstreams}
            dead = {url for url, peer in self._peers.items() if peer.is_dead}
            self._peers = {url: _Peer(url, now - self._patience.silent * (url in dead)) for url in urls}
        for url in (*urls, *self._upstreams):
            self._relays.add(url)
            if url not in self._watched:
                self._watched.add(url)
                thread = threading.Thread(target=self._watch, args=(url,), name="peer", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _watch(self, url: str) -> None:
        """Look at what a peer has, while anything is missing here."""
        while not self._over.is_set():
            self._following.wait()
            policy_version = self._policy_version
            if self._over.is_set() or policy_version is None:
                continue
            self._hear(url, policy_version)
            self._clock.wait(self._over, self._patience.poll)

    def _hear(self, url: str, policy_version: int) -> None:
        if self._http is None:
            return
        path = f"{url}/{version_path(policy_version)}/{HOLDING_FILE}"
        try:
            data = read_document(self._http, path, MAX_HOLDING_BYTES, self._clock, self._patience.answer, self._over)
            holding = read_holding(data, policy_version)
        except httpx.ConnectError:
            self._lost(url)
        except (httpx.HTTPError, httpx.InvalidURL, ProofpoolError):
            self._greeted(url)  # it has nothing of this version yet: a matter of time
        else:
            self._heard(url, holding)

    def _lost(self, url: str) -> None:
        """Nobody is there: that needn't be waited for."""
        with self._lock:
            if url in self._peers:
                self._peers[url].heard_at = self._clock.now() - self._patience.silent
        self._greeted(url)

    def _greeted(self, url: str) -> None:
        """What a peer has is known, be it nothing."""
        with self._lock:
            if url in self._peers and not self._peers[url].was_asked:
                self._peers[url].was_asked = True
                self._thought_at = 0.0

    def _heard(self, url: str, holding: Holding) -> None:
        with self._lock:
            peer, now = self._peers.get(url) or self._sources.get(url), self._clock.now()
            if peer is None or holding.policy_version != self._policy_version:
                return
            peer.heard_at, peer.holding = now, holding
            self._read(peer, now)
        self._greeted(url)

    def _read(self, peer: _Peer, now: float) -> None:
        """What its holding says of the shards that are missing here. Under the lock."""
        if peer.holding is None:
            return
        peer.shards = frozenset(peer.holding.numbers(self._kind))
        fetching = peer.holding.numbers_fetching(self._kind)
        peer.claimed_at = {number: peer.claimed_at.get(number, now) for number in fetching}
