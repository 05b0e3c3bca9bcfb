"""docs/vectors.json, computed again from docs/protocol.md with nothing but hash functions: the page suffices."""

from __future__ import annotations

import base64
import json
import math
import struct
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import sha3
import zstandard
from blake3 import blake3

VECTORS: dict[str, Any] = json.loads((Path(__file__).resolve().parents[2] / "docs" / "vectors.json").read_text())
MASK = 2**64 - 1


def keccak(data: bytes) -> bytes:
    return bytes(sha3.keccak_256(data).digest())


def unhex(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def word(value: int | str) -> bytes:
    """A Solidity value as 32 bytes: integers, addresses, bytes32."""
    return value.to_bytes(32, "big") if isinstance(value, int) else unhex(value).rjust(32, b"\0")


def canonical(value: Any) -> bytes:
    def sort(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: sort(value[key]) for key in sorted(value, key=lambda key: key.encode("utf-16-be"))}
        if isinstance(value, list):
            return [sort(item) for item in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return json.dumps(sort(value), ensure_ascii=False, separators=(",", ":")).encode()


def standard_root(leaves: list[bytes]) -> bytes:
    """OpenZeppelin's tree: leaves in falling order at the array's end, a parent over its two children, sorted."""
    nodes = [b""] * (len(leaves) - 1) + sorted(leaves, reverse=True)
    for index in reversed(range(len(leaves) - 1)):
        nodes[index] = keccak(b"".join(sorted((nodes[2 * index + 1], nodes[2 * index + 2]))))
    return nodes[0]


def test_canonical_json() -> None:
    for case in VECTORS["canonical_json"]:
        assert canonical(case["value"]) == case["text"].encode()
        assert keccak(canonical(case["value"])) == unhex(case["keccak256"])


def test_domains_and_messages() -> None:
    separators = {}
    for domain in VECTORS["domains"]:
        kind = b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract,bytes32 salt)"
        words = [keccak(kind), keccak(domain["name"].encode()), keccak(domain["version"].encode())]
        words += [word(domain["chain_id"]), word(domain["verifying_contract"]), word(domain["salt"])]
        separators[domain["contract"]] = keccak(b"".join(words))
        assert separators[domain["contract"]] == unhex(domain["separator"])
    for case in VECTORS["messages"]["cases"]:
        kinds = [member.split(" ")[0] for member in case["type"].split("(")[1].rstrip(")").split(",")]
        values = zip(kinds, case["message"].values(), strict=True)
        words = [keccak(case["type"].encode()), *(_member(kind, value) for kind, value in values)]
        assert keccak(b"".join(words)) == unhex(case["struct_hash"])
        digest = keccak(b"\x19\x01" + separators[case["contract"]] + unhex(case["struct_hash"]))
        assert digest == unhex(case["digest"])


def _member(kind: str, value: int | str) -> bytes:
    if kind == "string":
        return keccak(str(value).encode())
    return word(int(value) if kind.startswith("uint") else value)


def test_hashes_of_documents() -> None:
    assert keccak(canonical(VECTORS["rules"]["document"])) == unhex(VECTORS["rules"]["rules_hash"])
    assert keccak(canonical(VECTORS["evidence"]["document"])) == unhex(VECTORS["evidence"]["evidence_hash"])
    for kind in ("manifest", "manifest_with_patch"):
        assert keccak(canonical(VECTORS[kind]["document"])) == unhex(VECTORS[kind]["manifest_hash"])


def test_http_header() -> None:
    scheme, _, text = VECTORS["http"]["authorization"].partition(" ")
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    sent = json.loads(raw)
    assert (scheme, raw) == ("Proofpool", canonical(sent))
    signed = next(case for case in VECTORS["messages"]["cases"] if case["type"].startswith("HttpRequest"))
    assert sent["signature"] == signed["signature"]
    assert sent["address"] == VECTORS["messages"]["signer"]


def stream(seed: bytes, label: str, count: int) -> list[int]:
    words: list[int] = []
    for block in range(count // 4 + 1):
        name = label.encode()
        digest = sha256(seed + struct.pack(">I", len(name)) + name + struct.pack(">Q", block)).digest()
        words += struct.unpack(">4Q", digest)
    return words[:count]


def test_seeds_streams_and_prompts() -> None:
    of = VECTORS["randomness"]
    task = of["task_seed"]
    parts = (task["pool_id"], task["policy_version"], task["node"], task["counter"], task["beacon_hash"])
    seed = keccak(b"".join(map(word, parts)))
    assert seed == unhex(task["seed"])
    assert [str(number) for number in stream(seed, of["words"]["label"], 6)] == of["words"]["first"]
    bounds = (of["prompts"]["num_problems"], of["prompts"]["num_targets"])
    for group in of["prompts"]["groups"]:
        drawn = stream(seed, f"group/{group['group']}", 2)
        assert all(number < 2**64 - 2**64 % bound for number, bound in zip(drawn, bounds, strict=True))
        assert [n % bound for n, bound in zip(drawn, bounds, strict=True)] == [group["problem"], group["target"]]


def uniform(key: int, token: int) -> float:
    z = (key + (token + 1) * 0x9E3779B97F4A7C15) & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return (((z ^ z >> 31) >> 12) + 0.5) * 2.0**-52


def kept(scaled: list[float], top_k: int, top_p: float) -> list[int]:
    order = sorted(range(len(scaled)), key=lambda token: (-scaled[token], token))[: top_k or None]
    weights = [math.exp(scaled[token]) for token in order]
    before = [sum(weights[:place]) for place in range(len(order))]
    return [token for token, mass in zip(order, before, strict=True) if top_p == 1 or mass < top_p * sum(weights)]


def test_sampling() -> None:
    of = VECTORS["sampling"]
    for row, (sample, position) in enumerate(zip(of["samples"], of["positions"], strict=True)):
        digest = sha256(unhex(of["seed"]) + struct.pack(">II", sample, position)).digest()
        key = int.from_bytes(digest[:8], "big")
        assert key == int(of["keys"][row], 16)
        noise = [-math.log(-math.log(uniform(key, token))) for token in range(len(of["logits"]))]
        assert [uniform(key, token) for token in range(3)] == pytest.approx(of["uniforms"][row], rel=1e-11)
        assert noise[:3] == pytest.approx(of["noise"][row], rel=1e-11)
        for case in of["cases"]:
            scaled = [logit / case["rules"]["temperature"] for logit in of["logits"]]
            choice = kept(scaled, case["rules"]["top_k"], case["rules"]["top_p"])
            noised = {token: scaled[token] + noise[token] for token in choice}
            best = min(noised, key=lambda token: (-noised[token], token))
            assert best == case["tokens"][row]
            logprob = scaled[best] - math.log(sum(map(math.exp, scaled)))
            assert logprob == pytest.approx(case["logprobs"][row], rel=1e-5)
            margin = min(10.0, noised[best] - noised[2]) if 2 in noised else 10.0
            assert margin == pytest.approx(case["margins_of_token_2"][row], rel=1e-11)


def test_content_hash() -> None:
    of = VECTORS["rollout_file"]
    header, rows = of["header"].encode(), [unhex(row) for row in of["row_bytes"]]
    start = b"proofpool/rollouts/v1\n" + struct.pack("<II", len(header), len(rows)) + header
    assert sha256(start + b"".join(sha256(row).digest() for row in rows)).digest() == unhex(of["content_hash"])
    fields = list(_fields(rows[0]))
    assert fields[:3] == [struct.pack("<3i", 1, 7, 9), struct.pack("<i", 2), struct.pack("<f", 1.0)]
    assert [len(field) for field in fields[3:5]] == [258, 4]
    assert fields[5:] == [b"example:41", b"example", struct.pack("<i", -1), struct.pack("<f", -0.5), b"stop"]


def _fields(row: bytes) -> list[bytes]:
    found = []
    while row:
        (length,) = struct.unpack("<I", row[:4])
        found.append(row[4 : 4 + length])
        row = row[4 + length :]
    return found


def log_root(leaves: list[bytes]) -> bytes:
    if len(leaves) < 2:
        return leaves[0] if leaves else sha256(b"").digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\x01" + log_root(leaves[:split]) + log_root(leaves[split:])).digest()


def test_log() -> None:
    of = VECTORS["log"]
    event = json.loads(of["event"])
    assert canonical(event) == of["event"].encode()
    assert sha256(of["event"].encode()).digest() == unhex(of["event_hash"])
    assert sha256(b"\x00" + unhex(event["subject"]) + unhex(of["event_hash"])).digest() == unhex(of["leaf_hash"])
    leaves = [unhex(leaf) for leaf in of["leaves"]]
    assert [log_root(leaves[:size]) for size in range(8)] == [unhex(root) for root in of["roots"]]
    siblings = [unhex(sibling) for sibling in of["inclusion"]["path"]]
    assert siblings == [leaves[3], log_root(leaves[:2]), log_root(leaves[4:])]


def test_draws() -> None:
    of = VECTORS["draws"]
    validators = of["validators"]
    parts = unhex(of["beacon"]) + unhex(of["submission_id"]) + word(of["round"])
    raw = [int.from_bytes(keccak(parts + word(index)), "big") % len(validators) for index in range(256)]
    assert raw[:8] == of["raw"]
    passed_over, drawn = {of["excluded"]}, []
    for index, seat in enumerate(raw):
        if validators[seat] not in passed_over:
            passed_over.add(validators[seat])
            drawn.append({"seat": seat, "draw_index": index})
    assert drawn[: len(of["drawn"])] == of["drawn"]


def test_reaudits() -> None:
    of = VECTORS["reaudits"]
    subjects = [keccak(word(number)) for number in range(40)]
    drawn = {id_: keccak(unhex(of["beacon"]) + id_ + word(1) + word(2**32 - 1)) for id_ in subjects}
    picked = [id_ for id_, digest in drawn.items() if int.from_bytes(digest, "big") % 10_000 < of["share_bps"]]
    assert picked == [unhex(submission_id) for submission_id in of["picked"]] and picked


def test_audited_rollouts() -> None:
    of = VECTORS["audit_rows"]
    for round_number, drawn in enumerate(of["drawn"]):
        seed = keccak(unhex(of["beacon"]) + unhex(of["submission_id"]) + word(round_number))
        numbers = list(range(of["num_rollouts"]))
        for place, drawn_word in enumerate(stream(seed, "audit", len(drawn))):
            other = place + drawn_word % (len(numbers) - place)
            numbers[place], numbers[other] = numbers[other], numbers[place]
        assert sorted(numbers[: len(drawn)]) == drawn
        assert len(drawn) == of["share"] * of["num_rollouts"]


def test_stamps() -> None:
    of = VECTORS["stamp"]
    seed = keccak(unhex(of["beacon"]) + unhex(of["submission_id"]) + word(of["round"]) + word(of["seat"]))
    assert seed == unhex(of["seed"])
    rows = [(int(n), i, token) for n, tokens in of["completions"].items() for i, token in enumerate(tokens)]
    numbers = stream(seed, "stamp", 32)
    for pair, row_word, token_word in zip(of["pairs"], numbers[::2], numbers[1::2], strict=True):
        rollout, position, claimed = rows[row_word % len(rows)]
        other = token_word % (of["vocab_size"] - 1)
        assert list(pair.values()) == [rollout, position, other + (other >= claimed)]
    assert of["stamp"] == [round(max(logprob, -100.0), 4) for logprob in of["logprobs"]]


def test_trees() -> None:
    rows = VECTORS["commitment"]["rows"]
    salted = {row["submission_id"]: keccak(unhex(row["verdict_digest"]) + unhex(row["salt"])) for row in rows}
    leaves = [keccak(keccak(unhex(submission_id) + digest)) for submission_id, digest in salted.items()]
    assert standard_root(leaves) == unhex(VECTORS["commitment"]["root"])
    accounts = VECTORS["earnings"]["accounts"].items()
    leaves = [keccak(keccak(word(account) + word(int(amount)))) for account, amount in accounts]
    assert standard_root(leaves) == unhex(VECTORS["earnings"]["root"])
    groups = VECTORS["groups_root"]["groups"]
    leaves = [keccak(keccak(word(submission_id) + word(group))) for submission_id, group in groups]
    assert standard_root(leaves) == unhex(VECTORS["groups_root"]["root"])


def test_a_patch_makes_the_result_of_its_base() -> None:
    case = VECTORS["patch"]
    base, result, patch = (unhex(case[name]) for name in ("base", "result", "patch"))
    assert blake3(base).digest() == unhex(case["base_hash"])
    assert blake3(result).digest() == unhex(case["result_hash"])
    assert blake3(patch[:-32]).digest() == patch[-32:]
    kinds: set[int] = set()
    assert _patched(base, patch, kinds) == result
    assert kinds == {1, 2}


def _patched(base: bytes, patch: bytes, kinds: set[int]) -> bytes:
    """Applies a patch as docs/protocol.md says."""
    assert patch[:8] == b"PPPATCH1"
    parts, place = [], 8
    while place < len(patch) - 32:
        (size,) = struct.unpack_from("<I", patch, place)
        parts.append(patch[place + 4 : place + 4 + size])
        place += 4 + size
    header, layout = json.loads(parts[0]), zstandard.decompress(parts[1])
    old_rows, new_rows = _safetensors_rows(base), _safetensors_rows(struct.pack("<Q", len(layout)) + layout)
    old_start = 8 + struct.unpack_from("<Q", base)[0]
    data, runs = b"", []
    for name, row in sorted(new_rows.items(), key=lambda item: item[1]["data_offsets"]):
        start, stop = row["data_offsets"]
        if name in header["whole"]:
            data += bytes(stop - start)
        else:
            place = old_start + old_rows[name]["data_offsets"][0]
            data += base[place : place + stop - start]
        kind = {"BF16": (2, "bf16"), "I16": (2, ""), "F32": (4, "")}[row["dtype"]]
        if runs and runs[-1][2] == kind:
            runs[-1] = (runs[-1][0], stop, kind)
        elif start < stop:
            runs.append((start, stop, kind))
    spans = [
        (at, min(at + header["block_bytes"], stop), kind[0])
        for start, stop, kind in runs
        for at in range(start, stop, header["block_bytes"])
    ]
    assert len(spans) == len(parts) - 2
    done = struct.pack("<Q", len(layout)) + layout
    for (start, stop, size), block in zip(spans, parts[2:], strict=True):
        words = [int.from_bytes(data[at : at + size], "little") for at in range(start, stop, size)]
        kinds.add(block[0])
        done += b"".join(word.to_bytes(size, "little") for word in _block(block, words, size))
    assert len(done) == header["result_bytes"]
    return done


def _safetensors_rows(file: bytes) -> dict[str, Any]:
    (size,) = struct.unpack_from("<Q", file)
    rows: dict[str, Any] = json.loads(file[8 : 8 + size])
    return {name: row for name, row in rows.items() if name != "__metadata__"}


def _block(block: bytes, words: list[int], size: int) -> list[int]:
    if block[0] == 0:
        return words
    if block[0] == 2:
        differences = _planes(zstandard.decompress(block[1:]), size)
        return [(word + step) % 256**size for word, step in zip(words, differences, strict=True)]
    numbers, place = [], 2 + 2 * (block[1] - 1)
    thresholds = struct.unpack(f"<{block[1] - 1}H", block[2:place])

    def number() -> int:
        nonlocal place
        value = shift = 0
        while True:
            value |= (block[place] & 127) << shift
            place, shift = place + 1, shift + 7
            if block[place - 1] < 128:
                return value

    for _ in range(block[1]):
        place += 1
        numbers.append((block[place - 1], number()))
    symbols_size, wide_size = number(), number()
    symbols = zstandard.decompress(block[place : place + symbols_size])
    place += symbols_size
    wide = _planes(zstandard.decompress(block[place : place + wide_size]), size) if wide_size else []
    low = "".join(f"{byte:08b}"[::-1] for byte in block[place + wide_size :])
    classes = [sum((word & 0x7FFF) >= threshold for threshold in thresholds) for word in words]
    result, symbol = list(words), iter(symbols)
    for index, (shift, count) in enumerate(numbers):
        members, rank, quotient = [at for at, c in enumerate(classes) if c == index], -1, 0
        for _ in range(count):
            value = next(symbol)
            if value & 7 == 7:
                quotient += 32 * ((value >> 3) + 1)
                continue
            gap = (quotient + (value >> 3)) << shift | int("0" + low[:shift][::-1], 2)
            low, rank, quotient = low[shift:], rank + gap + 1, 0
            step = wide.pop(0) if value & 7 == 6 else (1, -1, 2, -2, 3, -3)[value & 7]
            result[members[rank]] = (result[members[rank]] + step) % 256**size
    assert not wide
    return result


def _planes(data: bytes, size: int) -> list[int]:
    """Zigzag numbers, of which all lowest bytes come first."""
    count = len(data) // size
    coded = [sum(data[plane * count + at] << 8 * plane for plane in range(size)) for at in range(count)]
    return [value >> 1 if value % 2 == 0 else -(value >> 1) - 1 for value in coded]
