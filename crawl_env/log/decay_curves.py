"""How interest in single items fell, as it was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crawl_env.log import item_files as items_file
from crawl_env.numerics import FloatArray


@dataclass(frozen=True, eq=False)
class DecayCurves:
    """The recorded share of n items' utility that is still to come, at some ages.

    Linear between an item's points; at two points of one age it drops; beyond the last point it
    keeps the last value. An item without points has no curve.

    Raises:
        ValueError: the points are no curves: see the fields.

    >>> curves = DecayCurves(first=[0, 3, 3], age=[0, 1, 3], remaining=[1, 0.5, 0.25])
    >>> curves.recorded, curves.share(0, [0, 0.5, 2, 9])
    (array([ True, False]), array([1.   , 0.75 , 0.375, 0.25 ]))
    """

    first: NDArray[np.intp]  # (n+1,) the points of item j are first[j] … first[j+1] − 1
    age: FloatArray  # (points,) time since published: from 0, not decreasing within an item
    remaining: FloatArray  # (points,) from 1, not increasing within an item, in [0, 1]

    def __post_init__(self) -> None:
        first = np.array(self.first, dtype=np.intp)
        age, remaining = (np.array(x, dtype=np.float64) for x in (self.age, self.remaining))
        whole = first.ndim == 1 and first.size and first[0] == 0 and first[-1] == age.size
        if not whole or age.shape != remaining.shape or age.ndim != 1 or np.any(np.diff(first) < 0):
            raise ValueError(
                "first must lead from 0 to the number of points, which age and remaining share"
            )
        if (fault := items_file.fault_of_curves(first, age, remaining)) is not None:
            item = int(np.searchsorted(first, fault[0], side="right")) - 1
            raise ValueError(f"curve of item {item}: {fault[1]}")
        for name, array in (("first", first), ("age", age), ("remaining", remaining)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        """Return n, the number of items."""
        return int(self.first.size) - 1

    def __reduce__(self) -> Any:
        return DecayCurves, (self.first, self.age, self.remaining)

    @property
    def points(self) -> NDArray[np.intp]:
        """Return the number of points of each item, (n,)."""
        return np.diff(self.first)

    @property
    def recorded(self) -> NDArray[np.bool_]:
        """Return which items have a curve, (n,)."""
        return self.points > 0

    @property
    def item(self) -> NDArray[np.intp]:
        """Return the item of each point, (points,)."""
        return np.repeat(np.arange(len(self)), self.points)

    def select(self, which: ArrayLike) -> DecayCurves:
        """Return the curves of these items, by indices, in this order."""
        index = np.asarray(which, dtype=np.intp)
        points = self.points[index]
        first = np.concatenate(([0], np.cumsum(points)))
        where = np.arange(first[-1]) + np.repeat(self.first[index] - first[:-1], points)
        return DecayCurves(first, self.age[where], self.remaining[where])

    def share(self, item: ArrayLike, age: ArrayLike) -> FloatArray:
        """Return what remains of items at some ages, which broadcast against each other.

        Raises:
            ValueError: one of the items has no curve.
        """
        index, ages = np.broadcast_arrays(np.asarray(item, dtype=np.intp), np.maximum(age, 0.0))
        low, high = self.first[index], self.first[index + 1]
        if np.any(low == high):
            without = int(index.flat[np.flatnonzero(low == high)[0]])
            raise ValueError(f"item {without} has no curve; ask for items that are `recorded`")
        last = high - 1
        while np.any(high - low > 1):  # bisection: `low` is a point not beyond the age
            middle = (low + high) // 2
            reached = self.age[middle] <= ages
            low, high = np.where(reached, middle, low), np.where(reached, high, middle)
        after = np.minimum(low + 1, last)
        width = self.age[after] - self.age[low]
        part = np.divide(ages - self.age[low], width, out=np.zeros(ages.shape), where=width > 0)
        return self.remaining[low] + part * (self.remaining[after] - self.remaining[low])
