"""Check a proof bundle without proofpool: Python's standard library, `pip install coincurve`, and this file.

    python check_bundle.py FILE [--submission HASH] [--trusted-head EPOCH:SIZE:ROOT | --trusted-block NUMBER:HASH]

Exit code 0: every step holds; 3: one doesn't; 2: no bundle. Without a head or block that you know the bundle is
consistent with itself and no more: whoever made it may have made all of it up. Left to `proofpool audit verify`: the
rows of the file against content hash and number of units; what takes a chain (keys, seats and their draws, re-audits,
quorums, earnings roots, the Court's case). Formats: docs/protocol.md; EIP-712, RFC 9162, OpenZeppelin's
StandardMerkleTree, the Yellow Paper's RLP and tries. Python 3.11.
"""

import argparse
import base64
import functools
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coincurve import PublicKey

Json = dict[str, Any]
TYPES = {
    "task": "Task(uint64 poolId,uint64 policyVersion,address node,uint64 counter,bytes32 rulesHash,uint64 beaconBlock,"
    "bytes32 beaconHash,uint128 priceWei,uint64 maxUnits,uint64 deadline)",
    "submission": "Submission(uint64 poolId,uint64 policyVersion,address node,uint64 counter,bytes32 rulesHash,"
    "bytes32 contentHash)",
    "receipt": "Receipt(bytes32 submissionId,uint64 receivedBlock,uint64 includeByEpoch)",
    "verdict": "Verdict(bytes32 submissionId,uint64 poolId,uint64 epoch,uint32 round,uint32 seat,uint8 outcome,"
    "uint8 reason,bytes32 rulesHash,bytes32 evidenceHash)",
    "commitment": "VerdictCommitment(uint64 poolId,uint64 epoch,uint32 seat,uint32 part,bytes32 root)",
}
DOMAIN = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract,bytes32 salt)"
COMMITTED = b"EpochCommitted(uint64,uint64,uint64,bytes32,uint64)"
HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
ACCEPT, SLASH, ZERO = 0, 2, "0x" + "00" * 32
MAX_BYTES, MAX_BYTES_BESIDE_FILE, MAX_VALUES, MAX_SHOWN = 400 << 20, 4 << 20, 1 << 20, 500
"""Of a bundle: more isn't read, since an honest one has some dozens of kilobytes beside the file and block headers."""
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class Wrong(Exception):
    """Something doesn't hold."""


class Open(Exception):
    """It hasn't happened yet, or nothing is there to hold it against."""


def must(what: str, holds: bool) -> None:
    if not holds:
        raise Wrong(what)


def same(what: str, one: Json, other: Json, *fields: str) -> None:
    for name in fields:
        must(f"{what} differ in {name}: {one[name]}, {other[name]}", one[name] == other[name])


