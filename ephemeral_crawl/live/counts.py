"""What a scheduler has done since it was made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class Counts:
    """Totals since the scheduler was made, over all processes that use it."""

    leases: float = 0.0
    fetched: float = 0.0  # reports of fetches
    failed: float = 0.0
    released: float = 0.0
    pings: float = 0.0
    items: float = 0.0
    collected: float = 0.0  # worth of the items when they were fetched

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Counts:
        """Return stored counts, checked."""
        counts = Counts(**{name: float(value) for name, value in values.items()})
        if not all(0.0 <= value < math.inf for value in vars(counts).values()):
            raise ValueError("a count is negative or infinite")
        return counts


def left(age: NDArray[np.float64], worth: NDArray[np.float64], decay: float, gap: float) -> float:
    """Return what items are worth when they are fetched.

    Arguments:
        age: (K,) their ages, seconds; NaN if unknown, and then uniform over the gap.
        worth: (K,) when they were published.
        decay: μ, per second.
        gap: time since the fetch before, seconds; infinite if there was none.

    >>> round(left(np.array([0.0, 3600.0]), np.ones(2), math.log(2) / 3600, 7200.0), 6)
    1.5
    >>> round(left(np.array([np.nan]), np.ones(1), math.log(2) / 3600, 3600.0), 6)  # .5/ln 2
    0.721348
    """
    unknown = -math.expm1(-decay * gap) / (decay * gap) if 0.0 < gap < math.inf else float(gap == 0)
    share = np.where(np.isnan(age), unknown, np.exp(-decay * np.nan_to_num(age)))
    return float(share @ worth)
