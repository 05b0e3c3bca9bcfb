"""Generated parts of the pages: settings of each role, messages, reasons, exit codes.

In: the sources (settings are read from the text, so that no role's packages are needed). Out: Markdown
between `<!-- generated: NAME -->` and `<!-- end -->`. Used by docs/generate.py; run `make docs`.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import limits  # beside this file

from protocol import wire
from protocol.errors import ProofpoolError
from protocol.reasons import RejectReason
from protocol.signing import TypedMessage

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = {
    "settings of the worker": ("worker/config.py", "WorkerConfig"),
    "settings of the provider": ("worker/provider/config.py", "ProviderConfig"),
    "settings of the verifier": ("verifier/config.py", "VerifierConfig"),
    "settings of the trainer": ("trainer/config.py", "TrainerConfig"),
    "settings of a rehearsal": ("trainer/rehearsal.py", "RehearsalConfig"),
    "scale of the trainer": ("trainer/ranks.py", "ScaleConfig"),
    "evaluation of the trainer": ("trainer/held_back.py", "EvaluationConfig"),
    "publishing of the trainer": ("trainer/config.py", "PublishingConfig"),
    "recipe of the trainer": ("trainer/learner.py", "RecipeConfig"),
    "lora of the trainer": ("trainer/lora.py", "LoraConfig"),
    "objective of the trainer": ("trainer/loss.py", "ObjectiveConfig"),
    "clip of the trainer": ("trainer/loss.py", "ClipConfig"),
    "settings of the coordinator": ("coordinator/config.py", "CoordinatorConfig"),
    "settings of the testnet": ("testnet/plan.py", "Plan"),
}
SUMMARY = ("testnet/summary.py", "Summary")
COMMON = {
    "coordinator_url": "Where the coordinator answers, such as `http://127.0.0.1:8700`.",
    "chain_url": "JSON-RPC endpoint of a node of the pool's chain.",
    "pool_id": "The pool's number on chain.",
    "keystore": "The process's key: a Web3 Secret Storage file, mode 0600.",
    "password_file": "Its first line opens the keystore; without it, the variable `PROOFPOOL_PASSWORD`.",
    "log_format": "`json`, `pretty`, or `auto`: pretty on a terminal, JSON lines elsewhere.",
    "num_threads": "Threads that torch computes with.",
    "poll_seconds": "Pause between two looks for what is waited for.",
    "seed": "Seed of torch's random numbers.",
    "host": "Address to listen on.",
    "engine": "What generates.",
    "retry_most_seconds": "The longest wait between two attempts.",
    "scale": "On what the model is computed, and how it is dealt over ranks: a table of its own, below.",
    "evaluation": "Held-back problems, every so many steps: a table of its own, below.",
    "publishing": "Snapshots, patches and how long versions are kept: a table of its own, below.",
    "recipe": "How a batch becomes optimizer steps: a table of its own, below.",
    "learning_rate": "Of AdamW, after the warm-up.",
    "betas": "Of AdamW.",
    "weight_decay": "Of AdamW.",
    "warmup_steps": "Optimizer steps over which the learning rate grows from nothing.",
    "grad_norm_clip": "The gradient's norm is cut to this.",
    "objective": "What is maximised: a table of its own, below.",
    "clip": "The two-sided clip: a table of its own, below.",
    "normalisation": "How the loss is shared: tokens alike (DAPO), completions alike (GRPO), by a constant (Dr. GRPO).",
}
"""Meanings of settings that explain themselves in the code."""

OWN = {
    "ProviderConfig": {
        "ledger": "The Ledger contract, which names the others.",
        "deployment": "Deployment file (`proofpool chain deploy`) that the chain must agree with.",
    },
    "Plan": {
        "seed": "Keys follow from it, and the salt of the deployment together with the chain's head.",
        "num_steps": "Policy versions to train.",
        "num_workers": "Honest workers.",
        "cheats": "A worker for each.",
        "chain_url": "A node to use instead of starting one.",
        "base_model": "Hugging Face folder of policy version 0.",
        "max_async": "How many versions behind a rollout may be.",
        "groups_per_step": "Groups with variance that make a batch.",
        "recipe": "The trainer's `[recipe]`.",
        "timeout_seconds": "The run ends with an error after this long.",
    },
    "Summary": {
        "schema_version": "Of this document.",
        "seed": "As given.",
        "steps": "Optimizer steps taken.",
        "chain": "Which node served: anvil, the embedded one, or an external one.",
        "accepted": "Submissions, all workers.",
        "rejected": "Submissions, all workers.",
        "rejected_by_reason": "Counts by reason.",
        "honest_rejected": "Rejected submissions of honest workers; must be 0.",
        "expired": "Leases that ended without a submission.",
        "restarted": "Processes that were killed and started again, in order.",
        "slashed": "Addresses of slashed providers.",
        "cheaters": "Addresses of the providers of cheating workers.",
        "reward_first": "Pass rate of version 0 on 1,024 held-back problems, 0 to 1.",
        "reward_last": "The same of the last version.",
        "policy_version": "The newest that was published.",
        "ledger_root": "Root of the newest log head on chain.",
        "credits_paid_wei": "Claimed from the pool, base units.",
        "credits_owed_wei": "Earned and not claimed, base units.",
        "audit": "`ok` or `failed`: `audit verify` of the first accepted and each slashed submission, `audit money`.",
        "trusted_head": "The anchored log head that the kept bundles lead to, as `EPOCH:SIZE:ROOT`.",
        "audited": "Submissions whose every claim was checked, and whose bundles are kept.",
        "first_accept_seconds": "From the start to the first accepted submission.",
        "wall_seconds": "Of the whole run.",
        "run_dir": "The run folder.",
    },
}
"""Meanings that differ from those of the same name elsewhere, by class."""

SIGNERS = {
    "NodeAuthorization": ("the node", "Registry"),
    "Task": ("the coordinator", "Ledger"),
    "Renewal": ("the coordinator", "Ledger"),
    "Submission": ("the node", "Ledger"),
    "Receipt": ("the coordinator", "Ledger"),
    "Verdict": ("the validator", "Ledger"),
    "VerdictCommitment": ("the validator", "Ledger"),
    "Batch": ("the coordinator", "Ledger"),
    "WeightsRelease": ("the trainer", "Ledger"),
    "ShardListing": ("the trainer", "Ledger"),
    "DownloadToken": ("whom a relay trusts", "Ledger"),
    "EarningsAttestation": ("the validator", "Ledger"),
    "EpochAttestation": ("the validator", "Ledger"),
    "HttpRequest": ("whoever asks", "Ledger"),
}
MARKS = re.compile(r"<!-- generated: (?P<name>[^>]+?) -->\n.*?<!-- end -->", re.DOTALL)


@dataclass(frozen=True)
class Setting:
    """One field of a configuration, as its source spells it."""

    name: str
    kind: str
    default: str | None
    meaning: str


def with_generated_parts(page: str) -> str:
    """A page with its generated parts made anew. Raises KeyError for a part that nothing makes."""

    def renewed(found: re.Match[str]) -> str:
        name = found["name"]
        part = settings_table(*SETTINGS[name]) if name in SETTINGS else PARTS[name]()
        return f"<!-- generated: {name} -->\n{part}\n<!-- end -->"

    return MARKS.sub(renewed, page)


def settings_table(path: str, class_name: str) -> str:
    lines = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for one in settings(ROOT / path, class_name):
        default = "required" if one.default is None else f"`{one.default}`"
        kind = one.kind.replace("|", "\\|")
        lines.append(f"| `{one.name}` | `{kind}` | {default} | {one.meaning} |")
    return "\n".join(lines)


def settings(file: Path, class_name: str) -> Iterator[Setting]:
    """The fields of a configuration class, in order, with the text below each."""
    tree = ast.parse(file.read_text())
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            meaning = _text_of(after) or (COMMON | OWN.get(class_name, {}))[name]
            yield Setting(name, ast.unparse(node.annotation), _default(node.value), meaning)


def _text_of(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""


def _default(value: ast.expr | None) -> str | None:
    """The default's source; None where there is none."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "Field":
        named = {keyword.arg: ast.unparse(keyword.value) for keyword in value.keywords}
        return named.get("default", named.get("default_factory"))
    return None if value is None else ast.unparse(value)


