"""What a log says of who was leased what: hand-made logs, in which some drop what is hard, copy, or are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.environments.registry import load_environment
from protocol.errors import UsageError
from protocol.rules import LengthRules, Rules, SamplingRules
from protocol.tokenizer import Tokenizer
from protocol.wire import ZERO_HASH
from testnet.plan import BASE_MODEL
from tests.unit.verifier.audit.fairness.market import (
    BEACON,
    CONFIG,
    OTHER_PROVIDER,
    PROVIDER,
    TOKENIZER,
    Market,
    make_rules,
    node,
)
from verifier.audit.fairness.fairness import Account, Fairness, z_of
from verifier.audit.fairness.leases import Judgement
from verifier.audit.fairness.promises import read_receipts
from verifier.audit.fairness.table import FAR, fairness_lines
from verifier.audit.table import MAX_WIDTH

ENVIRONMENT = load_environment("reasoning_gym", CONFIG, TOKENIZER)
RULES = make_rules()
HARD_TERMS = 3.5


@pytest.fixture
def market() -> Market:
    return make_market()


def make_market(rules: Rules = RULES) -> Market:
    made = Market(rules, ENVIRONMENT)
    made.open()
    return made


def account(report: Fairness, provider: str = PROVIDER) -> Account:
    return next(row.account for row in report.providers if row.provider == provider)


def work(market: Market, of: str, provider: str = PROVIDER, *, drops_above: float = 9.0, times: int = 30) -> None:
    """Leases, of which those with too many terms are never handed in."""
    for _ in range(times):
        task = market.lease(of, provider)
        if market.terms(task) > drops_above:
            market.end(task, "expired")
        else:
            market.settle(market.receive(task))


def test_an_honest_log_adds_up(market: Market) -> None:
    work(market, node(1), times=3)
    market.settle(market.receive(market.lease(node(2), OTHER_PROVIDER)), "toploc_mismatch")
    market.receive(market.lease(node(2), OTHER_PROVIDER))
    report = market.report()
    mine, other = account(report), account(report, OTHER_PROVIDER)
    assert (mine.num_leased, mine.num_received, mine.judgements["accepted"]) == (3, 3, 3)
    assert (other.judgements["rejected"], other.judgements["waiting"]) == (1, 1)
    assert other.rejected == {"toploc_mismatch": 1}
    assert report.total.num_leased == 5
    assert (report.num_underived, report.num_unexplained) == (0, 0)
    assert mine.mean_units == 5.0
    assert report.files is report.overlap is None
    assert mine.measures["num_terms"].z is None  # nothing was lost


def test_a_provider_that_drops_what_is_hard_shows(market: Market) -> None:
    work(market, node(1), drops_above=HARD_TERMS)
    work(market, node(2), OTHER_PROVIDER)
    report = market.report()
    dropping, honest = account(report).measures["num_terms"], account(report, OTHER_PROVIDER).measures["num_terms"]
    assert dropping.delivered is not None and dropping.lost is not None and dropping.z is not None
    assert dropping.delivered <= HARD_TERMS < dropping.lost
    assert dropping.z < -FAR
    assert (honest.lost, honest.z) == (None, None)
    assert any(line.startswith("num_terms") and line.endswith("<") for line in fairness_lines(report))


def test_a_provider_that_loses_leases_by_chance_doesnt_show(market: Market) -> None:
    for number in range(60):
        task = market.lease()
        if number % 3:
            market.receive(task)
        else:
            market.end(task, "abandoned")
    measure = account(market.report()).measures["num_terms"]
    assert measure.z is not None and abs(measure.z) < FAR
    assert not any(line.endswith("<") for line in fairness_lines(market.report()))


def test_what_was_asked_is_known_of_what_never_came(market: Market) -> None:
    task = market.lease()
    market.end(task, "expired")
    measures = account(market.report()).measures
    assert measures["num_terms"].leased == measures["num_terms"].lost == market.terms(task)
    questions = [prompt.problem.question for prompt in market.prompts(task)]
    assert measures["question_characters"].leased == sum(map(len, questions)) / len(questions)
    assert "target_length" not in measures


def test_target_lengths_are_measured_where_there_are_any() -> None:
    market = make_market(make_rules(lengths=LengthRules(targets=(10, 30))))
    task = market.lease()
    wanted = [prompt.target_length for prompt in market.prompts(task)]
    assert account(market.report()).measures["target_length"].leased == sum(wanted) / len(wanted)


@pytest.mark.parametrize("changes", [{"beacon_hash": "0x" + "00" * 32}, {"price_wei": 8}, {"pool_id": 2}])
def test_a_task_that_doesnt_follow_from_the_log_is_told(market: Market, changes: dict[str, Any]) -> None:
    market.lease(**changes)
    report = market.report()
    assert (report.num_underived, account(report).measures) == (1, {})
    assert account(report).num_leased == 1


def test_terms_that_were_announced_later_are_found(market: Market) -> None:
    announced = {"rules_hash": RULES.rules_hash, "price": "9"}
    market.lease(price_wei=9)
    market.note("chain.TermsAnnounced", block=9, arguments=announced)
    market.lease(price_wei=9)
    market.lease()
    assert market.report().num_underived == 1


def test_the_newest_of_several_beacons_is_found(market: Market) -> None:
    other = "0x" + "0f" * 32
    sealed = {"version": "0", "beacon_block": "6", "beacon_hash": other}
    market.note("chain.VersionSealed", block=8, arguments=sealed)
    market.lease(beacon_block=6, beacon_hash=other)
    market.lease(beacon_hash=BEACON)
    assert market.report().num_underived == 0


def test_rules_that_nobody_has_cost_the_measures_alone(market: Market) -> None:
    market.log.entries.clear()
    market.rules = make_rules(group_size=4)
    market.epochs.clear()
    market.log = type(market.log)()
    market.open()
    market.lease()
    market.rules = RULES
    report = market.report()
    assert (report.total.num_leased, report.num_underived) == (1, 1)
    assert report.environments[0]["unavailable"] == "the coordinator doesn't have these rules"


def test_an_environment_that_isnt_here_costs_the_measures_alone() -> None:
    unknown = RULES.environment.model_copy(update={"name": "elsewhere"})
    market = make_market(RULES.model_copy(update={"environment": unknown}))
    market.receive(market.lease())
    report = market.report(with_files=True)
    assert (report.num_underived, report.total.measures, report.files) == (0, {}, {"read": 1})
    assert "elsewhere" in report.environments[0]["unavailable"]
    assert any("no difficulty for elsewhere" in line for line in fairness_lines(report))


def test_tasks_of_endless_groups_keep_nobody_busy() -> None:
    market = make_market(make_rules(groups_per_task=10**15, group_size=1, sampling=SamplingRules(max_new_tokens=1)))
    market.lease()
    report = market.report()
    assert (report.num_underived, report.total.measures) == (0, {})
    assert "groups a task" in report.environments[0]["unavailable"]


@pytest.mark.parametrize(("is_its", "names"), [(True, {"prompt_tokens"}), (False, set[str]())])
def test_with_the_tokenizer_the_environment_is_held_against_the_rules(is_its: bool, names: set[str]) -> None:
    own = load_environment("reasoning_gym", CONFIG, Tokenizer.load(BASE_MODEL)).environment_hash
    environment = RULES.environment.model_copy(update={"environment_hash": own if is_its else ZERO_HASH})
    market = make_market(RULES.model_copy(update={"environment": environment}))
    task = market.lease()
    report = market.report(model=BASE_MODEL)
    (known,) = report.environments
    assert (known["is_checked"], known["unavailable"] == "") == (is_its, is_its)
    assert report.total.measures.keys() & {"prompt_tokens"} == names
    if is_its:
        counts = [len(prompt.tokens) for prompt in market.prompts(task)]
        assert report.total.measures["prompt_tokens"].leased == sum(counts) / len(counts)


def test_a_lease_that_was_voided_after_it_came_in_isnt_received(market: Market) -> None:
    task = market.lease()
    market.receive(task)
    market.end(task, "reorged")
    mine = account(market.report())
    assert (mine.num_received, mine.num_reorged, sum(mine.judgements.values()), mine.num_units) == (0, 1, 0, 0)


def test_a_second_end_of_a_lease_isnt_believed(market: Market) -> None:
    task = market.lease()
    market.end(task, "expired")
    market.end(task, "abandoned")
    market.receive(task)
    market.note("submission.accepted", ZERO_HASH, reason=None)
    report = market.report()
    assert (account(report).num_expired, account(report).num_abandoned, account(report).num_received) == (1, 0, 0)
    assert report.num_unexplained == 3


def test_events_that_say_nothing_usable_are_counted(market: Market) -> None:
    market.note("task.leased", ZERO_HASH, node="me")
    assert market.report().unreadable == {"num_unreadable": 1, "first_unreadable": 2}


# Files


def test_rewards_are_those_that_the_files_claim(market: Market) -> None:
    for reward in (1.0, 0.0, 0.5):
        task = market.lease()
        market.receive(task, market.rollouts(task, reward=reward))
    rewards = account(market.report(with_files=True)).rewards
    assert rewards == {"num_rollouts": 12, "mean": 0.5, "num_full": 4}
    assert account(market.report()).rewards is None


def test_two_nodes_of_one_provider_with_the_same_rows_show(market: Market) -> None:
    """N2 hands in N1's rows, for its own task; N3 works by itself."""
    first, second, third = (market.lease(node(number)) for number in (1, 2, 3))
    rows = market.rollouts(first, tokens=range(30))
    market.receive(first, rows)
    market.receive(second, rows)
    market.receive(third)
    overlap = market.report(with_files=True).overlap
    assert overlap is not None
    (pair,) = overlap.pairs
    assert pair.nodes == (node(1), node(2))
    assert (pair.num_completions, pair.most_tokens) == (len({tuple(row.output_tokens) for row in rows}), 32)
    assert pair.num_questions == len({row.problem_id for row in rows})
    assert overlap.num_completions == {node(1): 4, node(2): 4, node(3): 4}


