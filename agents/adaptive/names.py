"""Estimators by name, each with the weak prior of its unit of time."""

from __future__ import annotations

from collections.abc import Callable

from agents.adaptive.changed import Changed
from agents.adaptive.counts import GammaPoisson
from agents.adaptive.drift import Drifting
from agents.adaptive.evidence import Estimator, Posterior, weak_prior
from agents.adaptive.fleet_prior import FleetPrior
from agents.adaptive.streaming import Streaming
from crawl_env.errors import unknown

ESTIMATORS: dict[str, Callable[[float, Posterior], Estimator]] = {
    "gamma-poisson": lambda period, prior: GammaPoisson(prior),
    "fleet-prior": lambda period, prior: FleetPrior(prior),
    "drifting": lambda period, prior: Drifting(prior=prior),
    "changed": lambda period, prior: Changed("bayes", period, prior),
    "changed-likelihood": lambda period, prior: Changed("likelihood", period, prior),
    "changed-moments": lambda period, prior: Changed("moments", period, prior),
    "lln": lambda period, prior: Streaming("lln", period=period, prior=prior),
    "sa": lambda period, prior: Streaming("sa", period=period, prior=prior),
    "naive": lambda period, prior: Streaming("naive", prior=prior),
}


def make_estimator(estimator: str | Estimator, period: float = 1.0) -> Estimator:
    """Return the estimator of that name for epochs of `period`, or the estimator given.

    Raises:
        ValueError: unknown name.

    >>> make_estimator("changed").counts
    False
    """
    if not isinstance(estimator, str):
        return estimator
    if estimator not in ESTIMATORS:
        raise unknown("estimator", estimator, ESTIMATORS)
    return ESTIMATORS[estimator](period, weak_prior(period))