def summary_table() -> str:
    lines = ["| field | type | meaning |", "|---|---|---|"]
    for one in settings(ROOT / SUMMARY[0], SUMMARY[1]):
        lines.append(f"| `{one.name}` | `{one.kind.replace('|', chr(92) + '|')}` | {one.meaning} |")
    return "\n".join(lines)


def reasons_table() -> str:
    lines = ["| reason | code | cost | what to do |", "|---|---|---|---|"]
    lines.extend(f"| `{one.value}` | {one.code} | {one.cost.value} | {one.hint} |" for one in RejectReason)
    return "\n".join(lines)


def messages() -> str:
    """Each signed message: who signs it, what it says, its EIP-712 type."""
    parts = []
    for name, (signer, contract) in SIGNERS.items():
        message: type[TypedMessage] = getattr(wire, name)
        says = " ".join((message.__doc__ or "").split("\n\n")[0].split())
        parts.append(
            f"**{name}**, signed by {signer}, domain of the {contract}: {says}\n\n"
            f"    {_wrapped(message.solidity_type)}\n"
        )
    return "\n".join(parts).rstrip("\n")


def _wrapped(solidity_type: str) -> str:
    """A type on several lines of a code block; the real one has no line breaks."""
    lines, line = [], ""
    for member in re.split(r"(?<=,)", solidity_type):
        if line and len(line) + len(member) > 100:
            lines.append(line)
            line = ""
        line += member
    return "\n    ".join([*lines, line])


