"""Check a proof bundle without proofpool: Python's standard library, `pip install coincurve`, and this file.

    python check_bundle.py bundle.json [--submission HASH] [--trusted-head EPOCH:SIZE:ROOT]

Exit code 0: every step holds; 3: one doesn't; 2: no bundle. Without a head that you know the bundle is consistent with
itself and no more: whoever made it may have made all of it up. Left to `proofpool audit verify`: the rows of the file
against content hash and number of units; what takes a chain (keys, seats and their draws, re-audits, quorums, earnings
roots, the Court's case). Formats: docs/protocol.md; EIP-712, RFC 9162, OpenZeppelin's StandardMerkleTree. Python 3.11.
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
HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
ACCEPT, SLASH = 0, 2
ZERO = "0x" + "00" * 32
MAX_BYTES, MAX_BYTES_BESIDE_FILE = 400 << 20, 2 << 20
"""Of a bundle: more isn't read, since an honest one has some dozens of kilobytes beside the file."""
MAX_SHOWN = 500


class Wrong(Exception):
    """Something doesn't hold."""


class Open(Exception):
    """It hasn't happened yet, or nothing is there to hold it against."""


def must(what: str, holds: bool) -> None:
    if not holds:
        raise Wrong(what)


def shown(text: str) -> str:
    """What a stranger may have written, so that nothing in it steers a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:MAX_SHOWN])


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
    if isinstance(value, str) and value.startswith("0x"):
        return raw(value).rjust(32, b"\0")
    return int(str(value)).to_bytes(32, "big")


def digest(kind: str, message: Json, chain: Json) -> bytes:
    """What EIP-712 signs, and the id of a task or submission."""
    names = [member.split(" ")[1] for member in TYPES[kind].partition("(")[2].rstrip(")").split(",")]
    values = [message[re.sub("[A-Z]", lambda found: "_" + found[0].lower(), name)] for name in names]
    struct = keccak256(type_hash(TYPES[kind]) + b"".join(map(word, values)))
    where = (chain["chain_id"], chain["contracts"]["ledger"], chain["deployment_salt"])
    names_of_domain = type_hash("proofpool") + type_hash("1")
    return keccak256(b"\x19\1" + keccak256(type_hash(DOMAIN) + names_of_domain + b"".join(map(word, where))) + struct)


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


def included(leaf: bytes, index: int, size: int, path: list[bytes], root: bytes) -> bool:
    """RFC 9162, section 2.1.3.2."""
    fn, sn, r = index, size - 1, leaf
    if not 0 <= index < size:
        return False
    for p in path:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            r = joined(p, r)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = joined(r, p)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and r == root


def consistent(first: int, second: int, first_root: bytes, second_root: bytes, path: list[bytes]) -> bool:
    """RFC 9162, section 2.1.4.2."""
    if first == second or first == 0:
        return not path and first_root == (second_root if first else hashlib.sha256().digest())
    path = [first_root, *path] if first & (first - 1) == 0 else path
    fn, sn = first - 1, second - 1
    if not path or first > second:
        return False
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    fr = sr = path[0]
    for c in path[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            fr, sr = joined(c, fr), joined(c, sr)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = joined(sr, c)
        fn, sn = fn >> 1, sn >> 1
    return (sn, fr, sr) == (0, first_root, second_root)


def pairs_lead(leaf: bytes, path: list[str], root: str) -> bool:
    """OpenZeppelin's StandardMerkleTree: leaves hashed twice, the smaller of two siblings first."""
    found = keccak256(keccak256(leaf))
    for sibling in map(raw, path):
        found = keccak256(min(found, sibling) + max(found, sibling))
    return found == raw(root)