def test_the_same_tokens_for_other_questions_are_no_overlap(market: Market) -> None:
    for number in (1, 2):
        market.receive(market.lease(node(number)))
    overlap = market.report(with_files=True).overlap
    assert overlap is not None and overlap.pairs == ()


def test_what_every_node_answers_says_nothing_of_two(market: Market) -> None:
    task = market.lease(node(1))
    rows = market.rollouts(task)
    market.receive(task, rows)
    for number in range(2, 40):
        market.receive(market.lease(node(number)), rows)
    overlap = market.report(with_files=True).overlap
    assert overlap is not None and (overlap.pairs, overlap.num_common) == ((), 4)


@pytest.mark.parametrize(("fault", "word"), [("gone", "missing"), ("noise", "other"), ("swapped", "other")])
def test_a_file_that_isnt_the_logged_one_isnt_read(market: Market, fault: str, word: str) -> None:
    task, other = market.lease(), market.lease()
    submission_id = market.receive(task)
    swapped = market.files[market.receive(other)]
    if fault == "gone":
        del market.files[submission_id]
    else:
        market.files[submission_id] = b"noise" if fault == "noise" else swapped
    report = market.report(with_files=True)
    assert report.files == {"read": 1, word: 1}
    assert account(report).rewards == {"num_rollouts": 4, "mean": 1.0, "num_full": 4}


