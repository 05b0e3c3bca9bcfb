"""`proofpool audit replay`: run a submission's verification again, and hold it against each verdict in the log."""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import typer

from verifier.audit.options import CacheOption, JsonOption, ModelOption, Source, SubmissionId, takes_evidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verifier.audit.replay.replay import Replay


@takes_evidence
def replay(
    submission_id: SubmissionId,
    model: ModelOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
    *,
    source: Source,
) -> int:
    """Judge a submission again, every rollout, and say of each verdict in the log whether it agrees.

    Takes the weights of its policy version, which are fetched and held against the hash on chain, or --model. Exit
    code 3 where a verdict doesn't hold: its validator is named. With --bundle and --model nobody is asked.
    """
    from protocol.client import CoordinatorClient
    from protocol.progress import Progress
    from verifier.audit.bundle.evidence import fetch_bundle, gathered
    from verifier.audit.replay.lines import replay_lines
    from verifier.audit.replay.pinned import ModelSource
    from verifier.audit.replay.replay import NUM_STEPS, Replayer

    def servers() -> Sequence[str]:
        with closing(CoordinatorClient(source.coordinator)) as client:
            return client.pool().shardcast_urls

    evidence, ground = gathered(submission_id, source)
    with Progress(f"replay of {submission_id}", NUM_STEPS, verb="waiting for", is_patient=True) as progress:
        fetch = None if source.bundle else partial(fetch_bundle, source.coordinator)
        replayer = Replayer(ModelSource(model, servers, cache), fetch)
        found = replayer.replay(evidence, ground, submission_id, progress)
    command = _command(found, source, source.ledger or ground.facts.contracts.ledger)
    if as_json:
        typer.echo(json.dumps({**found.model_dump(mode="json"), "command": command}, indent=2))
    else:
        for line in replay_lines(found, command):
            typer.echo(line)
    return found.exit_code


def _command(found: Replay, source: Source, ledger: str) -> str | None:
    """The line to run, of who has the keys."""
    if found.remedy == "challenge":
        where = f"--coordinator {source.coordinator} --chain {source.chain or 'URL'} --ledger {ledger}"
        return f"proofpool audit challenge {found.submission_id} {where} --keystore K --password-file P"
    if found.remedy == "appeal":
        return f"proofpool provider appeal {found.submission_id} --config worker.toml"
    return None
