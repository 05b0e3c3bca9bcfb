"""What the roles say to a coordinator: one method an endpoint, typed both ways.

In: a base URL, a signer (or none, for reading) and the signing domain. Out: `protocol/api.py` shapes.
A problem document becomes `Rejected`; silence and nonsense become `CoordinatorUnreachable`. Retrying is the
caller's plan, not this module's: every call is idempotent.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from protocol import api
from protocol.bundle import ProofBundle
from protocol.errors import (
    ConfigError,
    CoordinatorUnreachable,
    NotFound,
    ProofpoolError,
    Rejected,
    UsageError,
    VerificationFailed,
)
from protocol.patience import impatient
from protocol.reasons import RejectReason
from protocol.rules import Rules
from protocol.tls import trusted_for
from protocol.trace import Trace
from protocol.unfolding import check_unfolding
from protocol.wire import EarningsAttestation, Receipt, Renewal, Signed, Task, VerdictCommitment, WeightsRelease

ENVELOPE_HEADER = "Proofpool-Submission"
PARQUET = "application/vnd.apache.parquet"
MAX_ANSWER_BYTES = 64 << 20
"""Of a document: a page of the log has a few megabytes, a statement of earnings a hundred bytes an account."""
MAX_FILE_BYTES = 256 << 20
"""Of a rollout file, sixteen times what a coordinator takes unless it is told otherwise."""
MAX_BATCH_BYTES = 4 << 30
MAX_NOTE_BYTES = 64 << 10
UNUSABLE = "the coordinator's answer can't be used"
"""What an error says of one that speaks another version, or is no coordinator."""
MOST_RETRY_AFTER_SECONDS = 300.0
"""A coordinator that asks for more is asked again all the same: it may have recovered, or lie."""
MAX_DIGITS = 10

T = TypeVar("T", bound=BaseModel)
A = TypeVar("A")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def base_url(text: str) -> str:
    """Where a coordinator's endpoints are, without the one that a browser was pointed at. Raises UsageError.

    >>> base_url("http://127.0.0.1:8700/v1/pool")
    'http://127.0.0.1:8700'
    """
    if _SCHEME.match(text) is None:
        raise UsageError(
            "that is no coordinator's URL", f"{text!r} has no scheme", f"put http:// in front: http://{text}"
        )
    return re.sub(r"/v1(/pool)?$", "", text.rstrip("/"))


class CoordinatorClient:
    """A connection to one coordinator. `auth` signs requests (`protocol.http.RequestSigner`)."""

    def __init__(
        self,
        url: str,
        auth: httpx.Auth | None = None,
        *,
        timeout_seconds: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        # An encoded body could unfold without bound.
        headers, url = {"Accept-Encoding": "identity"}, base_url(url)
        verify = trusted_for(url)
        try:
            self._http = impatient(
                httpx.Client(
                    base_url=url,
                    auth=auth,
                    timeout=timeout_seconds,
                    transport=transport,
                    headers=headers,
                    verify=verify,
                )
            )
        except (httpx.InvalidURL, UnicodeError) as error:
            todo = "it is like http://127.0.0.1:8700"
            raise UsageError("that is no coordinator's URL", f"{url!r}: {error}", todo) from error

    @property
    def url(self) -> str:
        return str(self._http.base_url).rstrip("/")

    def close(self) -> None:
        self._http.close()

    def pool(self) -> api.PoolInfo:
        return self._get(api.PoolInfo, "/v1/pool")

    def configured_pool(self, pool_id: int, ledger: str | None = None) -> api.PoolInfo:
        """The pool, if it is the one that a configuration names. Raises ConfigError."""
        pool = self.pool()
        if pool.pool_id != pool_id:
            raise ConfigError(
                "the coordinator serves another pool",
                f"pool {pool.pool_id} at {self.url}, configured is {pool_id}",
                "set `pool_id`, or the address of that pool's coordinator",
            )
        if ledger is not None and pool.contracts.ledger != ledger:
            raise ConfigError(
                "the coordinator serves another deployment",
                f"Ledger {pool.contracts.ledger}, configured is {ledger}",
                "set `ledger`, or the address of that deployment's coordinator",
            )
        return pool

    def rules(self, rules_hash: str) -> Rules:
        """The rules document. Raises VerificationFailed where its hash is another: nobody is trusted with it."""
        rules = self._get(Rules, f"/v1/rules/{rules_hash}")
        if rules.rules_hash != rules_hash:
            raise VerificationFailed("the coordinator served other rules", f"{rules.rules_hash}, not {rules_hash}")
        return rules

    def lease(self, policy_version: int) -> Signed[Task]:
        body = api.TaskRequest(policy_version=policy_version)
        return _read(Signed[Task], self._send("POST", "/v1/tasks", body))

    def open_tasks(self) -> list[Signed[Task]]:
        """The leases that the calling node holds, oldest first: `lease` isn't idempotent, its answer may get lost."""
        return self._list(Signed[Task], "/v1/tasks")

    def task(self, task_id: str) -> api.TaskView:
        """Any node's. Raises NotFound."""
        return self._get(api.TaskView, f"/v1/tasks/{task_id}")

    def renew_task(self, task_id: str, deadline: int) -> Signed[Renewal]:
        """A later deadline than this one, which the node knows. Raises Rejected where there is none."""
        answer = self._send("POST", f"/v1/tasks/{task_id}/renewal", api.RenewalRequest(deadline=deadline))
        return _read(Signed[Renewal], answer)

    def return_task(self, task_id: str) -> None:
        """Hand a lease back that won't be used."""
        self._request("DELETE", f"/v1/tasks/{task_id}")

    def submit(self, envelope: api.SubmissionEnvelope, submission_id: str, file: bytes) -> Signed[Receipt]:
        """Hand in a file; without one (empty bytes), the one that was sent in pieces."""
        answer = self._put(f"/v1/submissions/{submission_id}", envelope, file)
        return _read(Signed[Receipt], answer)

    def send_piece(self, envelope: api.SubmissionEnvelope, submission_id: str, offset: int, piece: bytes) -> int:
        """Send a piece of a file; how much of the file is there, whether or not this piece went on from there."""
        path = f"/v1/submissions/{submission_id}/pieces"
        return _read(api.UploadState, self._put(path, envelope, piece, params={"offset": offset})).num_bytes

    def submission(self, submission_id: str) -> api.SubmissionView:
        return self._get(api.SubmissionView, f"/v1/submissions/{submission_id}")

    def submission_file(self, submission_id: str) -> bytes:
        return self._request("GET", f"/v1/submissions/{submission_id}/file", most_bytes=MAX_FILE_BYTES).content

    def submissions(self, after: int = -1, limit: int = 100, **filters: str) -> list[api.SubmissionView]:
        """A page in the order of arrival, past log index `after`; filters: node, standing."""
        return self._list(api.SubmissionView, "/v1/submissions", after=after, limit=limit, **filters)

    def case(self, submission_id: str) -> api.CaseFile:
        return self._get(api.CaseFile, f"/v1/submissions/{submission_id}/case")

    def assignments(self, validator: str) -> list[api.Assignment]:
        return self._list(api.Assignment, "/v1/assignments", validator=validator)

    def commit_verdicts(self, commitment: Signed[VerdictCommitment]) -> None:
        self._send("POST", "/v1/commitments", commitment)

    def reveal_verdict(self, reveal: api.VerdictReveal) -> None:
        self._send("POST", "/v1/verdicts", reveal)

    def lease_batch(self, step: int) -> api.BatchOffer | None:
        """The batch for optimizer step `step`, or None while there aren't enough accepted groups."""
        answer = self._request("POST", "/v1/batches", params={"step": step})
        return None if answer.status_code == httpx.codes.NO_CONTENT else _read(api.BatchOffer, answer)

    def batch_file(self, number: int) -> bytes:
        return self._request("GET", f"/v1/batches/{number}/file", most_bytes=MAX_BATCH_BYTES).content

    def acknowledge_batch(self, number: int) -> None:
        """The step is durably taken: the groups are consumed."""
        self._request("POST", f"/v1/batches/{number}/acknowledgement")

    def refuse_batch(self, number: int, refusal: api.BatchRefusal) -> None:
        """The batch can't be trained on: all but the named submission's groups are pending again."""
        self._send("POST", f"/v1/batches/{number}/refusal", refusal)

    def announce_weights(self, release: Signed[WeightsRelease]) -> None:
        self._send("POST", "/v1/weights", release)

    def weights(self, policy_version: int) -> api.WeightsView:
        return self._get(api.WeightsView, f"/v1/weights/{policy_version}")

    def version_spreads(self, limit: int = 5) -> list[api.VersionSpread]:
        """Of the newest versions, newest first."""
        return self._list(api.VersionSpread, "/v1/weights", limit=limit)

    def newest_earnings(self) -> api.EarningsStatement | None:
        """The newest statement, on chain or waiting for attestations; None before the first."""
        answer = self._request("GET", "/v1/earnings")
        none_yet = answer.status_code == httpx.codes.NO_CONTENT
        return None if none_yet else _read(api.EarningsStatement, answer)

    def earnings(self, epoch: int) -> api.EarningsStatement:
        return self._get(api.EarningsStatement, f"/v1/earnings/{epoch}")

    def attest_earnings(self, attestation: Signed[EarningsAttestation]) -> None:
        self._send("POST", "/v1/attestations", attestation)

    def epochs(self, after: int = -1) -> list[api.EpochView]:
        return self._list(api.EpochView, "/v1/epochs", after=after)

    def inclusion(self, index: int) -> api.InclusionProof:
        return self._get(api.InclusionProof, f"/v1/log/inclusion/{index}")

    def consistency(self, old_epoch: int, new_epoch: int) -> api.ConsistencyProof:
        return self._get(api.ConsistencyProof, "/v1/log/consistency", old_epoch=old_epoch, new_epoch=new_epoch)

    def trace(self, subject: str) -> Trace:
        """Of a submission, its task, or anything that the log has leaves about. Raises NotFound."""
        return self._get(Trace, f"/v1/trace/{subject}")

    def bundle(self, submission_id: str, size: int | None = None) -> ProofBundle:
        """What leads to the newest head, or to the one of `size` leaves. Raises NotFound."""
        asked = {} if size is None else {"size": size}
        return self._get(ProofBundle, f"/v1/submissions/{submission_id}/bundle", **asked)

    def status(self) -> api.Status:
        return self._get(api.Status, "/v1/status")

    def checkpoint(self, epoch: int | None = None) -> str:
        """The signed note of an epoch, or the newest. Raises NotFound."""
        path = "/v1/checkpoint" if epoch is None else f"/v1/checkpoints/{epoch}"
        return _text(self._request("GET", path, most_bytes=MAX_NOTE_BYTES))

    def entries(
        self, start: int, limit: int = 1000, *, subject: str | None = None, event_type: str | None = None
    ) -> list[api.LogEntry]:
        """Leaves from number `start` on; of one `subject` or `event_type` where these are given."""
        asked = {"subject": subject, "type": event_type}
        filters = {name: value for name, value in asked.items() if value is not None}
        return self._list(api.LogEntry, "/v1/log/entries", start=start, limit=limit, **filters)

    def all_entries(self, start: int = 0) -> Iterator[api.LogEntry]:
        while page := self.entries(start):
            yield from page
            start = page[-1].index + 1

    def _get(self, shape: type[T], path: str, **params: Any) -> T:
        return _read(shape, self._request("GET", path, params=params))

    def _list(self, shape: type[T], path: str, **params: Any) -> list[T]:
        return _read(list[shape], self._request("GET", path, params=params))  # type: ignore[valid-type]

    def _send(self, method: str, path: str, body: BaseModel) -> httpx.Response:
        return self._request(
            method, path, content=body.model_dump_json().encode(), headers={"Content-Type": "application/json"}
        )

    def _put(self, path: str, envelope: api.SubmissionEnvelope, body: bytes, **options: Any) -> httpx.Response:
        header = base64.urlsafe_b64encode(envelope.model_dump_json().encode()).decode()
        return self._request(
            "PUT", path, content=body, headers={ENVELOPE_HEADER: header, "Content-Type": PARQUET}, **options
        )

    def _request(self, method: str, path: str, *, most_bytes: int = MAX_ANSWER_BYTES, **options: Any) -> httpx.Response:
        try:
            with self._http.stream(method, path, **options) as streamed:
                answer = _bounded(streamed, most_bytes)
        except httpx.RequestError as error:
            why = f"{method} {self.url}{path}: {str(error) or type(error).__name__}"
            todo = "is it running there? `--coordinator` or `coordinator_url` says where it is"
            raise CoordinatorUnreachable("the coordinator doesn't answer", why, todo) from error
        if answer.is_success:
            return answer
        refusal = _problem(answer)
        refusal.retry_after_seconds = _retry_after_seconds(answer)
        raise refusal


