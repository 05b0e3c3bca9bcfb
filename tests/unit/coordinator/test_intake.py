"""The door: what fits gets a receipt; whatever doesn't gets a problem document, and nothing has changed."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from protocol.api import Problem
from protocol.canonical import hex0x, sha256
from protocol.errors import Rejected
from protocol.reasons import RejectReason
from protocol.signing import Signer, SigningDomain
from protocol.wire import Receipt, Signed, Submission

STRANGER = Signer((99).to_bytes(32, "big"))


def check_refused(site: Any, answer: httpx.Response, reason: RejectReason) -> Problem:
    """A problem document with this reason and its hint, and no traceback; and the server goes on."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = Problem.model_validate_json(answer.content)
    assert (problem.code, problem.hint) == (reason.value, reason.hint), problem
    assert problem.status == answer.status_code >= 400
    assert "Traceback" not in answer.text
    assert site.client().pool().pool_id == 1
    return problem


def test_a_submission_gets_a_receipt_signed_by_the_coordinator(site: Any) -> None:
    envelope, submission_id, file = site.pack(site.lease().message)
    receipt = site.client(site.node).submit(envelope, submission_id, file)
    message = receipt.check(site.coordinator.signer.address, site.domain)
    assert message == Receipt(submission_id=submission_id, received_block=1, include_by_epoch=0)
    view = site.client().submission(submission_id)
    assert (view.standing, view.num_rollouts) == ("received", 4)
    assert site.client().submission_file(submission_id) == file


def test_the_same_submission_again_gets_the_same_receipt(site: Any) -> None:
    envelope, submission_id, file = site.pack(site.lease().message)
    first = site.client(site.node).submit(envelope, submission_id, file)
    before = site.dump()
    site.mine(1000)  # even long after the deadline
    site.close_epoch()
    after_epoch = site.dump()
    assert site.client(site.node).submit(envelope, submission_id, file) == first
    assert site.dump() == after_epoch != before


def test_another_encoding_of_the_same_content_is_the_same_submission(site: Any) -> None:
    task = site.lease().message
    rollouts = site.rollouts(task)
    first, other = site.pack(task, rollouts), site.pack(task, rollouts)
    assert first[1] == other[1]


@pytest.mark.parametrize("cut", [0, 1, 10, 1000])
def test_a_truncated_file_is_refused(site: Any, cut: int) -> None:
    envelope, submission_id, file = site.pack(site.lease().message)
    before = site.dump()
    short = file[: len(file) - cut] if cut else b""
    check_refused(site, site.put(envelope, submission_id, short), RejectReason.FILE_MISMATCH)
    honest_about_it = envelope.model_copy(update={"num_bytes": len(short), "file_sha256": hex0x(sha256(short))})
    check_refused(site, site.put(honest_about_it, submission_id, short), RejectReason.SCHEMA_INVALID)
    assert site.dump() == before


def test_an_oversized_file_is_refused(site: Any) -> None:
    envelope, submission_id, file = site.pack(site.lease().message)
    before = site.dump()
    big = file + bytes(site.rules.max_file_bytes)
    problem = check_refused(site, site.put(envelope, submission_id, big), RejectReason.TOO_LARGE)
    assert problem.threshold == str(site.rules.max_file_bytes)
    huge = bytes(site.coordinator.config.max_upload_bytes + 1)
    assert site.put(envelope, submission_id, huge).status_code == 413
    assert site.dump() == before


def test_wrongly_typed_uploads_are_refused(site: Any) -> None:
    envelope, submission_id, _ = site.pack(site.lease().message)
    before = site.dump()
    for junk in (b"{}", b"PAR1" * 40, os.urandom(300), b"\x00"):
        signed = envelope.model_copy(update={"num_bytes": len(junk), "file_sha256": hex0x(sha256(junk))})
        check_refused(site, site.put(signed, submission_id, junk), RejectReason.SCHEMA_INVALID)
    with site.http(site.node) as http:
        for value in (None, b"%%%", b"e30=", b"\xc3\xa9", b"\xff" * 9):
            headers = {} if value is None else {b"Proofpool-Submission": value}
            answer = http.put(f"/v1/submissions/{submission_id}", content=b"x", headers=headers)
            check_refused(site, answer, RejectReason.SCHEMA_INVALID)
        check_refused(site, http.put("/v1/submissions/0x12", content=b"x"), RejectReason.SCHEMA_INVALID)
    assert site.dump() == before


def test_an_upload_signed_by_somebody_else_is_refused(site: Any) -> None:
    task = site.lease().message
    before = site.dump()
    resigned, submission_id, file = site.pack(task, node=STRANGER)
    check_refused(site, site.put(resigned, submission_id, file), RejectReason.SIGNATURE_INVALID)
    check_refused(site, site.put(resigned, submission_id, file, STRANGER), RejectReason.FILE_MISMATCH)
    envelope, submission_id, file = site.pack(task)
    check_refused(site, site.put(envelope, submission_id, file, STRANGER), RejectReason.SIGNATURE_INVALID)
    with site.http() as http:
        unsigned = http.put(f"/v1/submissions/{submission_id}", headers={"Proofpool-Submission": "e30="})
    check_refused(site, unsigned, RejectReason.SIGNATURE_INVALID)
    assert site.dump() == before


