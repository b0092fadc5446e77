"""The index, the mean reward and the mean duration of every threshold policy of a Markov chain that
a crawl starts anew."""

from __future__ import annotations

import numpy as np

from crawl_env.compiled import compiled
from crawl_env.numerics import FloatArray

_NEVER = 1e11  # steps between crawls that count as never: rounding resolves no more
_ABSORBING = 1e-13  # probability of leaving a state for a higher one that rounding cannot resolve


def thresholds(
    stay: FloatArray, value: FloatArray, drift: FloatArray, mean: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return index, R and N, each (n,), of crawling from each state on, for a chain that a crawl
    starts anew; N is infinite beyond 1e11. Beyond the n states it is always crawled.

    Where N is infinite, the index grows as `value` does.

    Arguments:
        stay: (n, n) probabilities of moving, when not crawled, between states in increasing order;
            a step after a crawl, the chain is where it is a step after the first state.
        value: (n,) utility collected by a crawl.
        drift: (n,) mean change of `value` in a step of waiting.
        mean: of the value a step after a crawl.

    With Q the moves among the states below b and p those from the first state to them,
    N = 1 + p(I − Q)⁻¹1 and R = mean + p(I − Q)⁻¹drift (optional stopping). One elimination of
    I − Q, bordered by p, 1 and drift, holds them for every b, and with them g* (the gain at which b
    itself may wait) and the index R − N·g*.

    Raises:
        ValueError: the index decreases somewhere: the optimal policy is then not a threshold.
    """
    n = len(value)
    matrix = np.zeros((n + 1, n + 2))
    np.negative(stay, out=matrix[:n, :n])
    np.einsum("ii->i", matrix[:n, :n])[...] += 1.0
    matrix[:n, n], matrix[:n, n + 1] = 1.0, drift
    matrix[n, :n] = stay[0]
    states = _eliminate(matrix)
    waiting, gain, visits = matrix[:n, n], matrix[:n, n + 1], matrix[n, :n]
    waiting[states:], gain[states:], visits[states:] = 1.0, 0.0, 0.0
    steps = 1.0 + np.concatenate([[0.0], np.cumsum(visits * waiting)[:-1]])
    reward = mean + np.concatenate([[0.0], np.cumsum(visits * gain)[:-1]])
    index = reward - steps * gain / waiting
    never = np.maximum.accumulate((steps <= 0.0) | (steps > _NEVER))
    never[states:] = True
    last = max(int(np.argmax(never)) - 1, 0) if never.any() else n - 1
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
    steps[never] = np.inf
    return index, reward, steps


@compiled
def _eliminate(matrix: FloatArray) -> int:
    """Eliminate in place, (n + 1, n + 2), without exchanging rows (I − Q needs none), up to the
    first state that is not left for a higher one; return the number of states up to it.

    As content decays little in a step, most entries below the diagonal are zero.
    """
    n = len(matrix) - 1
    for j in range(n):
        pivot, here = matrix[j, j], matrix[j]
        if pivot < _ABSORBING:
            return j + 1
        for i in range(j + 1, n + 1):
            row = matrix[i]
            if row[j] != 0.0:
                row[j] /= pivot
                for k in range(j + 1, n + 2):
                    row[k] -= row[j] * here[k]
    return n
