"""Shrinkage estimates of rates and mean utilities of sources from a log, with standard errors.

Estimates are posterior means under a hierarchical model, so that sources with few items are shrunk
towards the mean of the fleet. The variance between sources is estimated from the log too, and the
errors account for its uncertainty. The shrinkage factor of a typical source is uniform a priori
(Christiansen and Morris 1997, Hierarchical Poisson regression modeling, JASA 92), and is integrated
over on a grid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from scipy.stats import t as student

from crawl_env.numerics import FloatArray

_NODES = 161  # of the grid over the spread between sources
_FAR = 25.0  # nodes with a log density this much below the maximum are left out


class Estimates(NamedTuple):
    """One parameter of N sources."""

    raw: FloatArray  # (N,) from the items of the source only
    raw_error: FloatArray  # (N,) its standard error; infinity where there are no items
    value: FloatArray  # (N,) shrunk towards the mean of the fleet
    error: FloatArray  # (N,) its standard error, including the uncertainty of mean and spread
    mean: float  # of the fleet
    spread: float  # standard deviation between sources


def rates(counts: NDArray[np.intp], span: float) -> Estimates:
    """Estimate Λ (items / time) from the number of items in a span of time.

    Counts are Poisson, rates between sources Gamma with mean m and shape a. Given a, the posterior
    of m (a priori 1/m) is that of p = m/(m + a/span) ~ Beta(Σn, N·a), and the posterior mean of a
    source's rate is (n + a)·E[p]/span; both are then averaged over the posterior of a. `error` is
    the posterior standard deviation: intervals of ± 1.96 errors cover the true rate of 91 to 97 %
    of the sources where these differ, and of up to all of them where they do not. Errors
    assume independent items: if items are published in bursts, they are too small.

    >>> few = rates(np.array([0, 2, 40]), span=10.0)
    >>> few.raw, few.value.round(2)
    (array([0. , 0.2, 4. ]), array([0.04, 0.23, 3.93]))
    """
    total, n = int(counts.sum()), len(counts)
    if not total:
        raise ValueError("the log has no items; so that there is nothing to fit")
    average = total / n
    distinct, times = np.unique(counts, return_counts=True)

    def log_likelihood(log_ratio: FloatArray) -> FloatArray:
        a = average * np.exp(log_ratio)
        of_counts = gammaln(distinct[:, None] + a) - gammaln(a)
        return times @ of_counts + gammaln(total) + gammaln(n * a) - gammaln(total + n * a)

    # B = a / (a + average) is the shrinkage factor of an average source.
    log_ratio, weight = _posterior(log_likelihood)
    a = average * np.exp(log_ratio)
    p = total / (total + n * a)
    p_squared = p * (total + 1) / (total + n * a + 1)
    value = counts * (weight @ p) + weight @ (p * a)
    square = (
        counts * (counts + 1.0) * (weight @ p_squared)
        + (2 * counts + 1.0) * (weight @ (p_squared * a))
        + weight @ (p_squared * a**2)
    )
    own_error = np.where(counts > 0, np.sqrt(np.maximum(counts, 1.0)) / span, np.inf)
    return Estimates(
        counts / span,
        own_error,
        value / span,
        np.sqrt(np.maximum(square - value**2, 0.0)) / span,
        average / span,
        average / span * float(np.sqrt(weight @ (1 / a))),
    )


def _posterior(
    log_likelihood: Callable[[FloatArray], FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """Return nodes of t = ln(B / (1 − B)) and their posterior weights, B uniform on (0, 1)."""

    def log_density(t: FloatArray) -> FloatArray:
        return log_likelihood(t) - np.logaddexp(0, t) - np.logaddexp(0, -t)

    nodes = np.linspace(-20.0, 20.0, _NODES)
    for _ in range(2):  # where the density is, then closer
        density = log_density(nodes)
        inside = nodes[density > density.max() - _FAR]
        step = nodes[1] - nodes[0]
        nodes = np.linspace(inside[0] - step, inside[-1] + step, _NODES)
    density = log_density(nodes)
    weight = np.exp(density - density.max())
    return nodes, weight / weight.sum()


def utilities(source: NDArray[np.intp], utility: FloatArray, n_sources: int) -> Estimates:
    """Estimate ξ̄ (utility) of every source: credibility means (Bühlmann and Straub 1970).

    The estimate is Z · own mean + (1 − Z) · fleet's mean with Z = n/(n + k), k = E Var(ξ) / Var ξ̄,
    the best linear one whatever the distribution of ξ, averaged over the posterior of Var ξ̄; items
    without utility count. Votes have heavy tails, under which the standard deviation of a single
    source is unreliable: errors use one relative variance Var(ξ)/ξ̄² for the whole fleet. If it is
    estimated from few items, the errors are widened as in Student's t distribution.

    >>> found = utilities(np.array([0, 0, 0, 1]), np.array([1.0, 2, 3, 9]), 2)
    >>> found.raw, bool(found.value[1] < 9)
    (array([2., 9.]), True)
    """
    counts = np.bincount(source, minlength=n_sources)
    sums = np.bincount(source, utility, n_sources)
    active = np.maximum(counts, 1)
    own = sums / active
    deviations = np.bincount(source, (utility - own[source]) ** 2, n_sources)
    n, degrees = counts.sum(), int((counts[counts > 0] - 1).sum())
    overall = float(utility.mean())
    if not degrees:  # one item per source: the variance between sources is not identifiable
        within, between = float(utility.var(ddof=1)) if n > 1 else 0.0, 0.0
    else:
        within = float(deviations.sum()) / degrees
        sources = int((counts > 0).sum())
        scale = n - float((counts**2).sum()) / n
        excess = float((counts * (own - overall) ** 2).sum()) - (sources - 1) * within
        between = max(excess / scale, 0.0) if scale > 0 else 0.0
    noise = np.where(counts > 0, within / active, np.inf)
    found = _hierarchical(own, noise) if within else None
    value = found.value if found else np.where(counts > 0, own, overall)
    mean = found.mean if found else overall
    relative = within / (mean**2 + between) if mean else 0.0
    own_error = np.where(counts > 0, np.sqrt(relative / active) * value, np.inf)
    if not degrees:  # the spread of single items is that of items or of sources, or of both
        value, error = (
            np.full(n_sources, overall),
            np.sqrt(np.full(n_sources, within * (1 + 1 / n))),
        )
    elif found is None:  # all items of a source are equal
        error = np.where(counts > 0, 0.0, own[counts > 0].std(ddof=1) if sources > 1 else 0.0)
    else:
        few = student.ppf(0.975, degrees) / student.ppf(0.975, np.inf)
        error = found.errors(own_error) * few
    return Estimates(own, own_error, value, error, mean, float(np.sqrt(between)))


def shrunk(own: FloatArray, own_error: FloatArray) -> Estimates:
    """Shrink estimates with known normal errors towards their mean; an infinite error means
    unknown.

    The variance between sources is integrated over; see the module.

    >>> shrunk(np.array([1.0, 3.0, 0.0]), np.array([0.1, 0.1, np.inf])).value.round(2)
    array([1.02, 2.98, 2.  ])
    """
    found = _hierarchical(own, own_error**2)
    error = found.errors(own_error)
    return Estimates(own, own_error, found.value, error, found.mean, found.spread)


class _Hierarchical(NamedTuple):
    """The posterior of the parameters of sources, normal around a fleet's mean."""

    value: FloatArray  # (N,) posterior means
    mean: float  # of the fleet
    spread: float  # posterior mean of the standard deviation between sources
    trust: FloatArray  # (N,) root mean square of the weight of a source's own estimate
    rest: FloatArray  # (N,) posterior variance, without that of the sources' own estimates

    def errors(self, own_error: FloatArray) -> FloatArray:
        """Return the standard errors (N,), given those of the sources' own estimates."""
        known = np.where(np.isfinite(own_error), own_error, 0.0)
        return np.asarray(np.sqrt((self.trust * known) ** 2 + self.rest))


