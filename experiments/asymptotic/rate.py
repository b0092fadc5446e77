"""How fast a gap closes: the slope of its logarithm against that of the number of copies."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from agents.evaluation.statistics import UNKNOWN, Estimate
from crawl_env.numerics import FloatArray

NOTHING = 1e-9  # a gap below is rounding


def slope(gaps: Mapping[int, FloatArray], resamples: int = 2000) -> Estimate:
    """Return the least-squares slope of ln(mean gap) against ln k, with its 95 % interval.

    gaps: of each k ≥ 1, the signed gaps of its runs. Numbers of copies whose mean gap is not
    above 0 by two standard errors are left out; the slope is unknown where fewer than three remain.
    The interval is a bootstrap over runs, which has no width where all runs are alike.

    >>> round(slope({k: np.array([2.0 / k]) for k in (1, 10, 100)}).mean, 6)
    -1.0
    """
    used = {k: gap for k, gap in gaps.items() if gap.mean() > max(NOTHING, 2 * _error(gap))}
    if len(used) < 3:
        return UNKNOWN
    x = np.log(list(used))
    x = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    rng = np.random.default_rng(0)
    means = [
        gap[rng.integers(0, gap.size, (resamples, gap.size))].mean(axis=-1) for gap in used.values()
    ]
    drawn = x @ np.log(np.maximum(means, NOTHING))
    low, high = np.percentile(drawn, [2.5, 97.5])
    middle = x @ np.log([gap.mean() for gap in used.values()])
    return Estimate(float(middle), float(low), float(high))


def _error(gap: FloatArray) -> float:
    return float(gap.std(ddof=1) / np.sqrt(gap.size)) if gap.size > 1 else 0.0
