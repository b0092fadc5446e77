"""Array types and ranks."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]
N = TypeVar("N", bound=np.generic)


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
