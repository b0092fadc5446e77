"""The parameters of a source: names, units, ranges and defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from crawl_env.errors import check_range
from crawl_env.numerics import FloatArray


class Parameter(NamedTuple):
    """Description of a parameter: its unit, its range, and its default or None."""

    unit: str
    low: float = 0.0
    high: float = np.inf
    open_low: bool = False
    open_high: bool = False
    finite: bool = True
    whole: bool = False
    default: float | None = None

    def check(self, name: str, values: FloatArray, names: Sequence[object] = ()) -> None:
        """Raise ElementError unless all values are in range; see `check_range`."""
        bounds = self.low, self.high, self.open_low, self.open_high, self.finite, self.whole
        check_range(name, values, *bounds, self.unit, names)


# Parameters of the content; these may be features of the observation.
PARAMETERS = ("arrival_rate", "mean_utility", "decay_rate", "cost")
# Constraints on crawls, and the signals that announce items.
CONSTRAINTS = ("crawl_delay", "capacity", "failure_rate")
SIGNALS = ("recall", "precision", "signal_delay")
FIXED = (*CONSTRAINTS, *SIGNALS)  # the same in all fleets that a callable draws

DESCRIBED: dict[str, Parameter] = {
    "arrival_rate": Parameter("items/time"),
    "mean_utility": Parameter("utility"),
    "decay_rate": Parameter("1/time", open_low=True),
    "cost": Parameter("budget units", open_low=True, default=1.0),
    "crawl_delay": Parameter("time", default=0.0),
    "capacity": Parameter("items", low=1.0, finite=False, whole=True, default=np.inf),
    "failure_rate": Parameter("probability", high=1.0, open_high=True, default=0.0),
    "recall": Parameter("probability", high=1.0, default=0.0),
    "precision": Parameter("probability", high=1.0, open_low=True, default=1.0),
    "signal_delay": Parameter("time", default=0.0),
}
