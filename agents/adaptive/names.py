"""Estimators by name, each with the weak prior of its unit of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from agents.adaptive.changed import Changed
from agents.adaptive.counts import GammaPoisson, Windowed
from agents.adaptive.drift import Drifting
from agents.adaptive.evidence import Estimator, Posterior, weak_prior
from agents.adaptive.fleet_prior import FleetPrior
from agents.adaptive.forgetting import RETENTIONS, Forgetting
from agents.adaptive.streaming import Streaming
from crawl_env.errors import unknown

# Of an epoch's length, and the estimator's own arguments.
ESTIMATORS: dict[str, Callable[..., Estimator]] = {
    "gamma-poisson": lambda period, **own: GammaPoisson(**own),
    "fleet-prior": lambda period, **own: FleetPrior(**own),
    "forgetting": lambda period, **own: Forgetting(
        **{"retentions": tuple(kept ** (1.0 / period) for kept in RETENTIONS), **own}
    ),
    "window": lambda period, **own: Windowed(**{"length": 50.0 * period, **own}),
    "drifting": lambda period, **own: Drifting(**own),
    "changed": lambda period, **own: Changed("bayes", period, **own),
    "changed-likelihood": lambda period, **own: Changed("likelihood", period, **own),
    "changed-moments": lambda period, **own: Changed("moments", period, **own),
    "lln": lambda period, **own: Streaming("lln", period=period, **own),
    "sa": lambda period, **own: Streaming("sa", period=period, **own),
    "naive": lambda period, **own: Streaming("naive", **own),
}


def make_estimator(
    estimator: str | Estimator,
    period: float = 1.0,
    prior: Posterior | None = None,
    **options: Any,
) -> Estimator:
    """Return the estimator of that name, or the estimator given.

    Arguments:
        period: T, the length of an epoch.
        prior: what is believed before any crawl; by default the weak one, `weak_prior(period)`.
        options: the estimator's own, such as `retention`, per unit of time as everywhere.

    Raises:
        ValueError: unknown name or option, an argument is out of range, or prior or options are
            given with an estimator that has its own.

    >>> make_estimator("changed").counts
    False
    >>> make_estimator("gamma-poisson", retention=0.99).retention
    0.99
    """
    if not isinstance(estimator, str):
        if prior is not None or options:
            raise ValueError("the estimator was given with its prior and options; give them to it")
        return estimator
    if not 0 < period < np.inf:
        raise ValueError(f"period is {period}; it must be a positive time")
    if estimator not in ESTIMATORS:
        raise unknown("estimator", estimator, ESTIMATORS)
    prior = weak_prior(period) if prior is None else prior
    try:
        return ESTIMATORS[estimator](period, prior=prior, **options)
    except TypeError as error:
        given = ", ".join(options) or "the options"
        raise ValueError(f"estimator {estimator!r} does not take {given} so: {error}") from error
