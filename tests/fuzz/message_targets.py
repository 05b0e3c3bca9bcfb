"""Targets: JSON documents that cross between processes, signatures, Merkle proofs, bundles, the log.

Every pydantic model of the modules in `_MODULES` is a message, whether anybody thought of listing it here or not.
"""

from __future__ import annotations

import base64
import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from protocol import api, bundle, rollouts, rules, trace, wire
from protocol.canonical import canonical_json, hex0x, keccak256, sha256
from protocol.chain.pool import LogHead
from protocol.errors import NotCanonical, ShardCorrupt, SignatureInvalid, VerificationFailed
from protocol.events import LogEvent
from protocol.http import authorization, verify_request
from protocol.merkle.checkpoint import Checkpoint, open_checkpoint, origin_of, sign_checkpoint
from protocol.merkle.commitment import verify_commitment
from protocol.merkle.history import MemoryLog, event_leaf_hash_of, verify_consistency, verify_inclusion
from protocol.merkle.note import KeyType, NoteKey, NoteSigner, public_key_of, split_note
from protocol.merkle.standard import verify_earnings, verify_pairs
from protocol.shardcast import manifest
from protocol.shardcast.manifest import Manifest, PatchShards, Shard, read_manifest
from protocol.shardcast.way import ways_to
from protocol.signing import Signer, SigningDomain, TypedMessage, recover
from tests.fuzz.example import ADDRESS, HASH, example
from tests.fuzz.site import honest_bundle, honest_log
from tests.fuzz.target import Target
from verifier.audit.bundle.ground import KnownHead, claims_alone, trusted_head
from verifier.audit.bundle.verify import verify_bundle
from verifier.audit.log.served_log import ServedLog
from verifier.audit.reports.row_files import Format, write_rows
from verifier.audit.reports.rows import row_of
from verifier.audit.reports.show import tell
from verifier.history import History

DOMAIN = SigningDomain(chain_id=31337, contract="0x" + "11" * 20, salt="0x" + "22" * 32)
SIGNER = Signer((7).to_bytes(32, "big"))
LOG = NoteSigner(origin_of(31337, ADDRESS, 1), bytes(range(32)))
WITNESS = NoteKey("witness", public_key_of(bytes(32)), KeyType.COSIGNATURE)
_MODULES = (wire, api, bundle, trace, rules, rollouts, manifest)


@cache
def message_types() -> tuple[type[BaseModel], ...]:
    """Every model of these modules, and each signed message with its signature."""
    found = [
        value
        for module in _MODULES
        for name, value in sorted(vars(module).items())
        if isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == module.__name__
        if value is not wire.Signed and not name.startswith("_")
    ]
    signed: list[Any] = [wire.Signed[kind] for kind in found if issubclass(kind, TypedMessage)]  # type: ignore[valid-type]
    return (*found, *signed)


def read_message(data: bytes) -> None:
    """Whatever type takes the document, its message has digests, and JSON that gives the same message again."""
    for shape in message_types():
        try:
            message = shape.model_validate_json(data)
        except ValidationError:
            continue
        _check_message(message)


def read_note(data: bytes) -> None:
    """Whatever a checkpoint's note says, only what the log's key signed is taken for its word."""
    text = data.decode("utf-8", "replace")
    signed = open_checkpoint(text, LOG.key, [WITNESS])
    assert text.startswith(signed.checkpoint.text)
    signed_texts = {Checkpoint.parse(split_note(note.decode())[0]).text for note in _note_seeds()}
    assert signed.checkpoint.text in signed_texts


def _note_seeds() -> list[bytes]:
    """Checkpoints, with a witness and without, and the line of a verifier key."""
    notes = [sign_checkpoint(LOG, size, HASH) for size in (0, 4711)]
    return [note.encode() for note in (*notes, NoteSigner("witness", bytes(32)).cosign(notes[1], 1_700_000_000))]


def _check_message(message: BaseModel) -> None:
    text = message.model_dump_json()
    assert type(message).model_validate_json(text).model_dump_json() == text
    if isinstance(message, TypedMessage):
        assert len(message.digest(DOMAIN)) == 32
    if isinstance(message, wire.Signed):
        try:
            message.check(ADDRESS, DOMAIN)
        except SignatureInvalid:
            return
        raise AssertionError("a signature by nobody was accepted")
    try:
        canonical_json(message.model_dump(mode="json"))
    except NotCanonical:
        return


