"""What a calibration is about to compute, and what it isn't: for whoever is going to wait for it.

In: a plan, and what was asked for. Out: lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from verifier.calibration.plan import Plan
from verifier.calibration.setups import has_kernel, has_transformers


def preview(plan: Plan, num_rollouts: int) -> Iterator[str]:
    """`num_rollouts` were asked for."""
    made: Counter[str] = Counter()
    for job in plan.jobs():
        made[job.generator.name] += job.num_submissions * plan.submission_rollouts
    yield f"{made.total()} honest rollouts in {plan.dtype}, by {len(made)} generators, for {len(plan.judges)} judges"
    yield from (f"  {name}: {number} rollouts" for name, number in made.items())
    if made.total() > num_rollouts:
        size = plan.submission_rollouts
        yield f"  {num_rollouts} were asked for; each generator fills its batch once, in submissions of {size}"
    yield from (f"  left out: {what}" for what in left_out(plan))


def left_out(plan: Plan) -> Iterator[str]:
    """Ways that this machine can't compute, and why."""
    if not has_transformers():
        yield "transformers: it isn't installed; limits won't know another implementation"
    for kernel in ("flash", "efficient"):
        if not has_kernel(kernel, plan.dtype):
            yield f"judge torch-{kernel}: this machine's torch has no such attention in {plan.dtype}"