def _bounded(streamed: httpx.Response, most_bytes: int) -> httpx.Response:
    """The whole answer, if it is short enough. Raises CoordinatorUnreachable before more is in memory."""
    request = streamed.request
    if (encoding := streamed.headers.get("content-encoding", "identity")) != "identity":
        raise _useless(request, f"its body is encoded as {encoding:.40}")
    body = bytearray()
    for chunk in streamed.iter_bytes():
        body += chunk
        if len(body) > most_bytes:
            raise _useless(request, f"it is longer than {most_bytes} bytes")
    # As bytes: a header that is no ASCII text couldn't be made anew.
    kept = [(name, value) for name, value in streamed.headers.raw if name.lower() != b"transfer-encoding"]
    return httpx.Response(streamed.status_code, headers=kept, content=bytes(body), request=request)


def _useless(request: httpx.Request, why: str) -> CoordinatorUnreachable:
    return CoordinatorUnreachable(UNUSABLE, f"{request.method} {request.url}: {why}", "are both of one version?")


def _read(shape: type[A], answer: httpx.Response) -> A:
    """The answer's body. A coordinator that says something else is as good as one that doesn't answer."""
    try:
        check_unfolding(answer.content)
        return TypeAdapter(shape).validate_json(answer.content)
    except ValidationError as error:
        first = error.errors()[0]
        raise _useless(answer.request, f"{first['msg']} at {first['loc']}") from error
    except ValueError as error:
        raise _useless(answer.request, str(error)) from error