# Refusals and promises


def test_refusals_are_summed_over_epochs(market: Market) -> None:
    for number in (1, 2):
        market.note(
            "door.refused",
            epoch=number,
            leases=[[node(1), "lease_limit", number]],
            submissions=[[node(1), "duplicate", 1]],
            others={"leases": {"not_registered": 9}, "submissions": {}},
        )
    refused = market.report().as_json({})["refused"]
    assert refused == {
        "num_epochs": 2,
        "leases": {node(1): {"lease_limit": 3}},
        "submissions": {node(1): {"duplicate": 2}},
        "others": {"leases": {"not_registered": 18}, "submissions": {}},
    }


@pytest.mark.parametrize("row", [["me", "lease_limit", 1], [node(1), "lease_limit", -1], [node(1), "\x1b[2J", 1]])
def test_refusals_that_cant_be_read_are_not_counted(market: Market, row: list[Any]) -> None:
    market.note("door.refused", leases=[row], submissions=[], others={})
    report = market.report()
    assert (report.refused.num_epochs, report.unreadable["num_unreadable"]) == (0, 1)


def test_a_receipt_without_inclusion_is_a_broken_promise(market: Market) -> None:
    kept = market.receive(market.lease())
    missing = market.receive(market.lease(), logged=False)
    market.close_epoch()
    report = market.report()
    assert [(one.submission_id, one.state.value) for one in report.broken] == [(missing, "missing")]
    assert {one.submission_id: one.state.value for one in report.promises}[kept] == "kept"
    assert any(line.startswith(f"missing  {missing}") for line in fairness_lines(report))


