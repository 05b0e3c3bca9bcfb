"""Canonical JSON: one byte string for one value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.canonical import canonical_hash, canonical_json, keccak256
from protocol.errors import NotCanonical, ProofpoolError

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(0.001, 1e6) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def test_keys_are_sorted_by_utf16_and_numbers_are_shortest() -> None:
    # Example from RFC 8785, section 3.2.3: U+1F600 sorts before U+FB33 in UTF-16.
    value = {"\u20ac": 1, "\r": 2.0, "\ufb33": 3, "1": 0.5, "\U0001f600": 5}
    assert canonical_json(value).decode() == '{"\\r":2,"1":0.5,"\u20ac":1,"\U0001f600":5,"\ufb33":3}'


@given(json_values)
def test_canonical_bytes_survive_parsing_and_ignore_key_order(value: Any) -> None:
    once = canonical_json(value)
    assert canonical_json(json.loads(once)) == once
    if isinstance(value, dict):
        assert canonical_json(dict(reversed(value.items()))) == once


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, 1e300, 1e-9, 2e-5])
def test_numbers_without_one_spelling_are_refused(value: float) -> None:
    with pytest.raises(ProofpoolError):
        canonical_json({"x": value})


def test_keccak_is_ethereums_and_not_sha3() -> None:
    assert keccak256(b"").hex() == "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    assert canonical_hash({}) == "0x" + keccak256(b"{}").hex()


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\udfff":1}', "[" * 300 + "]" * 300, "9" * 4000, "[1e-300]"])
def test_what_has_no_canonical_form_is_refused_in_words(text: str) -> None:
    with pytest.raises(NotCanonical):
        canonical_json(json.loads(text))
