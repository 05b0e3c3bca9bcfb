"""How versions reach workers, read from the logs of their processes."""

from __future__ import annotations

import json
from pathlib import Path

from testnet.arrivals import Arrivals, told, told_of_all


def line(event: str, second: float, version: int, **fields: object) -> str:
    return (
        json.dumps({"ts": f"2026-01-01T00:00:{second:06.3f}Z", "event": event, "policy_version": version, **fields})
        + "\n"
    )


def fetched(second: float, version: int, way: str, num_bytes: int, saved_bytes: int) -> str:
    return line("weights.fetched", second, version, way=way, num_bytes=num_bytes, saved_bytes=saved_bytes, seconds=0.1)


def test_each_version_has_its_workers_their_seconds_and_what_patches_saved(tmp_path: Path) -> None:
    trainer, first, second = (tmp_path / name for name in ("trainer.log", "a.log", "b.log"))
    arrivals = Arrivals(trainer, {"a": first, "b": second})
    arrivals.look()
    assert arrivals.versions == () and told_of_all(arrivals.versions) == "none fetched"
    trainer.write_text("Traceback (most recent call last):\n" + line("weights.announced", 1, 0))
    arrivals.look()
    assert told(arrivals.versions[0]) == "v0 is announced, no worker has it yet"
    trainer.write_text(trainer.read_text() + line("weights.announced", 10, 1) + line("weights.announced", 20, 1))
    first.write_text(fetched(1.5, 0, "whole", 1000, 0) + fetched(12, 1, "patches", 10, 990) + '{"event": "weights.fet')
    second.write_text(fetched(9.9, 1, "whole", 1000, 0) + line("weights.loaded", 11, 1))
    for _ in range(2):
        arrivals.look()
        base, later = arrivals.versions
        assert (base.num_workers, base.first_seconds, base.saved_bytes) == (1, 0.5, 0)
        assert (later.first_seconds, later.last_seconds) == (0.0, 2.0)
        assert later.num_by_way == {"patches": 1, "whole": 1}
        assert (later.fetched_bytes, later.saved_bytes) == (1010, 990)
    assert "0.0 to 2.0 s" in told(later) and "1,010 bytes fetched" in told(later)
    assert "1 after the first, at the last worker 2.0 s" in told_of_all(arrivals.versions)
    assert told_of_all(arrivals.versions[:1]).startswith("none after the first, 1,000 bytes")


def test_what_a_worker_says_is_not_taken_for_the_trainers_word(tmp_path: Path) -> None:
    worker = tmp_path / "worker.log"
    worker.write_text(line("weights.announced", 1, 7))
    arrivals = Arrivals(tmp_path / "none.log", {"worker": worker})
    arrivals.look()
    assert arrivals.versions == ()
