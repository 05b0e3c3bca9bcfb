"""Where a provider has the statement behind an earnings root from: files, the coordinator, or sums over the log.

In: files and a coordinator's client. Out: `StatedEarnings` whose root is the one that the chain has. Nobody's word is
taken: what doesn't have the root is passed over, and where nothing has it, that is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from protocol.chain.pool import EarningsRecord
from protocol.client import CoordinatorClient
from protocol.earnings import StatedEarnings, read_stated
from protocol.errors import (
    CoordinatorUnreachable,
    NotFound,
    ProofpoolError,
    Rejected,
    UsageError,
    VerificationFailed,
)
from worker.provider.config import ProviderConfig


@dataclass
class EarningsSource:
    """Of one pool. `errors` are the reasons for which sources were passed over."""

    pool_id: int
    files: Sequence[StatedEarnings] = ()
    client: CoordinatorClient | None = None
    errors: list[ProofpoolError] = field(default_factory=list)

    def find(self, record: EarningsRecord) -> StatedEarnings | None:
        """The statement behind this root; None where nobody has it."""
        return next((one for one in self._candidates(record) if one.root == record.root), None)

    def _candidates(self, record: EarningsRecord) -> Iterator[StatedEarnings]:
        yield from (one for one in self.files if (one.pool_id, one.epoch) == (self.pool_id, record.epoch))
        if self.client is None:
            return
        try:
            stated = StatedEarnings.of(self.client.earnings(record.epoch))
        except (CoordinatorUnreachable, NotFound, Rejected, VerificationFailed) as error:
            self.errors.append(error)
            return
        if stated.root != record.root:
            why = f"epoch {record.epoch}, root {stated.root}, on chain {record.root}"
            todo = "keep what it says: `proofpool audit money` shows where they part; or give a statement's file"
            self.errors.append(VerificationFailed("the coordinator states other earnings than the chain", why, todo))
        yield stated


@contextmanager
def sources_of(config: ProviderConfig, files: Sequence[Path], urls: Sequence[str]) -> Iterator[list[EarningsSource]]:
    """One a pool: of the files, of the configured coordinator, of further ones. Raises UsageError where there is none.

    A coordinator that doesn't answer is passed over where it is known which pool it is of, or files serve others.
    """
    stated = [read_stated(file) for file in files]
    found = {one.pool_id: EarningsSource(one.pool_id) for one in stated}
    for one in stated:
        found[one.pool_id].files = (*found[one.pool_id].files, one)
    with ExitStack() as opened:
        for url in dict.fromkeys([*([config.coordinator_url] if config.coordinator_url else []), *urls]):
            client = opened.enter_context(closing(CoordinatorClient(url)))
            pool_id = _pool_of(client, config.pool_id if url == config.coordinator_url else None, may_fail=bool(found))
            if pool_id is not None:
                found.setdefault(pool_id, EarningsSource(pool_id)).client = client
        if not found:
            todo = "give --coordinator URL, or the file of a statement"
            raise UsageError("nothing says what was earned", "neither a coordinator nor a statement", todo)
        yield list(found.values())


def _pool_of(client: CoordinatorClient, pool_id: int | None, *, may_fail: bool) -> int | None:
    if pool_id is not None:
        return pool_id
    try:
        return client.pool().pool_id
    except CoordinatorUnreachable:
        if may_fail:
            return None
        raise