@pytest.mark.parametrize("change", [{"chain_id": 1}, {"salt": "0x" + "33" * 32}, {"contract": "0x" + "44" * 20}])
def test_a_submission_for_another_chain_or_deployment_is_refused(site: Any, change: dict[str, Any]) -> None:
    task = site.lease().message
    envelope, submission_id, file = site.pack(task)
    elsewhere = SigningDomain(
        **({"chain_id": 31337, "contract": site.domain.contract, "salt": site.domain.salt} | change)
    )
    foreign = Signed[Submission].by(site.node, envelope.submission.message, elsewhere)
    before = site.dump()
    wrong = envelope.model_copy(update={"submission": foreign})
    check_refused(site, site.put(wrong, submission_id, file), RejectReason.SIGNATURE_INVALID)
    with site.http(site.node, elsewhere) as http:
        answer = http.put(f"/v1/submissions/{submission_id}", content=file, headers={"Proofpool-Submission": "e30="})
    check_refused(site, answer, RejectReason.SIGNATURE_INVALID)
    assert site.dump() == before


def test_another_id_than_the_signed_one_is_refused(site: Any) -> None:
    envelope, _, file = site.pack(site.lease().message)
    before = site.dump()
    check_refused(site, site.put(envelope, "0x" + "ab" * 32, file), RejectReason.FILE_MISMATCH)
    assert site.dump() == before


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"counter": 5}, RejectReason.LEASE_UNKNOWN),
        ({"policy_version": 1}, RejectReason.LEASE_UNKNOWN),
        ({"pool_id": 2}, RejectReason.LEASE_UNKNOWN),
        ({"rules_hash": "0x" + "77" * 32}, RejectReason.RULES_CHANGED),
        ({"content_hash": "0x" + "77" * 32}, RejectReason.FILE_MISMATCH),
    ],
)
def test_a_submission_for_no_leased_task_is_refused(site: Any, changes: dict[str, Any], reason: RejectReason) -> None:
    envelope, submission_id, file = site.pack(site.lease().message, **changes)
    before = site.dump()
    check_refused(site, site.put(envelope, submission_id, file), reason)
    assert site.dump() == before


def test_a_file_after_the_deadline_is_refused(site: Any) -> None:
    task = site.lease().message
    envelope, submission_id, file = site.pack(task)
    site.mine(61)
    before = site.dump()
    problem = check_refused(site, site.put(envelope, submission_id, file), RejectReason.LEASE_EXPIRED)
    assert int(problem.value) == int(problem.threshold) + 1
    assert site.dump() == before


def test_a_second_submission_for_one_lease_is_refused(site: Any) -> None:
    leased = site.lease()
    site.submit(leased)
    before = site.dump()
    envelope, submission_id, file = site.pack(leased.message)
    check_refused(site, site.put(envelope, submission_id, file), RejectReason.LEASE_UNKNOWN)
    assert site.dump() == before


def test_a_node_that_lost_its_allotment_cant_hand_in(site: Any) -> None:
    envelope, submission_id, file = site.pack(site.lease().message)
    site.add_node(site.node.address, "0x" + "01" * 20, allotment_wei=99)
    problem = check_refused(site, site.put(envelope, submission_id, file), RejectReason.UNDERSTAKED)
    assert (problem.value, problem.threshold) == ("99", "100")


def test_the_same_rows_for_another_task_are_refused(site: Any) -> None:
    task = site.lease().message
    rollouts = site.rollouts(task)
    envelope, submission_id, file = site.pack(task, rollouts)
    site.client(site.node).submit(envelope, submission_id, file)
    again = site.lease().message
    envelope, submission_id, file = site.pack(again, rollouts)
    before = site.dump()
    check_refused(site, site.put(envelope, submission_id, file), RejectReason.DUPLICATE)
    assert site.dump() == before


