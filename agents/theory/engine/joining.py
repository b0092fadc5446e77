"""What the items of a crawl bring, in the order in which they join the queue of an engine.

The items of a source that pass the threshold θ are a Poisson process of ages, y(a) of them younger
than a. As the newest joins first, the j-th of a crawl at age k joins with the expected utility

    A_kj = Λ ∫_0^{kT} E[v; v ≥ θ] P(Poisson(y(a)) = j − 1) da,

where it is 0 if there are fewer, and their number is Poisson with mean y_k = y(kT).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from agents.theory.engine.content import Excess
from crawl_env import Sources
from crawl_env.content.utility import Distribution, EqualUtilities
from crawl_env.numerics import FloatArray

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_LEGENDRE = np.polynomial.legendre.legvander(_NODES, _NODES.size)
_PANEL = 30.0  # items that pass in a panel of the quadrature, at most: their odds have narrow peaks
_FADING = (20.0, 40.0)  # time constants
_CELLS = 4e6  # nodes × places at a time


class Joining(NamedTuple):
    """The items of one source at ages 1 … k.

    number: y_k, (k,), the mean number of items.
    utility: A_kj, (k, J).
    total: Σ_j A_kj over all j, (k,).
    """

    number: FloatArray
    utility: FloatArray
    total: FloatArray


def joining(
    sources: Sources, i: int, ages: int, places: int, threshold: float, utility: Distribution
) -> Joining:
    """Return what crawls of source i bring, up to a largest age and for the first J = `places`
    items; interest decays exponentially.

    >>> from crawl_env.content.utility import EqualUtilities
    >>> crawls = joining(Sources([2.0], [1.0], [0.1]), 0, 3, 30, 0.0, EqualUtilities())
    >>> crawls.number, crawls.utility.sum(axis=1).round(4), crawls.utility[2, :2].round(4)
    (array([2., 4., 6.]), array([1.9033, 3.6254, 5.1836]), array([0.9506, 0.8949]))
    """
    whole = np.arange(ages + 1.0)
    edges = np.union1d(whole, _breaks(sources, i, ages, threshold, utility))
    passing, _ = _flows(sources, i, edges, threshold, utility)
    panels = np.maximum(np.ceil(0.5 * np.diff(edges) * (passing @ _WEIGHTS) / _PANEL), 1.0)
    at = np.append(0.0, np.cumsum(panels))
    edges = np.interp(np.arange(at[-1] + 1.0), at, edges)
    last = np.searchsorted(edges, whole[1:]) - 1
    passing, worth = _flows(sources, i, edges, threshold, utility)
    half = 0.5 * np.diff(edges)
    items = half * (passing @ _WEIGHTS)
    number = np.cumsum(items)
    younger = (number - items)[:, None] + 2.0 * half[:, None] * (passing @ _antiderivative().T)
    # Behind many more newer items than there are places, none joins at one of these.
    near = int(np.searchsorted(number - items, places + 12.0 * np.sqrt(places) + 40.0))
    blocks = np.array_split(np.arange(near), int(near * _NODES.size * places // _CELLS) + 1)
    utilities = np.concatenate([_utilities(worth[rows], younger[rows], places) for rows in blocks])
    utilities = np.cumsum(half[:near, None] * utilities, axis=0)[np.minimum(last, near - 1)]
    return Joining(number[last], utilities, np.cumsum(half * (worth @ _WEIGHTS))[last])


def _breaks(
    sources: Sources, i: int, ages: int, threshold: float, utility: Distribution
) -> FloatArray:
    """Return the ages, in steps, at which a panel should end: where items of one and the same
    utility no longer pass, and within a step in which hardly anything is left."""
    step, mean = float(sources.decay_per_step[i]), float(sources.mean_utility[i])
    z = np.array(_FADING if step > _FADING[0] else [])
    if isinstance(utility, EqualUtilities) and 0 < threshold < mean:
        z = np.append(z, np.log(mean / threshold))
    return z[z < step * ages] / step


def _flows(
    sources: Sources, i: int, edges: FloatArray, threshold: float, utility: Distribution
) -> tuple[FloatArray, FloatArray]:
    """Return how many items pass the threshold per step of age, and what they are worth, at the
    nodes between edges, (panels, nodes)."""
    step, mean = float(sources.decay_per_step[i]), float(sources.mean_utility[i])
    z = step * (edges[:-1, None] + np.diff(edges)[:, None] * (0.5 * (_NODES + 1.0)))
    excess, survival = Excess(utility), np.exp(-z)
    t = np.zeros(z.shape)
    if threshold > 0:
        t = threshold / (mean * survival) if mean > 0 else np.full(z.shape, np.inf)
    flow = float(sources.arrival_rate[i] * sources.period)
    return flow * excess.probability(t), flow * mean * survival * excess.mean(t)


def _utilities(worth: FloatArray, younger: FloatArray, places: int) -> FloatArray:
    """Return the integrals over panels, each mapped to [−1, 1], (panels, places)."""
    odds = stats.poisson.pmf(np.arange(places), younger[..., None])
    return np.asarray(np.einsum("kn,knj,n->kj", worth, odds, _WEIGHTS))


def _antiderivative() -> FloatArray:
    """Return the matrix from the values of a function at the nodes, mapped to [0, 1], to its
    integrals from 0 to each node."""
    primitive = np.empty((_NODES.size, _NODES.size))
    primitive[:, 0] = _NODES + 1.0
    for n in range(1, _NODES.size):
        primitive[:, n] = (_LEGENDRE[:, n + 1] - _LEGENDRE[:, n - 1]) / (2 * n + 1)
    return np.asarray(0.5 * primitive @ np.linalg.inv(_LEGENDRE[:, :-1]))
