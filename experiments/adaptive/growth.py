"""How fast what is lost grows with time: the exponent of a power law, with its interval."""

from __future__ import annotations

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.statistics import Estimate
from crawl_env.numerics import FloatArray


def exponent(
    lost: FloatArray, marks: FloatArray, first: float, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Return b of the fit mean lost ≈ c·t^b to marks t ≥ first, with its 95 % interval.

    Least squares in logarithms, of the mean over runs; the interval is the percentile bootstrap
    over runs. Where nothing was lost until some mark, on average or in more than one of twenty
    resamples, there is no power law, and the exponent is unknown.

    Arguments:
        lost: (S, K), cumulated until each mark; S runs.
        marks: (K,) epochs.

    >>> t = np.array([100.0, 200.0, 400.0])
    >>> exponent(np.array([3 * t**0.5, 5 * t**0.5]), t, first=100).mean.round(6)
    np.float64(0.5)
    """
    wanted = marks >= first
    curves, logs = lost[:, wanted], np.log(marks[wanted])
    n = len(curves)
    draws = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), resamples) / n
    mean, drawn = curves.mean(axis=0), draws @ curves
    clear = (drawn > 0).all(axis=1)
    if wanted.sum() < 2 or not (mean > 0).all() or clear.mean() < 0.95:
        return statistics.UNKNOWN
    low, high = np.percentile(_slopes(drawn[clear], logs), [2.5, 97.5])
    return Estimate(_slopes(mean[None], logs)[0], float(low), float(high))


def growing(
    lost: FloatArray, marks: FloatArray, first: float, step: int, resamples: int = 2000
) -> Estimate:
    """Return the exponent of what is lost between marks `step` apart, as `exponent`.

    Where marks are even on a logarithmic scale that grows as t^b if all that is lost does, and
    linearly if as much is lost in every epoch, whatever was lost at the start.

    >>> t = np.geomspace(1, 1000, 61)
    >>> start_and_constant = np.array([20 + 0.005 * t, 20 + 0.006 * t])
    >>> [round(float(e.mean), 2) for e in (
    ...     exponent(start_and_constant, t, 100), growing(start_and_constant, t, 100, 6))]
    [0.09, 1.0]
    """
    return exponent(lost[:, step:] - lost[:, :-step], marks[:-step], first, resamples)


def _slopes(curves: FloatArray, logs: FloatArray) -> FloatArray:
    """Return the slope of each row's logarithm, (R,)."""
    x = logs - logs.mean()
    return np.asarray(np.log(curves) @ x / (x @ x))
