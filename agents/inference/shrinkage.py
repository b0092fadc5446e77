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
_FEW_NODES = 61  # of the grid over the mean of the fleet, given the spread
_FAR = 25.0  # nodes with a log density this much below the maximum are left out
_LEAST_ERROR = 1e-3  # of a source, in units of the typical error
_ROUNDING = 1e-12  # items of a source that differ relatively by less count as equal


class Estimates(NamedTuple):
    """One parameter of N sources."""

    raw: FloatArray  # (N,) from the items of the source only
    raw_error: FloatArray  # (N,) its standard error; infinity where there are no items
    value: FloatArray  # (N,) shrunk towards the mean of the fleet
    error: FloatArray  # (N,) its standard error, including the uncertainty of mean and spread
    mean: float  # of the fleet
    spread: float  # standard deviation between sources


def rates(counts: NDArray[np.intp], span: float | FloatArray) -> Estimates:
    """Estimate Λ (items / time) from the number of items in a span of time, one for all sources or
    one each, (N,).

    Counts are Poisson, rates between sources Gamma with mean m (a priori 1/m) and shape a; the
    posterior mean of a source's rate given these, (n + a)/(span + a/m), is averaged over their
    posterior. `error` is the posterior standard deviation: intervals of ± 1.96 errors cover the
    true rate of 91 to 97 % of the sources where these differ, and of up to all of them where they
    do not. Errors assume independent items: if items are published in bursts, they are too small.

    >>> few = rates(np.array([0, 2, 40]), span=10.0)
    >>> few.raw, few.value.round(2)
    (array([0. , 0.2, 4. ]), array([0.04, 0.23, 3.93]))
    """
    if not counts.sum():
        raise ValueError("the log has no items; so that there is nothing to fit")
    spans = np.broadcast_to(np.asarray(span, dtype=np.float64), counts.shape)
    own_error = np.where(counts > 0, np.sqrt(np.maximum(counts, 1.0)) / spans, np.inf)
    if np.all(spans == spans[0]):
        moments = _over_one_span(counts, float(spans[0]))
    else:
        moments = _over_own_spans(counts, spans)
    return Estimates(counts / spans, own_error, *moments)


def _over_one_span(
    counts: NDArray[np.intp], span: float
) -> tuple[FloatArray, FloatArray, float, float]:
    """Return value, error, mean and spread of rates over a common span.

    Given a, the posterior of m is that of p = m/(m + a/span) ~ Beta(Σn, N·a), and the posterior
    mean of a source's rate is (n + a)·E[p]/span; both are then averaged over the posterior of a.
    """
    total, n = int(counts.sum()), len(counts)
    average = total / n
    distinct, times = np.unique(counts, return_counts=True)

    def log_likelihood(log_ratio: FloatArray) -> FloatArray:
        """Return Σ ln Γ(n_i + a)/Γ(a) − ln Γ(Σn + N·a)/Γ(N·a), less a constant.

        By Stirling's formula for each Γ: large terms cancel analytically.
        """
        a = average * np.exp(log_ratio)
        k = distinct[:, None]
        off = (k - average) / (a + average)
        of_counts = (a + average) * ((1 + off) * np.log1p(off) - off)
        of_counts += _stirling_error(a + k) - _stirling_error(a) - np.log1p(k / a) / 2
        of_all = _stirling_error(total + n * a) - _stirling_error(n * a) - np.log1p(average / a) / 2
        return np.asarray(times @ of_counts - of_all)

    # B = a / (a + average) is the shrinkage factor of an average source.
    log_ratio, weight = _posterior(log_likelihood)
    a = average * np.exp(log_ratio)
    p = total / (total + n * a)
    p_variance = p * (1 - p) / (total + n * a + 1)
    p_squared = p**2 + p_variance
    share = float(weight @ p)  # of a source's own items in its estimate: (n + a)·p for each a
    value = average + (counts.astype(np.float64) - average) * share
    variance = (  # of a Gamma variable given p, of p given a, and of the means over a
        counts * (weight @ p_squared)
        + weight @ (p_squared * a)
        + counts**2.0 * (weight @ p_variance)
        + 2.0 * counts * (weight @ (p_variance * a))
        + weight @ (p_variance * a**2)
        + (counts - average) ** 2 * (weight @ (p - share) ** 2)
    )
    spread = average / span * float(np.sqrt(weight @ (1 / a)))
    return value / span, np.sqrt(variance) / span, average / span, spread


