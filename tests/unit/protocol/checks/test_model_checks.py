"""What the model says: honest work passes with room to spare; each forgery is beyond its slash limit at once."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from protocol.checks.prefill import measure
from protocol.checks.slices import slices
from protocol.engines.base import Completion
from protocol.forward import CausalLM
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
from protocol.rules import SamplingRules
from protocol.toploc.build import build_rollouts
from protocol.toploc.encoding import num_chunks, proof_bytes
from protocol.wire import CheckResult
from tests.unit.verifier.verifier_world import World, states_of
from verifier.pipeline import Finding

CHOOSY_TASK = 3
"""Its problems are neither all easy nor all hard for the base model."""


def results(finding: Finding) -> dict[str, CheckResult]:
    return {result.check: result for result in finding.evidence.checks}


def assert_slashed(finding: Finding, check: str, reason: RejectReason) -> None:
    result = results(finding)[check]
    assert (result.outcome, result.reason) == (Outcome.SLASH, reason)
    assert finding.outcome is Outcome.SLASH


def words(*values: int) -> bytes:
    return np.array(values, dtype=">u2").tobytes()


def with_proofs(rollouts: Sequence[Rollout], proofs: Sequence[bytes]) -> list[Rollout]:
    return [replace(rollout, proofs=proof) for rollout, proof in zip(rollouts, proofs, strict=True)]


def test_honest_work_is_accepted_far_from_every_limit(world: World, honest: list[Rollout]) -> None:
    finding = world.examine(honest)
    assert (finding.outcome, finding.reason) == (Outcome.ACCEPT, None)
    for result in finding.evidence.checks:
        if result.reject_threshold is not None and result.value is not None:
            assert result.value <= result.reject_threshold / 5, result


@pytest.mark.parametrize("max_batch", [1, 3])
def test_how_a_worker_batches_makes_no_difference(world: World, max_batch: int) -> None:
    assert world.examine(world.rollouts(world.completions(max_batch=max_batch))).outcome is Outcome.ACCEPT


def test_slices_measure_the_same_as_one_pass(world: World, honest: list[Rollout]) -> None:
    case = world.case(honest)
    whole, cut = measure(case, world.model), measure(case, world.model, max_slice_tokens=100)
    assert len(list(slices(honest, range(len(honest)), 100))) > 2
    np.testing.assert_allclose(cut.logprobs, whole.logprobs, atol=1e-4)
    np.testing.assert_allclose(cut.margins, whole.margins, atol=1e-4)
    np.testing.assert_allclose(cut.eos_probabilities, whole.eos_probabilities, atol=1e-4)
    assert (cut.proofs.num_chunks, cut.proofs.num_values) == (whole.proofs.num_chunks, whole.proofs.num_values)


def test_one_rollout_longer_than_a_slice_is_a_slice(honest: list[Rollout]) -> None:
    assert [part.numbers for part in slices(honest, range(len(honest)), 1)] == [(n,) for n in range(len(honest))]


# Proofs


def test_proofs_of_another_model_are_slashed(world: World, honest: list[Rollout], other_model: CausalLM) -> None:
    proofs = build_rollouts([states_of(other_model, rollout) for rollout in honest])
    assert_slashed(world.examine(with_proofs(honest, proofs)), "toploc_exponents", RejectReason.TOPLOC_MISMATCH)


def test_proofs_of_other_rollouts_are_slashed(world: World, honest: list[Rollout]) -> None:
    states = [states_of(world.model, rollout) for rollout in honest]
    shuffled = [torch.roll(rows, 1, dims=0) for rows in states]
    forged = with_proofs(honest, build_rollouts(shuffled))
    assert_slashed(world.examine(forged), "toploc_exponents", RejectReason.TOPLOC_MISMATCH)


def test_a_constant_proof_of_full_length_is_slashed(world: World, honest: list[Rollout]) -> None:
    for value in (0x3F80, 0x4040):
        one = words(65497, value, *[0] * 127)
        forged = with_proofs(honest, [one * (len(r.proofs) // len(one)) for r in honest])
        assert_slashed(world.examine(forged), "toploc_content", RejectReason.TOPLOC_MISMATCH)
        assert results(world.examine(forged))["toploc_exponents"].outcome == Outcome.SLASH


def test_well_formed_noise_is_slashed(world: World, honest: list[Rollout]) -> None:
    draw = np.random.default_rng(0)
    columns = []
    for rollout in honest:
        coefficients = draw.integers(0, 65497, (num_chunks(rollout.num_units), 128))
        columns.append(b"".join(words(65497, *row) for row in coefficients.tolist()))
        assert len(columns[-1]) == num_chunks(rollout.num_units) * proof_bytes()
    assert_slashed(world.examine(with_proofs(honest, columns)), "toploc_exponents", RejectReason.TOPLOC_MISMATCH)


# Sampling


def forged_tokens(world: World, completions: Sequence[Completion]) -> list[Rollout]:
    """Other tokens, and then an honest prefill with the right model: proofs and log-probs are right."""
    rollouts = world.rollouts(completions)
    rollouts = with_proofs(rollouts, build_rollouts([states_of(world.model, r) for r in rollouts]))
    case = world.case(rollouts)
    logprobs = np.split(measure(case, world.model).logprobs, np.cumsum([r.num_units for r in rollouts])[:-1])
    return [
        replace(rollout, output_logprobs=row.astype(np.float32))
        for rollout, row in zip(rollouts, logprobs, strict=True)
    ]


def test_tokens_of_another_model_are_slashed_though_the_proofs_are_right(world: World, other_folder) -> None:  # type: ignore[no-untyped-def]
    finding = world.examine(forged_tokens(world, world.completions(folder=other_folder)))
    assert results(finding)["toploc_exponents"].outcome == Outcome.ACCEPT
    assert_slashed(finding, "sampling_flips", RejectReason.SAMPLING_MISMATCH)


def test_the_wrong_seed_is_slashed(world: World) -> None:
    finding = world.examine(world.rollouts(world.completions(seed=world.seed(counter=77))))
    assert results(finding)["toploc_exponents"].outcome == Outcome.ACCEPT
    assert_slashed(finding, "sampling_flips", RejectReason.SAMPLING_MISMATCH)
    assert_slashed(finding, "sampling_margin", RejectReason.SAMPLING_MISMATCH)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_wrong_temperature_is_slashed(world: World, temperature: float) -> None:
    sampling = SamplingRules(max_new_tokens=40, temperature=temperature)
    finding = world.examine(forged_tokens(world, world.completions(sampling=sampling)))
    assert_slashed(finding, "sampling_flips", RejectReason.SAMPLING_MISMATCH)


def test_the_best_of_several_draws_is_slashed(world: World) -> None:
    best = honest = world.rollouts(world.completions(CHOOSY_TASK), CHOOSY_TASK)
    for number in range(1, 4):
        tries = world.rollouts(world.completions(CHOOSY_TASK, seed=world.seed(100 + number)), CHOOSY_TASK)
        best = [max(pair, key=lambda r: r.task_reward) for pair in zip(best, tries, strict=True)]
    assert sum(r.task_reward for r in best) > sum(r.task_reward for r in honest)
    finding = world.examine(best, CHOOSY_TASK)
    assert results(finding)["toploc_exponents"].outcome == Outcome.ACCEPT
    assert (finding.outcome, finding.reason) == (Outcome.SLASH, RejectReason.SAMPLING_MISMATCH)
    assert world.examine(honest, CHOOSY_TASK).outcome is Outcome.ACCEPT


def test_a_completion_copied_within_its_group_is_slashed(world: World, honest: list[Rollout]) -> None:
    """Each rollout has noise of its own: sure answers coincide by themselves, others don't."""
    tokens = [rollout.output_tokens.tolist() for rollout in honest]
    copied = next(index for index in range(len(honest)) if index % 8 and tokens[index] != tokens[index - 1])
    twice = [*honest[:copied], honest[copied - 1], *honest[copied + 1 :]]
    finding = world.examine(twice)
    assert results(finding)["toploc_exponents"].outcome == Outcome.ACCEPT
    assert_slashed(finding, "sampling_margin_max", RejectReason.SAMPLING_MISMATCH)
    assert any(tokens[index] == tokens[index - 1] for index in range(1, len(honest)) if index % 8)


def test_unbound_sampling_is_not_measured(world: World, honest: list[Rollout]) -> None:
    sampling = SamplingRules(max_new_tokens=40, bound_to_seed=False)
    free = replace(world, rules=world.rules.model_copy(update={"sampling": sampling}))
    finding = free.examine(free.rollouts(free.completions(seed=world.seed(counter=77))))
    assert results(finding)["sampling_flips"].value is None
    assert finding.reason in (None, RejectReason.TERMINATION_INVALID)


# Log-probs


@pytest.mark.parametrize(("shift", "outcome"), [(0.0, Outcome.ACCEPT), (-0.3, Outcome.DROP)])
def test_falsified_logprobs_are_dropped_never_slashed(
    world: World, honest: list[Rollout], shift: float, outcome: Outcome
) -> None:
    rows = [replace(r, output_logprobs=r.output_logprobs + np.float32(shift)) for r in honest]
    finding = world.examine(rows)
    assert finding.outcome is outcome
    assert finding.reason == (None if outcome is Outcome.ACCEPT else RejectReason.LOGPROB_MISMATCH)
