"""Proofs: one form, and everything else is slashed; no bytes end the verifier."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.checks import proofs
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
from protocol.toploc.encoding import proof_bytes
from tests.unit.verifier.verifier_world import World

PRIME = 65497


def found(world: World, honest: list[Rollout], column: bytes) -> tuple[int, str | None]:
    rows = [*honest[:-1], replace(honest[-1], proofs=column)]
    result = proofs.check(world.case(rows))
    return result.outcome, result.reason


def test_a_canonical_proof_passes(world: World, honest: list[Rollout]) -> None:
    assert found(world, honest, honest[-1].proofs) == (Outcome.ACCEPT, None)


def words(*values: int) -> bytes:
    return np.array(values, dtype=">u2").tobytes()


NULL = bytes(proof_bytes())
CONSTANT = words(PRIME, 0x3F80)


@pytest.mark.parametrize(
    "make",
    [
        lambda good, n: b"",
        lambda good, n: NULL * n,
        lambda good, n: CONSTANT * n,
        lambda good, n: good[:-1],
        lambda good, n: good + b"\0",
        lambda good, n: good + good[: proof_bytes()],
        lambda good, n: words(PRIME, *[PRIME] * 128) * n,
        lambda good, n: words(PRIME + 1, *[5] * 128) * n,
        lambda good, n: words(128, *[5] * 128) * n,
    ],
    ids=["none", "null", "constant of 4 bytes", "short", "long", "one more", "coefficient", "modulus", "small modulus"],
)
def test_other_forms_are_slashed(world: World, honest: list[Rollout], make) -> None:  # type: ignore[no-untyped-def]
    good = honest[-1].proofs
    column = make(good, len(good) // proof_bytes())
    assert found(world, honest, column) == (Outcome.SLASH, RejectReason.PROOF_MALFORMED)


@given(st.binary(max_size=600))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_random_bytes_are_slashed(world: World, honest: list[Rollout], column: bytes) -> None:
    assert found(world, honest, column) == (Outcome.SLASH, RejectReason.PROOF_MALFORMED)
