"""The pipeline: cheapest first, one verdict for any bytes, and no verdict from a fault of its own."""

import struct
from dataclasses import replace
from typing import NoReturn

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.canonical import canonical_hash, canonical_json
from protocol.forward import CausalLM
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
from tests.unit.verifier.verifier_world import World
from verifier.pipeline import examine

FUZZ = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def no_model() -> NoReturn:
    raise RuntimeError("the model isn't needed for this")


def test_evidence_has_one_hash_and_every_check_in_order(world: World, honest: list[Rollout]) -> None:
    finding = world.examine(honest)
    names = [result.check for result in finding.evidence.checks]
    assert names[:8] == [*("schema", "envelope", "duplicates", "bounds", "prompts", "proofs", "termination", "rewards")]
    assert finding.evidence.num_units == sum(r.num_units for r in honest)
    assert finding.evidence.num_audited == finding.evidence.num_rollouts == len(honest)
    canonical_json(finding.evidence.as_json())
    assert canonical_hash(finding.evidence.as_json()) == canonical_hash(world.examine(honest).evidence.as_json())


def test_a_cheap_refusal_stops_before_the_model(world: World, honest: list[Rollout]) -> None:
    instruments = world.instruments(load_model=no_model)
    cheat = [replace(r, task_reward=1.0 - r.task_reward) for r in honest]
    finding = examine(world.dossier(cheat), instruments)
    assert (finding.outcome, finding.reason) == (Outcome.SLASH, RejectReason.REWARD_MISMATCH)
    assert finding.evidence.checks[-1].check == "rewards"
    assert (finding.evidence.num_audited, finding.evidence.num_rollouts) == (0, len(honest))


def test_a_fault_of_our_own_gives_no_verdict(world: World, honest: list[Rollout]) -> None:
    with pytest.raises(RuntimeError, match="isn't needed"):
        examine(world.dossier(honest), world.instruments(load_model=no_model))


def test_the_worst_result_decides_and_among_equals_the_first(
    world: World, honest: list[Rollout], other_model: CausalLM
) -> None:
    """Judged with another model, everything is off: the reason is that of the first check that slashes."""
    finding = examine(world.dossier(honest), world.instruments(load_model=lambda: other_model))
    slashing = [result.reason for result in finding.evidence.checks if result.outcome == Outcome.SLASH]
    assert finding.outcome is Outcome.SLASH and finding.reason == slashing[0]
    dropped_only = [replace(r, output_logprobs=r.output_logprobs - np.float32(0.5)) for r in honest]
    assert world.examine(dropped_only).outcome is Outcome.DROP


def test_files_that_are_no_rollout_files_are_schema_invalid(world: World, honest: list[Rollout]) -> None:
    dossier = world.dossier(honest)
    for file in (
        b"",
        b"PAR1",
        dossier.file[:-1],
        dossier.file[: len(dossier.file) // 2],
        b"PAR1" + bytes(100) + b"PAR1",
    ):
        finding = examine(replace(dossier, file=file), world.instruments(load_model=no_model))
        assert (finding.outcome, finding.reason) == (Outcome.DROP, RejectReason.SCHEMA_INVALID)
        assert finding.completions_hash is None and finding.evidence.num_units == 0


@given(st.binary(max_size=300))
@FUZZ
def test_no_bytes_end_the_pipeline(world: World, honest: list[Rollout], file: bytes) -> None:
    finding = examine(replace(world.dossier(honest), file=file), world.instruments(load_model=no_model))
    assert finding.reason == RejectReason.SCHEMA_INVALID


@given(st.data())
@FUZZ
def test_no_damage_to_a_file_ends_the_pipeline_or_is_slashed(
    world: World, honest: list[Rollout], data: st.DataObject
) -> None:
    """Bytes that the node hasn't signed for never cost it stake."""
    dossier = world.dossier(honest)
    file = bytearray(dossier.file)
    for _ in range(data.draw(st.integers(1, 4))):
        # The metadata at the end steers the reader: half of the damage goes there.
        low = data.draw(st.sampled_from([0, len(file) - 1200]))
        file[data.draw(st.integers(low, len(file) - 1))] = data.draw(st.integers(0, 255))
    finding = examine(replace(dossier, file=bytes(file)), world.instruments())
    assert finding.outcome in (Outcome.ACCEPT, Outcome.DROP)
    assert (finding.outcome is Outcome.ACCEPT) == (finding.reason is None)


numbers = st.one_of(st.floats(width=32, allow_nan=False, allow_infinity=False), st.just(1.0))
tokens = st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 29), min_size=1, max_size=45)


@given(st.data())
@FUZZ
def test_no_signed_row_ends_the_pipeline(world: World, honest: list[Rollout], data: st.DataObject) -> None:
    """Anything that fits the schema, signed by its node: a verdict comes out, and never an acceptance of nonsense."""
    output = data.draw(tokens)
    row = Rollout(
        input_tokens=np.array(data.draw(tokens), dtype=np.int32),
        output_tokens=np.array(output, dtype=np.int32),
        output_logprobs=np.array(data.draw(st.lists(numbers, min_size=len(output), max_size=len(output))), np.float32),
        task_reward=struct.unpack("<f", struct.pack("<f", data.draw(numbers)))[0],
        proofs=data.draw(st.binary(max_size=520)),
        step=data.draw(st.integers(-(2**31), 2**31 - 1) | st.just(0)),
        problem_id=data.draw(st.text(max_size=20)),
        task_type=data.draw(st.text(max_size=20)),
        target_length=data.draw(st.integers(-(2**31), 2**31 - 1) | st.just(-1)),
        finish_reason=data.draw(st.sampled_from(["stop", "length"])),
    )
    merged = [
        replace(honest[0], **{f: getattr(row, f) for f in data.draw(st.sets(st.sampled_from(FIELDS)))}),
        *honest[1:],
    ]
    if len(merged[0].output_tokens) != len(merged[0].output_logprobs):
        merged[0] = replace(merged[0], output_logprobs=np.zeros(len(merged[0].output_tokens), np.float32))
    finding = world.examine(merged)
    assert isinstance(finding.outcome, Outcome)


FIELDS = tuple(Rollout.__dataclass_fields__)