def exit_codes() -> str:
    """The error tree as a list of exit codes."""
    lines = ["| exit code | error | meaning |", "|---|---|---|", "| 0 | | done |"]
    kinds = sorted(_kinds(ProofpoolError), key=lambda kind: kind.exit_code)
    for kind in kinds:
        says = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
        lines.append(f"| {kind.exit_code} | `{kind.__name__}` | {says} |")
    return "\n".join([*lines, "| 130 | | interrupted |"])


def _kinds(root: type[ProofpoolError]) -> Iterator[type[ProofpoolError]]:
    """The classes of protocol/errors.py."""
    if root.__module__ == "protocol.errors":
        yield root
    for child in root.__subclasses__():
        yield from _kinds(child)


def metrics_table(module: str) -> str:
    """The metrics of a role, as they are scraped."""
    found = importlib.import_module(module)
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for one in found.METRICS:
        labels = ", ".join(f"`{label}`" for label in one.labels) or "–"
        lines.append(f"| `{one.full_name(found.ROLE)}` | {one.kind} | {labels} | {one.meaning} |")
    return "\n".join(lines)


def alerts_example() -> str:
    """A message's fields, out of its shape."""
    from worker.incidents import AlertMessage

    lines = ["| field | type |", "|---|---|"]
    for name, field in AlertMessage.model_fields.items():
        kind = str(field.annotation).removeprefix("<class '").removesuffix("'>").replace("typing.", "")
        lines.append(f"| `{name}` | `{kind.replace('|', chr(92) + '|')}` |")
    return "\n".join(lines)


PARTS: dict[str, Callable[[], str]] = {
    "reasons": reasons_table,
    "messages": messages,
    "exit codes": exit_codes,
    "metrics of the worker": partial(metrics_table, "worker.metrics"),
    "metrics of the trainer": partial(metrics_table, "trainer.metrics"),
    "metrics of a relay": partial(metrics_table, "protocol.shardcast.relay"),
    "metrics of an origin": partial(metrics_table, "protocol.shardcast.origin_status"),
    "metrics of the coordinator": partial(metrics_table, "coordinator.status"),
    "fields of an alert": alerts_example,
    "summary of the testnet": summary_table,
    **{f"thresholds of {name}": partial(limits.limits_table, name) for name in limits.file_names()},
}
