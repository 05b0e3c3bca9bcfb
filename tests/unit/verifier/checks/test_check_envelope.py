"""Envelope: every way in which a submission isn't what it says it is, none of which costs stake."""

from dataclasses import replace
from typing import Any

import pytest

from protocol.checks.case import open_case
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
from protocol.signing import Signer
from protocol.wire import Renewal, Signed
from tests.unit.verifier.verifier_world import COORDINATOR, DEADLINE, DOMAIN, NODE, World
from verifier.case import Dossier, Facts, terms_of
from verifier.checks import envelope

STRANGER = Signer((66).to_bytes(32, "big"))


def found(world: World, dossier: Dossier) -> tuple[int, str | None]:
    result = envelope.check(dossier, open_case(dossier.file, terms_of(dossier, world.instruments())))
    return result.outcome, result.reason


def with_facts(dossier: Dossier, **changes: Any) -> Dossier:
    facts: Facts = replace(dossier.facts, **changes)
    return replace(dossier, facts=facts)


def with_task(dossier: Dossier, **changes: Any) -> Dossier:
    task = dossier.task.message.model_copy(update=changes)
    return replace(dossier, task=Signed.by(COORDINATOR, task, DOMAIN))


def with_submission(dossier: Dossier, **changes: Any) -> Dossier:
    submission = dossier.submission.message.model_copy(update=changes)
    return replace(dossier, submission=Signed.by(NODE, submission, DOMAIN))


def test_an_honest_envelope_passes(world: World, honest: list[Rollout]) -> None:
    assert found(world, world.dossier(honest)) == (Outcome.ACCEPT, None)


def test_who_signed_counts(world: World, honest: list[Rollout]) -> None:
    dossier = world.dossier(honest)
    forged = replace(dossier, submission=Signed.by(STRANGER, dossier.submission.message, DOMAIN))
    assert found(world, forged) == (Outcome.DROP, RejectReason.SIGNATURE_INVALID)
    unleased = replace(dossier, task=Signed.by(STRANGER, dossier.task.message, DOMAIN))
    assert found(world, unleased) == (Outcome.DROP, RejectReason.LEASE_UNKNOWN)


def test_the_file_must_be_the_one_that_was_signed(world: World, honest: list[Rollout]) -> None:
    dossier = world.dossier(honest)
    swapped = replace(dossier, file=world.dossier([replace(r, task_reward=0.5) for r in honest]).file)
    assert found(world, swapped) == (Outcome.DROP, RejectReason.FILE_MISMATCH)
    other_task = world.dossier(honest, header=world.header(counter=1))
    assert found(world, other_task) == (Outcome.DROP, RejectReason.FILE_MISMATCH)


@pytest.mark.parametrize(
    "changes", [{"counter": 9}, {"policy_version": 1}, {"pool_id": 2}, {"rules_hash": "0x" + "00" * 32}]
)
def test_submission_and_lease_must_agree(world: World, honest: list[Rollout], changes: dict[str, Any]) -> None:
    assert found(world, with_submission(world.dossier(honest), **changes)) == (
        Outcome.DROP,
        RejectReason.LEASE_UNKNOWN,
    )


def test_the_rules_must_be_the_pools(world: World, honest: list[Rollout]) -> None:
    dossier = with_facts(world.dossier(honest), rules_hashes=frozenset({"0x" + "00" * 32}))
    assert found(world, dossier) == (Outcome.DROP, RejectReason.RULES_CHANGED)


def test_work_in_time_passes_and_late_work_does_not(world: World, honest: list[Rollout]) -> None:
    in_time = with_facts(world.dossier(honest), received_time=DEADLINE)
    late = with_facts(in_time, received_time=DEADLINE + 1)
    assert found(world, in_time) == (Outcome.ACCEPT, None)
    assert found(world, late) == (Outcome.DROP, RejectReason.LEASE_EXPIRED)


def test_a_lease_under_a_beacon_that_is_not_on_chain_costs_the_node_nothing(
    world: World, honest: list[Rollout]
) -> None:
    for beacon_hash in (None, "0x" + "ab" * 32):
        dossier = with_facts(world.dossier(honest), beacon_hash=beacon_hash)
        assert found(world, dossier) == (Outcome.DROP, RejectReason.REORGED)


def renewed(dossier: Dossier, deadline: int, *, signer: Signer = COORDINATOR, task_id: str = "") -> Dossier:
    """The dossier, with a later deadline that `signer` gave to its task, or to another."""
    message = Renewal(task_id=task_id or dossier.task.message.id(DOMAIN), deadline=deadline)
    return replace(dossier, renewal=Signed[Renewal].by(signer, message, DOMAIN))


def test_a_renewed_lease_is_in_time_until_its_new_deadline(world: World, honest: list[Rollout]) -> None:
    late = with_facts(world.dossier(honest), received_time=DEADLINE + 30)
    assert found(world, renewed(late, DEADLINE + 30)) == (Outcome.ACCEPT, None)
    assert found(world, renewed(late, DEADLINE + 29)) == (Outcome.DROP, RejectReason.LEASE_EXPIRED)


def test_a_renewal_by_another_or_of_another_task_is_no_lease(world: World, honest: list[Rollout]) -> None:
    late = with_facts(world.dossier(honest), received_time=DEADLINE + 30)
    for forged in (
        renewed(late, DEADLINE + 60, signer=NODE),
        renewed(late, DEADLINE + 60, task_id="0x" + "07" * 32),
    ):
        assert found(world, forged) == (Outcome.DROP, RejectReason.LEASE_UNKNOWN)
