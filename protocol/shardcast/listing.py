"""The listing: which shards of a version are there already, while later ones are still being written.

`versions/N/shards.json` names finished shards with their hashes, and is written anew, by rename, after each. Nobody has
signed it: it says what may be fetched ahead of the manifest, and what came of it is kept only if it is in the manifest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.errors import ShardCorrupt
from protocol.files import write_atomically
from protocol.shardcast.manifest import Shard
from protocol.wire import UInt64

LISTING_FILE = "shards.json"
Number = Annotated[int, Field(ge=0, lt=1 << 20)]


class Listing(BaseModel):
    """Finished shards by their number. Example: `Listing(policy_version=3, shards={0: shard})`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    policy_version: UInt64
    shards: dict[Number, Shard]

    @property
    def num_bytes(self) -> int:
        return sum(shard.num_bytes for shard in self.shards.values())

    def write(self, folder: Path) -> None:
        """As the listing of a version's folder."""
        write_atomically(folder / LISTING_FILE, self.model_dump_json().encode())


def read_listing(data: bytes, policy_version: int) -> Listing:
    """Raises ShardCorrupt for what is no listing of this version."""
    try:
        listing = Listing.model_validate_json(data)
    except ValidationError as error:
        raise ShardCorrupt("a listing can't be read", str(error.errors()[0]["msg"])) from error
    if listing.policy_version != policy_version:
        raise ShardCorrupt("a listing is of another version", f"{listing.policy_version}, not {policy_version}")
    return listing
