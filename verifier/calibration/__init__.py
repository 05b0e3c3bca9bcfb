"""Measuring a model's thresholds: honest work on every way of computing it, and how far from it dishonest work lies.

    plan ──▶ generate ──▶ observe ──▶ journal ──▶ limits ──▶ document
    which engines,   rollouts    the checks' own   on disk, so    fitted tails   the threshold file,
    dtypes, batch    with        statistics, per   that a run     and a rule     with the data behind it
    sizes, kernels   proofs      size of sample    can go on      for each

In: a model folder. Out: a file that `verifier.thresholds` and a pool's rules take their limits from.
Run: proofpool verifier calibrate --model DIR
"""
