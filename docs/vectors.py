"""Test vectors of the protocol: what a second implementation must reproduce, made by this one.

In: fixed inputs. Out: one JSON document, docs/vectors.json, written by docs/generate.py. Floating-point
values are rounded to 12 significant digits, since libraries differ in the last bits of a logarithm.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from protocol.canonical import canonical_hash, canonical_json, hex0x, keccak256, sha256
from protocol.checks.audit_rows import drawn_rollouts
from protocol.draw import Seat, draw_seats, is_reaudited, raw_draw
from protocol.http import authorization
from protocol.merkle.commitment import CommitmentTree, commitment_leaf, salted_digest
from protocol.merkle.history import (
    MemoryLog,
    consistency_proof,
    event_leaf_hash,
    inclusion_proof,
)
from protocol.merkle.standard import StandardTree, earnings_tree
from protocol.randomness import SeedStream, task_seed
from protocol.rollouts import FileHeader, Rollout, content_hash
from protocol.rules import AuditRules, EnvironmentRules, FlipTest, Limit, Rules, SamplingRules, Thresholds
from protocol.sampling import draw_tokens, gumbel_noise, margins, noise_keys, uniforms
from protocol.shardcast.listing import Listing
from protocol.shardcast.manifest import Manifest, PatchShards, Shard
from protocol.shardcast.patches import diff
from protocol.shardcast.token import make_token
from protocol.signing import Signer, SigningDomain, TypedMessage
from protocol.stamp import stamp_challenge, stamp_of, stamp_seed
from protocol.toploc.build import build_rollouts
from protocol.wire import (
    Batch,
    DownloadToken,
    EarningsAttestation,
    EpochAttestation,
    Evidence,
    HttpRequest,
    NodeAuthorization,
    Receipt,
    Renewal,
    Submission,
    Task,
    Verdict,
    VerdictCommitment,
    WeightsRelease,
)

SECRET = "0x" + "11" * 32
SIGNER = Signer(bytes.fromhex("11" * 32))
LEDGER = "0x" + "a1" * 20
REGISTRY = "0x" + "b2" * 20
SALT = "0x" + "c3" * 32
CHAIN_ID = 31337
DOMAIN = SigningDomain(CHAIN_ID, LEDGER, SALT)
REGISTRY_DOMAIN = SigningDomain(CHAIN_ID, REGISTRY, SALT)
PROVIDER = "0x" + "d4" * 20
BEACON = "0x" + "e5" * 32


def vectors() -> str:
    """The document's text."""
    document = {
        "canonical_json": _canonical(),
        "domains": [_domain("Ledger", DOMAIN), _domain("Registry", REGISTRY_DOMAIN)],
        "messages": {"secret": SECRET, "signer": SIGNER.address, "cases": [_message(m) for m in _messages()]},
        "http": _http(),
        "rules": {"document": _rules().model_dump(mode="json"), "rules_hash": _rules().rules_hash},
        "evidence": _evidence(),
        "randomness": _randomness(),
        "sampling": _sampling(),
        "rollout_file": _rollout_file(),
        "log": _log(),
        "draws": _draws(),
        "reaudits": _reaudits(),
        "stamp": _stamp(),
        "audit_rows": _audit_rows(),
        "commitment": _commitment(),
        "earnings": _earnings(),
        "groups_root": _groups_root(),
        "token": {"message": _token().model_dump(), "text": make_token(SIGNER, _token(), DOMAIN)},
        "listing": _listing().model_dump(mode="json"),
        "manifest": {"document": _manifest().document, "manifest_hash": _manifest().manifest_hash},
        "manifest_with_patch": {"document": _patched().document, "manifest_hash": _patched().manifest_hash},
        "patch": _patch(),
    }
    return json.dumps(document, indent=1) + "\n"


def _digest(number: int) -> str:
    """A 32-byte value that is easy to make again: keccak256 of a uint256."""
    return hex0x(keccak256(number.to_bytes(32, "big")))


def _rounded(values: Any) -> Any:
    if isinstance(values, list):
        return [_rounded(value) for value in values]
    return float(f"{values:.12g}")


