"""EIP-712 signing against a second implementation, and what must not verify."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data

from protocol import wire
from protocol.canonical import from_hex0x, hex0x
from protocol.errors import SignatureInvalid
from protocol.signing import HALF_ORDER, Signer, SigningDomain, TypedMessage, checksummed, recover
from protocol.wire import Signed, Submission

ORDER = 2 * HALF_ORDER + 1

MESSAGES: list[TypedMessage] = [
    wire.NodeAuthorization(provider="0x" + "0a" * 20, node="0x" + "0b" * 20, nonce=1, deadline=9),
    wire.Task(
        pool_id=1,
        policy_version=2,
        node="0x" + "0b" * 20,
        counter=3,
        rules_hash="0x" + "0c" * 32,
        beacon_block=4,
        beacon_hash="0x" + "0d" * 32,
        price_wei=10**24,
        max_units=5,
        deadline=6,
    ),
    wire.Submission(
        pool_id=1,
        policy_version=2,
        node="0x" + "0b" * 20,
        counter=3,
        rules_hash="0x" + "0c" * 32,
        content_hash="0x" + "0e" * 32,
    ),
    wire.Renewal(task_id="0x" + "0d" * 32, deadline=9),
    wire.Receipt(submission_id="0x" + "0f" * 32, received_block=7, include_by_epoch=8),
    wire.Verdict(
        submission_id="0x" + "0f" * 32,
        pool_id=1,
        epoch=2,
        round=0,
        seat=3,
        outcome=2,
        reason=65,
        rules_hash="0x" + "0c" * 32,
        evidence_hash="0x" + "1a" * 32,
    ),
    wire.VerdictCommitment(pool_id=1, epoch=2, seat=3, part=0, root="0x" + "1b" * 32),
    wire.Batch(pool_id=1, number=2, step=3, groups_root="0x" + "1c" * 32),
    wire.WeightsRelease(pool_id=1, policy_version=2, manifest_hash="0x" + "1d" * 32),
    wire.ShardListing(pool_id=1, policy_version=2, num_shards=3, shards_hash="0x" + "21" * 32),
    wire.DownloadToken(pool_id=1, holder="0x" + "0b" * 20, expiry=9),
    wire.EarningsAttestation(pool_id=1, epoch=2, root="0x" + "1e" * 32, total_wei=10**30, seat=1),
    wire.EpochAttestation(pool_id=1, epoch=2, size=3, root="0x" + "20" * 32, seat=1),
    wire.HttpRequest(
        method="PUT", host="h:1", path="/v1/x", query="a=1", body_hash="0x" + "1f" * 32, expiry=9, nonce="n"
    ),
]


def second_opinion(message: TypedMessage, domain: SigningDomain) -> tuple[dict[str, object], object]:
    """The same message as eth-account encodes it."""
    name, _, members = message.solidity_type.rstrip(")").partition("(")
    fields = [dict(zip(("type", "name"), member.split(" "), strict=True)) for member in members.split(",")]
    values = dict(zip([f["name"] for f in fields], message.model_dump().values(), strict=True))
    domain_data = {
        "name": "proofpool",
        "version": "1",
        "chainId": domain.chain_id,
        "verifyingContract": domain.contract,
        "salt": domain.salt,
    }
    return values, encode_typed_data(domain_data, {name: fields}, values)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_signatures_equal_those_of_eth_account(message: TypedMessage, domain: SigningDomain) -> None:
    signer = Signer(b"\7" * 32)
    _, encoded = second_opinion(message, domain)
    theirs = Account.sign_message(encoded, b"\7" * 32)
    assert signer.sign(message, domain) == hex0x(theirs.signature)
    assert Account.recover_message(encoded, signature=signer.sign(message, domain)).lower() == signer.address


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_every_field_is_under_the_signature(message: TypedMessage, domain: SigningDomain) -> None:
    digests = {message.digest(domain)}
    for name, value in message:
        other = value + 1 if isinstance(value, int) else value[:-1] + ("0" if value[-1] != "0" else "1")
        digests.add(message.model_copy(update={name: other}).digest(domain))
    assert len(digests) == 1 + len(type(message).model_fields)


def test_a_signature_counts_in_its_own_domain_only(domain: SigningDomain, make_signer: Callable[[int], Signer]) -> None:
    signer = make_signer(1)
    signed = Signed.by(signer, MESSAGES[2], domain)
    assert signed.check(signer.address, domain) == MESSAGES[2]
    for other in (
        SigningDomain(1, domain.contract, domain.salt),
        SigningDomain(domain.chain_id, "0x" + "99" * 20, domain.salt),
        SigningDomain(domain.chain_id, domain.contract, "0x" + "99" * 32),
    ):
        with pytest.raises(SignatureInvalid):
            signed.check(signer.address, other)
    with pytest.raises(SignatureInvalid):
        signed.check(make_signer(2).address, domain)


def test_the_malleable_twin_of_a_signature_is_refused(domain: SigningDomain) -> None:
    raw = from_hex0x(Signer(b"\7" * 32).sign(MESSAGES[0], domain))
    high_s = (ORDER - int.from_bytes(raw[32:64], "big")).to_bytes(32, "big")
    twin = hex0x(raw[:32] + high_s + bytes([55 - raw[64]]))
    with pytest.raises(SignatureInvalid, match="high s"):
        recover(MESSAGES[0].digest(domain), twin)


@pytest.mark.parametrize("signature", ["", "0x", "zz", "0x" + "00" * 65, "0x" + "ff" * 64 + "1b", "0x" + "11" * 64])
def test_garbage_is_no_signature(signature: str, domain: SigningDomain) -> None:
    with pytest.raises(SignatureInvalid):
        recover(MESSAGES[0].digest(domain), signature)


def test_a_signature_has_one_spelling(domain: SigningDomain, make_signer: Callable[[int], Signer]) -> None:
    signer, digest = make_signer(3), MESSAGES[0].digest(domain)
    text = signer.sign_digest(digest)
    assert recover(digest, text) == signer.address
    for other in (text.upper(), text[2:], f"{text[:20]} {text[20:]}", text + "\n", "0x" + text[2:].upper()):
        with pytest.raises(SignatureInvalid):
            recover(digest, other)


def test_a_signed_message_survives_json(domain: SigningDomain, make_signer: Callable[[int], Signer]) -> None:
    signed = Signed.by(make_signer(1), MESSAGES[2], domain)
    assert Signed[Submission].model_validate_json(signed.model_dump_json()) == signed


def test_a_message_with_an_unknown_field_or_type_is_refused() -> None:
    with pytest.raises(ValueError, match="extra"):
        wire.Receipt.model_validate(
            {"submission_id": "0x" + "00" * 32, "received_block": 1, "include_by_epoch": 1, "x": 1}
        )
    with pytest.raises(ValueError, match="int"):
        wire.Receipt.model_validate({"submission_id": "0x" + "00" * 32, "received_block": "1", "include_by_epoch": 1})


def test_addresses_are_spelled_as_in_eip_55() -> None:
    assert checksummed("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed") == "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"


def test_a_signer_never_prints_its_secret() -> None:
    assert "07" * 16 not in repr(Signer(b"\7" * 32))
