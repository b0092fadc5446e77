"""Copies of arrays of which few entries change per step, without copying the others.

States belong to the caller, so that an update returns new arrays. To copy those of a large fleet in
every step would take longer than all the rest. But whoever passes on the last state has usually
dropped the one before it, which differs from it only where the last update changed it: these few
entries are brought up to date, and the array is used again. Where somebody still refers to it, or
it is unknown, the whole array is copied.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled
from crawl_env.numerics import IntArray

_FEW = 2**12  # entries up to which an array is simply copied


class _Older(NamedTuple):
    """What is known about an array that `copy_to_change` has returned."""

    newer: ref[Any]  # the array
    older: NDArray[Any]  # the one of which it was a copy
    cells: IntArray  # where they differ


_older: dict[int, _Older] = {}  # by id of the newer array, as long as that exists


def _references(kept: _Older) -> int:
    return getrefcount(kept[1])


_OWN = _references(_Older(ref(_FEW.__class__), np.empty(1), np.empty(0, dtype=np.intp)))


def copy_to_change(array: NDArray[Any], cells: IntArray, width: int = 1) -> NDArray[Any]:
    """Return a copy of an array, of which the caller may change some entries only.

    The array itself must never be changed afterwards.

    Arguments:
        array: (..., N) or, with rows of `width`, (..., N, width).
        cells: (K,), flat positions in (..., N) of the entries or rows that may be changed.
    """
    if array.size <= _FEW:
        return array.copy()
    kept = _older.pop(id(array), None)
    if kept is not None and kept.newer() is array and _references(kept) == _OWN:
        copy = kept.older
        _copy_rows(array.reshape(-1, width), kept.cells, copy.reshape(-1, width))
    else:
        copy = array.copy()
    del kept
    if array.flags.owndata and array.flags.writeable:
        key = id(copy)
        _older[key] = _Older(ref(copy, lambda _: _forget(key)), array, cells)
    return copy


def _forget(key: int) -> None:
    _older.pop(key, None)


@compiled
def _copy_rows(source: NDArray[Any], rows: IntArray, target: NDArray[Any]) -> None:
    for i in rows:
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]
