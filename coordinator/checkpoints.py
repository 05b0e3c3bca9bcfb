"""Stage sign_checkpoints: a signed note for every epoch that the chain has.

In: anchored epochs, the log's own key. Out: `Epoch.checkpoint`, which `/v1/checkpoint` serves. Nothing is signed before
the chain has it: a log that went back to a backup can't be made to sign a second history.
"""

from __future__ import annotations

from pathlib import Path
from secrets import token_bytes
from typing import Literal

from pydantic import BaseModel, ConfigDict
from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator.config import CoordinatorConfig
from coordinator.context import Coordinator
from coordinator.db.chain import Epoch
from protocol.chain.contracts import Contracts
from protocol.errors import NotEligible, NotFound
from protocol.keystore import KEY_BYTES, read_password, read_secret, write_secret
from protocol.merkle.checkpoint import origin_of, sign_checkpoint
from protocol.merkle.note import NoteSigner, public_key_of
from protocol.wire import ZERO_HASH, Hash32


class LogKeyMade(BaseModel):
    """`checkpoint_key` is the public key, as the pool's record takes it; `keystore` the file with the secret one."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    checkpoint_key: Hash32
    keystore: str


def sign_checkpoints(coordinator: Coordinator) -> None:
    """Sign what the chain has taken since the last turn."""
    signer = coordinator.log_signer
    if signer is None:
        return
    unsigned = select(Epoch).where(Epoch.block.is_not(None), Epoch.checkpoint.is_(None)).order_by(Epoch.epoch)
    with coordinator.reading() as session:
        if session.scalar(unsigned.limit(1)) is None:
            return
    with coordinator.writing() as session:
        for epoch in session.scalars(unsigned):
            epoch.checkpoint = sign_checkpoint(signer, epoch.size, epoch.root)


def checkpoint(session: Session, epoch: int | None = None) -> str:
    """The signed note of an epoch, or the newest. Raises NotFound."""
    signed = select(Epoch.checkpoint).where(Epoch.checkpoint.is_not(None)).order_by(Epoch.epoch.desc()).limit(1)
    note = session.scalar(signed if epoch is None else signed.where(Epoch.epoch == epoch))
    if note is None:
        which = "of the log" if epoch is None else f"of epoch {epoch}"
        why = f"none {which}: its epoch isn't on chain yet, or the pool has no checkpoint key"
        raise NotFound("no checkpoint is signed", why, "ask for GET /v1/epochs: heads are on chain in any case")
    return note


def log_signer(config: CoordinatorConfig, contracts: Contracts) -> NoteSigner | None:
    """The log's key; None for a pool that names none. Raises NotEligible where it isn't the one on chain."""
    wanted = str(contracts.read("pools", "configOf", config.pool_id)["checkpoint_key"])
    if config.checkpoint_keystore is None:
        if wanted == ZERO_HASH:
            return None
        raise NotEligible(
            "this pool's log has a key, and none is configured",
            f"checkpoint key {wanted}",
            "set `checkpoint_keystore` to the keystore that the pool was created with",
        )
    secret = read_secret(config.checkpoint_keystore, read_password(config.password_file))
    signer = NoteSigner(origin_of(contracts.client.chain_id, contracts.addresses.ledger, config.pool_id), secret)
    if (found := "0x" + signer.key.public_key.hex()) != wanted:
        raise NotEligible(
            "this isn't the key of the pool's log",
            f"{found} in {config.checkpoint_keystore}, the pool names {wanted}",
            "use the keystore that the pool was created with; leave it out where the pool names none",
        )
    return signer


def create_log_key(path: Path, password: str) -> str:
    """A new key for a log that is to be: the public key, as the pool's record takes it. Raises KeyFailure."""
    secret = token_bytes(KEY_BYTES)
    write_secret(path, password, secret)
    return "0x" + public_key_of(secret).hex()
