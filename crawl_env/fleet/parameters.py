"""The numbers that describe a source: names, units, ranges and defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.errors import as_array, check_range
from crawl_env.numerics import FloatArray


class Parameter(NamedTuple):
    """One number of a source: its unit, its range, and its default or None."""

    unit: str
    low: float = 0.0
    high: float = np.inf
    open_low: bool = False
    open_high: bool = False
    finite: bool = True
    whole: bool = False
    default: float | None = None


# What a source is; these may be features of the observation.
PARAMETERS = ("arrival_rate", "mean_utility", "decay_rate", "cost")
# What constrains its crawls; the same in all fleets that a callable draws.
CONSTRAINTS = ("crawl_delay", "capacity", "failure_rate")

DESCRIBED: dict[str, Parameter] = {
    "arrival_rate": Parameter("items/time"),
    "mean_utility": Parameter("utility"),
    "decay_rate": Parameter("1/time", open_low=True),
    "cost": Parameter("budget units", open_low=True, default=1.0),
    "crawl_delay": Parameter("time", default=0.0),
    "capacity": Parameter("items", low=1.0, finite=False, whole=True, default=np.inf),
    "failure_rate": Parameter("probability", high=1.0, open_high=True, default=0.0),
}


def checked(given: Mapping[str, ArrayLike], names: Sequence[str]) -> dict[str, FloatArray]:
    """Return the parameters as read-only arrays of one shape, scalars repeated over the fleet.

    Arguments:
        names: of the sources, or () where they are numbered.

    Raises:
        ElementError: a number is out of range, or a name is missing or appears twice.
        ValueError: a parameter is not numeric, shapes differ, or there are not N names.
    """
    arrays = {name: as_array(name, value) for name, value in given.items()}
    shapes = {name: array.shape for name, array in arrays.items() if array.ndim}
    if len(set(shapes.values())) > 1:
        listing = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"parameters differ in shape: {listing}; give one number per source")
    shape = next(iter(shapes.values()), (1,))
    if 0 in shape:
        raise ValueError("the fleet is empty; give at least one source")
    if len(shape) > 2:
        raise ValueError(f"parameters have shape {shape}; give (N,), or (B, N) for B fleets")
    if names and len(names) != shape[-1]:
        raise ValueError(
            f"names has {len(names)} entries for {shape[-1]} sources; give one per source"
        )
    labels = names or range(1, shape[-1] + 1)
    for name, array in arrays.items():
        unit, low, high, open_low, open_high, finite, whole, _ = DESCRIBED[name]
        check_range(name, array, low, high, open_low, open_high, finite, whole, unit, labels)
        repeated = np.broadcast_to(array, shape)
        # A constraint is mostly one number for all: a view of it takes no memory.
        arrays[name] = array = (
            repeated if name in CONSTRAINTS and not array.ndim else repeated.copy()
        )
        array.flags.writeable = False
    return arrays