def test_a_promise_for_an_open_epoch_isnt_broken_yet(market: Market) -> None:
    market.receive(market.lease(), logged=False)
    assert market.report().broken == ()
    assert [one.state.value for one in market.report().promises] == ["open"]


def test_a_leaf_after_the_promised_epoch_is_late(market: Market) -> None:
    task = market.lease()
    submission_id = market.receive(task, logged=False)
    market.close_epoch()
    market.receive(task)
    market.receipts.pop()
    market.close_epoch()
    (promise,) = market.report().promises
    assert (promise.submission_id, promise.state.value, promise.found_epoch) == (submission_id, "late", 1)


@pytest.mark.parametrize("fault", ["signer", "submission_id", "signature"])
def test_a_receipt_that_isnt_the_coordinators_accuses_nobody(market: Market, fault: str, make_signer: Any) -> None:
    market.receive(market.lease(), logged=False)
    held = market.receipts.pop()
    assert held.submission is not None and held.receipt is not None
    changes = {"signer": {"signer": make_signer(5)}, "submission_id": {"submission_id": ZERO_HASH}}.get(fault, {})
    market.promise(held.submission.message, **changes)
    if fault == "signature":
        forged = held.receipt.model_copy(update={"signature": "0x" + "00" * 65})
        market.receipts[-1] = held.model_copy(update={"receipt": forged})
    market.close_epoch()
    assert [one.state.value for one in market.report().promises] == ["foreign"]


@pytest.mark.parametrize(("answer", "state"), [("received", "kept"), ("refused", "kept"), (None, "missing")])
def test_a_forced_intake_is_answered_either_way(market: Market, answer: str | None, state: str) -> None:
    task = market.lease()
    submission_id = market.receive(task, logged=False)
    market.receipts.clear()
    forced = {"node": task.node, "submission_id": submission_id, "epoch": "0"}
    market.note("chain.IntakeForced", submission_id, block=9, arguments=forced)
    if answer == "received":
        market.receive(task)
        market.receipts.clear()
    elif answer:
        market.note("submission.refused", submission_id, node=task.node, reason="file_missing")
    market.close_epoch()
    assert [(one.kind, one.state.value) for one in market.report().promises] == [("forced", state)]


def test_a_forced_intake_in_a_dropped_block_promises_nothing(market: Market) -> None:
    forced = {"node": node(1), "submission_id": "0x" + "01" * 32, "epoch": "0"}
    market.note("chain.IntakeForced", "0x" + "01" * 32, block=9, arguments=forced)
    market.note("chain.reorged", fork_block=8)
    market.close_epoch()
    assert market.report().promises == ()


# The report

ENDS = ("accepted", "rejected", "waiting", "disputed", "challenged", "expired", "abandoned", "reorged", "open")
stories = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(ENDS)), max_size=25)


def tell(market: Market, number: int, end: str) -> None:
    task = market.lease(node(number), PROVIDER if number < 3 else OTHER_PROVIDER)
    if end in ("expired", "abandoned", "reorged"):
        market.end(task, end)
    elif end != "open":
        submission_id = market.receive(task)
        if end == "rejected":
            market.settle(submission_id, "duplicate")
        elif end != "waiting":
            market.note(f"submission.{end}", submission_id, reason=None)


