"""`proofpool worker doctor`: can this node work here, and if not, what mends it; each finding with its fix.

    this machine (`doctor_machine.py`)   packages, engine, kernels, cores, memory, disk, GPU, ports, webhook
    this node (`doctor_node.py`)         keystore, coordinator, clock, chain, registration, stake, rules, weights

In: `WorkerConfig`. Out: `DoctorReport`. Exit code 1 where something must be mended, 6 where only registration or stake
is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.doctor import DoctorReport, Finding, package_findings
from protocol.errors import NotEligible
from worker.config import WorkerConfig
from worker.doctor_machine import machine_findings
from worker.doctor_node import ELIGIBILITY, node_findings


def findings(config: WorkerConfig) -> Iterator[Finding]:
    """In the order in which they are printed; each as soon as it is known."""
    yield from package_findings()
    yield from machine_findings(config)
    yield from node_findings(config)


def exit_code(report: DoctorReport) -> int:
    """0 where nothing must be mended; warnings are no errors."""
    wrong = {finding.check for finding in report.findings if finding.status == "error"}
    if not wrong:
        return 0
    return NotEligible.exit_code if wrong <= set(ELIGIBILITY) else 1
