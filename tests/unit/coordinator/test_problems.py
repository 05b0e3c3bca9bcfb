"""Every error ends as a problem document: the right status, a code, a hint, and never a traceback."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from coordinator.api import problems
from protocol.errors import ChainError, NotFound, ProofpoolError, Rejected, SignatureInvalid
from protocol.reasons import RejectReason


def test_each_reason_has_a_client_or_retry_status() -> None:
    statuses = {reason: problems.problem_of(Rejected(reason, "x", value="1", threshold="2")) for reason in RejectReason}
    assert all(400 <= problem.status < 600 and problem.hint == reason.hint for reason, problem in statuses.items())
    assert {problem.status for problem in statuses.values()} == {400, 401, 403, 404, 409, 413, 422, 429, 503}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (SignatureInvalid("no", "why"), 401, "signature_invalid"),
        (NotFound("no such task", "0x12"), 404, "not_found"),
        (ChainError("no answer"), 503, "unavailable"),
        (ProofpoolError("odd"), 503, "unavailable"),
        (RuntimeError("a secret path"), 500, "internal"),
    ],
)
def test_errors_have_their_status(error: Exception, status: int, code: str) -> None:
    problem = problems.problem_of(error)
    assert (problem.status, problem.code) == (status, code)
    assert "secret" not in problem.model_dump_json()


def test_a_database_that_cant_grow_is_storage_full(tmp_path: Any) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'small.sqlite'}")
    with pytest.raises(OperationalError) as full, engine.begin() as connection:
        connection.execute(text("PRAGMA max_page_count = 2"))
        connection.execute(text("CREATE TABLE t (x)"))
        connection.execute(text("INSERT INTO t VALUES (zeroblob(100000))"))
    engine.dispose()
    problem = problems.problem_of(full.value)
    assert (problem.status, problem.code) == (503, RejectReason.STORAGE_FULL.value)


def test_a_locked_database_is_no_storage_problem(tmp_path: Any) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'none.sqlite'}")
    with pytest.raises(OperationalError) as missing, engine.begin() as connection:
        connection.execute(text("SELECT * FROM nowhere"))
    engine.dispose()
    assert problems.problem_of(missing.value).code == "internal"


def test_an_unforeseen_error_is_answered_in_one_line(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug at /srv/secret")

    monkeypatch.setattr("coordinator.api.pool.pool_info", fail)
    with site.http() as http:
        answer = http.get("/v1/pool")
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal"
    assert "secret" not in answer.text


def test_unknown_paths_and_methods_are_problems_too(site: Any) -> None:
    with site.http() as http:
        assert http.get("/v1/nothing").json()["code"] == "not_found"
        assert http.patch("/v1/pool").headers["content-type"] == "application/problem+json"
        assert http.get(f"/v1/rules/0x{'00' * 32}").json()["code"] == "not_found"
        assert http.get("/v1/rules/abc").json()["code"] == "schema_invalid"
        wrong_page = http.get("/v1/submissions", params={"limit": 100000})
        assert (wrong_page.status_code, wrong_page.json()["code"]) == (422, "schema_invalid")


def test_json_bodies_have_a_smaller_limit(site: Any) -> None:
    with site.http(site.node) as http:
        small = http.post("/v1/tasks", content=b'{"policy_version":0}', headers={"content-type": "application/json"})
        assert small.status_code == 201
        large = http.post("/v1/tasks", content=bytes(2 << 20), headers={"content-type": "application/json"})
    assert (large.status_code, large.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize("path", ["/v1/submissions", "/v1/epochs", "/v1/batches"])
@pytest.mark.parametrize("after", [2**53, 2**63, 2**64, 10**30, -2])
def test_keys_that_no_row_can_have_are_refused(site: Any, path: str, after: int) -> None:
    with site.http() as http:
        assert http.get(path, params={"after": 2**53 - 1}).json() == []
        answer = http.get(path, params={"after": after})
    assert (answer.status_code, answer.json()["code"]) == (422, "schema_invalid")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[" * 100_000, b'{"a":' * 20_000, b"\xff\xfe", b'{"policy_version":' + b"9" * 5000 + b"}"]
    + [b'{"policy_version":%s}' % value for value in (b"NaN", b"1e400", b"-1", b"0.5", b"[0]", b"9007199254740992")],
)
def test_bodies_that_are_no_request_are_refused_with_a_hint(site: Any, body: bytes) -> None:
    before = site.dump()
    with site.http(site.node) as http:
        answer = http.post("/v1/tasks", content=body, headers={"content-type": "application/json"})
    assert 400 <= answer.status_code < 500
    assert answer.json()["code"] == "schema_invalid"
    assert answer.json()["hint"]
    assert site.dump() == before


def test_nesting_is_refused_whatever_the_interpreter_would_allow(
    site: Any,
) -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)  # as a library of another role in the same process may leave it
    try:
        with site.http(site.node) as http:
            answer = http.post("/v1/tasks", content=b"[" * 100_000, headers={"content-type": "application/json"})
    finally:
        sys.setrecursionlimit(limit)
    assert (answer.status_code, answer.json()["code"]) == (422, "schema_invalid")
    assert "32 levels" in answer.json()["threshold"]


def test_no_path_is_redirected(site: Any) -> None:
    with site.http() as http:
        answer = http.get("/v1/pool/", headers={"host": "elsewhere.test"})
    assert answer.status_code == 404
    assert answer.json()["hint"]


@pytest.mark.parametrize("version", [0, 2])
def test_a_request_of_another_schema_version_is_refused(site: Any, version: int) -> None:
    before = site.dump()
    with site.http(site.node) as http:
        answer = http.post("/v1/tasks", json={"schema_version": version, "policy_version": 0})
        assert (answer.status_code, answer.json()["code"]) == (422, "schema_invalid")
        assert site.dump() == before
        assert http.post("/v1/tasks", json={"schema_version": 1, "policy_version": 0}).status_code == 201


@pytest.mark.parametrize(("reason", "seconds"), [("rate_limited", 1), ("no_demand", 2), ("storage_full", 5)])
def test_what_may_pass_says_when_to_come_again(reason: str, seconds: int) -> None:
    refusal = problems.problem_of(Rejected(RejectReason(reason), "x"))
    assert problems.answer(refusal).headers["retry-after"] == str(seconds)


@pytest.mark.parametrize("reason", [RejectReason.DUPLICATE, RejectReason.SCHEMA_INVALID])
def test_what_will_not_pass_names_no_time(reason: RejectReason) -> None:
    assert "retry-after" not in problems.answer(problems.problem_of(Rejected(reason, "x"))).headers
