"""Where top_k and top_p cut: rounding may move a token across, and its margin must not say more than rounding does.

Gumbel-max leaves a drawn token alone unless two noised logits nearly tie. A cut doesn't: the token in question may be
far from a tie, so that an honest one would seem to be any distance off. In: rows of logits, claimed tokens, and by how
much logits may differ between machines. Out: margins against what is kept wherever the cut falls.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from protocol.rules import SamplingRules
from protocol.sampling import Float64Array, Keys, Logits, Tokens, gumbel_noise, scaled_logits

Flags = npt.NDArray[np.bool_]


def edge_margins(
    logits: Logits, claimed: Tokens, keys: Keys, sampling: SamplingRules, *, nats: float, clip: float
) -> Float64Array:
    """float64 [N] in [0, clip]: how far each claimed token lies below the best of those that are surely kept.

    `nats`: by how much each logit / temperature may be off. `clip` counts for a claimed token that can't be kept.
    """
    scaled, each = scaled_logits(logits, sampling), np.arange(len(logits))
    noised = scaled + gumbel_noise(keys, scaled.shape[1])
    kept = [surely_and_perhaps_kept(row, sampling, nats) for row in scaled]
    best = np.array([row[sure].max(initial=-np.inf) for row, (sure, _) in zip(noised, kept, strict=True)])
    is_possible = np.array([perhaps[token] for (_, perhaps), token in zip(kept, claimed, strict=True)], dtype=bool)
    return np.where(is_possible, np.clip(best - noised[each, claimed], 0, clip), clip)


def surely_and_perhaps_kept(scaled: Float64Array, sampling: SamplingRules, nats: float) -> tuple[Flags, Flags]:
    """bool [V] each: what top_k and top_p leave of a row of logits / temperature, whichever way each is off by `nats`.

    Two tokens may change places where they are within 2 · nats, and the odds of a set change by exp(2 · nats) at most.
    """
    sure = perhaps = np.isfinite(scaled)
    down, reach = np.sort(scaled)[::-1], 2 * nats
    if 0 < sampling.top_k < len(scaled):
        sure = sure & (scaled > down[sampling.top_k] + reach)
        perhaps = perhaps & (scaled >= down[sampling.top_k - 1] - reach)
        down = down[: sampling.top_k]
    if sampling.top_p < 1:
        mass = np.concatenate([[0.0], np.cumsum(np.exp(down - down[0]))])
        ahead = mass[np.searchsorted(-down, -(scaled + reach), side="left")]
        ahead_or_near = mass[np.searchsorted(-down, -(scaled - reach), side="right")] - np.exp(scaled - down[0])
        sure = sure & (ahead_or_near < _shifted(sampling.top_p, -reach) * mass[-1])
        perhaps = perhaps & (ahead < _shifted(sampling.top_p, reach) * mass[-1])
    return sure, perhaps


def _shifted(share: float, nats: float) -> float:
    """The share whose odds are exp(nats) times these."""
    return share / (share + (1 - share) * math.exp(-nats))