def _canonical() -> list[dict[str, Any]]:
    values: list[Any] = [
        {"b": 1.0, "a": [True, None, "é"], "₿": "", "": 0},
        {"amount_wei": "340282366920938463463374607431768211455", "share": 0.02, "mean": 0.25, "minus": -0.0},
        [9007199254740991, -1, 1.5, '\u2028\n"'],
    ]
    return [
        {"value": value, "text": canonical_json(value).decode(), "keccak256": canonical_hash(value)} for value in values
    ]


def _domain(contract: str, domain: SigningDomain) -> dict[str, Any]:
    return {
        "contract": contract,
        "name": "proofpool",
        "version": "1",
        "chain_id": domain.chain_id,
        "verifying_contract": domain.contract,
        "salt": domain.salt,
        "separator": hex0x(domain.separator),
    }


def _task() -> Task:
    return Task(
        pool_id=1,
        policy_version=2,
        node=SIGNER.address,
        counter=3,
        rules_hash=_rules().rules_hash,
        beacon_block=40,
        beacon_hash=BEACON,
        price_wei=10**15,
        max_units=4096,
        deadline=1_700_000_060,
    )


def _submission() -> Submission:
    return Submission(
        pool_id=1,
        policy_version=2,
        node=SIGNER.address,
        counter=3,
        rules_hash=_rules().rules_hash,
        content_hash=_content_hash(),
    )


def _verdict(seat: int = 4) -> Verdict:
    return Verdict(
        submission_id=_submission().id(DOMAIN),
        pool_id=1,
        epoch=7,
        round=0,
        seat=seat,
        outcome=2,
        reason=65,
        rules_hash=_rules().rules_hash,
        evidence_hash=_evidence()["evidence_hash"],
    )


def _messages() -> list[TypedMessage]:
    submission_id = _submission().id(DOMAIN)
    return [
        NodeAuthorization(provider=PROVIDER, node=SIGNER.address, nonce=0, deadline=1_700_003_600),
        _task(),
        Renewal(task_id=_task().id(DOMAIN), deadline=_task().deadline + 60),
        _submission(),
        Receipt(submission_id=submission_id, received_block=55, include_by_epoch=7),
        _verdict(),
        VerdictCommitment(pool_id=1, epoch=9, seat=4, part=0, root=_commitment()["root"]),
        Batch(pool_id=1, number=0, step=3, groups_root=_groups_root()["root"]),
        WeightsRelease(pool_id=1, policy_version=2, manifest_hash=_manifest().manifest_hash),
        _listing().signed.message,
        _token(),
        EarningsAttestation(pool_id=1, epoch=9, root=_earnings()["root"], total_wei=_earnings()["total"], seat=4),
        EpochAttestation(pool_id=1, epoch=9, size=5, root=_digest(9), seat=4),
        _request(),
    ]


def _message(message: TypedMessage) -> dict[str, Any]:
    domain = REGISTRY_DOMAIN if isinstance(message, NodeAuthorization) else DOMAIN
    return {
        "type": message.solidity_type,
        "contract": "Registry" if domain is REGISTRY_DOMAIN else "Ledger",
        "message": message.model_dump(mode="json"),
        "struct_hash": hex0x(message.struct_hash()),
        "digest": message.id(domain),
        "signature": SIGNER.sign(message, domain),
    }


def _request() -> HttpRequest:
    return HttpRequest(
        method="POST",
        host="127.0.0.1:8700",
        path="/v1/batches",
        query="step=3",
        body_hash=hex0x(sha256(b"")),
        expiry=1_700_000_060,
        nonce="00112233445566778899aabb",
    )


def _http() -> dict[str, Any]:
    return {"message": _request().model_dump(), "authorization": authorization(SIGNER, _request(), DOMAIN)}


def _rules() -> Rules:
    limit = Limit(reject=0.02, slash=0.05)
    return Rules(
        environment=EnvironmentRules(name="example", config={"terms": 2}, environment_hash=_digest(1)),
        sampling=SamplingRules(max_new_tokens=64),
        thresholds=Thresholds(
            toploc_exp_mismatch_share=limit,
            toploc_mantissa_mean=Limit(reject=0.25, slash=0.5),
            sampling_margin_mean=limit,
            sampling_margin_max=limit,
            sampling_flips=FlipTest(rate=0.00001),
            logprob_error_mean=Limit(reject=0.01),
        ),
    )