def _over_own_spans(
    counts: NDArray[np.intp], spans: FloatArray
) -> tuple[FloatArray, FloatArray, float, float]:
    """Return value, error, mean and spread of rates, each over a span of its own.

    The posterior of ln m given a has no closed form; it is log-concave, and integrated on a grid.
    """
    n, total = len(counts), int(counts.sum())
    average, log_mean = total / n, float(np.log(total / spans.sum()))
    distinct, times = np.unique(counts, return_counts=True)
    span, group = np.unique(spans, return_inverse=True)
    items, sources = np.bincount(group, counts), np.bincount(group)

    def log_likelihood(a: FloatArray, u: FloatArray) -> FloatArray:
        """Return Σ ln Γ(n_i + a)/Γ(a) − n_i ln a + n_i ln m − (n_i + a) ln(1 + m·span_i/a), with
        ln m = u, of a (A,) and u (A, M), less a constant."""
        k = distinct[:, None]
        of_counts = (a + k) * np.log1p(k / a) - k - np.log1p(k / a) / 2
        of_counts += _stirling_error(a + k) - _stirling_error(a)
        log = (times @ of_counts)[:, None] + total * (u - log_mean)
        for t, many, number_of in zip(span, items, sources, strict=True):
            log -= (many + number_of * a)[:, None] * np.log1p(np.exp(u) * t / a[:, None])
        return log

    def grid(a: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return nodes of ln m and the log likelihood there, (A, M) each."""
        low, high = np.full(a.size, log_mean - 30.0), np.full(a.size, log_mean + 30.0)
        for _ in range(5):  # where the density is, then closer
            u = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _FEW_NODES)
            density = log_likelihood(a, u)
            inside = density > density.max(axis=1, keepdims=True) - _FAR
            low = u[np.arange(a.size), np.maximum(inside.argmax(axis=1) - 1, 0)]
            last = _FEW_NODES - 1 - inside[:, ::-1].argmax(axis=1)
            high = u[np.arange(a.size), np.minimum(last + 1, _FEW_NODES - 1)]
        return u, density

    def marginal(log_ratio: FloatArray) -> FloatArray:
        u, density = grid(average * np.exp(log_ratio))
        highest = density.max(axis=1)
        steps = u[:, 1] - u[:, 0]
        return np.asarray(
            highest + np.log(np.exp(density - highest[:, None]).sum(axis=1)) + np.log(steps)
        )

    log_ratio, weight = _posterior(marginal)
    a = average * np.exp(log_ratio)
    u, density = grid(a)
    share = np.exp(density - density.max(axis=1, keepdims=True))
    weights = (weight[:, None] * share / share.sum(axis=1, keepdims=True)).ravel()
    shape = np.repeat(a, _FEW_NODES)
    value, square = np.empty(n), np.empty(n)
    for i, t in enumerate(span):
        scale = 1 / (t + shape * np.exp(-u.ravel()))  # the posterior is Gamma(n + a, scale)
        mine = group == i
        k = counts[mine].astype(np.float64)
        first, of_first = weights * scale, weights * scale**2
        value[mine] = k * first.sum() + first @ shape
        square[mine] = k**2 * of_first.sum() + k * (of_first @ (2 * shape + 1))
        square[mine] += of_first @ (shape**2 + shape)
    error = np.sqrt(np.maximum(square - value**2, 0.0))
    mean = float(value.mean())
    return value, error, mean, mean * float(np.sqrt(weight @ (1 / a)))


def _stirling_error(x: FloatArray) -> FloatArray:
    """Return ln Γ(x) less Stirling's (x − ½) ln x − x + ½ ln 2π, for positive x."""
    small, large = np.minimum(x, 16.0), np.maximum(x, 16.0)
    exact = gammaln(small) - (small - 0.5) * np.log(small) + small - np.log(2 * np.pi) / 2
    z = 1 / large**2
    series = (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z / 1680))) / large
    return np.where(x < 16, exact, series)