def _text(answer: httpx.Response) -> str:
    """Always as UTF-8: an encoding that the answer names may be one that unfolds, or makes no text at all."""
    return answer.content.decode(errors="replace")


def _retry_after_seconds(answer: httpx.Response) -> float:
    """What the answer's Retry-After asks for (RFC 9110, 10.2.3, in its form of whole seconds), within reason."""
    asked = answer.headers.get("retry-after", "")
    is_number = asked.isascii() and asked.isdigit() and len(asked) < MAX_DIGITS
    return min(float(asked), MOST_RETRY_AFTER_SECONDS) if is_number else 0.0


def _problem(answer: httpx.Response) -> ProofpoolError:
    """The error that a refusal stands for."""
    try:
        check_unfolding(answer.content)
        problem = api.Problem.model_validate_json(answer.content)
        if problem.code == "not_found":
            return NotFound("the coordinator has no such object", problem.detail, problem.hint)
        reason = RejectReason(problem.code)
    except ValueError:
        why = f"{answer.request.method} {answer.request.url}: HTTP {answer.status_code} {_text(answer)[:200]}".rstrip()
        todo = (
            "is that a coordinator's address? `--coordinator` or `coordinator_url` names it; if it is, look at its log"
        )
        return CoordinatorUnreachable("the coordinator failed", why, todo)
    return Rejected(reason, problem.detail, value=problem.value, threshold=problem.threshold)
