"""Array types, ranks, and arrays that stay writable in copies of their object."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]
N = TypeVar("N", bound=np.generic)


class Written:
    """Base class of objects that write to their arrays, also in copies made by `joblib.Parallel`,
    which maps large arrays from files that can only be read."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update((name, _unmapped(value)) for name, value in state.items())


def _unmapped(value: Any) -> Any:
    if isinstance(value, np.memmap):
        return np.array(value)
    if isinstance(value, tuple):
        parts = map(_unmapped, value)
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    return value


def ranks(score: FloatArray) -> NDArray[np.intp]:
    """Return the rank of each score along the last axis, 0 for the largest; ties by position.

    >>> ranks(np.array([1.0, 3.0, 3.0]))
    array([2, 0, 1])
    """
    return np.argsort(np.argsort(-score, axis=-1, kind="stable"), axis=-1)


def distinct(numbers: NDArray[N]) -> NDArray[N]:
    """Return the distinct numbers of an array, ascending.

    It sorts, which takes a fraction of the time of the hash table of `numpy.unique`.

    >>> distinct(np.array([3, 1, 3]))
    array([1, 3])
    """
    ordered = np.sort(numbers, axis=None)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])[: ordered.size]]