def _posterior(
    log_likelihood: Callable[[FloatArray], FloatArray], lowest: float = -20.0
) -> tuple[FloatArray, FloatArray]:
    """Return nodes of t = ln(B / (1 − B)) and their posterior weights, B uniform on (0, 1).

    The search for them starts on (lowest, 20): 1 − B below e⁻²⁰ has next to no weight a priori.
    """

    def log_density(t: FloatArray) -> FloatArray:
        return log_likelihood(t) - np.logaddexp(0, t) - np.logaddexp(0, -t)

    nodes = np.linspace(lowest, 20.0, _NODES)
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
    estimated from few items, the errors are widened as in Student's t distribution. A
    single item does not tell how much items or sources differ: errors are then infinite.

    >>> found = utilities(np.array([0, 0, 0, 1]), np.array([1.0, 2, 3, 9]), 2)
    >>> found.raw, bool(found.value[1] < 9)
    (array([2., 9.]), True)
    """
    if not utility.size:
        raise ValueError("the log has no items; there is nothing to fit")
    exponent = int(np.frexp(np.abs(utility).max())[1])
    utility = np.ldexp(utility, -exponent)  # at most 1: squares neither overflow nor vanish
    counts = np.bincount(source, minlength=n_sources)
    sums = np.bincount(source, utility, n_sources)
    active = np.maximum(counts, 1)
    own = sums / active
    deviations = np.bincount(source, (utility - own[source]) ** 2, n_sources)
    n, sources = int(counts.sum()), int((counts > 0).sum())
    degrees = n - sources
    overall = float(utility.mean())
    if not degrees:  # one item per source: the variance between sources is not identifiable
        within, between = float(utility.var(ddof=1)) if n > 1 else 0.0, 0.0
    else:
        within = float(deviations.sum()) / degrees
        least = (_ROUNDING * overall) ** 2
        within = within if within > least else 0.0
        scale = n - float((counts**2).sum()) / n
        excess = float((counts * (own - overall) ** 2).sum()) - (sources - 1) * within
        between = excess / scale if excess > least * scale else 0.0
    noise = np.where(counts > 0, within / active, np.inf)
    fit = _hierarchical(own, noise) if within else None
    value = fit.value if fit else np.where(counts > 0, own, overall)
    mean = fit.mean if fit else overall
    relative = within / (mean**2 + between) if mean else 0.0
    own_error = np.where(counts > 0, np.sqrt(relative / active) * value, np.inf)
    if n == 1:
        own_error = np.full(n_sources, np.inf)
        value, error = np.full(n_sources, overall), own_error
    elif not degrees:  # the spread of single items is that of items or of sources, or of both
        value, error = (
            np.full(n_sources, overall),
            np.sqrt(np.full(n_sources, within * (1 + 1 / n))),
        )
    elif fit is None:  # all items of a source are equal
        apart = float(own[counts > 0].std(ddof=1)) if between else 0.0
        error = np.where(counts > 0, 0.0, apart if sources > 1 else np.inf)
    else:
        few = student.ppf(0.975, degrees) / student.ppf(0.975, np.inf)
        error = fit.errors(own_error) * few
    own, own_error, value, error = (np.ldexp(x, exponent) for x in (own, own_error, value, error))
    mean, spread = (float(np.ldexp(x, exponent)) for x in (mean, np.sqrt(between)))
    return Estimates(own, own_error, value, error, mean, spread)


def shrunk(own: FloatArray, own_error: FloatArray) -> Estimates:
    """Shrink estimates with known normal errors towards their mean; an infinite error means
    unknown.

    The variance between sources is integrated over; see the module.

    Raises:
        ValueError: all errors are infinite.

    >>> shrunk(np.array([1.0, 3.0, 0.0]), np.array([0.1, 0.1, np.inf])).value.round(2)
    array([1.02, 2.98, 2.  ])
    """
    if not np.isfinite(own_error).any():
        raise ValueError("all errors are infinite; nothing is known of any source")
    fit = _hierarchical(own, own_error**2)
    error = fit.errors(own_error)
    return Estimates(own, own_error, fit.value, error, fit.mean, fit.spread)


class _Hierarchical(NamedTuple):
    """The posterior of the parameters of sources, normal around a fleet's mean."""

    value: FloatArray  # (N,) posterior means
    mean: float  # of the fleet
    spread: float  # posterior mean of the standard deviation between sources
    trust: FloatArray  # (N,) root mean square of the weight of a source's own estimate
    rest: FloatArray  # (N,) posterior variance, without that of the sources' own estimates

    def errors(self, own_error: FloatArray) -> FloatArray:
        """Return the standard errors (N,), given those of the sources' own estimates."""
        finite = np.where(np.isfinite(own_error), own_error, 0.0)
        return np.asarray(np.sqrt((self.trust * finite) ** 2 + self.rest))