def keccak256(data: bytes) -> bytes:
    """Ethereum's Keccak: rate 136 bytes, padding 01…80."""
    mask, lanes, rate = 2**64 - 1, [0] * 25, 136
    padded = bytearray(data + b"\1" + bytes(-(len(data) + 1) % rate))
    padded[-1] |= 0x80
    for start in range(0, len(padded), rate):
        for i in range(rate // 8):
            lanes[i] ^= int.from_bytes(padded[start + 8 * i : start + 8 * i + 8], "little")
        lfsr = 1
        for _ in range(24):
            parity = [lanes[x] ^ lanes[x + 5] ^ lanes[x + 10] ^ lanes[x + 15] ^ lanes[x + 20] for x in range(5)]
            mixed = [parity[x - 1] ^ (parity[x - 4] << 1 | parity[x - 4] >> 63) & mask for x in range(5)]
            lanes = [lane ^ mixed[i % 5] for i, lane in enumerate(lanes)]
            x, y, lane = 1, 0, lanes[1]
            for t in range(24):
                x, y, turn = y, (2 * x + 3 * y) % 5, (t + 1) * (t + 2) // 2 % 64
                lane, lanes[x + 5 * y] = lanes[x + 5 * y], (lane << turn | lane >> (64 - turn)) & mask
            for row in range(0, 25, 5):
                five = lanes[row : row + 5]
                lanes[row : row + 5] = [five[x] ^ (~five[x - 4] & five[x - 3]) & mask for x in range(5)]
            for bit in range(7):
                lfsr, lanes[0] = (lfsr << 1) ^ (lfsr >> 7) * 0x171, lanes[0] ^ ((lfsr & 1) << (2**bit - 1))
    return b"".join(lane.to_bytes(8, "little") for lane in lanes[:4])


def raw(text: str) -> bytes:
    must("a value isn't lower-case 0x-hex", re.fullmatch("0x([0-9a-f]{2})*", text) is not None)
    return bytes.fromhex(text[2:])


def hex0x(data: bytes) -> str:
    return "0x" + data.hex()


def canonical(value: Any) -> bytes:
    """RFC 8785, for the numbers that occur here."""

    def plain(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: plain(item[key]) for key in sorted(item, key=lambda k: k.encode("utf-16-be"))}
        if isinstance(item, list):
            return [plain(one) for one in item]
        return int(item) if isinstance(item, float) and item.is_integer() else item

    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


@functools.cache
def type_hash(text: str) -> bytes:
    return keccak256(text.encode())


def word(value: object) -> bytes:
    is_hex = isinstance(value, str) and value.startswith("0x")
    return raw(str(value)).rjust(32, b"\0") if is_hex else int(str(value)).to_bytes(32, "big")


def digest(kind: str, message: Json, chain: Json) -> bytes:
    """What EIP-712 signs, and the id of a task or submission."""
    names = [member.split(" ")[1] for member in TYPES[kind].partition("(")[2].rstrip(")").split(",")]
    values = [message[re.sub("[A-Z]", lambda found: "_" + found[0].lower(), name)] for name in names]
    struct = keccak256(type_hash(TYPES[kind]) + b"".join(map(word, values)))
    where = (chain["chain_id"], chain["contracts"]["ledger"], chain["deployment_salt"])
    named = type_hash("proofpool") + type_hash("1")
    return keccak256(b"\x19\1" + keccak256(type_hash(DOMAIN) + named + b"".join(map(word, where))) + struct)


def signed(kind: str, message: Json, chain: Json, signer: str) -> Json:
    """The message that `signer` signed."""
    signature = raw(message["signature"])
    is_canonical = len(signature) == 65 and signature[64] in (27, 28) and int.from_bytes(signature[32:64]) <= HALF_ORDER
    must("a signature isn't canonical", is_canonical)
    recoverable = signature[:64] + bytes([signature[64] - 27])
    try:
        key = PublicKey.from_signature_and_message(recoverable, digest(kind, message["message"], chain), hasher=None)
    except Exception as error:  # what coincurve raises where there is no such point
        raise Wrong(f"the {kind}'s signature is nobody's") from error
    must(f"the {kind} is signed by somebody else", hex0x(keccak256(key.format(compressed=False)[1:])[12:]) == signer)
    return dict(message["message"])


def joined(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def climb(fn: int, sn: int, node: bytes, path: list[bytes]) -> tuple[bytes, bytes]:
    """RFC 9162, sections 2.1.3.2 and 2.1.4.2: from a node up, the roots of the tree up to it and of the whole tree."""
    fr = sr = node
    for p in path:
        must("a Merkle path is too long", sn != 0)
        if fn & 1 or fn == sn:
            fr, sr = joined(p, fr), joined(p, sr)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = joined(sr, p)
        fn, sn = fn >> 1, sn >> 1
    must("a Merkle path is too short", sn == 0)
    return fr, sr


def grew(first: int, second: int, roots: tuple[bytes, bytes], path: list[bytes]) -> bool:
    """Whether the tree of `second` leaves starts with the one of `first`."""
    if first == second or first == 0:
        return not path and roots[0] == (roots[1] if first else hashlib.sha256().digest())
    path = [roots[0], *path] if first & (first - 1) == 0 else path
    fn, sn = first - 1, second - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    return first < second and climb(fn, sn, path[0], path[1:]) == roots


def pairs_lead(leaf: bytes, path: list[str], root: str) -> bool:
    """OpenZeppelin's StandardMerkleTree: leaves hashed twice, the smaller of two siblings first."""
    found = keccak256(keccak256(leaf))
    for sibling in map(raw, path):
        found = keccak256(min(found, sibling) + max(found, sibling))
    return found == raw(root)


def rlp(data: bytes, at: int = 0) -> tuple[Any, int]:
    """The item that starts there, and where it ends."""
    if data[at] < 0x80:
        return data[at : at + 1], at + 1
    size, start = data[at] & 0x3F, at + 1
    if size > 55:
        start, size = start + size - 55, int.from_bytes(data[start : start + size - 55])
    must("an item is longer than its list", start + size <= len(data))
    if data[at] < 0xC0:
        return data[start : start + size], start + size
    items, end = [], start + size
    while start < end:
        item, start = rlp(data, start)
        items.append(item)
    return items, start


def in_trie(node: Any, key: bytes, known: dict[bytes, bytes]) -> bytes:
    """The value at `key`: down from a Merkle-Patricia trie's root by the nodes of a proof."""
    rest = key.hex()
    while True:
        node = node if isinstance(node, list) else rlp(known[node])[0]
        if len(node) == 17:
            node, rest = node[int(rest[0], 16)], rest[1:]
            continue
        flag = int(node[0].hex()[0], 16)
        prefix = node[0].hex()[2 - flag % 2 :]
        must("the receipt's key is another", rest.startswith(prefix) and (flag < 2 or rest == prefix))
        node, rest = node[1], rest[len(prefix) :]
        if flag >= 2:
            return bytes(node)


STEPS: dict[str, Callable[["Bundle"], str]] = {}


def step(name: str) -> Callable[[Callable[["Bundle"], str]], Callable[["Bundle"], str]]:
    return lambda check: STEPS.setdefault(name, check)


class Bundle:
    """A step a method; each returns what it saw, or raises Wrong or Open."""

    def __init__(self, document: Json) -> None:
        self.all, self.chain, self.provider = document, document["chain"], document["chain"]["provider"]
        self.task, self.submission = document["task"]["message"], document["submission"]["message"]
        self.received, self.settled, self.revealed = (document[name] for name in ("received", "settled", "verdicts"))
        self.id = hex0x(digest("submission", self.submission, self.chain))
        self.task_id = hex0x(digest("task", self.task, self.chain))
        self.heads = {head["epoch"]: head for head in self.chain["heads"]}

    @step("lease")
    def lease(self) -> str:
        signed("task", self.all["task"], self.chain, self.chain["coordinator"])
        fields = ("pool_id", "policy_version", "node", "counter", "rules_hash")
        same("task and submission", self.task, self.submission, *fields)
        same("task and pool", self.task, self.chain, "pool_id")
        same("task and version", self.task, self.chain["version"], "policy_version", "beacon_block", "beacon_hash")
        must("the rules are others", hex0x(keccak256(canonical(self.all["rules"]))) == self.task["rules_hash"])
        return f"task {self.task_id}"

    @step("node signature")
    def node_signature(self) -> str:
        signed("submission", self.all["submission"], self.chain, self.submission["node"])
        must("the node is nobody's", int(self.provider, 16) != 0)
        must("the log has another provider", self.received["entry"]["event"]["data"]["provider"] == self.provider)
        return f"submission {self.id} by {self.submission['node']}"

    @step("receipt")
    def receipt(self) -> str:
        promise = signed("receipt", self.all["receipt"], self.chain, self.chain["coordinator"])
        must("the receipt is for another submission", promise["submission_id"] == self.id)
        proof = self.received["inclusion"]
        must("it came too late", proof is None or proof["epoch"] <= promise["include_by_epoch"])
        return f"by epoch {promise['include_by_epoch']}"

    def data(self, logged: Json, kind: str, subject: str) -> Json:
        """What the event says, if its hashes are right and it is this event."""
        entry, event = logged["entry"], logged["entry"]["event"]
        hashed = hashlib.sha256(canonical(event)).digest()
        leaf = hashlib.sha256(b"\0" + raw(entry["subject"]) + hashed).digest()
        must("an event has another hash", (entry["event_hash"], entry["leaf_hash"]) == (hex0x(hashed), hex0x(leaf)))
        must(f"the {kind} event is another", (event["type"], entry["subject"]) == (kind, subject))
        same("event and entry", event, entry, "index", "subject")
        return dict(event["data"])

    def anchored(self, logged: Json) -> str:
        """The leaf is under the head of the first epoch that has it."""
        proof, entry = logged["inclusion"], logged["entry"]
        if proof is None:
            raise Open(f"event {entry['index']} isn't anchored yet")
        same("proof and event", proof, entry, "index", "leaf_hash")
        must(f"no head of epoch {proof['epoch']}", proof["epoch"] in self.heads)
        same("proof and head", proof, self.heads[proof["epoch"]], "size", "root")
        before, index = self.heads.get(proof["epoch"] - 1), proof["index"]
        must("an earlier epoch has it already", before is None or before["size"] <= index)
        must(f"event {index} is past its tree", 0 <= index < proof["size"])
        _, root = climb(index, proof["size"] - 1, raw(proof["leaf_hash"]), list(map(raw, proof["path"])))
        must(f"event {index} isn't under its root", root == raw(proof["root"]))
        return f"event {index}, epoch {proof['epoch']}"

    @step("log event")
    def log_event(self) -> str:
        data = self.data(self.received, "submission.received", self.id)
        same("log and submission", data, self.submission, "node", "counter", "policy_version", "content_hash")
        must("the log has another task", data["task_id"] == self.task_id)
        file = hashlib.sha256(base64.b64decode(self.all["file"])).digest()
        must("the log has another file", data["file_sha256"] == hex0x(file))
        return f"file {data['file_sha256']}"

    @step("inclusion")
    def inclusion(self) -> str:
        return self.anchored(self.received)

    @step("append-only")
    def append_only(self) -> str:
        paths = {link["old_epoch"]: list(map(raw, link["path"])) for link in self.all["links"]}
        if not self.heads:
            raise Open("no epoch is anchored yet")
        *older, newest = self.chain["heads"]
        for head in older:
            must(f"no consistency proof of epoch {head['epoch']}", head["epoch"] in paths)
            roots = raw(head["root"]), raw(newest["root"])
            is_prefix = grew(head["size"], newest["size"], roots, paths[head["epoch"]])
            must(f"epoch {head['epoch']} is no prefix of epoch {newest['epoch']}", is_prefix)
        return f"epoch {newest['epoch']}, {newest['size']} leaves"

    @step("verdicts")
    def verdicts(self) -> str:
        owners = {seat["seat"]: seat["validator"] for seat in self.chain["seats"]}
        for one in self.revealed:
            verdict = signed("verdict", one["verdict"], self.chain, one["validator"])
            must("a verdict is about another submission", verdict["submission_id"] == self.id)
            same("verdict and submission", verdict, self.submission, "pool_id", "rules_hash")
            must("a seat is another validator's", one["validator"] == owners.get(verdict["seat"]))
            judged = {0: self.received, 1: self.settled}[verdict["round"]]
            must("a verdict has another epoch", verdict["epoch"] == judged["inclusion"]["epoch"])
            must("the evidence is other", hex0x(keccak256(canonical(one["evidence"]))) == verdict["evidence_hash"])
            data = self.data(one["revealed"], "verdict.revealed", self.id)
            same("log and verdict", data, verdict, "round", "seat", "outcome", "evidence_hash")
            same("log and bundle", data, one, "validator", "draw")
            if one["revealed"]["inclusion"] is not None:
                self.anchored(one["revealed"])
        counted = {(one["validator"], one["verdict"]["message"]["round"]) for one in self.revealed}
        must("a validator counts twice", len(counted) == len(self.revealed))
        return f"{len(counted)} by their seats' owners"

    @step("commitments")
    def commitments(self) -> str:
        for one in self.revealed:
            commitment = signed("commitment", one["commitment"], self.chain, one["validator"])
            data = self.data(one["committed"], "verdict.committed", ZERO)
            same("log and commitment", data, commitment, "seat", "epoch", "part", "root")
            same("verdict and commitment", one["verdict"]["message"], commitment, "seat")
            self.anchored(one["committed"])
            since = one["committed"]["inclusion"]["size"]
            must("a seat revealed before its commitment was anchored", one["revealed"]["entry"]["index"] >= since)
            salted = keccak256(digest("verdict", one["verdict"]["message"], self.chain) + raw(one["salt"]))
            leads = pairs_lead(raw(self.id) + salted, one["path"], commitment["root"])
            must("a seat had committed to another verdict", leads)
        return f"{len(self.revealed)}, each before its verdict"

    def settling(self) -> tuple[bool, Json]:
        """Whether it was accepted, and what the event says."""
        if self.settled is None:
            raise Open("it isn't settled yet")
        kind = self.settled["entry"]["event"]["type"]
        must(f"it was settled by {kind}", kind in ("submission.accepted", "submission.rejected"))
        return kind == "submission.accepted", self.data(self.settled, kind, self.id)

    @step("decision")
    def decision(self) -> str:
        accepted, _ = self.settling()
        outcomes = [v["outcome"] for v in (one["verdict"]["message"] for one in self.revealed) if v["round"] == 0]
        votes = Counter(outcome == ACCEPT for outcome in outcomes)
        must("the decision doesn't follow from the verdicts", votes[accepted] > votes[not accepted])
        quorum = self.chain["slash_quorum" if SLASH in outcomes else "accept_quorum"]
        must("the decision came too early", votes.total() >= quorum)
        self.anchored(self.settled)
        return f"{'accepted' if accepted else 'rejected'} with {votes[True]} to {votes[False]}"

    @step("payment")
    def payment(self) -> str:
        """Units × price, with the units that the log counted: the file isn't opened here."""
        accepted, data = self.settling()
        units = self.data(self.received, "submission.received", self.id)["num_units"]
        expected = units * int(self.task["price_wei"]) if accepted else 0
        must(f"it isn't {expected} wei", int(dict(data["payments"]).get(self.provider, 0)) == expected)
        must("an account is paid twice", len(dict(data["payments"])) == len(data["payments"]))
        must("the log says another amount", (data["amount_wei"], data["num_units"]) == (str(expected), units))
        return f"{expected} wei for {units} units"

    @step("earnings")
    def earnings(self) -> str:
        proof, found = self.all["earnings"], self.chain["earnings"]
        if proof is None or found is None:
            raise Open("no earnings root is on chain yet")
        same("earnings and root", proof, found, "epoch", "root")
        must("the earnings are another's", proof["account"] == self.provider)
        leaf = word(proof["account"]) + word(proof["cumulative_wei"])
        must("the earnings aren't under the root", pairs_lead(leaf, proof["path"], proof["root"]))
        if self.settled is None or self.settled["inclusion"] is None:
            raise Open("no payment is anchored yet")
        paid = int(dict(self.settling()[1]["payments"]).get(self.provider, 0))
        is_older = self.settled["inclusion"]["epoch"] > proof["epoch"]
        must("less is earned than was paid", is_older or int(proof["cumulative_wei"]) >= paid)
        return f"{proof['cumulative_wei']} wei{' before the payment' if is_older else ''}"

    def known(self, epoch: int, size: int, root: str) -> str:
        """The bundle has the head that is known."""
        must(f"the bundle has no head of epoch {epoch}", epoch in self.heads)
        same("bundle and trusted head", self.heads[epoch], {"size": size, "root": root}, "size", "root")
        if newer := [number for number in self.heads if number > epoch]:
            raise Open(f"epochs {newer} are newer than the trusted head")
        return f"epoch {epoch}"

    def known_by_block(self, number: int, block_hash: str) -> str:
        """The trusted block's headers lead back to the one in which the Ledger took the head."""
        proof = self.all.get("block") or {}
        must("the bundle leads to no block: `audit bundle --chain URL` makes one that does", bool(proof))
        hashes, headers = zip(*((keccak256(raw(one)), rlp(raw(one))[0]) for one in proof["headers"]), strict=True)
        follows = (child[0] == parent for child, parent in zip(headers[1:], hashes, strict=False))
        must("the headers are no chain", all(follows))
        found = {int.from_bytes(header[8]): hex0x(one) for one, header in zip(hashes, headers, strict=True)}
        must(f"the bundle has another block {number}, or none", found.get(number) == block_hash)
        index = proof["transaction_index"].to_bytes(4).lstrip(b"\0")
        key = index if len(index) == 1 and index[0] < 0x80 else bytes([0x80 + len(index)]) + index
        receipt = in_trie(headers[0][5], key, {keccak256(raw(node)): raw(node) for node in proof["path"]})
        topics = [keccak256(COMMITTED), word(self.chain["pool_id"])]
        for address, said, data in rlp(receipt, int(receipt[0] < 0x80))[0][3]:
            if address == raw(self.chain["contracts"]["ledger"]) and said[:2] == topics:
                return self.known(int.from_bytes(said[2]), int.from_bytes(data[:32]), hex0x(data[32:64]))
        raise Wrong("the block's receipt commits no epoch of this pool")


def shown(text: str) -> str:
    """What a stranger may have written, so that nothing in it steers a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:MAX_SHOWN])


def take(bundle: Bundle, name: str, check: Callable[[Bundle], str]) -> str:
    """Take one step and print it; its mark. A bundle of any shape gets an answer."""
    try:
        mark, said = "✓", check(bundle)
    except Open as reason:
        mark, said = "·", str(reason)
    except Wrong as error:
        mark, said = "✗", str(error)
    except MALFORMED as error:
        mark, said = "✗", f"malformed: {error!r}"
    print(f"{mark} {name:<15} {shown(said)}")
    return mark


def once(members: list[tuple[str, Any]]) -> Json:
    must("a name stands twice in an object", len(dict(members)) == len(members))
    return dict(members)


def read(file: Path) -> Bundle:
    with file.open("rb") as opened:
        content = opened.read(MAX_BYTES + 1)
    must("it is too large", len(content) <= MAX_BYTES and sum(map(content.count, b",[{")) <= MAX_VALUES)
    document = json.loads(content.decode(), object_pairs_hook=once)
    must("it isn't a JSON object", isinstance(document, dict))
    must("it has no file, and nothing to check", isinstance(document.get("file"), str))
    must("too much beside the file", len(content) - len(document["file"]) <= MAX_BYTES_BESIDE_FILE)
    must("another schema version than 1", set(re.findall(b'"schema_version": *([^,}]*)', content)) == {b"1"})
    return Bundle(document)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check a proofpool bundle with nothing of proofpool.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--submission", metavar="HASH", type=str.lower, help="the id that it has to be about")
    ground = parser.add_mutually_exclusive_group()
    ground.add_argument("--trusted-head", metavar="EPOCH:SIZE:ROOT", type=str.lower, help="a log head that you know")
    ground.add_argument("--trusted-block", metavar="NUMBER:HASH", type=str.lower, help="a block that you trust")
    options, steps = parser.parse_args(arguments), dict(STEPS)
    if (head := options.trusted_head) is not None:
        found = re.fullmatch("([0-9]{1,16}):([0-9]{1,16}):(0x[0-9a-f]{64})", head) or parser.error(
            "not EPOCH:SIZE:ROOT"
        )
        steps["heads"] = lambda bundle: bundle.known(int(found[1]), int(found[2]), found[3])
    elif (block := options.trusted_block) is not None:
        named = re.fullmatch("([0-9]{1,16}):(0x[0-9a-f]{64})", block) or parser.error("not NUMBER:HASH")
        steps["heads"] = lambda bundle: bundle.known_by_block(int(named[1]), named[2])
    try:
        bundle = read(options.bundle)
    except (OSError, Wrong, *MALFORMED) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        print(f"no bundle that can be read: {shown(f'{options.bundle}: {why}')}", file=sys.stderr)
        return 2
    marks = {name: take(bundle, name, check) for name, check in steps.items()}
    if options.submission not in (None, bundle.id):
        print(f"✗ this is about {bundle.id}")
        marks["submission"] = "✗"
    print("not checked here: the file's rows, draws, re-audits, the Court's case, claims about the chain")
    if "✗" in marks.values():
        print("failed")
        return 3
    anchor = f"head {head}" if head else f"block {options.trusted_block}"
    print(
        f"ok (anchored: {anchor}; chain state as claimed)" if marks.get("heads") == "✓" else "consistent, not anchored"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
