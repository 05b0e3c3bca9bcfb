"""The client against relays that lie, cut short, redirect, dawdle, die and come late; over real sockets."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest

from protocol.errors import ShardCorrupt, Unreachable
from protocol.shardcast import document
from protocol.shardcast import transfer as transfer_module
from protocol.shardcast.assembly import Assembly
from protocol.shardcast.client import Fetched, fetch
from protocol.shardcast.document import ROUNDS
from protocol.shardcast.holding import Holding
from protocol.shardcast.line import LINE_TIMEOUT_SECONDS, weights_client
from protocol.shardcast.manifest import Manifest
from protocol.shardcast.relays import Relays
from protocol.shardcast.transfer import LOOK_SECONDS, TooSlow, Transfer, receive
from tests.unit.protocol.shardcast.relay_world import files_of, honestly, published, relay, release_of, send
from tests.unit.protocol.shardcast.test_shardcast import StandingClock

ROOT = Path(__file__).resolve().parents[4]


def got(urls: list[str], manifest: Manifest, destination: Path, **options: float) -> Fetched:
    with weights_client() as http:
        return fetch(http, urls, release_of(manifest), destination, **options)  # type: ignore[arg-type]


def flips(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    send(handler, bytes([data[0] ^ 1]) + data[1:])


def cuts(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    """Promises all, sends half and hangs up."""
    send(handler, data[: len(data) // 2], len(data))
    handler.close_connection = True


def test_a_version_comes_whole_over_sockets(tmp_path: Path) -> None:
    manifest = published(tmp_path)
    with relay(tmp_path / "origin") as one:
        fetched = got([one.url], manifest, tmp_path / "got")
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")
    assert fetched.num_bytes_fetched == manifest.num_bytes and fetched.lies == []
    assert sorted(map(int, one.shards)) == list(range(len(manifest.shards)))


def test_a_shard_that_broke_off_goes_on_at_another_relay_from_where_it_stopped(tmp_path: Path) -> None:
    manifest = published(tmp_path)
    with relay(tmp_path / "origin", cuts) as bad, relay(tmp_path / "origin") as good:
        fetched = got([bad.url, good.url], manifest, tmp_path / "got")
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")
    assert [wanted for _, wanted in good.requests if wanted] and fetched.lies == []
    assert fetched.num_bytes_fetched == manifest.num_bytes


def test_a_liar_is_left_and_its_lie_is_evidence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manifest = published(tmp_path)
    with relay(tmp_path / "origin", flips) as liar, relay(tmp_path / "origin") as good:
        fetched = got([liar.url, good.url], manifest, tmp_path / "got")
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")
    assert {lie.url for lie in fetched.lies} == {liar.url}
    for lie in fetched.lies:
        index = int(lie.path.rpartition("/")[2])
        assert lie.expected == manifest.shards[index].blake3 != lie.found
    assert len(liar.shards) <= 10, "only what was in flight at the first lie"


def test_bytes_of_two_relays_that_do_not_fit_are_held_against_nobody(tmp_path: Path) -> None:
    """One sends a wrong half and hangs up; the honest one, who sends the rest, isn't the liar."""
    manifest = published(tmp_path, num_bytes=1000)

    def spoils_and_cuts(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        cuts(handler, bytes([data[0] ^ 1]) + data[1:])

    with relay(tmp_path / "origin", spoils_and_cuts) as bad, relay(tmp_path / "origin") as good:
        for attempt in range(6):
            fetched = got([bad.url, good.url], manifest, tmp_path / f"got{attempt}")
            assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")
            assert good.url not in {lie.url for lie in fetched.lies}


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    manifest = published(tmp_path)
    with relay(tmp_path / "origin") as elsewhere:

        def redirects(handler: BaseHTTPRequestHandler, data: bytes) -> None:
            handler.send_response(302)
            handler.send_header("Location", elsewhere.url + handler.path)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        with relay(tmp_path / "origin", redirects) as bad:
            with pytest.raises(Unreachable):
                got([bad.url], manifest, tmp_path / "got")
            assert elsewhere.requests == []
            with relay(tmp_path / "origin") as good:
                fetched = got([bad.url, good.url], manifest, tmp_path / "got")
    assert elsewhere.requests == [] and files_of(fetched.folder) == files_of(tmp_path / "checkpoint")


def test_a_dead_relay_costs_nothing_but_its_attempts(tmp_path: Path) -> None:
    manifest = published(tmp_path)
    with relay(tmp_path / "origin") as dead:
        pass
    with relay(tmp_path / "origin") as good:
        fetched = got([dead.url, good.url], manifest, tmp_path / "got")
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")
    with pytest.raises(Unreachable, match="hands out"):
        got([dead.url], manifest, tmp_path / "another")


@pytest.mark.parametrize("status", [206, 200])
def test_a_relay_that_answers_a_range_with_other_bytes_spoils_nothing(tmp_path: Path, status: int) -> None:
    """A relay without ranges starts from the front, which is fine; one that says so of other bytes is refused."""
    manifest = published(tmp_path, num_bytes=1000)

    def from_the_front(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        whole = (tmp_path / "origin" / handler.path.lstrip("/")).read_bytes()
        handler.send_response(status if handler.headers.get("Range") else 200)
        handler.send_header("Content-Range", "bytes 0-999/1000")
        handler.send_header("Content-Length", str(len(whole)))
        handler.end_headers()
        handler.wfile.write(whole)

    with relay(tmp_path / "origin", cuts) as bad, relay(tmp_path / "origin", from_the_front) as front:
        for attempt in range(4):
            urls = [bad.url, front.url]
            if status == 206:
                with relay(tmp_path / "origin") as good:
                    fetched = got([*urls, good.url], manifest, tmp_path / f"got{attempt}")
            else:
                fetched = got(urls, manifest, tmp_path / f"got{attempt}")
            assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")
            assert fetched.lies == []


def test_shards_that_are_not_there_yet_are_waited_for_if_the_caller_is_patient(tmp_path: Path) -> None:
    manifest = published(tmp_path)
    last = tmp_path / "origin/versions/0/shards" / str(len(manifest.shards) - 1)
    late = last.rename(tmp_path / "late")
    with relay(tmp_path / "origin") as one:
        with pytest.raises(Unreachable, match=f"hands out versions/0/shards/{last.name}"):
            got([one.url], manifest, tmp_path / "got")
        watch = threading.Thread(
            target=lambda: _when(lambda: one.shards.count(last.name) > 6, lambda: late.rename(last))
        )
        watch.start()
        fetched = got([one.url], manifest, tmp_path / "got", wait_seconds=60.0)
        watch.join()
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")


def test_a_dead_relay_does_not_shorten_the_wait_for_another(tmp_path: Path) -> None:
    """That nobody answers there says nothing of what is on its way elsewhere; where all are dead, it does."""
    manifest = published(tmp_path)
    last = tmp_path / "origin/versions/0/shards" / str(len(manifest.shards) - 1)
    late = last.rename(tmp_path / "late")
    with relay(tmp_path / "origin") as dead:
        pass
    with relay(tmp_path / "origin") as one:
        watch = threading.Thread(
            target=lambda: _when(lambda: one.shards.count(last.name) > 2 * ROUNDS, lambda: late.rename(last))
        )
        watch.start()
        fetched = got([dead.url, one.url], manifest, tmp_path / "got", wait_seconds=60.0)
        watch.join()
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")
    started = time.monotonic()
    with pytest.raises(Unreachable):
        got([dead.url], manifest, tmp_path / "another", wait_seconds=60.0)
    assert time.monotonic() - started < 30.0


def test_a_manifest_that_is_not_there_yet_is_waited_for_if_the_caller_is_patient(tmp_path: Path) -> None:
    manifest = published(tmp_path)
    file = tmp_path / "origin/versions/0/manifest.json"
    late = file.rename(tmp_path / "late")
    with relay(tmp_path / "origin") as one:
        with pytest.raises(Unreachable, match=r"hands out versions/0/manifest\.json"):
            got([one.url], manifest, tmp_path / "got")
        assert len(one.requests) == ROUNDS
        watch = threading.Thread(
            target=lambda: _when(lambda: len(one.requests) > 3 * ROUNDS, lambda: late.rename(file))
        )
        watch.start()
        fetched = got([one.url], manifest, tmp_path / "got", wait_seconds=60.0)
        watch.join()
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")


def _when(condition: Callable[[], bool], then: Callable[[], object]) -> None:
    tick = threading.Event()
    while not condition():
        tick.wait(0.01)
    then()


def test_past_the_deadline_it_is_over_and_what_came_is_kept(tmp_path: Path) -> None:
    manifest = published(tmp_path)
    shards = tmp_path / "origin/versions/0/shards"
    late = (shards / "7").rename(tmp_path / "late")
    with relay(tmp_path / "origin") as one:
        with pytest.raises(Unreachable, match="in time"):
            got([one.url], manifest, tmp_path / "got", wait_seconds=60.0, deadline_seconds=1.0)
        late.rename(shards / "7")
        one.requests.clear()
        fetched = got([one.url], manifest, tmp_path / "got", deadline_seconds=60.0)
    assert one.shards == ["7"] and files_of(fetched.folder) == files_of(tmp_path / "checkpoint")


def test_a_busy_relay_is_left_alone_as_long_as_it_asks(tmp_path: Path) -> None:
    manifest = published(tmp_path, num_bytes=1000)
    asked_at: dict[str, list[float]] = {}

    def busy_once(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        times = asked_at.setdefault(handler.path, [])
        times.append(time.monotonic())
        if len(times) > 1:
            honestly(handler, data)
            return
        handler.send_response(429)
        handler.send_header("Retry-After", "1")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with relay(tmp_path / "origin", busy_once) as one:
        fetched = got([one.url], manifest, tmp_path / "got")
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")
    assert all(again - first >= 1.0 for first, again in asked_at.values())


class Dawdling(httpx.SyncByteStream):
    """A body of which a hundred bytes come every so often."""

    def __init__(self, data: bytes, clock: StandingClock) -> None:
        self._data, self._clock = data, clock

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self._data), 100):
            self._clock.seconds += LOOK_SECONDS
            yield self._data[start : start + 100]


def test_a_relay_that_trickles_is_left_whatever_others_there_are(tmp_path: Path) -> None:
    manifest, clock = published(tmp_path, num_bytes=20_000, shard_bytes=20_000), StandingClock()
    data = (tmp_path / "checkpoint" / "model.safetensors").read_bytes()
    relays, transfer = Relays(["http://slow"]), Transfer(manifest.shards[1], "versions/0/shards/1")
    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=Dawdling(data, clock)))
    with (
        httpx.Client(transport=transport) as http,
        Assembly(tmp_path / "got" / "v0") as assembly,
        pytest.raises(httpx.ReadTimeout, match="bytes only"),
    ):
        receive(transfer, relays.all[0], relays, http, assembly, clock)
    assert 0 < transfer.num_done < len(data)


