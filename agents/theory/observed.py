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
from crawl_env.compiled import compiled
from crawl_env.content.utility import Distribution
from crawl_env.numerics import BoolArray, FloatArray, IntArray

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
        which = which.reshape(-1)
        scale = sources.ceiling[self._observed] * decay / solved
        cost = np.broadcast_to(sources.cost, self._observed.shape)[self._observed]
        inflow = np.broadcast_to(sources.inflow, self._observed.shape)[self._observed]
        self._cell, self._arm = np.flatnonzero(self._observed), which
        self._index, self._reward, self._steps = (
            np.array([arm[i] for arm in arms]).reshape(len(arms), _STATES) for i in (2, 3, 4)
        )
        top, even = (np.array([arm[i] for arm in arms])[which] for i in (0, 1))
        first = np.array([arm.state[1] for arm in arms])[which] * scale if arms else scale
        # Above the grid, and below its first state if steps are longer, the index is known as a
        # multiple of the closed form, and for so many items it is that.
        self._columns = np.array(
            [top, even, scale, cost, longer, inflow, np.zeros_like(first), np.ones_like(first)]
        )
        calm, slow = items > _MANY, longer > 1.0
        self._needs_closed_form = bool(calm.any() or slow.any() or not self._observed.all())
        if slow.any():
            at_first = np.zeros(self._observed.shape)
            at_first[self._observed] = first
            closed = self._unobserved.index(at_first)
            exact = closed.copy()
            self._look_up(at_first, exact)
            ratio = exact[self._observed] / closed[self._observed]
            self._columns[6, slow], self._columns[7, slow] = first[slow], ratio[slow]
        self._columns[6, calm], self._columns[7, calm] = np.inf, 1.0

    def index(self, value: FloatArray) -> FloatArray:
        """Return the Whittle index, (..., N) utility / budget unit; see `agents.whittle_index`.

        Between the states of the grid it is interpolated; above them it grows as x/C does, from
        its value at the last, where its error is at most the difference from x/C.
        """
        if self._needs_closed_form:
            gamma = np.ascontiguousarray(self._unobserved.index(value))
        else:
            gamma = np.empty(np.broadcast_shapes(value.shape, self._observed.shape))
        self._look_up(value, gamma)
        return gamma

    def _look_up(self, value: FloatArray, gamma: FloatArray) -> None:
        """Write the index of the observed sources over that of the closed form, (..., N)."""
        if value.shape != gamma.shape:
            value = np.broadcast_to(value, gamma.shape)
        rows = -1, self._observed.size
        value = np.ascontiguousarray(value).reshape(rows)
        _each_index(value, self._cell, self._arm, self._columns, self._index, gamma.reshape(rows))

    def net_reward(self, multiplier: FloatArray) -> FloatArray:
        """Return g = β − λC, (..., N) utility / step, at λ = `multiplier`, (..., 1).

        Beyond the largest index of the grid it is the net reward there, which is an upper bound.
        """
        if self._observed.all():
            gain = np.zeros(self._observed.shape)
        else:
            gain = self._unobserved.net_reward(multiplier)
        if self._cell.size:
            charge = np.broadcast_to(multiplier, self._observed.shape)[self._observed]
            tables = self._index, self._reward, self._steps
            _each_net_reward(
                charge, self._cell, self._arm, self._columns, *tables, gain.reshape(-1)
            )
        return gain

    def max_multiplier(self) -> FloatArray:
        """Return a multiplier from which on nothing is crawled, (..., 1)."""
        largest = np.array(self._break_even)
        if self._cell.size:
            scale, cost = self._columns[2], self._columns[3]
            largest[self._observed] = self._index[self._arm, -1] * scale / cost
        return largest.max(axis=-1, keepdims=True)


@compiled
def _each_index(
    value: FloatArray,
    cell: IntArray,
    arm: IntArray,
    columns: FloatArray,
    table: FloatArray,
    out: FloatArray,
) -> None:
    """value, out: (R, cells), out with the closed form at first; cell, arm: (S,); columns: (8, S);
    table: (arms, n)."""
    n = table.shape[1]
    share = 1.0 - 1.0 / n
    top, even, scale, cost = columns[0], columns[1], columns[2], columns[3]
    below, factor = columns[6], columns[7]
    for r in range(len(value)):
        for s in range(cell.size):
            c = cell[s]
            if value[r, c] < below[s]:
                out[r, c] *= factor[s]
                continue
            x, bent, row = value[r, c] / scale[s], 1.0 - even[s], table[arm[s]]
            fraction = x / top[s]
            root = np.sqrt(even[s] * even[s] + 4.0 * bent * fraction)
            place = n * 2.0 * fraction / (even[s] + root)
            left = np.uintp(min(place, n - 2.0))
            between = min(place - float(left), 1.0)
            low, high = row[left], row[left + np.uintp(1)]
            last = share * top[s] * (even[s] + bent * share)
            exact = low + between * (high - low) + max(x - last, 0.0)
            out[r, c] = min(exact, x) * scale[s] / cost[s]


@compiled
def _each_net_reward(
    charge: FloatArray,
    cell: IntArray,
    arm: IntArray,
    columns: FloatArray,
    index: FloatArray,
    reward: FloatArray,
    steps: FloatArray,
    out: FloatArray,
) -> None:
    """charge: λ, (S,); index, reward, steps: (arms, n); out: (cells,)."""
    n = index.shape[1]
    for s in range(cell.size):
        gamma, gained, taken = index[arm[s]], reward[arm[s]], steps[arm[s]]
        scale, cost, longer, inflow = columns[2, s], columns[3, s], columns[4, s], columns[5, s]
        paid = min(charge[s] * cost / scale, gamma[n - 1])
        # The best threshold is the first state whose index reaches the charge, but for rounding.
        low, high = -1, n - 1
        while high - low > 1:
            middle = (low + high) // 2
            if gamma[middle] < paid:
                low = middle
            else:
                high = middle
        best = (gained[n - 1] - paid) / taken[n - 1]
        for j in range(max(high - 2, 0), min(high + 3, n)):
            best = max(best, (gained[j] - paid) / taken[j])
        best *= scale
        if longer > 1.0:
            # Shorter steps earn more, by less than their own decay; no policy earns more than u.
            best = min(best / longer * (1.0 + _SLOWEST), inflow)
        out[cell[s]] = best
