"""What a scheduler has done since it was made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


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
