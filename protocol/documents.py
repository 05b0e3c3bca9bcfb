"""What each command prints with `--json`: its shape, and the JSON Schema that docs/schemas has of it.

In: a command's words, such as `worker status`. Out: a validator of its documents, and their schema (2020-12). A script
that reads `--json` can hold it against `docs/schemas/worker-status.json`; `python docs/generate.py` writes these files.
A shape is a pydantic model, or any annotation that pydantic can read; it is imported only when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

from pydantic import TypeAdapter

SHAPES: dict[str, str] = {
    "testnet up": "testnet.summary:Summary",
    "worker status": "worker.status:NodeStatus",
    "worker init": "worker.init:InitReport",
    "worker bench": "worker.bench:BenchReport",
    "worker doctor": "protocol.doctor:DoctorReport",
    "worker explain": "worker.explain:Explanation",
    "worker verify": "protocol.checks.report:FileReports",
    "worker consent": "worker.provider.consent:NodeConsent",
    "provider register": "worker.provider.report:ProviderReport",
    "provider authorize": "worker.provider.report:ProviderReport",
    "provider stake": "worker.provider.report:ProviderReport",
    "provider unstake": "worker.provider.report:ProviderReport",
    "provider withdraw": "worker.provider.report:ProviderReport",
    "provider nodes": "worker.provider.nodes:NodeList",
    "provider revoke": "worker.provider.report:ProviderReport",
    "provider claim": "worker.provider.claiming:ClaimReport",
    "provider statement": "worker.provider.statement:ProviderStatement",
    "provider force-intake": "worker.provider.case_plans:ForceIntakeDocument",
    "provider appeal": "worker.provider.case_plans:AppealDocument",
    "key new": "protocol.key_commands:KeyFile",
    "key import": "protocol.key_commands:KeyFile",
    "key list": "protocol.key_commands:KeyList",
    "key export": "protocol.key_commands:KeyExport",
    "environments list": "protocol.environments.commands:EnvironmentList",
    "environments show": "protocol.environments.commands:ShownProblem",
    "environments try": "protocol.environments.commands:TriedAnswer",
    "verifier status": "verifier.status:VerifierStatus",
    "trainer status": "trainer.run_status:RunStatus",
    "trainer run": "trainer.dry_run:DryRun",
    "trainer filter": "trainer.problem_filter:FilterReport",
    "trainer data import": "trainer.data_import:ImportReport",
    "trainer data stats": "trainer.data_stats:DataStats",
    "verifier overlap": "verifier.completions:OverlapReport",
    "verifier check": "protocol.checks.report:FileReport",
    "verifier calibrate": "verifier.calibration.document:ThresholdFile",
    "coordinator bond": "coordinator.bond:BondStatus",
    "coordinator unbond": "coordinator.bond:BondStatus",
    "coordinator log-key": "coordinator.checkpoints:LogKeyMade",
    "chain deploy": "protocol.chain.deployment:Deployment",
    "chain info": "protocol.chain.info:ChainInfo",
    "chain faucet": "protocol.chain.faucet:Gift",
    "audit verify": "verifier.audit.documents:AuditDocument",
    "audit money": "verifier.audit.documents:MoneyDocument",
    "audit checkpoint": "verifier.audit.documents:AuditDocument",
    "audit watch": "verifier.audit.documents:WatchLine",
    "audit show": "verifier.audit.documents:ShowingDocument",
    "audit export": "verifier.audit.reports.export:ExportSummary",
    "audit replay": "verifier.audit.documents:ReplayDocument",
    "audit replay-step": "trainer.replay:StepReplay",
    "audit verifiers": "verifier.audit.documents:AccountabilityDocument",
    "audit fairness": "verifier.audit.documents:FairnessDocument",
    "audit challenge": "verifier.audit.documents:ChallengeDocument",
    "audit dispute-earnings": "verifier.audit.documents:DisputeDocument",
    "audit challenge-inclusion": "verifier.audit.documents:DemandDocument",
    "audit attest-epoch": "verifier.takeover:AttestedEpoch",
    "audit commit-epoch": "verifier.audit.documents:CommittedDocument",
    "audit attest-earnings": "verifier.takeover:AttestedEarnings",
    "audit commit-earnings": "verifier.audit.documents:CommittedDocument",
    "audit claim": "verifier.audit.documents:ClaimedDocument",
    "shardcast diff": "protocol.shardcast.patch_commands:PatchMade",
    "shardcast apply": "protocol.shardcast.patch_commands:PatchApplied",
    "shardcast get": "protocol.shardcast.report:FetchReport",
    "shardcast status": "protocol.shardcast.propagation:Propagation",
    "trace": "protocol.trace:Trace",
    "doctor": "protocol.doctor:DoctorReport",
}
"""By command: the module and name of its document's shape."""

ONE_A_LINE = ("audit watch",)
"""Commands that print a document a line (NDJSON); their schema is a line's."""


def shape_of(command: str) -> TypeAdapter[Any]:
    """Raises KeyError for a command without `--json`. Example: `shape_of("trace").validate_json(text)`."""
    module, _, name = SHAPES[command].partition(":")
    return TypeAdapter(getattr(importlib.import_module(module), name))


def schema_of(command: str) -> dict[str, Any]:
    """The JSON Schema of a command's document, or of a line where it prints several."""
    lines = " A document a line." if command in ONE_A_LINE else ""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": f"Generated: what `proofpool {command} --json` prints.{lines}",
        **shape_of(command).json_schema(mode="serialization"),
    }


def file_of(command: str) -> str:
    """The schema's name in docs/schemas."""
    return f"{command.replace(' ', '-')}.json"
