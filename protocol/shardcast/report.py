"""What `proofpool shardcast get --json` prints: the version, where it is now, and who sent how much of it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.shardcast.client import Fetched
from protocol.wire import Hash32, UInt64, WeightsRelease


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RelayReport(_Shape):
    """One relay; rates in bytes per second, 0 where nothing was measured."""

    url: str
    num_bytes: int
    bytes_per_second: float
    success_rate: float
    num_failures: int


class LieReport(_Shape):
    """Bytes that aren't what was promised, all sent by one relay."""

    url: str
    path: str
    expected: str
    found: str


class FetchReport(_Shape):
    """A version that is here, checked. `num_bytes_fetched` is less than its size where a part was here before."""

    schema_version: Literal[1] = 1
    policy_version: UInt64
    manifest_hash: Hash32
    folder: str
    num_bytes_fetched: int
    way: Literal["here", "whole", "patches", "snapshot"]
    """How it came: `patches` from a version that was here, or from a `snapshot`; `here`: it was here already."""
    num_bytes_saved: int
    """By patches, against the whole version."""
    base_version: UInt64 | None
    """The version that the patches build on; null without patches."""
    seconds: float
    relays: tuple[RelayReport, ...]
    lies: tuple[LieReport, ...]


def report_of(fetched: Fetched, release: WeightsRelease, seconds: float) -> FetchReport:
    return FetchReport(
        policy_version=release.policy_version,
        manifest_hash=release.manifest_hash,
        folder=str(fetched.folder),
        num_bytes_fetched=fetched.num_bytes_fetched,
        way=fetched.way,
        num_bytes_saved=fetched.num_bytes_saved,
        base_version=fetched.base_version,
        seconds=round(seconds, 3),
        relays=tuple(
            RelayReport(
                url=one.url,
                num_bytes=one.num_bytes,
                bytes_per_second=round(one.bytes_per_second, 1),
                success_rate=round(one.success_rate, 4),
                num_failures=one.num_failures,
            )
            for one in fetched.relays
        ),
        lies=tuple(
            LieReport(url=one.url, path=one.path, expected=one.expected, found=one.found) for one in fetched.lies
        ),
    )


def told(report: FetchReport) -> list[str]:
    """The same in lines for people."""
    base = "" if report.base_version is None else f" from version {report.base_version} on"
    lines = [
        f"{report.way}{base}: {report.num_bytes_fetched:,} bytes in {report.seconds:.1f} s, "
        f"{report.num_bytes_saved:,} saved by patches"
    ]
    lines += [f"{one.url}: {one.num_bytes:,} bytes, {one.num_failures} failures" for one in report.relays]
    return lines + [f"{lie.url} lied: {lie.path} has hash {lie.found}, not {lie.expected}" for lie in report.lies]
