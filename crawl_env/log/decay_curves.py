"""`DecayCurves`: the recorded decay of single items, as fractions of their initial utility."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.compiled import compiled
from crawl_env.errors import ElementError, as_array, shown
from crawl_env.files import table
from crawl_env.files.table import Column
from crawl_env.numerics import BoolArray, FloatArray, IntArray

_COLUMNS = (Column("item", "text"), Column("age"), Column("remaining"))


@dataclass(frozen=True, eq=False)
class DecayCurves:
    """Recorded decay curves of n items: the fraction of utility that remains, as a function of age.

    A curve is linear between its points, and constant after the last one; two points at the same
    age are a jump. An item without points has no curve.

    Raises:
        ElementError: a point violates the conditions given below for the fields.
        ValueError: the lengths are inconsistent.

    >>> curves = DecayCurves(first=[0, 3, 3], age=[0, 1, 3], remaining=[1, 0.5, 0.25])
    >>> curves.recorded, curves.remaining_at(0, [0, 0.5, 2, 9])
    (array([ True, False]), array([1.   , 0.75 , 0.375, 0.25 ]))
    """

    first: IntArray  # (n+1,) the points of item j are first[j] … first[j+1] − 1
    age: FloatArray  # (points,) time since publication; starts at 0 and ascends within an item
    remaining: FloatArray  # (points,) in [0, 1]; starts at 1 and descends within an item

    def __post_init__(self) -> None:
        first = as_array("first", self.first)
        age, remaining = as_array("age", self.age), as_array("remaining", self.remaining)
        spans = first.ndim == 1 and first.size and first[0] == 0 and first[-1] == age.size
        if not spans or age.shape != remaining.shape or age.ndim != 1 or np.any(np.diff(first) < 0):
            raise ValueError(
                "first must run from 0 to the number of points, which age and remaining must have"
            )
        positions = first.astype(np.intp)
        if np.any(positions != first):
            raise ValueError("first must contain integers")
        _check_points(positions, age, remaining)
        for name, array in (("first", positions), ("age", age), ("remaining", remaining)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        """Return n, the number of items."""
        return int(self.first.size) - 1

    def __reduce__(self) -> Any:
        return DecayCurves, (self.first, self.age, self.remaining)

    @property
    def points(self) -> IntArray:
        """The number of points of each item, (n,)."""
        return np.diff(self.first)

    @property
    def recorded(self) -> BoolArray:
        """Whether each item has a curve, (n,)."""
        return self.points > 0

    @property
    def item(self) -> IntArray:
        """The item of each point, (points,)."""
        return np.repeat(np.arange(len(self)), self.points)

    def select(self, which: ArrayLike) -> DecayCurves:
        """Return the curves of the items given by indices, in this order."""
        index = np.asarray(which, dtype=np.intp)
        points = self.points[index]
        first = np.concatenate(([0], np.cumsum(points)))
        where = np.arange(first[-1]) + np.repeat(self.first[index] - first[:-1], points)
        return DecayCurves(first, self.age[where], self.remaining[where])

    @staticmethod
    def from_csv(path: str | PathLike[str], items: Sequence[str]) -> DecayCurves:
        """Read the curves of the items with these identifiers from a table `item, age, remaining`.

        If the first point of a curve is after age 0, the point (0, 1) is added. The file formats
        are those of `ItemLog.from_csv`.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the table is invalid; the message names the file and the row.
        """
        rows = table.read(path, _COLUMNS, "point")
        place = {name: j for j, name in enumerate(items)}
        cells = rows.text["item"]
        positions = (place.get(cell, -1) for cell in cells)
        item: IntArray = np.fromiter(positions, np.intp, len(cells))
        if np.any(item < 0):
            stray = int(np.argmax(item < 0))
            raise ValueError(
                f"{rows.row(stray)}: the log has no item {shown(cells[stray])}; its column `item` "
                "(or, without one, row numbers from 0) names the items that may have a curve"
            )
        record: IntArray = np.argsort(item, kind="stable")
        item = item[record]
        age: FloatArray = rows.number["age"][record]
        remaining: FloatArray = rows.number["remaining"][record]
        begins = np.flatnonzero(np.diff(item, prepend=-1))
        late = begins[age[begins] > 0]
        item, record = np.insert(item, late, item[late]), np.insert(record, late, record[late])
        age = np.insert(age, late, 0.0)
        remaining = np.insert(remaining, late, 1.0)
        first = np.searchsorted(item, np.arange(len(items) + 1))
        with rows.located(lambda i: int(record[i]), lambda i: f"item {shown(items[item[i]])}"):
            return DecayCurves(first, age, remaining)

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the curves, with items numbered from 0; `from_csv` reads back the same numbers."""
        columns = (map(repr, x.tolist()) for x in (self.item, self.age, self.remaining))
        table.write(path, dict(zip(("item", "age", "remaining"), columns, strict=True)))

    def remaining_at(self, item: ArrayLike, age: ArrayLike) -> FloatArray:
        """Return the fraction of utility that remains of items at some ages, which broadcast.

        Raises:
            ValueError: one of the items has no curve.
        """
        index, ages = np.broadcast_arrays(np.asarray(item, dtype=np.intp), np.maximum(age, 0.0))
        without = self.first[index] == self.first[index + 1]
        if without.any():
            first = int(index.flat[np.flatnonzero(without)[0]])
            raise ValueError(f"item {first} has no curve; choose items that are `recorded`")
        fractions = np.empty(ages.shape)
        points = self.first, self.age, self.remaining
        _interpolate(*points, np.ravel(index), np.ravel(ages), fractions.reshape(-1))
        return fractions[()]  # a number of a number


