"""The rules documents that tasks were leased under, kept for as long as anything names them.

In: JSON files at the start. Out: `Rules` by hash.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy.orm import Session

from coordinator.db.work import RulesDocument
from protocol.errors import ConfigError, NotFound
from protocol.rules import Rules


def rules_document(session: Session, rules_hash: str) -> Rules:
    """Raises NotFound where no such rules were ever given to this coordinator."""
    row = session.get(RulesDocument, rules_hash)
    if row is None:
        raise NotFound("no such rules", rules_hash, "GET /v1/pool names the rules that are in force")
    return _parsed(json.dumps(row.document))


def remember_rules(session: Session, rules: Rules) -> None:
    """Keep a document; the same one twice is one."""
    session.merge(RulesDocument(rules_hash=rules.rules_hash, document=rules.model_dump(mode="json")))


def read_rules(file: Path) -> Rules:
    """A rules document from a JSON file. Raises ConfigError."""
    try:
        return Rules.model_validate_json(file.read_text())
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise ConfigError("a rules file can't be read", f"{file}: {error}", "name JSON rules in rules_files") from error


def check_rules(session: Session, rules_hash: str, files: Sequence[Path]) -> None:
    """Raises ConfigError where the pool's rules are none of those that were ever given: nobody could work by them."""
    if session.get(RulesDocument, rules_hash) is not None:
        return
    given = ", ".join(f"{file} has {read_rules(file).rules_hash}" for file in files)
    raise ConfigError(
        "the pool's rules aren't here",
        f"the pool names {rules_hash}; {given or 'no file is named'}",
        "name the JSON document with that hash in `rules_files`",
    )


@lru_cache(maxsize=16)
def _parsed(document: str) -> Rules:
    return Rules.model_validate_json(document)
