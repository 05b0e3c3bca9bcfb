"""`Fairness` for a terminal: providers and nodes by number, in tables that fit a hundred columns.

In: the report. Out: lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from textwrap import wrap

from protocol.plain import plain
from verifier.audit.fairness.fairness import Account, Fairness, Measure, Overlap
from verifier.audit.fairness.leases import Judgement
from verifier.audit.fairness.questions import QUESTION_CHARACTERS
from verifier.audit.fairness.refused import DOORS
from verifier.audit.table import MAX_WIDTH, share, table

ALL, OTHERS_NAME = "all", "others"
FAR = 3.0
"""Standard errors beyond which a line is marked: an honest one is there about once in 370."""
MAX_ROWS = 20
"""Pairs of nodes, refusals and promises that are listed; `--json` has more."""

Names = Mapping[str, str]


def fairness_lines(report: Fairness) -> Iterator[str]:
    if not report.total.num_leased:
        yield "nothing was leased"
    else:
        names = _names(report)
        accounts = _accounts(report, names)
        yield from _address_rows(report, names)
        yield from ("", "leases; lost: expired and abandoned, of those that ended", *_lease_table(accounts))
        yield from ("", "what was received; tokens: of a rollout, on average", *_work_table(accounts))
        yield from _rejection_lines(accounts)
        yield from _measure_lines(report, accounts)
        yield from _overlap_lines(report, names)
    yield from _refusal_lines(report)
    yield from _promise_lines(report)
    yield from _notes(report)


def _names(report: Fairness) -> dict[str, str]:
    """Short names by address; a provider that is its own node has the node's."""
    names = {row.provider: f"P{number}" for number, row in enumerate(report.providers, 1)}
    nodes = [node.node for row in report.providers for node in row.nodes]
    return names | {node: f"N{number}" for number, node in enumerate(nodes, 1)}


def _accounts(report: Fairness, names: Names) -> dict[str, Account]:
    """By short name: all, then each provider, followed by its nodes where there are several."""
    accounts = {ALL: report.total}
    for number, row in enumerate(report.providers, 1):
        accounts[f"P{number}"] = row.account
        if len(row.nodes) > 1:
            accounts |= {names[node.node]: node.account for node in row.nodes}
    return accounts


def _address_rows(report: Fairness, names: Names) -> Iterator[str]:
    rows = [("", "address", "node of")]
    for number, row in enumerate(report.providers, 1):
        rows.append((f"P{number}", row.provider, ""))
        rows += [(names[node.node], node.node, f"P{number}") for node in row.nodes]
    yield from table(rows, 3)


def _lease_table(accounts: Mapping[str, Account]) -> Iterator[str]:
    rows = [("", "leased", "received", "expired", "abandoned", "reorged", "open", "lost")]
    for name, one in accounts.items():
        lost = one.num_expired + one.num_abandoned
        counts = (one.num_leased, one.num_received, one.num_expired, one.num_abandoned, one.num_reorged, one.num_open)
        rows.append((name, *map(str, counts), share(lost, lost + one.num_received)))  # type: ignore[arg-type]
    yield from table(rows)


def _work_table(accounts: Mapping[str, Account]) -> Iterator[str]:
    has_rewards = any(one.rewards for one in accounts.values())
    header = ("", *(judgement.value for judgement in Judgement), "rollouts", "tokens")
    rows = [(*header, "reward", "full") if has_rewards else header]
    for name, one in accounts.items():
        row = (name, *map(str, one.judgements.values()), str(one.num_rollouts), _number(one.mean_units))
        rows.append((*row, *_reward_cells(one)) if has_rewards else row)
    yield from table(rows)


def _reward_cells(account: Account) -> tuple[str, str]:
    rewards = account.rewards
    if rewards is None:
        return "-", "-"
    return f"{rewards['mean']:.4f}", share(int(rewards["num_full"]), int(rewards["num_rollouts"]))


def _rejection_lines(accounts: Mapping[str, Account]) -> Iterator[str]:
    for name, one in accounts.items():
        if one.rejected:
            yield f"{name} rejected: {', '.join(f'{reason} {number}' for reason, number in one.rejected.items())}"


def _measure_lines(report: Fairness, accounts: Mapping[str, Account]) -> Iterator[str]:
    """The environment's own measures first, then lengths."""
    if not report.total.measures:
        return
    rows = [("", "", "leased", "delivered", "lost", "z")]
    order = sorted(report.total.measures, key=lambda name: (name >= QUESTION_CHARACTERS, name))
    for measure in order:
        rows += [(measure, *_measure_row(name, one.measures.get(measure))) for name, one in accounts.items()]
    yield from ("", "what was asked, a task's groups on average, by the seeds; z beyond 3 is marked", *table(rows, 2))


