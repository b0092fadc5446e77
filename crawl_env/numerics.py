"""Array types and ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]


def ranks(score: FloatArray) -> NDArray[np.intp]:
    """Return the rank of each score along the last axis, 0 for the largest; ties by position.

    >>> ranks(np.array([1.0, 3.0, 3.0]))
    array([2, 0, 1])
    """
    return np.argsort(np.argsort(-score, axis=-1, kind="stable"), axis=-1)