@pytest.mark.parametrize("other_bytes_per_second", [0.0, 100.0, 10_000.0])
def test_a_slow_relay_is_left_in_the_midst_of_a_shard_if_another_is_faster(
    tmp_path: Path, other_bytes_per_second: float
) -> None:
    manifest, clock = published(tmp_path, num_bytes=1000), StandingClock()
    data = (tmp_path / "checkpoint" / "model.safetensors").read_bytes()
    ranges: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "slow":
            return httpx.Response(200, stream=Dawdling(data, clock))
        ranges.append(request.headers["range"])
        first = int(ranges[0].removeprefix("bytes=").rstrip("-"))
        return httpx.Response(206, headers={"content-range": f"bytes {first}-999/1000"}, content=data[first:])

    relays = Relays(["http://slow", "http://other"])
    slow, other = relays.all
    other.bytes_per_second = other_bytes_per_second
    transfer = Transfer(manifest.shards[1], "versions/0/shards/1")
    with httpx.Client(transport=httpx.MockTransport(answer)) as http, Assembly(tmp_path / "got" / "v0") as assembly:
        if other_bytes_per_second < 1000:
            receive(transfer, slow, relays, http, assembly, clock)
        else:
            with pytest.raises(TooSlow):
                receive(transfer, slow, relays, http, assembly, clock)
            assert transfer.num_done == 100
            receive(transfer, other, relays, http, assembly, clock)
            assert ranges == ["bytes=100-"]
    assert transfer.found == transfer.shard.blake3
    assert (tmp_path / "got/.v0.staging/model.safetensors").read_bytes() == data


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_relay_that_says_nothing_costs_a_look(tmp_path: Path, silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its line's timeout is a minute; nobody waits for that while others answer."""
    monkeypatch.setattr(document, "FIRST_PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(transfer_module, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(transfer_module, "LAST_LOOK_SECONDS", 0.2)
    manifest, started = published(tmp_path), time.monotonic()
    with relay(tmp_path / "origin") as good:
        fetched = got([silent, good.url], manifest, tmp_path / "got")
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")
    assert time.monotonic() - started < LINE_TIMEOUT_SECONDS / 2
    assert {one.url: one.num_bytes for one in fetched.relays}[silent] == 0


def test_where_nobody_else_answers_silence_is_waited_out(tmp_path: Path, silent: str) -> None:
    manifest, clock = published(tmp_path, num_bytes=1000), StandingClock()
    relays, transfer = Relays([silent]), Transfer(manifest.shards[1], "versions/0/shards/1")
    with (
        weights_client(0.5) as http,
        Assembly(tmp_path / "got" / "v0") as assembly,
        pytest.raises(httpx.ReadTimeout, match="only 0 bytes came"),
    ):
        clock.seconds += 1
        receive(transfer, relays.all[0], relays, http, assembly, clock)


def test_a_transfer_that_has_all_bytes_asks_for_none(tmp_path: Path) -> None:
    """It was left for being slow at its last byte, or cut off after it: an empty range is no valid question."""
    manifest, clock = published(tmp_path, num_bytes=1000), StandingClock()
    relays, transfer = Relays(["http://slow", "http://other"]), Transfer(manifest.shards[1], "versions/0/shards/1")
    relays.all[1].bytes_per_second = 1e9
    data, asked = (tmp_path / "checkpoint" / "model.safetensors").read_bytes(), []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        clock.seconds += 10 * LOOK_SECONDS
        return httpx.Response(200, content=data)

    with httpx.Client(transport=httpx.MockTransport(answer)) as http, Assembly(tmp_path / "got" / "v0") as assembly:
        for one in relays.all:
            receive(transfer, one, relays, http, assembly, clock)
    assert asked == ["slow"] and transfer.found == transfer.shard.blake3


@pytest.mark.parametrize("is_last", [True, False])
def test_one_slow_connection_of_a_fast_relay_is_left_only_for_the_last_shards(tmp_path: Path, is_last: bool) -> None:
    manifest, clock = published(tmp_path, num_bytes=1000), StandingClock()
    data = (tmp_path / "checkpoint" / "model.safetensors").read_bytes()
    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=Dawdling(data, clock)))
    relays = Relays(["http://one", "http://other"])
    one, other = relays.all
    other.bytes_per_second = 10_000.0
    for number in range(9):
        relays.paced(one, f"versions/0/shards/{number + 2}", 10_000.0, LOOK_SECONDS)
    transfer = Transfer(manifest.shards[1], "versions/0/shards/1")
    with (
        httpx.Client(transport=transport) as http,
        Assembly(tmp_path / "got" / "v0") as assembly,
        pytest.raises(TooSlow) if is_last else nullcontext(),
    ):
        receive(transfer, one, relays, http, assembly, clock, lambda: is_last)
    assert transfer.num_done == (100 if is_last else 1000)