def _evidence() -> dict[str, Any]:
    evidence = Evidence.model_validate(
        {
            "submission_id": _submission().id(DOMAIN),
            "seed": hex0x(_seed()),
            "num_units": 3,
            "num_rollouts": 2,
            "num_audited": 2,
            "checks": [
                {"check": "schema", "outcome": 0, "num_audited": 2},
                {
                    "check": "toploc_exponents",
                    "outcome": 2,
                    "reason": "toploc_mismatch",
                    "value": 0.5625,
                    "reject_threshold": 0.02,
                    "slash_threshold": 0.05,
                    "detail": "72 of 128 values",
                    "num_audited": 128,
                },
            ],
            "work_stamp": [-7.25, -0.0312, -100.0],
            "stamp_reviews": [{"round": 0, "seat": 2, "agrees": False, "largest_difference": 3.5}],
        }
    )
    return {"document": evidence.as_json(), "evidence_hash": canonical_hash(evidence.as_json())}


def _seed() -> bytes:
    return task_seed(1, 2, SIGNER.address, 3, BEACON)


def _randomness() -> dict[str, Any]:
    words, prompts = SeedStream(_seed(), "group/0"), []
    for group in range(3):
        stream = SeedStream(_seed(), f"group/{group}")
        prompts.append({"group": group, "problem": stream.below(50_000), "target": stream.below(4)})
    return {
        "task_seed": {
            "pool_id": 1,
            "policy_version": 2,
            "node": SIGNER.address,
            "counter": 3,
            "beacon_hash": BEACON,
            "seed": hex0x(_seed()),
        },
        "words": {"label": "group/0", "first": [str(words.word()) for _ in range(6)]},
        "prompts": {"num_problems": 50_000, "num_targets": 4, "groups": prompts},
    }


def _sampling() -> dict[str, Any]:
    samples, positions = [0, 1, 63], [0, 5, 31]
    keys = noise_keys(_seed(), samples, positions)
    logits = np.array([[0.5, -1.0, 2.0, 2.0, 0.0, -3.0, 1.25, 0.75]] * len(keys), dtype=np.float32)
    cases = []
    for sampling in (SamplingRules(), SamplingRules(temperature=0.7, top_k=3), SamplingRules(top_p=0.6)):
        tokens, logprobs = draw_tokens(logits, keys, sampling)
        cases.append(
            {
                "rules": {k: getattr(sampling, k) for k in ("temperature", "top_k", "top_p")},
                "tokens": tokens.tolist(),
                "logprobs": [float(f"{value:.6g}") for value in logprobs],
                "margins_of_token_2": _rounded(margins(logits, np.full(3, 2), keys, sampling, clip=10.0).tolist()),
            }
        )
    return {
        "seed": hex0x(_seed()),
        "samples": samples,
        "positions": positions,
        "keys": [f"0x{int(key):016x}" for key in keys],
        "uniforms": _rounded(uniforms(keys, 3).tolist()),
        "noise": _rounded(gumbel_noise(keys, 3).tolist()),
        "logits": logits[0].tolist(),
        "cases": cases,
    }


def _header() -> FileHeader:
    return FileHeader(task_id=_task().id(DOMAIN), group_size=2, sampling=SamplingRules(max_new_tokens=64))


def _rollouts() -> list[Rollout]:
    # Bit patterns of bf16 values: 1 row of 128 states for the first rollout, 2 rows for the second.
    states = [np.arange(0x3F00, 0x3F80, dtype=np.uint16).reshape(1, 128), np.arange(256, dtype=np.uint16)[::-1]]
    proofs = build_rollouts([states[0], (states[1] + 0x4000).reshape(2, 128)])
    return [
        Rollout(
            input_tokens=np.array([1, 7, 9], dtype=np.int32),
            output_tokens=np.array(output, dtype=np.int32),
            output_logprobs=np.array(logprobs, dtype=np.float32),
            task_reward=reward,
            proofs=proof,
            step=2,
            problem_id="example:41",
            task_type="example",
            target_length=-1,
            finish_reason="stop",
        )
        for output, logprobs, reward, proof in zip(
            ([2], [5, 2]), ([-0.5], [-1.25, -0.125]), (1.0, 0.0), proofs, strict=True
        )
    ]


