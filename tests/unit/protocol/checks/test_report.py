"""Reports: a document of one shape, how far each value is from its limit, and where a file first goes wrong."""

import json
from dataclasses import replace

import pytest

from protocol.checks.report import FileReport
from protocol.checks.report_table import print_report
from protocol.checks.stages import examine_file
from protocol.rollouts import Rollout, write_rollouts
from protocol.toploc.build import build_rollouts
from tests.unit.verifier.verifier_world import World, states_of

CHECK_KEYS = {
    *("check", "outcome", "reason", "value", "reject_threshold", "slash_threshold", "detail", "num_audited"),
    *("refused_when", "margin", "margin_ratio"),
}
KEYS = {
    *("schema_version", "submission_id", "outcome", "reason", "hint", "checks", "num_rollouts", "num_audited"),
    *("first_token", "first_chunk", "milliseconds", "content_hash", "signed_content_hash"),
}
POSITION = 10


def report_on(world: World, rollouts: list[Rollout]) -> FileReport:
    file = write_rollouts(world.header(), rollouts)
    return FileReport.of(examine_file(file, world.rules, world.terms, lambda: world.model))


def with_one_token_edited(world: World, rollouts: list[Rollout]) -> tuple[list[Rollout], int]:
    """The first rollout long enough, with another digit at POSITION and everything else honest about it."""
    number = next(i for i, rollout in enumerate(rollouts) if rollout.num_units > 2 * POSITION)
    edited, tokens = rollouts[number], rollouts[number].output_tokens.copy()
    tokens[POSITION] = 15 + (tokens[POSITION] + 1 - 15) % 10
    reward = world.environment.reward(world.terms().prompt_of(number).problem, tokens.tolist())
    edited = replace(edited, output_tokens=tokens, task_reward=reward)
    (proofs,) = build_rollouts([states_of(world.model, edited)])
    return [*rollouts[:number], replace(edited, proofs=proofs), *rollouts[number + 1 :]], number


def test_the_document_of_an_honest_file(world: World, honest: list[Rollout]) -> None:
    document = json.loads(report_on(world, honest).model_dump_json())
    assert set(document) == KEYS and document["schema_version"] == 4
    assert (document["outcome"], document["reason"], document["first_token"]) == ("accept", None, None)
    assert document["num_rollouts"] == document["num_audited"] == len(honest)
    assert {frozenset(check) for check in document["checks"]} == {frozenset(CHECK_KEYS)}
    names = [check["check"] for check in document["checks"]]
    assert set(names) | {"terms", "model", "forward", "rows", "toploc"} == set(document["milliseconds"])
    assert all(cost >= 0 for cost in document["milliseconds"].values())


def test_each_limit_says_how_far_it_is(world: World, honest: list[Rollout]) -> None:
    checks = {check.check: check for check in report_on(world, honest).checks}
    largest, flips = checks["sampling_margin_max"], checks["sampling_flips"]
    assert (largest.refused_when, flips.refused_when) == ("above", "at least")
    limit = world.rules.thresholds.sampling_margin_max.reject
    assert largest.margin == pytest.approx(limit, rel=0.1) and largest.margin_ratio == pytest.approx(0, abs=0.1)
    assert (flips.value, flips.margin) == (0, flips.reject_threshold)
    assert flips.reject_threshold is not None and flips.slash_threshold is not None
    assert 0 < flips.reject_threshold < flips.slash_threshold
    assert checks["bounds"].refused_when is checks["plausibility_tail"].margin is None


def test_one_edited_token_is_named_with_what_should_stand_there(world: World, honest: list[Rollout]) -> None:
    edited, number = with_one_token_edited(world, honest)
    report = report_on(world, edited)
    assert (report.outcome, report.reason) == ("slash", "sampling_mismatch")
    found = report.first_token
    assert found is not None and found.drawn is not None and found.margin is not None
    assert (found.rollout, found.position) == (number, POSITION)
    assert found.claimed.id == edited[number].output_tokens[POSITION]
    assert found.drawn.id == honest[number].output_tokens[POSITION]
    assert found.claimed.text.isdigit() and found.margin > 1
    assert found.claimed_logprob == pytest.approx(float(honest[number].output_logprobs[POSITION]))
    assert found.drawn_logprob == pytest.approx(found.claimed_logprob, abs=1e-4)
    assert found.recomputed_logprob < found.drawn_logprob
    assert report.first_chunk is None


def test_a_forged_proof_is_named_with_its_tokens(world: World, honest: list[Rollout]) -> None:
    forged = [*honest[:-1], replace(honest[-1], proofs=honest[-1].proofs[:258] + honest[0].proofs[-258:])]
    assert len(forged[-1].proofs) == len(honest[-1].proofs) == 516
    report = report_on(world, forged)
    assert (report.outcome, report.reason, report.first_token) == ("slash", "toploc_mismatch", None)
    found = report.first_chunk
    assert found is not None
    assert (found.rollout, found.chunk, found.first_position) == (len(honest) - 1, 1, 32)
    assert found.last_position == honest[-1].num_units - 1 and found.mismatches > 50


def test_false_logprobs_are_named_where_they_begin(world: World, honest: list[Rollout]) -> None:
    logprobs = honest[3].output_logprobs.copy()
    logprobs[2:] -= 9
    report = report_on(world, [*honest[:3], replace(honest[3], output_logprobs=logprobs), *honest[4:]])
    found = report.first_token
    assert (report.outcome, report.reason) == ("drop", "logprob_mismatch") and found is not None
    assert (found.rollout, found.position, found.claimed_logprob) == (3, 2, logprobs[2])
    assert found.recomputed_logprob == pytest.approx(logprobs[2] + 9, abs=1e-3)


def test_what_a_cheap_check_refuses_has_no_first_token(world: World, honest: list[Rollout]) -> None:
    report = report_on(world, [replace(r, task_reward=1 - r.task_reward) for r in honest])
    assert (report.reason, report.num_audited, report.first_token) == ("reward_mismatch", 0, None)
    assert list(report.milliseconds)[-1] == "rewards"


def test_what_is_no_file_has_a_report(world: World) -> None:
    report = FileReport.of(examine_file(b"PAR1", world.rules, world.terms, lambda: world.model))
    assert (report.outcome, report.reason, report.num_rollouts) == ("drop", "schema_invalid", 0)


def test_people_read_where_it_goes_wrong_and_what_is_never(
    world: World, honest: list[Rollout], capsys: pytest.CaptureFixture[str]
) -> None:
    edited, number = with_one_token_edited(world, honest)
    print_report(report_on(world, edited))
    printed = capsys.readouterr().out
    verdict, todo, where, warning, *table = printed.splitlines()
    assert (verdict, todo[:4]) == ("slash: sampling_mismatch", "do: ")
    assert where.startswith(f"first token that is off: rollout {number}, token {POSITION}")
    assert warning.startswith("not compared with what its node has signed")
    assert "slash never" in printed and "e+06" not in printed
    widths = {line.index("reject") for line in printed.splitlines() if "reject over" in line}
    assert len(widths) == 1, "limits stand under each other"
    assert all(line[0] in "✓✗" for line in table[:-1]) and table[-1].startswith("audited by the model")
    print_report(report_on(world, edited).model_copy(update={"signed_content_hash": "0x" + "11" * 32}))
    assert "not compared" not in capsys.readouterr().out