def read_canonical(data: bytes) -> None:
    """Canonical JSON is a fixed point."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    once = canonical_json(value)
    assert canonical_json(json.loads(once)) == once


def read_signature(data: bytes) -> None:
    """Text of any kind, and 65 bytes of any value."""
    for text in (data.decode("utf-8", "surrogateescape"), hex0x(data[:65].ljust(65, b"\0")), hex0x(data)):
        try:
            found = recover(sha256(data), text)
        except SignatureInvalid:
            continue
        assert text == text.lower() and len(text) == 132 and len(found) == 42


def read_authorization(data: bytes) -> None:
    """The header as it comes, and any text inside its base64."""
    inside = base64.urlsafe_b64encode(data).decode().rstrip("=")
    for header in (data.decode("latin-1"), f"Proofpool {data.decode('latin-1')}", f"Proofpool {inside}", None):
        try:
            caller = verify_request(
                header,
                method="GET",
                host="here",
                path="/v1/pool",
                query="",
                body_hash=HASH,
                domain=DOMAIN,
                now=100.0,
                hosts={"here"},
            )
        except SignatureInvalid:
            continue
        assert caller.address == SIGNER.address and caller.nonce == "n" and caller.expiry == 160


def _authorization_seeds() -> list[bytes]:
    message = wire.HttpRequest(
        method="GET", host="here", path="/v1/pool", query="", body_hash=HASH, expiry=160, nonce="n"
    )
    header = authorization(SIGNER, message, DOMAIN)
    text = header.removeprefix("Proofpool ")
    return [header.encode(), text.encode(), base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))]


def read_merkle_proof(data: bytes) -> None:
    """Proofs of each kind say yes or no, with any strings in them."""
    proof = _loaded(data, dict)
    path = [str(step) for step in _loaded(json.dumps(proof.get("path")).encode(), list)]
    root, leaf = str(proof.get("root")), str(proof.get("leaf_hash"))
    index, size = _integer(proof.get("index")), _integer(proof.get("size"))
    assert verify_inclusion(leaf, index, size, path, root) in (True, False)
    assert verify_consistency(index, size, leaf, root, path) in (True, False)
    assert verify_pairs(root, leaf, path) in (True, False)
    for shape in (api.InclusionProof, api.ConsistencyProof, bundle.EarningsProof, api.VerdictReveal):
        try:
            document = shape.model_validate_json(data)
        except ValidationError:
            continue
        _check_proof(document)


def _check_proof(document: BaseModel) -> None:
    if isinstance(document, bundle.EarningsProof):
        verify_earnings(document.root, document.account, document.cumulative_wei, document.path)
    if isinstance(document, api.VerdictReveal):
        digest = document.verdict.message.id(DOMAIN)
        verify_commitment(HASH, document.evidence.submission_id, digest, document.salt, document.path)


def _loaded(data: bytes, kind: Callable[[], Any]) -> Any:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return kind()
    return value if isinstance(value, kind) else kind()  # type: ignore[arg-type]


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0


def _merkle_seeds() -> list[bytes]:
    proof = {"leaf_hash": HASH, "index": 3, "size": 11, "root": HASH, "path": [HASH] * 4}
    shapes = (api.InclusionProof, api.ConsistencyProof, bundle.EarningsProof, api.VerdictReveal)
    return [json.dumps(proof).encode(), *map(example, shapes)]


def read_any_manifest(data: bytes) -> None:
    """Under the hash of these very bytes, since no others are parsed: one in its canonical form, or none."""
    found = read_manifest(data, hex0x(keccak256(data)))
    assert found.to_bytes() == data
    ways = ways_to(found, 0, [0, found.policy_version], lambda version, hash_: _base(found, version), lambda *_: None)
    assert all(0 <= way.num_bytes <= 2 * found.num_bytes for way in ways)
    assert set(found.published_shards) <= set(range(len(found.shards)))


def _base(manifest: Manifest, policy_version: int) -> Manifest:
    """A version of the same files, as if it were the base that a manifest names."""
    return Manifest(pool_id=manifest.pool_id, policy_version=policy_version, shards=manifest.shards)


def _manifests() -> list[bytes]:
    """Without a patch, with one, and one that is of a version in patches only."""
    plain = _manifest()
    weights = Shard(file="model.safetensors", offset=0, num_bytes=90, blake3=HASH)
    part = Shard(file="model.safetensors", offset=0, num_bytes=9, blake3=HASH)
    patch = PatchShards(base_version=1, base_manifest_hash=HASH, shards=(part,))
    shards = (*plain.shards, weights)
    with_patch = Manifest(pool_id=1, policy_version=2, shards=shards, patch=patch)
    in_patches = Manifest(pool_id=1, policy_version=2, shards=shards, patch=patch, snapshot_version=0)
    return [manifest.to_bytes() for manifest in (plain, with_patch, in_patches)]


@cache
def _manifest() -> Manifest:
    shards = tuple(Shard(file=f"{name}.bin", offset=5 * i, num_bytes=5, blake3=HASH) for name in "ab" for i in range(2))
    return Manifest(pool_id=1, policy_version=2, shards=shards)


def audit_bundle(data: bytes) -> None:
    """Any bundle gets a report, on its own and against a trusted head."""
    found = bundle.ProofBundle.model_validate_json(data)
    for ground in (claims_alone(found), trusted_head(found, KnownHead(1, 3, HASH))):
        report = verify_bundle(found, ground, found.submission.message.id(found.chain.domain))
        assert report.result in ("failed", "ok", "consistent, not anchored")
        json.dumps(report.as_json())
        assert all(report.lines())


def follow_log(data: bytes) -> None:
    """Entries as they come, and the same events under hashes and a root that fit."""
    entries = TypeAdapter(list[api.LogEntry]).validate_json(data)
    for served in (entries, [_rehashed(index, entry) for index, entry in enumerate(entries)]):
        tree = MemoryLog(entry.leaf_hash for entry in served)
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
            history = History(db)
            try:
                history.follow([LogHead(0, tree.size, tree.root)], lambda start, limit, log=served: log[start:][:limit])
            except VerificationFailed:
                continue
            assert history.size == len(served)


def _rehashed(index: int, entry: api.LogEntry) -> api.LogEntry:
    """The entry as a coordinator logs it that is consistent in its lies."""
    event = {**entry.event, "index": index, "subject": entry.subject}
    event_hash = hex0x(sha256(canonical_json(event)))
    leaf = event_leaf_hash_of(entry.subject, event_hash)
    return entry.model_copy(update={"index": index, "event": event, "event_hash": event_hash, "leaf_hash": leaf})


class _Served:
    """A coordinator with these entries, which answers as it is asked."""

    def __init__(self, entries: list[api.LogEntry]) -> None:
        self._entries = entries

    def entries(
        self, start: int, limit: int, subject: str | None = None, event_type: str | None = None
    ) -> list[api.LogEntry]:
        asked = [entry for entry in self._entries if entry.index >= start and subject in (None, entry.subject)]
        return [entry for entry in asked if event_type in (None, entry.event.get("type"))][:limit]


def tell_story(data: bytes) -> None:
    """Whatever a log says has a sentence on one line that hides nothing, and rows that read back the same."""
    entries = TypeAdapter(list[api.LogEntry]).validate_json(data)
    for served in (entries, [_rehashed(index, entry) for index, entry in enumerate(entries)]):
        client: Any = _Served(sorted(served, key=lambda entry: entry.index))
        for subject in {entry.subject for entry in served}:
            found, _ = tell(subject, ServedLog(client, 1), None, "", "")
            json.dumps(found.as_json())
            assert all(line.isprintable() for line in found.lines())
        rows = [row_of(0, LogEvent.of(entry.event), entry) for entry in served]
        for row_format in Format:
            assert write_rows(rows, io.BytesIO(), row_format) == len(rows)


MESSAGE_TARGETS = (
    Target("message", read_message, (), lambda: [example(shape) for shape in message_types()], is_json=True),
    Target(
        "canonical_json", read_canonical, (NotCanonical,), lambda: [example(api.PoolInfo), b"[1.5,-0.0]"], is_json=True
    ),
    Target("signature", read_signature, (), lambda: [SIGNER.sign_digest(sha256(b"")).encode()]),
    Target("authorization", read_authorization, (), _authorization_seeds, is_json=True),
    Target("merkle_proof", read_merkle_proof, (), _merkle_seeds, is_json=True),
    Target("note", read_note, (VerificationFailed,), _note_seeds),
    Target("manifest", read_any_manifest, (ShardCorrupt,), _manifests, is_json=True),
    Target("bundle", audit_bundle, (ValidationError,), honest_bundle, is_json=True),
    Target("log", follow_log, (ValidationError, NotCanonical), honest_log, is_json=True),
    Target("story", tell_story, (ValidationError, VerificationFailed), honest_log, is_json=True),
)