def _content_hash() -> str:
    return content_hash(_header(), _rollouts())


def _rollout_file() -> dict[str, Any]:
    rows = [rollout.row_bytes() for rollout in _rollouts()]
    return {
        "header": canonical_json(_header().model_dump(mode="json")).decode(),
        "states_of_row_0": "bf16 patterns 0x3f00 to 0x3f7f",
        "states_of_row_1": "bf16 patterns 0x40ff down to 0x4000, 128 a row",
        "row_bytes": [hex0x(row) for row in rows],
        "row_sha256": [hex0x(sha256(row)) for row in rows],
        "content_hash": _content_hash(),
    }


def _event(index: int) -> tuple[str, bytes]:
    subject = _submission().id(DOMAIN) if index == 2 else "0x" + "00" * 32
    event = {
        "schema_version": 1,
        "index": index,
        "type": "submission.received" if index == 2 else "epoch.closed",
        "subject": subject,
        "time": 1_700_000_000 + index,
        "data": {"example": index},
    }
    return subject, canonical_json(event)


def _log() -> dict[str, Any]:
    leaves = [event_leaf_hash(*_event(index)) for index in range(7)]
    log = MemoryLog(leaves)
    return {
        "event": _event(2)[1].decode(),
        "event_hash": hex0x(sha256(_event(2)[1])),
        "leaf_hash": leaves[2],
        "leaves": leaves,
        "roots": [MemoryLog(leaves[:size]).root for size in range(8)],
        "inclusion": {"index": 2, "size": 7, "path": inclusion_proof(log, 2, 7)},
        "consistency": {"old_size": 3, "new_size": 7, "path": consistency_proof(log, 3, 7)},
    }


def _draws() -> dict[str, Any]:
    submission_id = _submission().id(DOMAIN)
    validators = ["0x" + f"{number:02x}" * 20 for number in (1, 2, 2, 3, 4)]
    seats = [Seat(index, validator) for index, validator in enumerate(validators)]
    drawn = draw_seats(BEACON, submission_id, 0, seats, 7, excluded=(validators[0],), num_seats=3)
    return {
        "beacon": BEACON,
        "submission_id": submission_id,
        "round": 0,
        "validators": validators,
        "excluded": validators[0],
        "raw": [raw_draw(BEACON, submission_id, 0, index, len(seats)) for index in range(8)],
        "drawn": [{"seat": one.seat.index, "draw_index": one.draw_index} for one in drawn],
    }


def _reaudits() -> dict[str, Any]:
    """Every tenth, of forty: whether the beacon picks each."""
    picked = [_digest(number) for number in range(40) if is_reaudited(BEACON, _digest(number), 1_000)]
    return {"beacon": BEACON, "share_bps": 1_000, "submissions": "keccak256(uint256 0 … 39)", "picked": picked}


def _audit_rows() -> dict[str, Any]:
    rules = AuditRules(policy="sampled", share=0.25)
    drawn = [drawn_rollouts(rules, 16, BEACON, _digest(1), round_number) for round_number in range(2)]
    return {"beacon": BEACON, "submission_id": _digest(1), "num_rollouts": 16, "share": 0.25, "drawn": drawn}


def _stamp() -> dict[str, Any]:
    completions = {1: [5, 2], 4: [7, 7, 2], 6: [11]}
    seed = stamp_seed(BEACON, _digest(1), 1, 4)
    return {
        "beacon": BEACON,
        "submission_id": _digest(1),
        "round": 1,
        "seat": 4,
        "seed": hex0x(seed),
        "vocab_size": 12,
        "completions": completions,
        "pairs": [pair._asdict() for pair in stamp_challenge(seed, completions, 12)],
        "logprobs": [-0.125, -7.123456, -250.0, -0.00001],
        "stamp": stamp_of([-0.125, -7.123456, -250.0, -0.00001]),
    }