def test_a_full_disk_is_a_problem_that_passes(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    envelope, submission_id, file = site.pack(site.lease().message)
    before = site.dump()
    with monkeypatch.context() as full:

        def no_space(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(os, "fsync", no_space)
        answer = site.put(envelope, submission_id, file)
        check_refused(site, answer, RejectReason.STORAGE_FULL)
        assert answer.headers["retry-after"] == "5"
    assert site.dump() == before
    assert not [path for path in (site.coordinator.config.data_dir / "blobs").rglob("*") if path.is_file()]
    assert site.client(site.node).submit(envelope, submission_id, file).message.submission_id == submission_id


def row(change: Callable[[Any], Any], index: int = 1) -> Callable[[list[Any]], list[Any]]:
    """Change one rollout of a file."""

    def apply(rollouts: list[Any]) -> list[Any]:
        return [change(r) if i == index else r for i, r in enumerate(rollouts)]

    return apply


def replace(**changes: Any) -> Callable[[list[Any]], list[Any]]:
    return row(lambda r: dataclasses.replace(r, **changes))


def too_long(rollout: Any) -> Any:
    tokens = np.ones(41, dtype=np.int32)
    logprobs = -np.ones(41, dtype=np.float32)
    return dataclasses.replace(rollout, output_tokens=tokens, output_logprobs=logprobs, proofs=rollout.proofs[:258] * 2)


CONTENT = {
    "a row too few": (lambda rows: rows[:-1], RejectReason.SCHEMA_INVALID),
    "a row too many": (lambda rows: [*rows, rows[-1]], RejectReason.SCHEMA_INVALID),
    "groups that aren't contiguous": (lambda rows: [rows[0], rows[2], rows[1], rows[3]], RejectReason.SCHEMA_INVALID),
    "another problem in a group": (replace(problem_id="another"), RejectReason.SCHEMA_INVALID),
    "no prompt": (replace(input_tokens=np.zeros(0, dtype=np.int32)), RejectReason.SCHEMA_INVALID),
    "an unknown finish reason": (replace(finish_reason="tired"), RejectReason.SCHEMA_INVALID),
    "a reward that isn't a number": (replace(task_reward=float("nan")), RejectReason.SCHEMA_INVALID),
    "another policy version": (replace(step=1), RejectReason.FILE_MISMATCH),
    "too long a completion": (row(too_long), RejectReason.VALUE_OUT_OF_BOUNDS),
    "a negative token": (
        row(lambda r: dataclasses.replace(r, output_tokens=r.output_tokens - 1000)),
        RejectReason.VALUE_OUT_OF_BOUNDS,
    ),
    "a log-prob above 0": (
        row(lambda r: dataclasses.replace(r, output_logprobs=r.output_logprobs + 2)),
        RejectReason.VALUE_OUT_OF_BOUNDS,
    ),
    "no proof": (replace(proofs=b""), RejectReason.PROOF_MALFORMED),
    "a proof of random bytes": (replace(proofs=np.random.default_rng(1).bytes(101)), RejectReason.PROOF_MALFORMED),
    "a proof with an impossible coefficient": (
        row(lambda r: dataclasses.replace(r, proofs=r.proofs[:-2] + b"\xff\xff")),
        RejectReason.PROOF_MALFORMED,
    ),
    "a null proof": (row(lambda r: dataclasses.replace(r, proofs=bytes(len(r.proofs)))), RejectReason.PROOF_MALFORMED),
    "a proof too many": (
        row(lambda r: dataclasses.replace(r, proofs=r.proofs + r.proofs[:258])),
        RejectReason.PROOF_MALFORMED,
    ),
}


@pytest.mark.parametrize("name", CONTENT)
def test_content_that_doesnt_fit_its_task_is_refused(site: Any, name: str) -> None:
    change, reason = CONTENT[name]
    task = site.lease().message
    envelope, submission_id, file = site.pack(task, change(site.rollouts(task)))
    before = site.dump()
    check_refused(site, site.put(envelope, submission_id, file), reason)
    assert site.dump() == before


def test_a_short_canonical_proof_gets_in_to_be_judged(site: Any) -> None:
    """The constant 4-byte proof is a signed forgery: only a verdict can punish it."""
    task = site.lease().message
    rollouts = [dataclasses.replace(r, proofs=b"\xff\xd9\x00\x2a" * -(-r.num_units // 32)) for r in site.rollouts(task)]
    envelope, submission_id, file = site.pack(task, rollouts)
    assert site.client(site.node).submit(envelope, submission_id, file)


def test_a_file_whose_header_names_another_task_is_refused(site: Any) -> None:
    task = site.lease().message
    before = site.dump()
    for change, reason in (
        ({"task_id": "0x" + "12" * 32}, RejectReason.FILE_MISMATCH),
        ({"group_size": 3}, RejectReason.RULES_CHANGED),
        ({"sampling": site.rules.sampling.model_copy(update={"temperature": 0.5})}, RejectReason.RULES_CHANGED),
    ):
        envelope, submission_id, file = site.pack(task, header=site.header(task, **change))
        check_refused(site, site.put(envelope, submission_id, file), reason)
    assert site.dump() == before


def test_the_client_raises_what_the_server_refuses(site: Any) -> None:
    envelope, _, file = site.pack(site.lease().message)
    with pytest.raises(Rejected) as refusal:
        site.client(site.node).submit(envelope, "0x" + "ab" * 32, file)
    assert refusal.value.reason is RejectReason.FILE_MISMATCH
