"""The index of sources with capacities by their content: prepared once, then looked up.

The ages are those of the sources with capacities alone, and content is stored as a fraction of
what a source never crawled holds, so no digits are lost however little decays in a step.

Where all ages of all different sources fit a table, it is exact. Otherwise each kind of source has
some tens of nodes: the first ages, ages in geometric progression until nothing grows, and ages
around the one at which the capacity begins to be felt. Between nodes γ/x is linear in x. The
relative error of the index is then below .5 % with 64 nodes (up to 500,000 different sources) and
5 % with 32 (a million).
"""

from __future__ import annotations

from functools import cache
from math import expm1, log1p
from typing import Protocol

import numpy as np

from agents.theory.closed_form import decayed
from crawl_env.compiled import compiled, inlined
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray, IntArray

_MOST_CELLS = 2e6  # of an exact table
_MOST_BYTES = 2.56e8  # of a table of nodes
_NODES = 64
_KINDS = 2048  # of sources for which nodes are computed at a time
_LEAST = 1e-10  # probability of failing so often in a row that no more need be counted
_POINTS = 1024  # of the incomplete gamma function of a capacity: its error is below 1e-9
_TINY = 1e-200  # below which 1 − e^{−x} and x are one number
_NEAR = 1e-5  # below which a difference quotient is a derivative
_GAUSS, _WEIGHTS = np.polynomial.legendre.leggauss(5)


class _Arm(Protocol):
    @property
    def sources(self) -> Sources: ...
    @property
    def longest(self) -> FloatArray: ...
    def mean_content(self, age: FloatArray) -> FloatArray: ...
    def index_at_age(self, age: FloatArray) -> FloatArray: ...