class Bundle:
    """A step a method; each returns what it saw, or raises Wrong or Open."""

    def __init__(self, document: Json) -> None:
        self.all, self.chain, self.provider = document, document["chain"], document["chain"]["provider"]
        self.task, self.submission = document["task"]["message"], document["submission"]["message"]
        self.received, self.settled, self.revealed = (document[name] for name in ("received", "settled", "verdicts"))
        self.id = hex0x(digest("submission", self.submission, self.chain))
        self.task_id = hex0x(digest("task", self.task, self.chain))
        self.heads = {head["epoch"]: head for head in self.chain["heads"]}

    def lease(self) -> str:
        signed("task", self.all["task"], self.chain, self.chain["coordinator"])
        fields = ("pool_id", "policy_version", "node", "counter", "rules_hash")
        same("task and submission", self.task, self.submission, *fields)
        same("task and pool", self.task, self.chain, "pool_id")
        same("task and version", self.task, self.chain["version"], "policy_version", "beacon_block", "beacon_hash")
        must("the rules are others", hex0x(keccak256(canonical(self.all["rules"]))) == self.task["rules_hash"])
        return f"task {self.task_id}"

    def node_signature(self) -> str:
        signed("submission", self.all["submission"], self.chain, self.submission["node"])
        must("the node is nobody's", int(self.provider, 16) != 0)
        must("the log has another provider", self.received["entry"]["event"]["data"]["provider"] == self.provider)
        return f"submission {self.id} by {self.submission['node']}"

    def receipt(self) -> str:
        promise = signed("receipt", self.all["receipt"], self.chain, self.chain["coordinator"])
        must("the receipt is for another submission", promise["submission_id"] == self.id)
        late = (
            self.received["inclusion"] is not None and self.received["inclusion"]["epoch"] > promise["include_by_epoch"]
        )
        must("it came too late", not late)
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
        before = self.heads.get(proof["epoch"] - 1)
        must("an earlier epoch has it already", before is None or before["size"] <= proof["index"])
        path, leaf, root = list(map(raw, proof["path"])), raw(proof["leaf_hash"]), raw(proof["root"])
        must(f"event {proof['index']} isn't under its root", included(leaf, proof["index"], proof["size"], path, root))
        return f"event {proof['index']}, epoch {proof['epoch']}"

    def log_event(self) -> str:
        data = self.data(self.received, "submission.received", self.id)
        same("log and submission", data, self.submission, "node", "counter", "policy_version", "content_hash")
        must("the log has another task", data["task_id"] == self.task_id)
        file = hashlib.sha256(base64.b64decode(self.all["file"])).digest()
        must("the log has another file", data["file_sha256"] == hex0x(file))
        return f"file {data['file_sha256']}"

    def inclusion(self) -> str:
        return self.anchored(self.received)

    def append_only(self) -> str:
        paths = {link["old_epoch"]: list(map(raw, link["path"])) for link in self.all["links"]}
        if not self.heads:
            raise Open("no epoch is anchored yet")
        *older, newest = self.chain["heads"]
        for head in older:
            must(f"no consistency proof of epoch {head['epoch']}", head["epoch"] in paths)
            roots = raw(head["root"]), raw(newest["root"])
            grew = consistent(head["size"], newest["size"], *roots, paths[head["epoch"]])
            must(f"epoch {head['epoch']} is no prefix of epoch {newest['epoch']}", grew)
        return f"epoch {newest['epoch']}, {newest['size']} leaves"

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

    def decision(self) -> str:
        accepted, _ = self.settling()
        outcomes = [v["outcome"] for v in (one["verdict"]["message"] for one in self.revealed) if v["round"] == 0]
        votes = Counter(outcome == ACCEPT for outcome in outcomes)
        must("the decision doesn't follow from the verdicts", votes[accepted] > votes[not accepted])
        quorum = self.chain["slash_quorum" if SLASH in outcomes else "accept_quorum"]
        must("the decision came too early", votes.total() >= quorum)
        self.anchored(self.settled)
        return f"{'accepted' if accepted else 'rejected'} with {votes[True]} to {votes[False]}"

    def payment(self) -> str:
        """Units × price, with the units that the log counted: the file isn't opened here."""
        accepted, data = self.settling()
        units = self.data(self.received, "submission.received", self.id)["num_units"]
        expected = units * int(self.task["price_wei"]) if accepted else 0
        must(f"it isn't {expected} wei", int(dict(data["payments"]).get(self.provider, 0)) == expected)
        must("an account is paid twice", len(dict(data["payments"])) == len(data["payments"]))
        must("the log says another amount", (data["amount_wei"], data["num_units"]) == (str(expected), units))
        return f"{expected} wei for {units} units"

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


