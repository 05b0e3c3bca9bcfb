"""A statement of earnings, whoever made it: what each account has earned up to an epoch, gross and cumulative.

In: the coordinator's statement (`GET /v1/earnings`), a file of `proofpool audit attest-earnings`, or sums over the log.
Out: `StatedEarnings`, with what `Ledger.claim` takes. It is worth what its root is: the one on chain, or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.api import ProviderEarnings
from protocol.errors import NotFound, UsageError, VerificationFailed
from protocol.merkle.standard import earnings_tree
from protocol.wire import Hash32, UInt64, Wei

MAX_ACCOUNTS = 2**20
MAX_FILE_BYTES = 256 << 20


class Statement(Protocol):
    """The shape that all statements share."""

    @property
    def pool_id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def root(self) -> str: ...
    @property
    def total_wei(self) -> int: ...
    @property
    def accounts(self) -> tuple[ProviderEarnings, ...]: ...


@dataclass(frozen=True)
class StatedEarnings:
    """Example: `StatedEarnings.of(client.earnings(7)).claim_of(provider)`."""

    pool_id: int
    epoch: int
    root: str
    earned_wei: Mapping[str, int]

    @classmethod
    def of(cls, statement: Statement) -> StatedEarnings:
        """Raises VerificationFailed where the accounts aren't those of root and total."""
        earned = {row.account: row.cumulative_wei for row in statement.accounts}
        if not earned or (earnings_tree(earned).root, sum(earned.values())) != (statement.root, statement.total_wei):
            raise VerificationFailed("the accounts aren't those of the root", statement.root, "leave that file out")
        return cls(statement.pool_id, statement.epoch, statement.root, earned)

    @classmethod
    def summed(cls, pool_id: int, epoch: int, earned_wei: Mapping[str, int]) -> StatedEarnings:
        """Of sums over the log; accounts that earned nothing aren't among the rows. Raises UsageError for none."""
        rows = {account: amount for account, amount in earned_wei.items() if amount}
        return cls(pool_id, epoch, earnings_tree(rows).root, rows)

    def claim_of(self, account: str) -> tuple[int, int, str, int, tuple[str, ...]]:
        """The arguments of `Ledger.claim`. Raises NotFound for an account without earnings."""
        if account not in self.earned_wei:
            raise NotFound("the account has no earnings in this file", account, "check the address")
        proof = earnings_tree(self.earned_wei).proof(sorted(self.earned_wei).index(account))
        return self.pool_id, self.epoch, account, self.earned_wei[account], proof


class _File(BaseModel):
    """What is read of a statement's file: attestations and the like are for others."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
    pool_id: UInt64
    epoch: UInt64
    root: Hash32
    total_wei: Wei
    accounts: Annotated[tuple[ProviderEarnings, ...], Field(max_length=MAX_ACCOUNTS)]


def read_stated(file: Path) -> StatedEarnings:
    """Raises UsageError for what is no statement, VerificationFailed for one that contradicts itself."""
    todo = "it is what GET /v1/earnings answers, or a file of `proofpool audit attest-earnings`"
    try:
        with file.open("rb") as opened:
            found = _File.model_validate_json(opened.read(MAX_FILE_BYTES))
    except OSError as error:
        raise UsageError("a statement of earnings can't be read", f"{file}: {error.strerror}", todo) from error
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{file}: {first['msg']} at `{'.'.join(map(str, first['loc']))}`"
        raise UsageError("that is no statement of earnings", why, todo) from error
    return StatedEarnings.of(found)
