"""Estimators by name, each with the weak prior of its unit of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
        options: the estimator's own, such as `retention`.

    Raises:
        ValueError: unknown name, or an argument out of range.

    >>> make_estimator("changed").counts
    False
    >>> make_estimator("gamma-poisson", retention=0.99).retention
    0.99
    """
    if not isinstance(estimator, str):
        return estimator
    if estimator not in ESTIMATORS:
        raise unknown("estimator", estimator, ESTIMATORS)
    prior = weak_prior(period) if prior is None else prior
    return ESTIMATORS[estimator](period, prior=prior, **options)