class IndexTable:
    """The index of an arm by content, for fleets (N,) or batches (B, N).

    Arguments:
        arm: whose sources have capacities, or under another decay function than the exponential.
            In a batch, sources without capacities are passed over: their values are no index.

    The exact table costs the content and index of every source at every age; nodes cost .025 ms per
    different source, and .4 ms where up to 40 % of crawls fail. It is made for all fleets of a
    batch together, and made anew where any of them is drawn anew.
    """

    def __init__(self, arm: _Arm) -> None:
        sources, shape = arm.sources, arm.longest.shape
        capped = np.isfinite(sources.capacity) if sources.is_capped else np.ones(shape, dtype=bool)
        never = arm.mean_content(np.asarray(np.inf))
        capped = capped & (never > 0)
        oldest = arm.longest.max(where=capped, initial=1.0)
        exact = oldest * arm.longest.size <= _MOST_CELLS
        if exact or not sources.is_capped:
            if exact:
                ages = np.arange(1.0, oldest + 1).reshape(-1, *(1,) * len(shape))
                self._nodes = self._exact = len(ages) + 1
            else:  # another decay function
                self._nodes, self._exact = 2 * _NODES, _NODES // 2
                ages = _ages(arm.longest, self._nodes, self._exact)
            columns = (arm.mean_content(ages), arm.index_at_age(ages))
            self._content, self._index = (
                np.concatenate([np.zeros((1, *shape)), c]).reshape(self._nodes, -1).T.ravel()
                for c in columns
            )
            self._kind = np.arange(arm.longest.size).reshape(shape)
            self._utility = self._scale = np.ones(shape)
            return
        parameters = (
            *(sources.arrival_rate, sources.decay_rate, sources.capacity),
            *(sources.failure_rate, sources.crawl_delay),
        )
        rows = np.stack([np.broadcast_to(p, shape)[capped] for p in parameters])
        kinds, kind = np.unique(rows, axis=1, return_inverse=True)
        n = kinds.shape[1]
        self._nodes = int(np.clip(_MOST_BYTES / 8 / n, _NODES // 2, _NODES))
        self._exact = self._nodes // 4
        self._kind = np.zeros(shape, dtype=np.intp)
        self._kind[capped] = kind.ravel()
        self._utility = np.where(capped, never, 1.0)
        self._scale = self._utility / sources.cost
        content = np.empty((n, self._nodes), dtype=np.float32)
        index = np.empty_like(content)
        for first in range(0, n, _KINDS):
            rate, decay, most, p, delay = kinds[:, first : first + _KINDS]
            some = Sources(rate, 1.0, decay, 1.0, sources.period, (), delay, most, p)
            content[first : first + _KINDS], index[first : first + _KINDS] = self._compute(some)
        self._content, self._index = content.ravel(), index.ravel()

    def __call__(self, value: FloatArray) -> FloatArray:
        """Return the index where `value`, (..., N), is the mean content; flat beyond the table."""
        x, base = value / self._utility, self._kind * self._nodes
        # The last node whose content is below x.
        low = np.broadcast_to(base, x.shape).copy()
        step = 1 << (self._nodes - 1).bit_length() - 1
        last = base + self._nodes - 2
        while step:
            further = np.minimum(low + step, last)
            low = np.where(self._content.take(further) < x, further, low)
            step >>= 1
        before, after = self._content.take(low), self._content.take(low + 1)
        start, end = self._index.take(low), self._index.take(low + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = np.where(after > before, (x - before) / (after - before), 1.0)
            weight = np.clip(weight, 0.0, 1.0)
            index = start + weight * (end - start)
            if self._exact < self._nodes:
                slope = start / before + weight * (end / after - start / before)
                index = np.where(low - base < self._exact, index, slope * np.minimum(x, after))
        return index * self._scale

    def _compute(self, sources: Sources) -> tuple[FloatArray, FloatArray]:
        """Return content and index at the nodes, each (n, nodes)."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            items = sources.arrival_rate * sources.period
            come = (sources.capacity + 10 * np.sqrt(sources.capacity) + 40) / items
            full = np.maximum(np.fmin(40.0 / sources.decay_per_step, come), 1.0)
        j = np.arange(1.0, self._nodes)[:, None]
        # Ages one by one up to `_exact`; then as many in geometric progression as around the age at
        # which a capacity begins to be felt, K/Λ within some K^(−1/2) of it.
        some = (self._nodes - 1 - self._exact) // 2
        ratio = np.maximum(full / self._exact, 1.0) ** (1.0 / some)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            width = np.sqrt(sources.capacity)
            start, end = ((sources.capacity + c * width) / items for c in (-4.0, 5.0))
            place = (j - self._exact - some) / (self._nodes - 1 - self._exact - some)
            around = np.clip(np.nan_to_num(start + place * (end - start)), self._exact, full)
        around = np.maximum(around, self._exact)
        geometric = self._exact * ratio ** np.clip(j - self._exact, 0, some)
        age = np.where(j <= self._exact + some, geometric, around)
        age = np.sort(np.where(j <= self._exact, j, age), axis=0)
        age = np.where(full <= self._nodes - 1, j, age)
        shapes, which = np.unique(sources.capacity, return_inverse=True)
        gamma = [_incomplete_gamma(float(shape)) for shape in shapes]
        points, p, density = (np.array(columns) for columns in zip(*gamma, strict=True))
        grid = np.array([points[:, 0], points[:, 1] - points[:, 0]])
        rows = (
            *(sources.arrival_rate * sources.period, sources.decay_per_step),
            *(sources.capacity, sources.failure_rate, sources.delay),
        )
        content, index = np.zeros((2, len(full), self._nodes))
        _fill(np.array(rows), age.T.copy(), which, grid, p, density, content, index)
        return content, index


def _ages(full: FloatArray, nodes: int, exact: int) -> FloatArray:
    """Return ages one by one up to `exact`, then in geometric progression, (nodes − 1, ...)."""
    j = np.arange(1.0, nodes).reshape(-1, *(1,) * full.ndim)
    ratio = np.maximum(full / exact, 1.0) ** (1.0 / (nodes - 1 - exact))
    return np.where(j <= exact, j, exact * ratio ** (j - exact))


@inlined
def _content(
    age: float,
    rate: float,
    decay: float,
    ceiling: float,
    start: float,
    step: float,
    p: FloatArray,
    density: FloatArray,
) -> float:
    """Return the mean content at any age, as a fraction of that at age infinity.

    With P and Q the regularised incomplete gamma functions and r = Λ/(Λ+μ), it is Λ/μ items times
    (1 − e^{−μt}) Q(K, Λt) + (1 − r^K) P(K, Λt+μt) − [P(K, Λt+μt) − P(K, Λt)], of (1 − r^K) Λ/μ.
    Each of the three terms is divided by μ on its own, so little decay costs no digits.

    rate, decay: ΛT and μT.
    ceiling: (1 − r^K) Λ/μ.
    start, step, p, density: P(K, ·) and its derivative at points in equal steps.
    """
    came, gap = rate * age, decay * age
    p_at, slope = _hermite(came, start, step, p, density)
    p_more, _ = _hermite(came + gap, start, step, p, density)
    far = (p_more - p_at) / gap
    slope = slope if gap < _NEAR else far
    items = came * ((1.0 - decayed(gap)[1]) * (1.0 - p_at) - slope)
    return min(max(items / ceiling + p_more, 0.0), 1.0)


@inlined
def _hermite(
    x: float, start: float, step: float, p: FloatArray, density: FloatArray
) -> tuple[float, float]:
    """Return P and its derivative at any x from cubics between the points.

    P is 0 below them and 1 above.
    """
    place = min(max((x - start) / step, 0.0), _POINTS - 1.0)
    left = np.uintp(min(place, _POINTS - 2.0))
    t = place - float(left)
    low, high = p[left], p[left + np.uintp(1)]
    rise = high - low
    a, b = step * density[left] - rise, rise - step * density[left + np.uintp(1)]
    value = low + t * (rise + (1.0 - t) * ((1.0 - t) * a + t * b))
    slope = (rise + (1.0 - t) * (1.0 - 3.0 * t) * a + t * (2.0 - 3.0 * t) * b) / step
    return value, slope


@compiled
def _fill(
    rows: FloatArray,
    ages: FloatArray,
    which: IntArray,
    grid: FloatArray,
    p: FloatArray,
    density: FloatArray,
    content: FloatArray,
    index: FloatArray,
) -> None:
    """Write content and index, (n, nodes), at node 0, empty, and at the `ages`, (n, nodes − 1).

    rows: ΛT, μT, capacity, failure rate and delay, (5, n).
    which: (n,) the row of a source in `grid` (first point and step), `p` and `density`.
    """
    nodes = ages.shape[1]
    reward, later, first, second = np.empty((4, nodes))
    for i in range(len(ages)):
        rate, decay, most, failing, delay = rows[:, i]
        ratio, success = decay / rate, 1.0 - failing
        ceiling = -expm1(-most * log1p(ratio)) / ratio if ratio > _TINY else most
        own, age, now, gamma = which[i], ages[i], content[i, 1:], index[i, 1:]
        start, step = grid[0, own], grid[1, own]
        p_own, density_own = p[own], density[own]
        odds, retried = 1.0, 0.0
        for j in range(nodes):
            now[j] = _content(age[j], rate, decay, ceiling, start, step, p_own, density_own)
            reward[j] = later[j] = 0.0
        while odds > _LEAST:
            for j in range(nodes):
                t = age[j] + retried
                first[j] = _content(t, rate, decay, ceiling, start, step, p_own, density_own)
            for j in range(nodes):
                t = age[j] + retried + 1.0
                second[j] = _content(t, rate, decay, ceiling, start, step, p_own, density_own)
            for j in range(nodes):
                reward[j] += odds * success * first[j]
                later[j] += odds * success * second[j]
            odds *= failing
            retried += delay
            if first[0] == 1.0:  # ages increase
                break
        highest = 0.0
        for j in range(nodes):
            gain, next_gain = reward[j] + odds * first[j], later[j] + odds * second[j]
            length = age[j] + delay * failing / success
            net = success * (gain - length * (next_gain - gain))
            highest = max(highest, min(max(net, 0.0), success * gain))
            gamma[j] = highest


@cache
def _incomplete_gamma(shape: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return points in equal steps, and there P(shape, ·) and its derivative."""
    width = 10 * np.sqrt(shape) + 20
    points = np.linspace(max(shape - width, 0.0), shape + width, _POINTS)
    half = 0.5 * (points[1] - points[0])
    inner = points[:-1, None] + half * (1 + _GAUSS)
    mass = half * (_density(inner, shape) @ _WEIGHTS)
    p = np.concatenate([[0.0], np.cumsum(mass)])
    return points, p / p[-1], _density(points, shape) / p[-1]


def _density(z: FloatArray, shape: float) -> FloatArray:
    """Return a multiple of the density of the gamma distribution."""
    with np.errstate(divide="ignore"):
        power = (shape - 1.0) * np.log(z / shape) if shape > 1 else 0.0
    return np.exp(power - (z - shape))
