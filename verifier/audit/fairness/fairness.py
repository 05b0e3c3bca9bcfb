"""`proofpool audit fairness`: who was leased what, and what of it came back, by provider and node.

    leases       numbers that add up, from the log
    measures     difficulty and lengths of what was leased, of what came back and of what didn't, from the seeds
    rewards      as claimed, from files            overlap     completions that several nodes have, from files
    refused      as the coordinator counted        promises    receipts and forced intakes against the log

In: `Leases`, and what was read besides. Out: `Fairness`, the same for the same log, in order of addresses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from verifier.audit.fairness.deliveries import Deliveries, Rewards, SharedPair
from verifier.audit.fairness.leases import End, Judgement, Lease, Leases, Work
from verifier.audit.fairness.promises import Promise, promise_json
from verifier.audit.fairness.questions import Known
from verifier.audit.fairness.refused import Refused

LOST = (End.EXPIRED, End.ABANDONED)
DECIMALS = 6
MAX_PAIRS = 1_000
"""Pairs of nodes with an overlap in the report; of more the number is told."""


@dataclass(frozen=True)
class Measure:
    """A mean over tasks: all leased ones, those that came back, those that were lost (expired or abandoned).

    `z`: how far the mean of what came back lies from that of both together, in standard errors of a draw of so many
    tasks by lot; None where nothing was lost, or nothing came back, or all are alike.
    """

    leased: float
    delivered: float | None
    lost: float | None
    z: float | None


@dataclass(frozen=True)
class Account:
    """Leases and what became of them.

    num_leased = num_received + num_expired + num_abandoned + num_reorged + num_open;
    num_received = the sum of `judgements`, and `rejected`, by reason, adds up to its rejected.
    `num_rollouts`, `num_units` and the mean are of what was received, as it was counted at the door.
    """

    num_leased: int
    num_received: int
    num_expired: int
    num_abandoned: int
    num_reorged: int
    num_open: int
    judgements: dict[str, int]
    rejected: dict[str, int]
    num_rollouts: int
    num_units: int
    mean_units: float | None
    measures: dict[str, Measure]
    rewards: dict[str, float | int] | None


@dataclass(frozen=True)
class NodeRow:
    node: str
    account: Account


@dataclass(frozen=True)
class ProviderRow:
    provider: str
    account: Account
    nodes: tuple[NodeRow, ...]


@dataclass(frozen=True)
class Overlap:
    """Completions that several nodes have. `num_completions` by node: different ones, to different questions."""

    num_completions: dict[str, int]
    num_common: int
    num_pairs: int
    pairs: tuple[SharedPair, ...]


@dataclass(frozen=True)
class Fairness:
    """The report. `files` and `overlap` are None where no files were asked for."""

    total: Account
    providers: tuple[ProviderRow, ...]
    environments: tuple[dict[str, Any], ...]
    num_underived: int
    """Leases whose task doesn't follow from the log: nothing is known of what they asked."""
    num_foreign: int
    """Leases under a beacon that isn't the chain's: a deep reorg came after them, or the log lies."""
    num_unexplained: int
    """Events about work that the log hasn't, or that was over."""
    refused: Refused
    promises: tuple[Promise, ...]
    files: dict[str, int] | None
    overlap: Overlap | None
    unreadable: dict[str, int | None]

    @property
    def broken(self) -> tuple[Promise, ...]:
        return tuple(promise for promise in self.promises if promise.state.is_broken)

    def as_json(self, log: dict[str, Any]) -> dict[str, Any]:
        states = Counter(promise.state.value for promise in self.promises)
        told = [promise_json(promise) for promise in self.promises if promise.state.value != "kept"]
        return {
            "schema_version": 1,
            "log": log,
            **{name: value for name, value in asdict(self).items() if name != "promises"},
            "refused": self.refused.as_json(),
            "promises": {"num_by_state": dict(sorted(states.items())), "not_kept": told},
        }


def weigh(
    leases: Leases,
    known: Mapping[str, Known | None],
    refused: Refused,
    promises: Sequence[Promise],
    deliveries: Deliveries | None = None,
    *,
    num_foreign: int = 0,
) -> Fairness:
    """Count by provider and node."""
    rewards = deliveries.rewards if deliveries is not None else None
    readings = [leases.readings, refused.readings]
    first = [one.first_unreadable for one in readings if one.first_unreadable is not None]
    return Fairness(
        total=_account(leases.leases.values(), leases.work.values(), _rewards(rewards, None)),
        providers=_providers(leases, rewards),
        environments=tuple(_environment(rules_hash, known[rules_hash]) for rules_hash in sorted(known)),
        num_underived=sum(lease.measures is None for lease in leases.leases.values()),
        num_foreign=num_foreign,
        num_unexplained=leases.num_unexplained,
        refused=refused,
        promises=tuple(promises),
        files=dict(sorted(deliveries.files.items())) if deliveries is not None else None,
        overlap=_overlap(deliveries) if deliveries is not None else None,
        unreadable={
            "num_unreadable": sum(one.num_unreadable for one in readings),
            "first_unreadable": min(first, default=None),
        },
    )


