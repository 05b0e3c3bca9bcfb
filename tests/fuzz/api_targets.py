"""Targets: requests to a coordinator. Whatever comes in is answered, and never with an error of the coordinator's own.

The paths, their parameters and bodies come from the API's own schema (docs/openapi.json is made of the same), so that
a new endpoint is fuzzed as soon as it is there.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

import httpx

from coordinator.api.app import create_app
from protocol.api import SubmissionEnvelope
from protocol.canonical import hex0x, sha256
from protocol.client import ENVELOPE_HEADER
from protocol.signing import Signer
from tests.fuzz.example import ADDRESS, HASH, value_of
from tests.fuzz.site import site
from tests.fuzz.target import Choices, Target

NUMBERS = (
    b"0",
    b"1",
    b"-1",
    b"9007199254740991",
    b"9007199254740992",
    b"1e3",
    b"99999999999999999999",
    b"NaN",
    b"\xff",
)
STRANGER = Signer((99).to_bytes(32, "big"))


@cache
def endpoints() -> list[tuple[str, str, dict[str, Any]]]:
    """(method, path, operation) of the whole API."""
    paths = create_app(None).openapi()["paths"]
    return [(method, path, operation) for path, item in paths.items() for method, operation in item.items()]


@cache
def bodies() -> dict[str, bytes]:
    """A well-formed JSON body for each operation that takes one."""
    schema = create_app(None).openapi()
    known = schema["components"]["schemas"]
    found = {}
    for _, _, operation in endpoints():
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is not None:
            found[operation["operationId"]] = json.dumps(value_of(content["schema"], known)).encode()
    return found


def ask_api(data: bytes) -> None:
    """A request made of decisions; the rest of the input is the body."""
    choices = Choices(data)
    method, path, operation = choices.pick(endpoints())
    signer = choices.pick((None, site().node, site().trainer, site().validators[0], STRANGER))
    url = _path(path, choices)
    query = b"&".join(_pair(parameter, choices) for parameter in operation.get("parameters", ()) if choices.flag())
    headers = _headers(choices)
    body = choices.rest()
    with site().http(signer) as http:
        try:
            target = httpx.URL(f"http://coordinator.test{url}", query=query or None)
            answer = http.request(method.upper(), target, content=body, headers=headers)
        except (httpx.InvalidURL, UnicodeError, ValueError):
            return
    _check(answer)


def _check(answer: httpx.Response) -> None:
    """A success, or a problem document that says whose fault it is."""
    assert answer.status_code != 500, f"{answer.request.method} {answer.request.url}"
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json", answer.text
        assert answer.json()["status"] == answer.status_code and answer.json()["code"] != "internal"


def _path(path: str, choices: Choices) -> str:
    """The path with something in place of each {name}."""
    known = (*_ids(), HASH, ADDRESS, "0", "1", "2", "-1", "9007199254740992", "%00", "..%2f", "\u00e9", "x" * 300)
    while "{" in path:
        start, _, end = path.partition("{")
        path = start + choices.pick(known) + end.partition("}")[2]
    return path


@cache
def _ids() -> tuple[str, ...]:
    return tuple(view.submission_id for view in site().client().submissions()) + (site().rules.rules_hash,)


def _pair(parameter: dict[str, Any], choices: Choices) -> bytes:
    value = choices.pick((*NUMBERS, HASH.encode(), ADDRESS.encode(), b"accepted", b"", choices.bytes(30)))
    return parameter["name"].encode() + b"=" + value.replace(b"#", b"%23").replace(b" ", b"+")


def _headers(choices: Choices) -> list[tuple[bytes, bytes]]:
    kinds = (b"application/json", b"text/plain", b"multipart/form-data", b"application/x-www-form-urlencoded")
    found = [(b"content-type", choices.pick((*kinds, b"application/json; charset=\xff")))]
    if choices.flag():
        envelope = choices.pick((b"", b"!!", b"W10", base64.urlsafe_b64encode(choices.bytes(200))))
        found.append((ENVELOPE_HEADER.encode(), envelope))
    if choices.below(4) == 1:
        found.append(
            (choices.pick((b"if-none-match", b"authorization", b"range", b"host", b"accept")), choices.bytes(40))
        )
    return [(name, value.replace(b"\r", b"").replace(b"\n", b"")) for name, value in found]


def hand_in(data: bytes) -> None:
    """The upload of a leased task: envelope, header or file are the input's, as its first byte says."""
    choices = Choices(data)
    envelope, file = _upload()
    part, rest = choices.below(3), choices.rest()
    content = rest if part == 2 else file
    named = {"file_sha256": hex0x(sha256(content)), "num_bytes": len(content)}
    text = rest if part == 0 else envelope.model_copy(update=named).model_dump_json().encode()
    header = rest.replace(b"\r", b"").replace(b"\n", b"") if part == 1 else base64.urlsafe_b64encode(text)
    submission_id = envelope.submission.message.id(site().domain)
    with site().http(site().node) as http:
        answer = http.put(
            f"/v1/submissions/{submission_id}", content=content, headers=[(ENVELOPE_HEADER.encode(), header)]
        )
    _check(answer)
    assert answer.status_code >= 400, "a file that nobody signed was taken in"


@cache
def _upload() -> tuple[SubmissionEnvelope, bytes]:
    """An envelope that is signed over other content than its file has: whatever comes with it has to be refused."""
    task = site().client(site().node).open_tasks()[0].message
    envelope, _, file = site().pack(task, content_hash=HASH)
    return envelope, file


def _api_seeds() -> list[bytes]:
    seeds = []
    for number, (_, path, operation) in enumerate(endpoints()):
        choices = bytes([number, 1 + number % 3]) + bytes(path.count("{") + len(operation.get("parameters", ())))
        seeds.append(choices + bytes(3) + bodies().get(operation["operationId"], b""))
    return seeds


def _upload_seeds() -> list[bytes]:
    envelope, file = _upload()
    text = envelope.model_dump_json().encode()
    return [b"\0" + text, b"\1" + base64.urlsafe_b64encode(text), b"\2" + file]


API_TARGETS = (
    Target("api", ask_api, (), _api_seeds),
    Target("upload", hand_in, (), _upload_seeds),
)
