"""What a run came to: one document, and whether it did what it should.

In: a closed run and the two pass rates. Out: `Summary` (printed by `--json`) and its table.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from rich.console import Console

from protocol.signing import checksummed
from testnet.accounts import Provider
from testnet.arrivals import VersionArrivals, told_of_all
from testnet.closing import Findings
from testnet.evidence import BUNDLES
from testnet.hints import offline_commands
from testnet.profile import CREDIT
from testnet.run import Run
from testnet.tally import NodeTally

STEPS_TO_LEARN = 12
"""Fewer steps may be too few for the pass rate to rise. Another model's or task's may stay flat: that is a finding."""
OWED = "a root can be claimed from once its windows are over"
COMMANDS_SHOWN = 2
"""One accepted submission and one slashed: the first of each stand first."""


class Summary(BaseModel):
    """`proofpool testnet up --json`. Amounts are decimal strings in base units, rates lie in 0 to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: int = 1
    seed: int
    steps: int
    chain: str
    accepted: int
    rejected: int
    rejected_by_reason: dict[str, int]
    honest_rejected: int
    expired: int
    restarted: list[str]
    slashed: list[str]
    cheaters: list[str]
    names: dict[str, str]
    """What each provider's worker is called, and how it cheats, by the provider's address."""
    reward_first: float
    reward_last: float
    num_held_back: int
    """Problems that both rates are of."""
    policy_version: int
    ledger_root: str
    credits_paid_wei: str
    credits_owed_wei: str
    audit: str
    audited: list[str]
    trusted_head: str
    first_accept_seconds: float | None
    wall_seconds: float
    versions: tuple[VersionArrivals, ...]
    """How each version reached the workers."""
    run_dir: str
    checks: dict[str, bool]
    """What a run has to show; the exit code is 0 only if all hold."""

    @property
    def passed(self) -> bool:
        return all(self.checks.values())


def summarise(run: Run, findings: Findings, rates: list[float], wall_seconds: float) -> Summary:
    tally = run.observer.tally
    honest_rejected = sum(
        tally.node(p.node.address).rejected.total() for p in run.accounts.providers if p.cheat is None
    )
    checks = _checks(run, findings, rates, honest_rejected)
    return Summary(
        seed=run.plan.seed,
        steps=tally.step,
        chain=run.node.name,
        accepted=tally.accepted,
        rejected=tally.rejected,
        rejected_by_reason=tally.rejected_by_reason,
        honest_rejected=honest_rejected,
        expired=tally.expired,
        restarted=list(run.restarted),
        slashed=list(findings.slashed),
        cheaters=[provider.owner.address for provider in run.accounts.cheaters],
        names={provider.owner.address: _name(provider) for provider in run.accounts.providers},
        reward_first=rates[0],
        reward_last=rates[1],
        num_held_back=run.plan.num_held_back,
        policy_version=tally.policy_version or 0,
        ledger_root=findings.ledger_root,
        credits_paid_wei=str(findings.paid_wei),
        credits_owed_wei=str(findings.owed_wei),
        audit="ok" if findings.passed else "failed",
        audited=list(findings.submission_ids),
        trusted_head=findings.trusted_head,
        first_accept_seconds=run.first_accept_seconds,
        wall_seconds=round(wall_seconds, 1),
        versions=run.arrivals.versions,
        run_dir=str(run.run_dir),
        checks=checks,
    )


def _checks(run: Run, findings: Findings, rates: list[float], honest_rejected: int) -> dict[str, bool]:
    """What this run has to show, and whether it does."""
    cheaters = run.accounts.cheaters
    checks = {
        "all steps taken": run.observer.tally.policy_version == run.plan.num_steps,
        "no honest submission rejected": honest_rejected == 0,
        "audit": findings.passed,
    }
    if cheaters:
        nodes = [run.observer.tally.node(cheater.node.address) for cheater in cheaters]
        checks["each cheat rejected from its first submission on"] = all(map(_never_accepted, nodes))
        checks["exactly the cheaters slashed"] = sorted(findings.slashed) == sorted(c.owner.address for c in cheaters)
    else:
        checks["nobody slashed"] = not findings.slashed
    if run.plan.is_own_task and run.plan.num_steps >= STEPS_TO_LEARN:
        checks["the last weights pass more than the first"] = rates[1] > rates[0]
    return checks


def print_summary(summary: Summary, console: Console) -> None:
    """For people."""
    print_lines(("", *(f"{name:<15} {value}" for name, value in _rows(summary))), console)
    for name, holds in summary.checks.items():
        console.print(f"{'✓' if holds else '✗'} {name}", style="green" if holds else "bold red")
    console.print("\nCheck it again, with nothing running:")
    bundles = Path(summary.run_dir) / BUNDLES
    shown = summary.audited[:COMMANDS_SHOWN]
    print_lines(offline_commands(shown, bundles, summary.trusted_head), console)
    if len(summary.audited) > len(shown):
        console.print(f"and {len(summary.audited) - len(shown)} more bundles there", highlight=False)


def print_lines(lines: Iterable[str], console: Console) -> None:
    """As they are, to be pasted: neither wrapped nor coloured."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _rows(summary: Summary) -> list[tuple[str, str]]:
    reasons = ", ".join(f"{count} {reason}" for reason, count in summary.rejected_by_reason.items())
    return [
        ("pass rate", f"{_rates(summary)} on {summary.num_held_back:,} held-back problems"),
        ("submissions", f"{summary.accepted} accepted, {summary.rejected} rejected ({reasons or 'none'})"),
        ("slashed", ", ".join(f"{summary.names[a]}: provider {checksummed(a)}" for a in summary.slashed) or "nobody"),
        ("credits", f"{_credits(summary.credits_paid_wei)} paid, {_credits(summary.credits_owed_wei)} owed: {OWED}"),
        ("log root", summary.ledger_root),
        ("weights", told_of_all(summary.versions)),
        ("first accepted", f"after {summary.first_accept_seconds} s"),
        ("took", f"{summary.wall_seconds} s on {summary.chain}"),
        ("run folder", summary.run_dir),
    ]


def _rates(summary: Summary) -> str:
    return f"{summary.reward_first:.3f} -> {summary.reward_last:.3f}"


def _name(provider: Provider) -> str:
    return f"{provider.name} ({provider.cheat})" if provider.cheat else provider.name


def _credits(amount_wei: str) -> str:
    """Decimal text in base units as credits, every digit kept."""
    whole, part = divmod(int(amount_wei), CREDIT)
    return f"{whole}.{part:018d}".rstrip("0").rstrip(".")


def _never_accepted(node: NodeTally) -> bool:
    return node.settled > 0 and node.accepted == 0