def _measure_row(name: str, measure: Measure | None) -> tuple[str, str, str, str, str]:
    if measure is None:
        return name, "-", "-", "-", "-"
    mark = " <" if measure.z is not None and abs(measure.z) > FAR else ""
    z = "-" if measure.z is None else f"{measure.z:+.1f}{mark}"
    return name, _number(measure.leased), _number(measure.delivered), _number(measure.lost), z


def _overlap_lines(report: Fairness, names: Names) -> Iterator[str]:
    if report.overlap is None:
        yield from ("", "overlap between nodes, and rewards: not looked at (give --files)")
        return
    yield from ("", "nodes with the same completion of the same question")
    yield from _pair_lines(report.overlap, names)
    said = ", ".join(f"{number} {what}" for what, number in (report.files or {}).items())
    yield f"files: {said or 'none'}"


def _pair_lines(overlap: Overlap, names: Names) -> Iterator[str]:
    if not overlap.pairs:
        yield "none"
        return
    rows = [("", "", "questions of both", "same completions", "of", "of", "longest (tokens)")]
    for pair in overlap.pairs[:MAX_ROWS]:
        own = (str(overlap.num_completions.get(node, 0)) for node in pair.nodes)
        cells = (str(pair.num_questions), str(pair.num_completions), *own, str(pair.most_tokens))
        rows.append((names.get(pair.nodes[0], "?"), names.get(pair.nodes[1], "?"), *cells))  # type: ignore[arg-type]
    yield from table(rows, 2)
    if overlap.num_pairs > MAX_ROWS:
        yield f"and {overlap.num_pairs - MAX_ROWS} pairs more"


def _refusal_lines(report: Fairness) -> Iterator[str]:
    rows = [
        (node or OTHERS_NAME, door, reason, str(number))
        for door in DOORS
        for node, said in report.refused.by_node(door).items()
        for reason, number in said.items()
    ]
    yield from (
        "",
        f"refused at the door, as the coordinator counts it (epochs with refusals: {report.refused.num_epochs})",
    )
    if not rows:
        yield "nobody"
        return
    rows.sort(key=lambda row: (row[0] == OTHERS_NAME, -int(row[3]), row))
    yield from table([("node", "what", "why", "times"), *rows[:MAX_ROWS]], 3)
    if len(rows) > MAX_ROWS:
        yield f"and {len(rows) - MAX_ROWS} lines more (--json has them)"


def _promise_lines(report: Fairness) -> Iterator[str]:
    states = Counter(promise.state.value for promise in report.promises)
    said = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    yield from ("", f"promises of inclusion: {said or 'none at hand (give --receipts)'}")
    told = [promise for promise in report.promises if promise.state.value != "kept"]
    for promise in told[:MAX_ROWS]:
        yield f"{promise.state.value:<7}  {promise.submission_id}  {promise.kind}, epoch {promise.epoch}"
    if len(told) > MAX_ROWS:
        yield f"and {len(told) - MAX_ROWS} more (--json has them)"


def _notes(report: Fairness) -> Iterator[str]:
    notes = [_environment_note(one) for one in report.environments]
    if report.num_underived:
        notes.append(f"{report.num_underived} leases don't follow from the log: what they asked isn't known")
    if report.num_foreign:
        notes.append(f"{report.num_foreign} leases are under beacons that the chain hasn't: a reorg, or a lie")
    if report.num_unexplained:
        notes.append(f"{report.num_unexplained} events are about work that the log hasn't, or that was over")
    if report.unreadable["num_unreadable"]:
        number, first = report.unreadable["num_unreadable"], report.unreadable["first_unreadable"]
        notes.append(f"{number} events can't be read, the first is leaf {first}")
    if said := [note for note in notes if note]:
        yield ""
        yield from (line for note in said for line in wrap(plain(note), MAX_WIDTH))


def _environment_note(environment: Mapping[str, object]) -> str:
    name = environment["name"] or environment["rules_hash"]
    if environment["unavailable"]:
        return f"no difficulty for {name}: {environment['unavailable']}"
    if not environment["is_checked"]:
        return f"{name} isn't held against the hash in the rules: that takes the pool's tokenizer (give --model)"
    return ""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
