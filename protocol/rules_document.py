"""A pool's rules as they are written: the whole of them, or as much as is decided, with the rest filled in.

In: a JSON document, a tokenizer (part of the environment's hash). Out: `Rules`. Filled in are the environment's hash,
and short sums where there is no environment. Limits are of who judges: calibrations and rehearsals bring their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from protocol.environments.registry import load_environment
from protocol.errors import ConfigError, UsageError
from protocol.rules import FlipTest, Limit, Rules, Thresholds
from protocol.tokenizer import Tokenizer

DEFAULT_ENVIRONMENT: dict[str, Any] = {
    "name": "reasoning_gym",
    "config": {
        "dataset": "chain_sum",
        "parameters": {"min_terms": 2, "max_terms": 5, "min_digits": 1, "max_digits": 2, "allow_negation": False},
        "answer_marker": "#",
    },
}
_NOTHING = Limit(reject=0.0)
NOBODY_JUDGES = Thresholds(
    toploc_exp_mismatch_share=_NOTHING,
    toploc_mantissa_mean=_NOTHING,
    sampling_margin_mean=_NOTHING,
    sampling_margin_max=_NOTHING,
    sampling_flips=FlipTest(rate=1e-9),
    logprob_error_mean=_NOTHING,
)
"""Limits of rules under which nothing is proved or checked: rehearsals and filters. A pool would refuse everything."""


def partial_document(path: Path) -> dict[str, Any]:
    """As much of a pool's rules as is decided. Raises UsageError for a file that isn't a JSON object."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} can't be read as rules", str(error).splitlines()[0]) from error
    if not isinstance(document, dict):
        raise UsageError(f"{path} can't be read as rules", "it isn't a JSON object")
    return document


def unjudged_rules(path: Path, tokenizer: Tokenizer) -> Rules:
    """Of a document that may have no limits yet, for who makes rollouts that nobody judges."""
    return completed_rules({"thresholds": NOBODY_JUDGES, **partial_document(path)}, tokenizer)


def completed_rules(document: Mapping[str, Any], tokenizer: Tokenizer) -> Rules:
    """The document with what it leaves out filled in. Raises ConfigError where that doesn't make rules."""
    named = document.get("environment", DEFAULT_ENVIRONMENT)
    filled = {**document, "environment": named}
    try:
        if "environment_hash" not in named:
            environment = load_environment(named["name"], named.get("config", {}), tokenizer)
            filled["environment"] = {**named, "environment_hash": environment.environment_hash}
        return Rules.model_validate(filled)
    except (ValidationError, KeyError, TypeError) as error:
        why = (
            "; ".join(f"{e['loc']}: {e['msg']}" for e in error.errors())
            if isinstance(error, ValidationError)
            else f"{error}"
        )
        raise ConfigError("the rules can't be used", why, "docs/protocol.md describes them") from error
