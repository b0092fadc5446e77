"""The numbers that describe a source: their names, units, ranges and defaults, and their checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.numerics import FloatArray


class Parameter(NamedTuple):
    """One number of a source."""

    unit: str
    wanted: str  # the range, in words
    default: float | None = None  # None: it must be given


# What a source is, and may be shown to the crawler as a feature.
PARAMETERS = ("arrival_rate", "mean_utility", "decay_rate", "cost")
# What a crawl of it has to put up with; the same in all fleets that a callable draws.
CONSTRAINTS = ("crawl_delay", "capacity", "failure_rate")

DESCRIBED: dict[str, Parameter] = {
    "arrival_rate": Parameter("items/time", "zero or positive and finite"),
    "mean_utility": Parameter("utility", "zero or positive and finite"),
    "decay_rate": Parameter("1/time", "positive and finite"),
    "cost": Parameter("budget units", "positive and finite", 1.0),
    "crawl_delay": Parameter("time", "zero or positive and finite", 0.0),
    "capacity": Parameter("items", "a whole number from 1 on, or inf", np.inf),
    "failure_rate": Parameter("share of crawls", "from 0 on and below 1", 0.0),
}


def as_arrays(given: Mapping[str, ArrayLike]) -> dict[str, FloatArray]:
    """Return the parameters as read-only arrays of one shape, scalars spread over the fleet.

    Raises:
        ValueError: one is not numeric, or their shapes differ.
    """
    arrays = {name: _as_array(name, value) for name, value in given.items()}
    shapes = {name: array.shape for name, array in arrays.items() if array.ndim}
    if len(set(shapes.values())) > 1:
        listing = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"parameters differ in shape: {listing}; give one number a source")
    shape = next(iter(shapes.values()), (1,))
    if 0 in shape:
        raise ValueError("the fleet is empty; give at least one source")
    if len(shape) > 2:
        raise ValueError(f"parameters have shape {shape}; give (N,), or (B, N) for B fleets")
    return {name: _spread(name, array, shape) for name, array in arrays.items()}


def out_of_range(name: str, array: FloatArray) -> Any:
    """Return the flat positions at which a parameter has a value it must not have."""
    if name == "capacity":
        fine = (array >= 1) & (np.floor(array) == array)
    elif name == "failure_rate":
        fine = (array >= 0) & (array < 1)
    elif DESCRIBED[name].wanted.startswith("zero or"):
        fine = (array >= 0) & np.isfinite(array)
    else:
        fine = (array > 0) & np.isfinite(array)
    return np.flatnonzero(~fine)


def range_message(name: str, value: float) -> str:
    """Return what is wrong with a value out of range, and what is wanted."""
    parameter = DESCRIBED[name]
    return f"{name} is {value:g}; it must be {parameter.wanted} ({parameter.unit})"


def check_names(names: Sequence[str], n: int) -> tuple[str, ...]:
    """Return one name a source without surrounding blanks, or () where none are given."""
    labels = tuple(str(name).strip() for name in names)
    if len(labels) not in (0, n):
        raise ValueError(f"names has {len(labels)} entries for {n} sources; give one a source")
    if len(set(labels)) < len(labels) or not all(labels):
        wrong = next(x for x, times in Counter(labels).items() if times > 1 or not x)
        raise ValueError(
            f"names has {wrong!r} twice, or empty; give every source a name of its own"
        )
    return labels


def check_hosts(hosts: Iterable[str], n: int) -> tuple[str, ...]:
    """Return one host a source, or () where no two sources share one; "" is a host of its own."""
    if isinstance(hosts, str):
        raise ValueError(f"hosts is {hosts!r}; give a sequence, one host a source")
    labels = tuple(str(host).strip() for host in hosts)
    if len(labels) not in (0, n):
        raise ValueError(f"hosts has {len(labels)} entries for {n} sources; give one a source")
    named = [label for label in labels if label]
    return labels if len(set(named)) < len(named) else ()


def _as_array(name: str, value: ArrayLike) -> FloatArray:
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a number or an array of numbers: {error}") from None


def _spread(name: str, array: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    spread = np.broadcast_to(array, shape)
    # A limit is mostly one number for all: a view of it takes no memory.
    whole = spread if name in CONSTRAINTS and array.ndim == 0 else spread.copy()
    whole.flags.writeable = False
    return whole