@compiled
def _interpolate(
    first: IntArray,
    age: FloatArray,
    remaining: FloatArray,
    items: IntArray,
    ages: FloatArray,
    fractions: FloatArray,
) -> None:
    """Write the fractions that remain of items at some ages, (n,), by linear interpolation."""
    for j in range(items.size):
        low, high = first[items[j]], first[items[j] + 1]
        last = high - 1
        while high - low > 1:  # bisection; the age of point `low` is at most that asked for
            middle = (low + high) // 2
            if age[middle] <= ages[j]:
                low = middle
            else:
                high = middle
        after = min(low + 1, last)
        width = age[after] - age[low]
        part = (ages[j] - age[low]) / width if width > 0.0 else 0.0
        fractions[j] = remaining[low] + part * (remaining[after] - remaining[low])


def _check_points(first: IntArray, age: FloatArray, remaining: FloatArray) -> None:
    begins = np.zeros(age.size, dtype=bool)
    begins[first[:-1][np.diff(first) > 0]] = True
    inner = ~begins
    with np.errstate(invalid="ignore"):
        younger, rises = (np.diff(x, prepend=x[:1]) for x in (age, -remaining))
    checks = (
        (
            ~(np.isfinite(age) & (age >= 0)),
            "age is {:g}; it must be zero or positive and finite",
            age,
        ),
        (
            ~((remaining >= 0) & (remaining <= 1)),
            "remaining is {:g}; it must be a fraction, between 0 and 1",
            remaining,
        ),
        (begins & (age > 0), "the curve starts at age {:g}; start it at age 0 with 1", age),
        (begins & (remaining < 1), "remaining is {:g} at age 0; it must be 1 there", remaining),
        (inner & (younger < 0), "age falls to {:g}; sort the points of an item by age", age),
        (
            inner & (rises < 0),
            "remaining rises to {:g}; as the fraction that remains it must not increase",
            remaining,
        ),
    )
    faults = [(int(np.argmax(bad)), what, of) for bad, what, of in checks if bad.any()]
    if faults:
        point, what, of = min(faults, key=lambda fault: fault[0])
        item = int(np.searchsorted(first, point, side="right")) - 1
        raise ElementError(what.format(of[point]), point, f"curve of item {item}")
