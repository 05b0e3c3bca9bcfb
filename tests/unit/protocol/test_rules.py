"""Rules: one hash for one document, room for small samples, and numbers that canonical JSON has no form for."""

import json

import pytest
from pydantic import ValidationError

from protocol.rules import AuditRules, FlipTest, Limit, Rules
from tests.unit.protocol.test_prompts import make_rules


def test_tiny_numbers_are_decimal_strings_in_the_document_and_the_hash_is_the_same_after_a_round_trip() -> None:
    rules = make_rules()
    document = json.loads(rules.model_dump_json())
    assert document["thresholds"]["sampling_flips"] == {"rate": 0.01, "reject": "0.000001", "slash": "0.000000001"}
    again = Rules.model_validate_json(json.dumps(document))
    assert again == rules and again.rules_hash == rules.rules_hash


@pytest.mark.parametrize("spelled", [1e-6, "0.000001", "1e-6"])
def test_however_a_tiny_number_is_spelled_it_hashes_the_same(spelled: float | str) -> None:
    test = FlipTest.model_validate_json(json.dumps({"rate": 0.01, "reject": spelled}))
    assert test.model_dump_json() == FlipTest(rate=0.01).model_dump_json()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), "much"])
def test_a_limit_is_a_finite_number(number: object) -> None:
    with pytest.raises(ValidationError):
        Limit.model_validate({"reject": number})


def test_a_small_length_penalty_is_a_rule_and_a_negative_one_is_none() -> None:
    rules = make_rules(lengths={"targets": [100], "penalty_per_token": 0.00003})
    assert Rules.model_validate_json(rules.model_dump_json()).rules_hash == rules.rules_hash
    for lengths in ({"targets": [-1]}, {"penalty_per_token": -0.1}):
        with pytest.raises(ValidationError):
            make_rules(lengths=lengths)


def test_a_change_of_any_rule_changes_the_hash() -> None:
    hashes = {
        make_rules().rules_hash,
        make_rules(audit=AuditRules(policy="sampled", share=0.5)).rules_hash,
        make_rules(audit=AuditRules(policy="sampled", share=0.25)).rules_hash,
        make_rules(audit=AuditRules(num_stamps=8)).rules_hash,
    }
    assert len(hashes) == 4


def test_few_observations_get_more_room() -> None:
    limit = Limit(reject=0.01, slash=0.02, spread=0.1)
    assert limit.at(1).reject == pytest.approx(0.11) and limit.at(1).slash == pytest.approx(0.22)
    assert limit.at(100).reject == pytest.approx(0.02) and limit.at(100).slash == pytest.approx(0.04)
    assert limit.at(1).at(1) == limit.at(1)
    rare = Limit(reject=0.01, slash=0.02, burst=0.1)
    assert rare.at(1).reject == pytest.approx(0.11) and rare.at(100).reject == pytest.approx(0.011)
    assert rare.at(100).slash == pytest.approx(0.022)
    assert limit.gives_room and rare.gives_room and not rare.at(1).gives_room


def test_never_is_never_whatever_the_sample() -> None:
    assert Limit(reject=0.01, spread=1.0).at(1).slash is None


@pytest.mark.parametrize("rules", [{"share": 0}, {"share": 1.5}, {"policy": "some"}, {"num_stamps": 65}])
def test_an_audit_of_nothing_isnt_a_rule(rules: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        AuditRules.model_validate(rules)
