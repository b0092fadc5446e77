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
    looks: float = 0.0  # fetches of sources that announce what others have
    looks_cost: float = 0.0  # budget units that these took
    looks_worth: float = 0.0  # of the pings that they brought: see `ephemeral_crawl.live.looks`

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Counts:
        """Return stored counts, checked."""
        counts = Counts(**{name: float(value) for name, value in values.items()})
        if not all(0.0 <= value < math.inf for value in vars(counts).values()):
            raise ValueError("a count is negative or infinite")
        return counts
