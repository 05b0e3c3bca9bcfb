"""Tables of docs/thresholds.md, from the committed threshold files (verifier/thresholds).

In: a file's name. Out: Markdown: its limits beside the honest quantiles, and what the nearest deviations came to.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "verifier" / "thresholds"
QUANTILES = ("median", "q99", "q999", "highest")


def file_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def limits_table(name: str) -> str:
    """A file's limits, then its deviations."""
    document = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return "\n\n".join([_honest(document), _limits(document), _deviations(document)])


def _honest(document: dict[str, Any]) -> str:
    honest, limits = document["honest"], document["limits"]
    flips, nats = limits["sampling_flips"], limits["near_tie_nats"]
    num_flips = sum(pairing["num_flips"] for pairing in honest["pairings"])
    num_judges = len({pairing["judge"] for pairing in honest["pairings"]})
    sides = document["derivations"].get("flip_sides")  # earlier files don't have it
    leaning = (
        f" ({sides['num_up']:,} to the likelier token, {sides['num_down']:,} to the less likely one)" if sides else ""
    )
    return (
        f"{honest['num_rollouts']:,} honest rollouts, judged {honest['num_judged']:,} times by "
        f"{num_judges} judges, {honest['num_tokens']:,} tokens; {num_flips:,} flips{leaning}, so "
        f"`sampling_flips.rate` {_number(flips['rate'])}; near-ties within {_number(nats)} nats, of which "
        f"{_number(limits['near_tie_flip_rate'])} may flip."
    )


def _limits(document: dict[str, Any]) -> str:
    lines = [
        "| statistic | one rollout: median | 99 % | 99.9 % | highest | submission: highest | reject | slash |",
        "|---|---:|---:|---:|---:|---:|---|---|",
    ]
    pairings = document["honest"]["pairings"]
    for name in pairings[0]["rollouts"]:
        alone = [max(pairing["rollouts"][name][quantile] for pairing in pairings) for quantile in QUANTILES]
        whole = max(pairing["submissions"][name]["highest"] for pairing in pairings)
        limit = document["limits"][name]
        cells = [*(_number(value) for value in (*alone, whole)), _limit(limit, "reject", 1), _limit(limit, "slash", 2)]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _deviations(document: dict[str, Any]) -> str:
    lines = ["| deviation | refused | by | its statistics, as multiples of the reject limit |", "|---|---:|---|---|"]
    for report in document["deviations"]:
        times = sorted(report["times_reject"].items(), key=lambda item: -item[1])[:3]
        nearest = ", ".join(f"`{name}` {_number(value)}" for name, value in times)
        by = ", ".join(f"`{check}`" for check in report["refused_by"]) or "nothing"
        refused = f"{report['num_refused']} of {report['num_submissions']}"
        lines.append(f"| {report['deviation']} | {refused} | {by} | {nearest} |")
    return "\n".join(lines)


def _limit(limit: dict[str, Any], key: str, times: int) -> str:
    if limit[key] is None:
        return "never"
    parts = [_number(limit[key])]
    for room, over in (("spread", "√n"), ("burst", "n")):
        if float(limit[room]):
            parts.append(f"{_number(times * float(limit[room]))}/{over}")
    return " + ".join(parts)


def _number(value: float | str) -> str:
    """Three digits, without an exponent."""
    number = float(value)
    if number == 0:
        return "0"
    text = f"{number:.3g}"
    return f"{number:.9f}".rstrip("0") if "e-" in text else text
