"""Targets: rollout files and all that is in them (parquet's metadata, TOPLOC proofs, completions to be scored)."""

from __future__ import annotations

from functools import cache

import numpy as np

from protocol.environments.base import Environment
from protocol.errors import MalformedFile, MalformedProof
from protocol.rollouts import content_hash, read_header, read_rollouts, write_rollouts
from protocol.thrift import read_struct
from protocol.tokenizer import Tokenizer
from protocol.toploc.build import build_proofs_bytes
from protocol.toploc.encoding import parse_proofs
from protocol.toploc.proof import ProofPoly
from protocol.toploc.verify import verify_proofs_base64, verify_proofs_bytes
from testnet.task import testnet_environment
from tests.fuzz.parquet_mutation import mutated_parquet
from tests.fuzz.target import Choices, Target
from tests.unit.rollout_rows import HEADER, make_rollout
from tests.unit.verifier.verifier_world import BASE_MODEL

MAX_ROWS, MAX_TOKENS = 16, 64
NUM_HIDDEN = 128


@cache
def honest_files() -> tuple[bytes, ...]:
    shapes = ((1, 1), (4, 40), (16, 3))
    return tuple(write_rollouts(HEADER, [make_rollout(n, t) for n in range(rows)]) for rows, t in shapes)


def read_file(data: bytes) -> None:
    """What is read has one digest, and reads the same when it is written again."""
    header, rollouts = read_rollouts(data, max_rows=MAX_ROWS, max_tokens=MAX_TOKENS)
    assert read_header(data) == header
    again = read_rollouts(write_rollouts(header, rollouts), max_rows=MAX_ROWS, max_tokens=MAX_TOKENS)
    assert content_hash(header, rollouts) == content_hash(*again)


def read_structured_file(data: bytes) -> None:
    """An honest file whose metadata, pages and columns the input changes."""
    choices = Choices(data)
    read_file(mutated_parquet(choices.pick(honest_files()), choices))


def read_metadata(data: bytes) -> None:
    _, end = read_struct(data, 0, len(data))
    assert 0 < end <= len(data)


def parse_column(data: bytes) -> None:
    """Five bytes of shape, then the proofs."""
    choices = Choices(data)
    num_rows, topk = choices.below(200), 1 + choices.below(130)
    hidden_size = choices.pick((None, 128, 2048))
    proofs = choices.rest()
    parsed = parse_proofs(proofs, num_rows, topk=topk, hidden_size=hidden_size)
    assert parsed.coefficients.shape == (len(parsed), topk) and len(proofs) == len(parsed) * (2 + 2 * topk)


@cache
def _states() -> np.ndarray:
    import torch

    return torch.from_numpy(np.random.default_rng(0).standard_normal((32, NUM_HIDDEN))).bfloat16()  # type: ignore[return-value]


def verify_polynomials(data: bytes) -> None:
    """Proofs as the lenient readers take them, against states."""
    half = len(data) // 2
    text = data.decode("utf-8", "replace")
    for name, run in (
        ("bytes", lambda: verify_proofs_bytes([_states()], [data], 32, 16)),
        ("base64", lambda: verify_proofs_base64([_states()], [text], 32, 16)),
        ("two", lambda: verify_proofs_bytes([_states()[:1], _states()[1:3]], [data[:half], data[half:]], 32, 16)),
    ):
        try:
            run()
        except MalformedProof:
            continue
        assert len(data) >= 2, name


def read_polynomial(data: bytes) -> None:
    """`from_bytes` and `from_base64` give words that go out again as they came in."""
    poly = ProofPoly.from_bytes(data)
    assert poly.to_bytes() == data[: len(data) // 2 * 2]
    assert 0 <= poly(65496) < 65497
    ProofPoly.from_base64(data.decode("latin-1"))


@cache
def environment() -> Environment:
    return testnet_environment(Tokenizer.load(BASE_MODEL))


def score_completion(data: bytes) -> None:
    """Any tokens, and any text, have a reward."""
    choices = Choices(data)
    problem = environment().problem(choices.integer(2) % environment().num_problems)
    tokens = np.frombuffer(data[: len(data) // 4 * 4], dtype="<i4").tolist() + list(data)
    for score in (
        environment().reward(problem, tokens),
        environment().score(problem, data.decode("utf-8", "replace")),
        environment().score(problem, "#" + data.decode("utf-8", "surrogateescape")),
    ):
        assert 0 <= score <= 1


def proof_seeds() -> list[bytes]:
    return [bytes([39, 127, 1]) + proof for proof in build_proofs_bytes([_states()], 32, 128)] + [bytes(261)]


FILE_TARGETS = (
    Target("rollout_bytes", read_file, (MalformedFile,), lambda: list(honest_files())),
    Target("rollout_structure", read_structured_file, (MalformedFile,), lambda: [bytes([1]) + bytes(range(64))]),
    Target("thrift", read_metadata, (MalformedFile,), lambda: [file[-600:-8] for file in honest_files()]),
    Target("proofs_column", parse_column, (MalformedProof,), proof_seeds),
    Target("proof_polynomial", read_polynomial, (ValueError,), lambda: build_proofs_bytes([_states()], 32, 16)),
    Target("verify_polynomial", verify_polynomials, (), lambda: build_proofs_bytes([_states()], 32, 16)),
    Target("completion", score_completion, (), lambda: [b"\x01\x02\x03\x04", b"#144"]),
)