def _hierarchical(own: FloatArray, noise: FloatArray) -> _Hierarchical:
    """Return the posterior of θ_i, where own_i ~ N(θ_i, noise_i) and θ_i ~ N(m, A).

    m is flat a priori, and B = v/(v + A) is uniform, v the median of the noise that is not zero.
    Standard errors count as at least `_LEAST_ERROR` times the typical one. Where the noise is
    infinite, only the fleet is informative on the source.
    """
    is_finite = np.isfinite(noise)
    x, v = own[is_finite], noise[is_finite]
    centre, variance = float(x.mean()), float(x.var())
    typical = float(np.median(v[v > 0])) if v.any() else max(variance, 1e-300)
    v = np.maximum(v, _LEAST_ERROR**2 * typical)
    # A is searched up to e²⁵ times the observed variance; its prior density falls as 1/A².
    lowest = min(-20.0, -_FAR - float(np.log(max(variance / typical, 1.0))))

    def at(t: float) -> tuple[float, FloatArray, float]:
        between = typical * np.exp(-t)
        precision = 1 / (v + between)
        return (
            between,
            precision,
            centre + float((precision * (x - centre)).sum() / precision.sum()),
        )

    def log_likelihood(nodes: FloatArray) -> FloatArray:
        log = np.empty(nodes.size)
        for k, t in enumerate(nodes.tolist()):
            _, precision, m = at(t)
            squares = (precision * (x - m) ** 2).sum()
            log[k] = (np.log(precision).sum() - np.log(precision.sum()) - squares) / 2
        return log

    start = np.where(is_finite, own, centre)
    shift, square, trust, rest = (np.zeros(len(own)) for _ in range(4))
    mean = spread = 0.0
    for t, weight in zip(*(x.tolist() for x in _posterior(log_likelihood, lowest)), strict=True):
        between, precision, m = at(t)
        part, others = np.zeros(len(own)), np.ones(len(own))  # of the own estimate, of the rest
        part[is_finite], others[is_finite] = between * precision, v * precision
        change = others * (m - start)
        shift += weight * change
        square += weight * change**2
        trust += weight * part**2
        rest += weight * others**2 * (between + 1 / precision.sum())
        mean += weight * m
        spread += weight * float(np.sqrt(between))
    rest += np.maximum(square - shift**2, 0.0)
    return _Hierarchical(start + shift, mean, spread, np.sqrt(trust), rest)
