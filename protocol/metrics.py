"""Metrics as a table: name, kind, labels and meaning are said once, for Prometheus and for docs/metrics.md.

In: `MetricSpec`s, and values by name. Out: metric families. Labels are bounded: enumerations, or capped by the role.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Labels = tuple[str, ...]
Values = Mapping[Labels, float]
"""By the labels' values; `{(): 3.0}` where a metric has no labels."""


@dataclass(frozen=True)
class MetricSpec:
    """`name` without the role's prefix and a counter's `_total`; its last word is the unit where it has one."""

    name: str
    kind: Literal["gauge", "counter"]
    meaning: str
    labels: Labels = ()

    def full_name(self, role: str) -> str:
        """As it is scraped."""
        return f"proofpool_{role}_{self.name}" + ("_total" if self.kind == "counter" else "")

    def family(self, role: str, values: Values) -> Metric:
        family = GaugeMetricFamily if self.kind == "gauge" else CounterMetricFamily
        found = family(f"proofpool_{role}_{self.name}", self.meaning, labels=self.labels)
        for labels, value in values.items():
            found.add_metric(labels, float(value))
        return found


def families(role: str, specs: Sequence[MetricSpec], values: Mapping[str, Values]) -> Iterator[Metric]:
    """A family for each metric that has values now. Raises KeyError for values of a metric that isn't in the table."""
    table = {spec.name: spec for spec in specs}
    for name, now in values.items():
        yield table[name].family(role, now)


def exposition(collector: object) -> bytes:
    """Prometheus text of what a collector has now."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)  # type: ignore[arg-type]
    return generate_latest(registry)
