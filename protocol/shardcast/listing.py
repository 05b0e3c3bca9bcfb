"""The listing: which shards of a version are there already, while later ones are still being written.

`versions/N/shards.json` names finished shards with their hashes, signed by the trainer, and is written anew, by rename,
after each. Relays hand it on as it is: it says what there will be to fetch, not what who serves it has. Nobody believes
one without the trainer's signature; an earlier one of the same version says less, and is of no use to who replays it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.canonical import JsonValue, canonical_hash
from protocol.errors import ShardCorrupt
from protocol.files import write_atomically
from protocol.shardcast.manifest import Shard
from protocol.signing import TypedMessage
from protocol.wire import ShardListing, Signature, Signed, UInt64

LISTING_FILE = "shards.json"
Number = Annotated[int, Field(ge=0, lt=1 << 20)]
Sign = Callable[[TypedMessage], str]
"""Signs in the pool's domain, with the trainer's key."""
Check = Callable[[Signed[ShardListing]], object]
"""Raises SignatureInvalid for what the pool's trainer didn't sign."""


class Listing(BaseModel):
    """Finished shards by their number. Example: `Listing.by(sign, 1, 3, {0: shard}).write(folder)`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[2] = 2
    pool_id: UInt64
    policy_version: UInt64
    shards: dict[Number, Shard]
    signature: Signature

    @classmethod
    def by(cls, sign: Sign, pool_id: int, policy_version: int, shards: Mapping[int, Shard]) -> Listing:
        shards = dict(sorted(shards.items()))
        signature = sign(_message(pool_id, policy_version, shards))
        return cls(pool_id=pool_id, policy_version=policy_version, shards=shards, signature=signature)

    @property
    def signed(self) -> Signed[ShardListing]:
        """What the trainer signed."""
        message = _message(self.pool_id, self.policy_version, self.shards)
        return Signed[ShardListing](message=message, signature=self.signature)

    @property
    def num_bytes(self) -> int:
        return sum(shard.num_bytes for shard in self.shards.values())

    def goes_on_from(self, earlier: Listing) -> bool:
        """Whether it has all that an earlier one of the same version had, and more."""
        return len(self.shards) > len(earlier.shards) and earlier.shards.items() <= self.shards.items()

    def write(self, folder: Path) -> None:
        """As the listing of a version's folder. Raises OSError."""
        write_atomically(folder / LISTING_FILE, self.model_dump_json().encode())


def read_listing(data: bytes, policy_version: int, check: Check) -> Listing:
    """Raises ShardCorrupt for what is no listing of this version, SignatureInvalid where the trainer didn't sign it."""
    try:
        listing = Listing.model_validate_json(data)
    except ValidationError as error:
        raise ShardCorrupt("a listing can't be read", str(error.errors()[0]["msg"])) from error
    if listing.policy_version != policy_version:
        raise ShardCorrupt("a listing is of another version", f"{listing.policy_version}, not {policy_version}")
    check(listing.signed)
    return listing


def _message(pool_id: int, policy_version: int, shards: Mapping[int, Shard]) -> ShardListing:
    listed: dict[str, JsonValue] = {
        str(number): shard.model_dump(mode="json") for number, shard in sorted(shards.items())
    }
    return ShardListing(
        pool_id=pool_id, policy_version=policy_version, num_shards=len(shards), shards_hash=canonical_hash(listed)
    )