def _providers(leases: Leases, rewards: Mapping[str, Rewards] | None) -> tuple[ProviderRow, ...]:
    of_node: dict[tuple[str, str], tuple[list[Lease], list[Work]]] = {}
    for lease in leases.leases.values():
        of_node.setdefault((lease.provider, lease.node), ([], []))[0].append(lease)
    for work in leases.work.values():
        of_node[work.lease.provider, work.lease.node][1].append(work)
    rows = []
    for provider in sorted({provider for provider, _ in of_node}):
        nodes = sorted(node for owner, node in of_node if owner == provider)
        own = [of_node[provider, node] for node in nodes]
        account = _account(
            (lease for some, _ in own for lease in some),
            (work for _, some in own for work in some),
            _rewards(rewards, nodes),
        )
        rows.append(
            ProviderRow(
                provider,
                account,
                tuple(NodeRow(node, _account(*of_node[provider, node], _rewards(rewards, [node]))) for node in nodes),
            )
        )
    return tuple(rows)


def _account(leases: Iterable[Lease], work: Iterable[Work], rewards: dict[str, float | int] | None) -> Account:
    leases, work = list(leases), [one for one in work if one.lease.end is End.RECEIVED]
    ends = Counter(lease.end for lease in leases)
    judgements = Counter(one.judgement for one in work)
    num_rollouts, num_units = sum(one.num_rollouts for one in work), sum(one.num_units for one in work)
    return Account(
        num_leased=len(leases),
        num_received=ends[End.RECEIVED],
        num_expired=ends[End.EXPIRED],
        num_abandoned=ends[End.ABANDONED],
        num_reorged=ends[End.REORGED],
        num_open=ends[End.OPEN],
        judgements={judgement.value: judgements[judgement] for judgement in Judgement},
        rejected=dict(sorted(Counter(w.reason for w in work if w.judgement is Judgement.REJECTED).items())),
        num_rollouts=num_rollouts,
        num_units=num_units,
        mean_units=round(num_units / num_rollouts, DECIMALS) if num_rollouts else None,
        measures=_measures(leases),
        rewards=rewards,
    )


def _measures(leases: Sequence[Lease]) -> dict[str, Measure]:
    names = sorted({name for lease in leases for name in lease.measures or ()})
    return {name: _measure(name, leases) for name in names}


def _measure(name: str, leases: Sequence[Lease]) -> Measure:
    values = [(lease.end, lease.measures[name]) for lease in leases if lease.measures and name in lease.measures]
    delivered = [value for end, value in values if end is End.RECEIVED]
    lost = [value for end, value in values if end in LOST]
    leased = _mean([value for _, value in values])
    assert leased is not None
    return Measure(leased, _mean(delivered), _mean(lost), z_of(delivered, lost))


def z_of(delivered: Sequence[float], lost: Sequence[float]) -> float | None:
    """How far the mean of `delivered` is from that of all, in standard errors of drawing so many of them by lot.

    >>> z_of([1.0, 1.0], [3.0, 3.0]), z_of([1.0], [])
    (-1.732051, None)
    """
    values = [*delivered, *lost]
    if not delivered or not lost or len(set(values)) == 1:
        return None
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    error = math.sqrt(variance * len(lost) / (len(values) * len(delivered)))
    return round((math.fsum(delivered) / len(delivered) - mean) / error, DECIMALS)


def _mean(values: Sequence[float]) -> float | None:
    return round(math.fsum(values) / len(values), DECIMALS) if values else None


def _rewards(rewards: Mapping[str, Rewards] | None, nodes: Iterable[str] | None) -> dict[str, float | int] | None:
    """Of these nodes, or of all; None where no files were read."""
    if rewards is None:
        return None
    found = [rewards[node] for node in (sorted(rewards) if nodes is None else nodes) if node in rewards]
    number = sum(one.num_rollouts for one in found)
    if not number:
        return None
    return {
        "num_rollouts": number,
        "mean": round(math.fsum(one.total for one in found) / number, DECIMALS),
        "num_full": sum(one.num_full for one in found),
    }


def _environment(rules_hash: str, known: Known | None) -> dict[str, Any]:
    return {
        "rules_hash": rules_hash,
        "name": known.rules.environment.name if known is not None else None,
        "is_checked": known.is_checked if known is not None else False,
        "unavailable": known.unavailable if known is not None else "the coordinator doesn't have these rules",
    }


def _overlap(deliveries: Deliveries) -> Overlap:
    pairs = deliveries.shared_pairs()
    return Overlap(deliveries.num_completions(), deliveries.num_common(), len(pairs), pairs[:MAX_PAIRS])