STEPS: dict[str, Callable[[Bundle], str]] = {
    "lease": Bundle.lease,
    "node signature": Bundle.node_signature,
    "receipt": Bundle.receipt,
    "log event": Bundle.log_event,
    "inclusion": Bundle.inclusion,
    "append-only": Bundle.append_only,
    "verdicts": Bundle.verdicts,
    "commitments": Bundle.commitments,
    "decision": Bundle.decision,
    "payment": Bundle.payment,
    "earnings": Bundle.earnings,
}


def take(bundle: Bundle, name: str, step: Callable[[Bundle], str]) -> str:
    """Take one step and print it; its mark. A bundle of any shape gets an answer."""
    try:
        mark, said = "✓", step(bundle)
    except Open as reason:
        mark, said = "·", str(reason)
    except Wrong as error:
        mark, said = "✗", str(error)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        mark, said = "✗", f"malformed: {error!r}"
    print(f"{mark} {name:<15} {shown(said)}")
    return mark


def heads(bundle: Bundle, trusted: str) -> str:
    """The bundle has the head that is known."""
    epoch, size, root = trusted.split(":")
    must(f"the bundle has no head of epoch {epoch}", int(epoch) in bundle.heads)
    same("bundle and trusted head", bundle.heads[int(epoch)], {"size": int(size), "root": root.lower()}, "size", "root")
    if newer := [number for number in bundle.heads if number > int(epoch)]:
        raise Open(f"epochs {newer} are newer than the trusted head")
    return f"epoch {epoch}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check a proofpool bundle with nothing of proofpool.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--submission", metavar="HASH", type=str.lower, help="the id that it has to be about")
    parser.add_argument("--trusted-head", metavar="EPOCH:SIZE:ROOT", help="a log head that you know")
    options = parser.parse_args(arguments)
    head = options.trusted_head
    if head is not None and re.fullmatch(r"[0-9]+:[0-9]+:0x[0-9a-fA-F]{64}", head) is None:
        parser.error("a trusted head is EPOCH:SIZE:ROOT")
    try:
        with options.bundle.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        must("it is too large", len(content) <= MAX_BYTES)
        text = content.decode()
        bundle = Bundle(json.loads(text))
        must("too much beside the file", len(text) - len(bundle.all["file"]) <= MAX_BYTES_BESIDE_FILE)
        must("another schema version than 1", set(re.findall('"schema_version": *([^,}]*)', text)) == {"1"})
    except (OSError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError, Wrong) as error:
        print(f"no bundle that can be read: {shown(repr(error))}", file=sys.stderr)
        return 2
    steps = STEPS if head is None else STEPS | {"heads": lambda found: heads(found, head)}
    marks = {name: take(bundle, name, step) for name, step in steps.items()}
    if options.submission not in (None, bundle.id):
        print(f"✗ this is about {bundle.id}")
        marks["submission"] = "✗"
    print("not checked here: the file's rows, draws, re-audits, the Court's case, claims about the chain")
    if "✗" in marks.values():
        print("failed")
        return 3
    is_anchored = marks.get("heads") == "✓"
    print(f"ok (anchored: head {head}; chain state as claimed)" if is_anchored else "consistent, not anchored")
    return 0


if __name__ == "__main__":
    sys.exit(main())