@given(stories=stories)
def test_numbers_add_up(stories: list[tuple[int, str]]) -> None:
    market = make_market()
    for number, end in stories:
        tell(market, number, end)
    report = market.report()
    rows = [*report.providers, *(row for provider in report.providers for row in provider.nodes)]
    for one in [report.total, *(row.account for row in rows)]:
        ended = one.num_received + one.num_expired + one.num_abandoned + one.num_reorged
        assert one.num_leased == ended + one.num_open
        assert one.num_received == sum(one.judgements.values())
        assert sum(one.rejected.values()) == one.judgements["rejected"]
    assert report.total.num_leased == len(stories)
    for name in ("num_leased", "num_received", "num_units"):
        by_provider = [getattr(row.account, name) for row in report.providers]
        assert sum(by_provider) == getattr(report.total, name)
        for row in report.providers:
            assert sum(getattr(node.account, name) for node in row.nodes) == getattr(row.account, name)
    assert {one.value for one in Judgement} == set(report.total.judgements)


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=20), st.lists(st.integers(-9, 9), min_size=1, max_size=20))
def test_what_comes_back_and_what_is_lost_lie_on_either_side(delivered: list[int], lost: list[int]) -> None:
    z = z_of(delivered, lost)
    if len({*delivered, *lost}) == 1:
        assert z is None
    else:
        difference = sum(delivered) / len(delivered) - sum(lost) / len(lost)
        assert z is not None
        assert abs(difference) < 1e-9 or (z > 0) == (difference > 0)


def test_the_same_log_gives_the_same_report(market: Market) -> None:
    for number in (3, 1, 2):
        work(market, node(number), PROVIDER if number == 2 else OTHER_PROVIDER, drops_above=HARD_TERMS, times=4)
    first, second = (market.report(with_files=True).as_json({}) for _ in range(2))
    assert first == second
    assert first["schema_version"] == 1
    assert [row["provider"] for row in first["providers"]] == [PROVIDER, OTHER_PROVIDER]


def test_what_a_coordinator_names_doesnt_steer_a_terminal() -> None:
    unknown = RULES.environment.model_copy(update={"name": "x\x1b[2J"})
    market = make_market(RULES.model_copy(update={"environment": unknown}))
    market.lease()
    assert "\x1b" not in "".join(fairness_lines(market.report()))


def test_an_empty_log_has_a_report(market: Market) -> None:
    assert next(fairness_lines(market.report())) == "nothing was leased"


def test_tables_fit_a_terminal(market: Market) -> None:
    for number in range(1, 15):
        work(market, node(number), PROVIDER if number % 2 else OTHER_PROVIDER, drops_above=HARD_TERMS, times=3)
    task = market.lease()
    for number in range(1, 9):
        market.receive(market.lease(node(number)), market.rollouts(task))
    refusals = [[node(n), "termination_invalid", 10**9] for n in range(30)]
    market.note("door.refused", leases=refusals, submissions=[], others={"leases": {"not_registered": 3}})
    missing = market.receive(market.lease(), logged=False)
    market.close_epoch()
    lines = "\n".join(fairness_lines(market.report(with_files=True))).split("\n")
    assert max(map(len, lines)) <= MAX_WIDTH
    assert any(missing in line for line in lines)


# Receipts on disk


def test_an_outbox_has_receipts_and_refusals(market: Market, tmp_path: Path) -> None:
    market.receive(market.lease())
    (held,) = market.receipts
    (tmp_path / "0x01.answer.json").write_text(held.model_dump_json())
    (tmp_path / "0x02.answer.json").write_text('{"receipt": null, "submission": null, "refusal": "duplicate"}')
    (tmp_path / "0x03.json").write_text("{}")
    assert read_receipts([tmp_path, tmp_path / "0x01.answer.json"]) == [held, held]


@pytest.mark.parametrize("content", [None, "{", "{}", '{"receipt": {}}'])
def test_a_file_without_a_receipt_is_told(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "answer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match="answer.json"):
        read_receipts([path])