def _hierarchical(own: FloatArray, noise: FloatArray) -> _Hierarchical:
    """Return the posterior of θ_i, where own_i ~ N(θ_i, noise_i) and θ_i ~ N(m, A).

    m is flat a priori, and B = v/(v + A) is uniform, v the harmonic mean of the noise. If the
    noise is infinite, the estimate of a source is that of the fleet.
    """
    known = np.isfinite(noise)
    x, v = own[known], np.maximum(noise[known], 1e-300)
    typical = float(len(v) / (1 / v).sum())
    centre = float(x.mean())

    def at(t: float) -> tuple[float, FloatArray, float]:
        between = typical * np.exp(-t)
        precision = 1 / (v + between)
        return (
            between,
            precision,
            centre + float((precision * (x - centre)).sum() / precision.sum()),
        )

    def log_likelihood(nodes: FloatArray) -> FloatArray:
        found = np.empty(nodes.size)
        for k, t in enumerate(nodes.tolist()):
            _, precision, m = at(t)
            squares = (precision * (x - m) ** 2).sum()
            found[k] = (np.log(precision).sum() - np.log(precision.sum()) - squares) / 2
        return found

    moved, square, trust, rest = (np.zeros(len(own)) for _ in range(4))
    mean = spread = 0.0
    for t, weight in zip(*(x.tolist() for x in _posterior(log_likelihood)), strict=True):
        between, precision, m = at(t)
        part = np.zeros(len(own))  # of the own estimate
        part[known] = between * precision
        value = m - centre + part * np.where(known, own - m, 0.0)
        moved += weight * value
        square += weight * value**2
        trust += weight * part**2
        rest += weight * (1 - part) ** 2 * (between + 1 / precision.sum())
        mean += weight * m
        spread += weight * float(np.sqrt(between))
    rest += np.maximum(square - moved**2, 0.0)
    return _Hierarchical(centre + moved, mean, spread, np.sqrt(trust), rest)