FETCH = """
import sys
from pathlib import Path
from protocol.shardcast.client import fetch
from protocol.shardcast.document import ROUNDS
from protocol.shardcast.line import LINE_TIMEOUT_SECONDS, weights_client
from protocol.wire import WeightsRelease
url, destination, promised = sys.argv[1:]
release = WeightsRelease(pool_id=1, policy_version=0, manifest_hash=promised)
with weights_client() as http:
    fetch(http, [url], release, Path(destination), lambda done, total: print(done, flush=True))
"""


@pytest.mark.parametrize("damage", [False, True])
def test_after_kill_9_what_came_is_checked_and_kept(tmp_path: Path, damage: bool) -> None:
    manifest = published(tmp_path)
    never, half = threading.Event(), len(manifest.shards) // 2

    def hangs_after_half(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        if int(handler.path.rpartition("/")[2]) > half:
            never.wait(60)
        honestly(handler, data)

    with relay(tmp_path / "origin", hangs_after_half) as one:
        command = [sys.executable, "-c", FETCH, one.url, str(tmp_path / "got"), manifest.manifest_hash]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True)
        assert child.stdout is not None
        wanted = sum(shard.num_bytes for shard in manifest.shards[: half + 1])
        assert any(int(line) == wanted for line in child.stdout)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        never.set()
    if damage:
        with (tmp_path / "got/.v0.staging/model.safetensors").open("r+b") as file:
            file.write(b"\xff")
    with relay(tmp_path / "origin") as one:
        fetched = got([one.url], manifest, tmp_path / "got")
    missing = list(range(half + 1, len(manifest.shards)))
    assert sorted(map(int, one.shards)) == ([1, *missing] if damage else missing)
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")