def _commitment() -> dict[str, Any]:
    rows = {_digest(n): salted_digest(_digest(100 + n), _digest(200 + n)) for n in range(3)}
    tree = CommitmentTree(rows)
    return {
        "rows": [
            {"submission_id": _digest(n), "verdict_digest": _digest(100 + n), "salt": _digest(200 + n)}
            for n in range(3)
        ],
        "leaves": {submission_id: commitment_leaf(submission_id, salted) for submission_id, salted in rows.items()},
        "root": tree.root,
        "path_of_first": tree.proof(_digest(0)),
    }


def _earnings() -> dict[str, Any]:
    amounts = {PROVIDER: 5 * 10**18, SIGNER.address: 1, "0x" + "0f" * 20: 2**100}
    tree = earnings_tree(amounts)
    return {
        "accounts": {account: str(amount) for account, amount in sorted(amounts.items())},
        "root": tree.root,
        "total": sum(amounts.values()),
        "path_of_first": tree.proof(0),
    }


def _groups_root() -> dict[str, Any]:
    rows = [(_digest(1), 0), (_digest(1), 3), (_digest(2), 1)]
    return {"groups": rows, "root": StandardTree(("bytes32", "uint32"), rows).root}


def _token() -> DownloadToken:
    return DownloadToken(pool_id=1, holder=SIGNER.address, expiry=1_700_086_400)


def _listing() -> Listing:
    shards = dict(enumerate(_manifest().shards[:1]))
    return Listing.by(lambda message: SIGNER.sign(message, DOMAIN), 1, 2, shards)


def _manifest() -> Manifest:
    shard = {"file": "model.safetensors", "num_bytes": 64}
    return Manifest(
        pool_id=1,
        policy_version=2,
        shards=(
            Shard(**shard, offset=0, blake3=_digest(1)),
            Shard(**shard, offset=64, blake3=_digest(2)),
            Shard(file="tokenizer.json", offset=0, num_bytes=9, blake3=_digest(3)),
        ),
    )


def _patched() -> Manifest:
    """The version after `_manifest`, of which only the patch and the tokenizer are published."""
    before = _manifest()
    part = Shard(file="model.safetensors", offset=0, num_bytes=11, blake3=_digest(4))
    patch = PatchShards(base_version=2, base_manifest_hash=before.manifest_hash, shards=(part,))
    return Manifest(pool_id=1, policy_version=3, shards=before.shards, patch=patch, snapshot_version=2)


def _patch() -> dict[str, Any]:
    """A sparse block in which all kinds of symbols occur, a dense one, and a tensor that is carried whole."""
    old = {
        "weight": ("BF16", np.concatenate([np.arange(0x3C00, 0x3E80), np.full(1500, 0xBF81)]).astype("<u2")),
        "scale": ("F32", np.array([1.0, -0.0, 2.5], dtype="<f4")),
        "gone": ("U8", np.array([7], dtype="u1")),
    }
    weight = old["weight"][1].copy()
    weight[[3, 64, 600, 601, 2139]] += np.array([1, 0xFFFF, 2, 0xFFFD, 300], dtype="<u2")
    new = {
        "weight": ("BF16", weight),
        "scale": ("F32", np.array([1.25, 0.0, float("nan")], dtype="<f4")),
        "added": ("I16", np.array([5, -5], dtype="<i2")),
    }
    with TemporaryDirectory() as name:
        paths = [Path(name) / file for file in ("base", "result", "patch")]
        for path, tensors in zip(paths, (old, new), strict=False):
            path.write_bytes(_safetensors(tensors))
        header = diff(*paths, base_version=4, policy_version=5).header
        files = {path.name: hex0x(path.read_bytes()) for path in paths}
    return {"base_hash": header.base_hash, "result_hash": header.result_hash, **files}


def _safetensors(tensors: dict[str, tuple[str, Any]]) -> bytes:
    header, data = {}, b""
    for name, (dtype, values) in tensors.items():
        offsets = [len(data), len(data) + values.nbytes]
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": offsets}
        data += values.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data
