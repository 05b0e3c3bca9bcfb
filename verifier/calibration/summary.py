"""A calibration for people: its limits, what honest work came up to, and what the nearest deviations did.

In: a `ThresholdFile`. Out: lines on stdout.
"""

from __future__ import annotations

from pathlib import Path

from protocol.rules import Limit
from verifier.calibration.document import DeviationReport, ThresholdFile
from verifier.calibration.samples import STATISTICS
from verifier.calibration.tails import MIN_FAR


def print_summary(document: ThresholdFile, path: Path) -> None:
    """Everything that fits on a screen; the file has the rest."""
    honest = document.honest
    print(f"{document.model['name']}, {document.dtype}: {honest.num_rollouts} honest rollouts", end="")
    print(f" ({honest.num_judged} judgements, {honest.num_tokens} tokens, {len(honest.pairings)} pairings)")
    print(
        f"{'statistic':28}{'worst rollout':>15}{'submission':>12}{'reject':>10}{'slash':>10}{'spread':>10}{'burst':>10}"
    )
    for name in STATISTICS:
        limit: Limit | None = getattr(document.limits, name)
        if limit is None:
            continue
        worst = [max(getattr(p, kind)[name].highest for p in honest.pairings) for kind in ("rollouts", "submissions")]
        slash = "never" if limit.slash is None else f"{limit.slash:.4g}"
        print(f"{name:28}{worst[0]:>15.4g}{worst[1]:>12.4g}{limit.reject:>10.4g}{slash:>10}", end="")
        print(f"{limit.spread:>10.4g}{limit.burst:>10.4g}")
    limits, flips = document.limits, sum(pairing.num_flips for pairing in honest.pairings)
    print(f"flips: {flips} of {honest.num_tokens} tokens; rate {limits.sampling_flips.rate:.3g}", end="")
    print(f"; near-ties within {limits.near_tie_nats:g} nats flip at up to {limits.near_tie_flip_rate:.2g}")
    print(f"what befalls fewer than one rollout in {honest.num_rollouts // MIN_FAR} is beyond what this run can tell")
    for report in document.deviations:
        print(_line(report))
    print(f"written to {path}")


def _line(report: DeviationReport) -> str:
    times = report.times_reject
    nearest = max(times, key=lambda name: times[name])
    refused = f"{report.num_refused} of {report.num_submissions} submissions refused"
    return f"{report.deviation:24} {refused}; at least {times[nearest]:.3g} times the limit of {nearest}"
