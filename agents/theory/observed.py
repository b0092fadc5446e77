"""One source that is observed, or that sends signals, under Poisson arrivals: its exact index and
net reward.

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

Signals of recall r and precision p are the same arm, X being the belief and U its mean increment
(1 − r)u plus what the pings of the step announce, pξ̄·e^(−μ·age) each. r = p = 1 with utilities
known at once is the observed source, and r = 0 the unobserved one. Better signals make U larger in
convex order, and all operations above preserve this order if the states are the same. The states
therefore depend on r and p in no way, and the net reward increases with both, as computed. They
contain the mean content x_k at every age k, so that little noise is not enlarged by the grid: it
tends to the closed form as r → 0 or p → 0. A delay of the pings is ignored: who knows them earlier
can do as well, so that the net reward remains a bound.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property, lru_cache
from math import exp, expm1, sqrt
from typing import NamedTuple

import numpy as np

from agents.theory.renewal import renewal_arm, simplified
from agents.theory.shot_noise import Content, Item, one_item
from agents.theory.thresholds import thresholds
from crawl_env import Sources
from crawl_env.compiled import compiled, inlined
from crawl_env.content.utility import Distribution, EqualUtilities
from crawl_env.numerics import BoolArray, FloatArray, IntArray

# Measured against grids of four times as many states, for ΛT in .01 … 20,000, μT in .02 … 5 and
# all distributions of ξ: index within .011 u*/C (.003 from μT = .2 on), net reward within
# .001 u (.0005). Below μT = .02 the steps of decay are finer than those of the grid: .04 u*/C and
# .004 u at μT = .001. With signals, of any precision: .0125 u*/C and .0015 u from μT = .02 on.
# Above μT = 5, against draws: net reward within .002 u up to λC = 3u, with and without signals.
_STATES = 256
_MANY = 20_000.0  # items per step from which Theorem 1 is as close to the index as the grid is
# Range of μT in which arms are solved as they are. At the fastest, e^-10 is left after a step.
_SLOWEST, _FASTEST = 1e-6, 10.0
_MOST_ARMS = 20_000  # some two minutes and 350 MB if all send signals, half of it if observed
_TAIL = 1e-5  # fraction of items whose utility exceeds the reach of the grid
_APART = 1e-9  # distance of two states that are not one, relative to u*
_SPREADS = 6.0  # standard deviations of the content of a source never crawled, within that reach


class ThresholdTable(NamedTuple):
    """An arm in units of ξ̄: what crawling from each of its states on means."""

    top: float  # where the states end
    even: float  # see `grid_of`
    break_even: FloatArray  # (n,) Cγ/ξ̄: at it, crawling and waiting are equally good
    reward: FloatArray  # (n,) R, mean content at the crawl
    steps: FloatArray  # (n,) N, mean steps between crawls
    state: FloatArray  # (n,) content or belief / ξ̄, increasing from 0


def solve_arm(
    items: float,
    decay: float,
    utility: Distribution,
    recall: float = 1.0,
    precision: float = 1.0,
) -> ThresholdTable:
    """Return the arm with ℓ = ΛT `items` > 0 and m = μT `decay` > 0; the last 4096 are kept.

    Arguments:
        utility: the distribution of ξ, as far as it is known before a crawl: that of the items
            where content is observed, `EqualUtilities()` where pings tell only their time.
        recall: r in (0, 1], the fraction of items that are announced.
        precision: p in (0, 1], the fraction of pings that announce an item.

    >>> from crawl_env.content.utility import EqualUtilities, Exponential
    >>> x = np.array([0.0, 2.5, 5.0])  # u* = 2.5 ξ̄; Theorem 1 has 0, 2.5 and 5
    >>> observed = solve_arm(0.5, 0.2, Exponential())
    >>> np.interp(x, observed.state, observed.break_even).round(2)
    array([0.  , 1.66, 4.32])
    >>> signalled = solve_arm(0.5, 0.2, EqualUtilities(), recall=0.5, precision=0.8)
    >>> np.interp(x, signalled.state, signalled.break_even).round(2)
    array([0.  , 1.78, 4.9 ])
    """
    if isinstance(utility, Hashable):
        return _solve_once(items, decay, utility, recall, precision)
    return _solve(items, decay, utility, recall, precision)


def _solve(
    items: float,
    decay: float,
    utility: Distribution,
    recall: float = 1.0,
    precision: float = 1.0,
    states: int = _STATES,
) -> ThresholdTable:
    ceiling, loss = items / decay, -expm1(-decay)
    item = one_item(utility)
    top = reach_of(items, decay, item)
    even = ceiling / top
    grid, mean = grid_of(top, even, states), ceiling * loss
    if recall == precision == 1.0:
        content = Content.of_items(items, decay, item)
    else:
        grid = _with_mean_path(grid, ceiling, decay)
        content = Content.of_pings(items, decay, item, recall, precision)
    state = grid[:-1]
    # After a step of waiting in each state, the first of which is that of a source just crawled.
    moves = np.zeros((state.size, grid.size))
    content.split(exp(-decay) * state + (1.0 - recall) * mean, grid, moves)
    index, reward, steps = thresholds(moves[:, :-1], state, mean - loss * state, mean)
    return ThresholdTable(top, even, index, reward, steps, state)


_solve_once = lru_cache(maxsize=4096)(_solve)


def reach_of(items: float, decay: float, item: Item) -> float:
    """Return where the states of an arm end, in units of ξ̄: hardly any content is above."""
    spread = sqrt(items * (item.weight @ item.value**2) / (2 * decay))
    return float(items / decay + _SPREADS * spread + item.quantile(1.0 - _TAIL))


def grid_of(top: float, even: float, states: int) -> FloatArray:
    """Return the states and one point more, (n + 1,): x = top·(even·t + (1 − even)·t²), t = j/n.

    Even steps as far as u* goes, finer near zero where a source is mostly empty.
    """
    t = np.linspace(0.0, 1.0, states + 1)
    return top * t * (even + (1.0 - even) * t)


def _with_mean_path(grid: FloatArray, ceiling: float, decay: float) -> FloatArray:
    """Return a grid with more points below the ceiling: the mean content at every age up to half
    as many as the grid has, and as many even steps."""
    more = grid.size // 2
    path = -np.expm1(-decay * np.arange(1.0, more + 1)) * ceiling
    path = path[np.diff(path, prepend=0.0) > _APART * ceiling]
    others = np.append(grid[1:-1], np.linspace(0.0, ceiling, more, endpoint=False)[1:])
    # Points that all but coincide are one.
    after = np.searchsorted(path, others)
    around = np.concatenate([[-np.inf], path, [np.inf]])
    near = np.minimum(others - around[after], around[after + 1] - others)
    inside = np.sort(np.append(path, others[near > _APART * ceiling]))
    inside = inside[np.diff(inside, prepend=0.0) > _APART * ceiling]
    return np.concatenate([grid[:1], inside, grid[-1:]])


class ObservedArm:
    """The arms of a fleet, (N,) or (B, N), of which some are observed or send signals; a
    `SingleArm`.

    Exact for Poisson content; sources of which nothing is known before a crawl are those of
    `renewal_arm`. At the others, failures and capacities count as in `simplified`.

    Arguments:
        sources: the fleet, or a batch of fleets.
        observed: (N,) which sources are observed; the signals of these are ignored.
        utility: the distribution of ξ.

    Raises:
        ValueError: more than 20,000 different sources are observed or send signals.
    """

    def __init__(self, sources: Sources, observed: BoolArray, utility: Distribution) -> None:
        self._unobserved, self._sources = renewal_arm(sources), sources
        sources = simplified(sources)
        shape = np.broadcast_shapes(observed.shape, sources.ceiling.shape)
        is_informed = (observed | (sources.recall > 0)) & (sources.ceiling > 0)
        self._break_even = np.broadcast_to(self._unobserved.break_even, shape)
        self._is_informed = is_informed
        is_observed, recall, precision = (
            np.broadcast_to(column, shape)[is_informed]
            for column in (observed, sources.recall, sources.precision)
        )
        recall[is_observed] = precision[is_observed] = 1.0
        items = (sources.arrival_rate * sources.period)[is_informed]
        decay = sources.decay_per_step[is_informed]
        # The slowest sources are solved with longer steps, of which they have enough in any case,
        # and the fastest with shorter ones, before which all that comes decays by the next crawl.
        longer = np.clip(decay, _SLOWEST, _FASTEST) / decay
        items, decay = items * longer, decay * longer
        # Per unit of u*, an arm with more items earns less: U varies less, relative to its mean.
        few = np.minimum(items, _MANY)
        columns = np.stack([few, decay, recall, precision, is_observed], axis=-1)
        kinds, which = np.unique(columns, axis=0, return_inverse=True)
        if len(kinds) > _MOST_ARMS:
            raise ValueError(
                f"{len(kinds)} different sources are observed under random arrivals or send "
                f"signals, and the exact index is tabulated for up to {_MOST_ARMS}; use the agent "
                "'whittle', whose index needs no table, or round the rates so that sources become "
                "alike"
            )
        arms = [
            solve_arm(ell, m, utility if is_exact else EqualUtilities(), r, p)
            for ell, m, r, p, is_exact in kinds.tolist()
        ]
        which = which.reshape(-1)
        scale = sources.ceiling[is_informed] * decay / few
        cost = np.broadcast_to(sources.cost, shape)[is_informed]
        inflow = np.broadcast_to(sources.inflow, shape)[is_informed]
        # What is left after the shortest steps is part of what the source earns.
        short = scale * (few / decay) * -np.expm1(-decay)
        scale = np.where(longer < 1.0, scale * (inflow / short), scale)
        self._cell, self._arm = np.flatnonzero(is_informed), which
        self._index = _rows([arm.break_even for arm in arms])
        self._reward = _rows([arm.reward for arm in arms])
        self._steps = _rows([arm.steps for arm in arms])
        self._state = _rows([arm.state for arm in arms])
        top, even = (np.array([arm[i] for arm in arms])[which] for i in (0, 1))
        first = self._state[which, 1] * scale if arms else scale
        # Above the grid, and below its first state if steps are longer, the index is known as a
        # multiple of the closed form, and for so many items it is that.
        self._columns = np.array(
            [top, even, scale, cost, longer, inflow, np.zeros_like(first), np.ones_like(first)]
        )
        self._uneven = ~((recall == 1.0) & (precision == 1.0))
        self._signalled = np.flatnonzero(is_informed)[self._uneven]
        calm, slow = items > _MANY, longer > 1.0
        self._needs_closed_form = bool(calm.any() or slow.any() or not is_informed.all())
        if slow.any():
            at_first = np.zeros(shape)
            at_first[is_informed] = first
            unobserved = self._unobserved.index(at_first)
            exact = unobserved.copy()
            self._look_up(at_first, exact)
            ratio = exact[is_informed] / unobserved[is_informed]
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
            gamma = np.empty(np.broadcast_shapes(value.shape, self._is_informed.shape))
        self._look_up(value, gamma)
        return gamma

    def _look_up(self, value: FloatArray, gamma: FloatArray) -> None:
        """Write the exact index over that of the closed form, (..., N)."""
        if value.shape != gamma.shape:
            value = np.broadcast_to(value, gamma.shape)
        rows = -1, self._is_informed.size
        value = np.ascontiguousarray(value).reshape(rows)
        tables = self._columns, self._uneven, self._state, self._index
        _each_index(value, self._cell, self._arm, *tables, gamma.reshape(rows))

    def net_reward(self, multiplier: FloatArray) -> FloatArray:
        """Return g = β − λC, (..., N) utility / step, at λ = `multiplier`, (..., 1).

        Beyond the largest index of the grid it is the net reward there, which is an upper bound.
        """
        if self._is_informed.all() and not self._signalled.size:
            gain = np.zeros(self._is_informed.shape)
        else:
            gain = self._unobserved.net_reward(multiplier)
        if self._cell.size:
            charge = np.broadcast_to(multiplier, self._is_informed.shape)[self._is_informed]
            without = gain.reshape(-1)[self._signalled]
            tables = self._index, self._reward, self._steps
            _each_net_reward(
                charge, self._cell, self._arm, self._columns, *tables, gain.reshape(-1)
            )
            if self._signalled.size:
                # Signals never cost anything, and say no more than the time of every item: but for
                # rounding and the lattices, which this removes.
                upper = self._upper.net_reward(multiplier).reshape(-1)[self._signalled]
                signalled = np.minimum(gain.reshape(-1)[self._signalled], upper)
                gain.reshape(-1)[self._signalled] = np.maximum(signalled, without)
        return gain

    @cached_property
    def _upper(self) -> ObservedArm:
        """The arms as if those that send signals told every item at once."""
        others = np.zeros(self._is_informed.shape, dtype=bool)
        others.reshape(-1)[self._signalled] = True
        silent = self._sources.replaced(recall=0.0)
        return ObservedArm(silent, others, EqualUtilities())

    def max_multiplier(self) -> FloatArray:
        """Return a multiplier from which on nothing is crawled, (..., 1)."""
        largest = np.array(self._break_even)
        if self._cell.size:
            scale, cost = self._columns[2], self._columns[3]
            largest[self._is_informed] = self._index[self._arm, -1] * scale / cost
        return largest.max(axis=-1, keepdims=True)


def _rows(columns: list[FloatArray]) -> FloatArray:
    """Return columns as the rows of a matrix, the shorter ones filled up with their last entry."""
    longest = max((column.size for column in columns), default=_STATES)
    rows = [np.pad(column, (0, longest - column.size), mode="edge") for column in columns]
    return np.array(rows).reshape(len(rows), longest)


@compiled
def _each_index(
    value: FloatArray,
    cell: IntArray,
    arm: IntArray,
    columns: FloatArray,
    uneven: BoolArray,
    states: FloatArray,
    table: FloatArray,
    out: FloatArray,
) -> None:
    """value, out: (R, cells), out with the closed form at first; cell, arm: (S,); columns: (8, S);
    uneven: whether states are others than those of `grid_of`, (S,); states, table: (arms, n)."""
    n = _STATES
    share = 1.0 - 1.0 / n
    top, even, scale, cost = columns[0], columns[1], columns[2], columns[3]
    below, factor = columns[6], columns[7]
    for r in range(len(value)):
        for s in range(cell.size):
            c = cell[s]
            if value[r, c] < below[s]:
                out[r, c] *= factor[s]
                continue
            x, row = value[r, c] / scale[s], table[arm[s]]
            if uneven[s]:
                exact = _interpolated(x, states[arm[s]], row)
            else:
                bent = 1.0 - even[s]
                fraction = x / top[s]
                root = np.sqrt(even[s] * even[s] + 4.0 * bent * fraction)
                place = n * 2.0 * fraction / (even[s] + root)
                left = np.uintp(min(place, n - 2.0))
                between = min(place - float(left), 1.0)
                low, high = row[left], row[left + np.uintp(1)]
                last = share * top[s] * (even[s] + bent * share)
                exact = low + between * (high - low) + max(x - last, 0.0)
            out[r, c] = min(exact, x) * scale[s] / cost[s]


@inlined
def _interpolated(x: float, states: FloatArray, row: FloatArray) -> float:
    """Return what lies between the entries of a row at increasing states, and beyond the last grows
    as x does; states may end in copies of the last."""
    low, high = 0, states.size - 1
    if x >= states[high]:
        return row[high] + (x - states[high])
    while high - low > 1:
        middle = (low + high) // 2
        if states[middle] <= x:
            low = middle
        else:
            high = middle
    between = (x - states[low]) / (states[high] - states[low])
    return row[low] + between * (row[high] - row[low])


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
        gamma, rewards, lengths = index[arm[s]], reward[arm[s]], steps[arm[s]]
        scale, cost, longer, inflow = columns[2, s], columns[3, s], columns[4, s], columns[5, s]
        price = min(charge[s] * cost / scale, gamma[n - 1])
        # The best threshold is the first state whose index reaches the charge, but for rounding.
        low, high = -1, n - 1
        while high - low > 1:
            middle = (low + high) // 2
            if gamma[middle] < price:
                low = middle
            else:
                high = middle
        best = (rewards[n - 1] - price) / lengths[n - 1]
        for j in range(max(high - 2, 0), min(high + 3, n)):
            best = max(best, (rewards[j] - price) / lengths[j])
        best *= scale
        if longer > 1.0:
            # Shorter steps earn more, by less than their own decay; no policy earns more than u.
            best = min(best / longer * (1.0 + _SLOWEST), inflow)
        out[cell[s]] = best
