"""One observed source under Poisson arrivals: its exact index and net reward.

The arm's average-reward problem at the Lagrange multiplier λ is (symbols as in `crawl_env.Sources`)

    V(x) + β = max(λC + E V(αx + U), x + E V(U)).

A crawl renews the source, so a policy is a stopping rule, and its average reward net of
costs is g = β − λC = max (R − λC)/N: R is the mean content at the crawl, N the mean number of steps
between two crawls. With g given, waiting is optimal in state x as long as some τ ≥ 1 has
E[X_τ − gτ] > x, that is, as long as g is below g*(x) = sup_τ (E_x X_τ − x)/E τ. Hence

- the arm is indexable for every distribution of ξ: g decreases with λ, so the set of states in
  which waiting is optimal grows;
- it is optimal to wait below a threshold: E_x X_τ − x decreases with x for every τ, as X_τ is
  α^τ x plus the content that arrived since;
- the index is the multiplier (times C) at which g = g*(x).

V is convex, so a grid on which V is interpolated, and U split between points without moving its
mean, can only raise it: `ObservedArm.net_reward` is a bound from above (to the error of `Content`).
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from math import exp, expm1, sqrt
from typing import NamedTuple

import numpy as np

from agents.theory.renewal import renewal_arm, simplified
from agents.theory.shot_noise import Content, one_item
from crawl_env import Sources
from crawl_env.content.utility import Distribution
from crawl_env.numerics import BoolArray, FloatArray

# Measured against grids of four times as many states, for ΛT in .01 … 20,000, μT in .02 … 5 and
# all distributions of ξ: index within .011 u*/C (.003 from μT = .2 on), net reward within
# .001 u (.0005). Below μT = .02 the steps of decay are finer than those of the grid: .04 u*/C and
# .004 u at μT = .001.
_STATES = 256
_MANY = 20_000.0  # items per step from which Theorem 1 is as close to the index as the grid is
_SLOWEST = 1e-6  # μT from which arms are solved as they are
_MOST_ARMS = 20_000  # some two minutes and 150 MB
_TAIL = 1e-5  # fraction of items whose utility exceeds the reach of the grid
_NEVER = 1e11  # steps between crawls that count as never: rounding resolves no more
_SPREADS = 6.0  # standard deviations of the content of a source never crawled, within that reach
_PANEL, _PRODUCT = 16, 32  # columns eliminated one by one; rows of one matrix product


class ThresholdTable(NamedTuple):
    """An arm in units of ξ̄: what crawling from each state of a grid on means.

    The grid is x_j = top·(even·t + (1 − even)·t²), t = j/n: even steps as far as u* goes, finer
    near zero where a source is mostly empty.
    """

    top: float
    even: float
    break_even: FloatArray  # (n,) Cγ/ξ̄: at it, crawling and waiting are equally good
    reward: FloatArray  # (n,) R, mean content at the crawl
    steps: FloatArray  # (n,) N, mean steps between crawls

    @property
    def state(self) -> FloatArray:
        """The grid, (n,) utility / ξ̄."""
        return _grid(self.top, self.even, self.break_even.size)[:-1]


def solve_arm(items: float, decay: float, utility: Distribution) -> ThresholdTable:
    """Return the arm with ℓ = ΛT `items` > 0 and m = μT `decay` > 0; the last 4096 are kept.

    >>> from crawl_env.content.utility import Exponential
    >>> arm = solve_arm(0.5, 0.2, Exponential())
    >>> x = np.array([0.0, 2.5, 5.0])  # u* = 2.5 ξ̄; Theorem 1 has 0, 2.5 and 5
    >>> np.interp(x, arm.state, arm.break_even).round(2)
    array([0.  , 1.66, 4.32])
    """
    if isinstance(utility, Hashable):
        return _kept(items, decay, utility)
    return _solved(items, decay, utility)


def _solved(
    items: float, decay: float, utility: Distribution, states: int = _STATES
) -> ThresholdTable:
    ceiling, loss = items / decay, -expm1(-decay)
    item = one_item(utility)
    spread = sqrt(items * (item.weight @ item.value**2) / (2 * decay))
    top = ceiling + _SPREADS * spread + item.quantile(1.0 - _TAIL)
    even = ceiling / top
    grid = _grid(top, even, states)
    state = grid[:-1]
    # The state after a step of waiting; the first row is that of a source just crawled.
    stay = _probabilities(Content(items, decay, item), exp(-decay) * state, grid)
    mean = ceiling * loss
    index, reward, steps = thresholds(stay, stay[0], state, mean - loss * state, mean)
    return ThresholdTable(top, even, index, reward, steps)


_kept = lru_cache(maxsize=4096)(_solved)


def _grid(top: float, even: float, states: int) -> FloatArray:
    """Return the states and one point more, (n + 1,)."""
    t = np.linspace(0.0, 1.0, states + 1)
    return top * t * (even + (1.0 - even) * t)


def _probabilities(content: Content, start: FloatArray, grid: FloatArray) -> FloatArray:
    """Return the distribution of `start` + U over the grid's points but the last, (S, n).

    Each outcome is split between the two points next to it: the probability of a point is the mean
    of a hat function, a second difference of the mean shortfall.
    """
    below = content.shortfall(grid - start[:, None])
    slopes = np.diff(below, axis=1) / np.diff(grid)
    return np.maximum(np.diff(slopes, axis=1, prepend=0.0), 0.0)


def thresholds(
    stay: FloatArray, fresh: FloatArray, value: FloatArray, drift: FloatArray, mean: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return index, R and N, each (n,), of crawling from each state on, for a chain that a crawl
    starts anew; N is infinite beyond 1e11. Beyond the n states it is always crawled.

    Arguments:
        stay: (n, n) probabilities of moving, when not crawled, between states in increasing order.
        fresh: (n,) probabilities of the state a step after a crawl.
        value: (n,) utility collected by a crawl.
        drift: (n,) mean change of `value` in a step of waiting.
        mean: of the value a step after a crawl.

    With Q the moves among the states below b, N = 1 + p(I − Q)⁻¹1 and R = mean + p(I − Q)⁻¹drift
    (optional stopping). One elimination of I − Q, bordered by p, 1 and drift, holds them for every
    b, and with them g* (the gain at which b itself may wait) and the index R − N·g*.

    Raises:
        ValueError: the index decreases somewhere: the optimal policy is then not a threshold.
    """
    n = len(value)
    matrix = np.zeros((n + 1, n + 2))
    matrix[:n, :n] = np.eye(n) - stay
    matrix[:n, n], matrix[:n, n + 1] = 1.0, drift
    matrix[n, :n] = fresh
    _eliminate(matrix, n)
    waiting, gained, visits = matrix[:n, n], matrix[:n, n + 1], matrix[n, :n]
    steps = 1.0 + np.concatenate([[0.0], np.cumsum(visits * waiting)[:-1]])
    reward = mean + np.concatenate([[0.0], np.cumsum(visits * gained)[:-1]])
    index = reward - steps * gained / waiting
    falls = np.flatnonzero(np.diff(index) < -1e-9 * np.abs(index).max())
    if falls.size:
        raise ValueError(
            f"the index decreases from {index[falls[0]]:.6g} to {index[falls[0] + 1]:.6g} between "
            f"states {falls[0]} and {falls[0] + 1} of {n}: no threshold policy is "
            "optimal. Order the states by their index"
        )
    lost = np.maximum.accumulate((steps <= 0.0) | (steps > _NEVER))
    steps[lost] = np.inf
    return index, reward, steps


