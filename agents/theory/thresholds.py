"""The index, the mean reward and the mean duration of every threshold policy of a Markov chain that
a crawl starts anew."""

from __future__ import annotations

import numpy as np

from crawl_env.compiled import compiled
from crawl_env.numerics import FloatArray, IntArray

_NEVER = 1e11  # steps between crawls that count as never: rounding resolves no more
_ABSORBING = 1e-13  # probability of leaving a state for a higher one that rounding cannot resolve
_PANEL, _PRODUCT = 16, 32  # columns eliminated one by one; rows of one matrix product


def thresholds(
    stay: FloatArray,
    fresh: FloatArray,
    value: FloatArray,
    drift: FloatArray,
    mean: float,
    lowest: IntArray | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return index, R and N, each (n,), of crawling from each state on, for a chain that a crawl
    starts anew; N is infinite beyond 1e11. Beyond the n states it is always crawled.

    Arguments:
        stay: (n, n) probabilities of moving, when not crawled, between states in increasing order.
        fresh: (n,) probabilities of the state a step after a crawl.
        value: (n,) utility collected by a crawl.
        drift: (n,) mean change of `value` in a step of waiting.
        mean: of the value a step after a crawl.
        lowest: (n,) the lowest state to which each state moves, if that is not far below it: the
            elimination then skips the zeros, and the index of states beyond which N is infinite
            grows as `value` does. None if the moves are dense.

    With Q the moves among the states below b, N = 1 + p(I − Q)⁻¹1 and R = mean + p(I − Q)⁻¹drift
    (optional stopping). One elimination of I − Q, bordered by p, 1 and drift, holds them for every
    b, and with them g* (the gain at which b itself may wait) and the index R − N·g*.

    Raises:
        ValueError: the index decreases somewhere: the optimal policy is then not a threshold.
    """
    n = len(value)
    matrix = np.zeros((n + 1, n + 2))
    np.negative(stay, out=matrix[:n, :n])
    np.einsum("ii->i", matrix[:n, :n])[...] += 1.0
    matrix[:n, n], matrix[:n, n + 1] = 1.0, drift
    matrix[n, :n] = fresh
    reached = n
    if lowest is None:
        _eliminate(matrix, n)
    else:
        reached = _eliminate_sparse(matrix, lowest)
    waiting, gained, visits = matrix[:n, n], matrix[:n, n + 1], matrix[n, :n]
    waiting[reached:], gained[reached:], visits[reached:] = 1.0, 0.0, 0.0
    steps = 1.0 + np.concatenate([[0.0], np.cumsum(visits * waiting)[:-1]])
    reward = mean + np.concatenate([[0.0], np.cumsum(visits * gained)[:-1]])
    index = reward - steps * gained / waiting
    lost = np.maximum.accumulate((steps <= 0.0) | (steps > _NEVER))
    if lowest is not None:
        lost[reached:] = True
        last = max(int(np.argmax(lost)) - 1, 0) if lost.any() else n - 1
        index[last + 1 :] = index[last] + (value[last + 1 :] - value[last])
        index = np.minimum(index, value)  # but for rounding, it does not exceed what is collected
        reward[last + 1 :] = value[last + 1 :]
    falls = np.flatnonzero(np.diff(index) < -1e-9 * np.abs(index).max())
    if falls.size:
        raise ValueError(
            f"the index decreases from {index[falls[0]]:.6g} to {index[falls[0] + 1]:.6g} between "
            f"states {falls[0]} and {falls[0] + 1} of {n}: no threshold policy is "
            "optimal. Order the states by their index"
        )
    steps[lost] = np.inf
    return index, reward, steps


def _eliminate(matrix: FloatArray, pivots: int) -> None:
    """Eliminate the first columns in place, without exchanging rows (I − Q needs none): L below
    the diagonal, its ones left out, and U above."""
    ends = _last_rows(np.argmax(matrix[:-1] != 0.0, axis=1)) + 1
    for first in range(0, pivots, _PANEL):
        width = min(_PANEL, pivots - first)
        panel, beside = matrix[first:, first : first + width], matrix[first:, first + width :]
        end = ends[first + width - 1] - first
        _eliminate_panel(panel, beside[:width], end)
        # A few rows at a time: products this small stay in one thread, whose start costs more.
        for row in range(width, len(panel), _PRODUCT):
            if row < end or row + _PRODUCT >= len(panel):
                beside[row : row + _PRODUCT] -= panel[row : row + _PRODUCT] @ beside[:width]


@compiled
def _eliminate_panel(panel: FloatArray, beside: FloatArray, end: int) -> None:
    """Eliminate the columns of a panel, (rows, width), of which only the rows before `end` and the
    last are not zero, and in its first rows the columns beside it, (width, …)."""
    rows, width = panel.shape
    for b in range(width):
        pivot = panel[b, b]
        for i in range(b + 1, rows):
            if i < end or i == rows - 1:
                panel[i, b] /= pivot
                factor = panel[i, b]
                for k in range(b + 1, width):
                    panel[i, k] -= factor * panel[b, k]
                if i < width:
                    for k in range(beside.shape[1]):
                        beside[i, k] -= factor * beside[b, k]


def _last_rows(lowest: IntArray) -> IntArray:
    """Return the last row that a pivot changes, (n,), where row i is zero left of `lowest[i]`."""
    n = lowest.size
    last = np.zeros(n, dtype=np.int64)
    np.maximum.at(last, np.minimum(lowest, np.arange(n)), np.arange(n))
    return np.maximum.accumulate(last)


def _eliminate_sparse(matrix: FloatArray, lowest: IntArray) -> int:
    """Do what `_eliminate` does where row i is zero left of column `lowest[i]`, up to the first
    state that is not left for a higher one; return the number of states up to it."""
    return int(_each_pivot(matrix, _last_rows(lowest)))


@compiled
def _each_pivot(matrix: FloatArray, last: IntArray) -> int:
    """matrix: (n + 1, n + 2), of which the last row is changed by every pivot; last: (n,)."""
    n = last.size
    for j in range(n):
        pivot, here = matrix[j, j], matrix[j]
        if pivot < _ABSORBING:
            return j + 1
        for i in range(j + 1, last[j] + 1):
            row = matrix[i]
            factor = row[j] / pivot
            if factor != 0.0:
                for k in range(j + 1, n + 2):
                    row[k] -= factor * here[k]
        border = matrix[n]
        factor = border[j] / pivot
        border[j] = factor
        for k in range(j + 1, n + 2):
            border[k] -= factor * here[k]
    return n