def test_a_full_disk_is_said_and_leaves_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = published(tmp_path)

    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with relay(tmp_path / "origin") as one:
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", full)
            with pytest.raises(OSError, match="No space left"):
                got([one.url], manifest, tmp_path / "got")
        assert not (tmp_path / "got" / "v0").exists()
        assert files_of(got([one.url], manifest, tmp_path / "got").folder) == files_of(tmp_path / "checkpoint")


def test_a_manifest_of_somebody_else_is_refused_and_kept_as_a_lie(tmp_path: Path) -> None:
    manifest = published(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    published(other, num_bytes=10)
    with relay(other / "origin") as liar, relay(tmp_path / "origin") as good:
        with pytest.raises(ShardCorrupt, match="no server has the right bytes"):
            got([liar.url], manifest, tmp_path / "got")
        for attempt in range(6):
            fetched = got([liar.url, good.url], manifest, tmp_path / f"got{attempt}")
            assert {lie.expected for lie in fetched.lies} <= {manifest.manifest_hash}
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")


def test_relays_are_not_asked_in_vain_for_what_they_say_they_lack(tmp_path: Path) -> None:
    """A relay that is still filled, whose holding names three shards, then all of them."""
    manifest = published(tmp_path, num_bytes=300_000)
    folder, late = tmp_path / "origin/versions/0", tmp_path / "late"
    (folder / "shards").rename(late)
    (folder / "shards").mkdir()
    for number in range(3):
        (late / str(number)).rename(folder / "shards" / str(number))
    Holding(policy_version=0, shards=(0, 1, 2)).write(folder)
    num_asked: list[int] = []

    def tell(done: int, total: int) -> None:
        """The rest comes once the first ones are here, and the holding was looked at a few times."""
        if done == sum(shard.num_bytes for shard in manifest.shards[:3]) and not num_asked:
            num_asked.append(0)
            threading.Thread(target=fill).start()

    def fill() -> None:
        while sum(path.endswith("here.json") for path, _ in asked.requests) < 4:
            threading.Event().wait(0.02)
        num_asked[0] = len(asked.shards)
        for path in list(late.iterdir()):
            path.rename(folder / "shards" / path.name)
        Holding(policy_version=0, shards=tuple(range(len(manifest.shards)))).write(folder)

    with relay(tmp_path / "origin") as asked, weights_client() as http:
        fetched = fetch(http, [asked.url], release_of(manifest), tmp_path / "got", tell, wait_seconds=60.0)
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")
    assert num_asked[0] < 300, "those it has, and those that were asked for before it said what it has"