def _eliminate(matrix: FloatArray, pivots: int) -> None:
    """Eliminate the first columns in place, without exchanging rows (I − Q needs none): L below
    the diagonal, its ones left out, and U above."""
    for first in range(0, pivots, _PANEL):
        width = min(_PANEL, pivots - first)
        panel, beside = matrix[first:, first : first + width], matrix[first:, first + width :]
        for b in range(width):
            panel[b + 1 :, b] /= panel[b, b]
            panel[b + 1 :, b + 1 :] -= panel[b + 1 :, b, None] * panel[b, b + 1 :]
            beside[b + 1 : width] -= panel[b + 1 : width, b, None] * beside[b]
        # A few rows at a time: products this small stay in one thread, whose start costs more.
        for row in range(width, len(panel), _PRODUCT):
            beside[row : row + _PRODUCT] -= panel[row : row + _PRODUCT] @ beside[:width]


class ObservedArm:
    """The arms of a fleet, (N,) or (B, N), of which some sources are observed; a `SingleArm`.

    Exact where Poisson content is observed; the others are those of `renewal_arm`. At observed
    sources, failures and capacities count as in `simplified`.

    Arguments:
        sources: the fleet, or a batch of fleets.
        observed: (N,) which sources are observed.
        utility: the distribution of ξ.

    Raises:
        ValueError: more than 20,000 different sources are observed.
    """

    def __init__(self, sources: Sources, observed: BoolArray, utility: Distribution) -> None:
        self._unobserved = renewal_arm(sources)
        sources = simplified(sources)
        self._observed = observed & (sources.ceiling > 0)
        self._break_even = np.broadcast_to(self._unobserved.break_even, self._observed.shape)
        items = (sources.arrival_rate * sources.period)[self._observed]
        decay = sources.decay_per_step[self._observed]
        # The slowest sources are solved with longer steps, of which they have enough in any case.
        longer = np.maximum(1.0, _SLOWEST / decay)
        items, decay = items * longer, decay * longer
        # Per unit of u*, an arm with more items earns less: U varies less, relative to its mean.
        solved = np.minimum(items, _MANY)
        kinds, which = np.unique(np.stack([solved, decay], axis=-1), axis=0, return_inverse=True)
        if len(kinds) > _MOST_ARMS:
            raise ValueError(
                f"{len(kinds)} different sources are observed under random arrivals, and the exact "
                f"index is tabulated for up to {_MOST_ARMS}; use the agent 'whittle', whose index "
                "needs no table, or round the rates so that sources become alike"
            )
        arms = [solve_arm(float(ell), float(m), utility) for ell, m in kinds]
        self._which = which.reshape(-1)
        self._calm, self._longer = items > _MANY, longer
        self._inflow = np.broadcast_to(sources.inflow, self._observed.shape)[self._observed]
        self._scale = sources.ceiling[self._observed] * decay / solved
        self._cost = np.broadcast_to(sources.cost, self._observed.shape)[self._observed]
        self._top, self._even = (np.array([arm[i] for arm in arms]) for i in (0, 1))
        self._first = np.array([arm.state[1] for arm in arms])[self._which] if arms else np.empty(0)
        self._index, self._reward, self._steps = (
            np.array([arm[i] for arm in arms]).reshape(len(arms), _STATES) for i in (2, 3, 4)
        )

    def index(self, value: FloatArray) -> FloatArray:
        """Return the Whittle index, (..., N) utility / budget unit; see `agents.whittle_index`.

        Between the states of the grid it is interpolated; above them it grows as x/C does, from
        its value at the last, where its error is at most the difference from x/C.
        """
        gamma = self._unobserved.index(value)
        if self._which.size:
            closed = gamma[..., self._observed]
            x = value[..., self._observed]
            exact = self._tabulated(x)
            if (self._longer > 1.0).any():  # below the first state, in proportion to Theorem 1
                first = self._first * self._scale
                at_first = np.zeros(self._observed.shape)
                at_first[self._observed] = first
                shape = self._unobserved.index(at_first)[self._observed]
                near = self._tabulated(first) * (closed / shape)
                exact = np.where((self._longer > 1.0) & (x < first), near, exact)
            gamma[..., self._observed] = np.where(self._calm, closed, exact)
        return gamma

    def _tabulated(self, value: FloatArray) -> FloatArray:
        """Return the index of the observed sources, (..., S), from the tables."""
        arm, x = self._which, value / self._scale
        top, even, n = self._top[arm], self._even[arm], _STATES
        fraction = x / top
        place = n * 2.0 * fraction / (even + np.sqrt(even**2 + 4.0 * (1.0 - even) * fraction))
        left = np.minimum(place, n - 2).astype(np.intp)
        between = np.minimum(place - left, 1.0)
        low, high = self._index.take(arm * n + left), self._index.take(arm * n + left + 1)
        last = (1.0 - 1.0 / n) * top * (even + (1.0 - even) * (1.0 - 1.0 / n))
        exact = low + between * (high - low) + np.maximum(x - last, 0.0)
        return np.minimum(exact, x) * self._scale / self._cost

    def net_reward(self, multiplier: FloatArray) -> FloatArray:
        """Return g = β − λC, (..., N) utility / step, at λ = `multiplier`, (..., 1).

        Beyond the largest index of the grid it is the net reward there, which is an upper bound.
        """
        if self._observed.all():
            gain = np.zeros(self._observed.shape)
        else:
            gain = self._unobserved.net_reward(multiplier)
        if self._which.size:
            cost = np.broadcast_to(multiplier, self._observed.shape)[self._observed]  # λC
            cost = cost * self._cost / self._scale
            arm = self._which
            cost = np.minimum(cost, self._index[arm, -1])[:, None]
            rates = (self._reward[arm] - cost) / self._steps[arm]
            best = rates.max(axis=1) * self._scale
            # Shorter steps earn more, by less than their own decay; no policy earns more than u.
            more = np.minimum(best / self._longer * (1.0 + _SLOWEST), self._inflow)
            gain[self._observed] = np.where(self._longer > 1.0, more, best)
        return gain

    def max_multiplier(self) -> FloatArray:
        """Return a multiplier from which on nothing is crawled, (..., 1)."""
        largest = np.array(self._break_even)
        if self._which.size:
            largest[self._observed] = self._index[self._which, -1] * self._scale / self._cost
        return largest.max(axis=-1, keepdims=True)
