"""Posteriors of arrival rates, mean utility, decay rates and the quality of signals.

Estimators that are updated in every step are functions of a state of arrays, for any number of
sources and fleets at once: of rates, from numbers of items (`rates`), from whether there were any
(`changed`), or from items and pings (`pings`); and of mean utility and decay (`content`). Those for
whole logs are `shrinkage`, and `signals` with `assignment`; they need SciPy, and are imported from
their modules.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from agents.inference.changed import Changed
from agents.inference.content import Harvests, HarvestSums
from agents.inference.pings import Quality, SignalQuality
from agents.inference.rates import (
    RETENTIONS,
    CrawlOutcome,
    Estimator,
    FleetPrior,
    Forgetting,
    GammaPoisson,
    Posterior,
    State,
    weak_prior,
)
from crawl_env.errors import check_positive, shown, unknown

__all__ = [
    "ESTIMATORS",
    "Changed",
    "CrawlOutcome",
    "Estimator",
    "FleetPrior",
    "Forgetting",
    "GammaPoisson",
    "HarvestSums",
    "Harvests",
    "Posterior",
    "Quality",
    "SignalQuality",
    "State",
    "make_estimator",
    "weak_prior",
]

# Each entry is called with the period T, the prior, and its own options.
ESTIMATORS: dict[str, Callable[..., Estimator]] = {
    "gamma-poisson": lambda period, prior, retention=1.0: GammaPoisson(prior, retention, period),
    "forgetting": lambda period, prior, retentions=RETENTIONS: Forgetting(
        tuple(retentions), prior, period
    ),
    "fleet-prior": lambda period, prior: FleetPrior(prior),
    "changed": lambda period, prior, retention=1.0: Changed(prior, retention, period),
    "signals": lambda period, prior, retention=0.999, hazard=2e-4, counts=True: SignalQuality(
        prior, retention, hazard, period, counts
    ),
}


def make_estimator(
    estimator: str | Estimator,
    period: float = 1.0,
    prior: Posterior | None = None,
    **options: Any,
) -> Estimator:
    """Return an estimator by name; objects are returned unchanged.

    Arguments:
        estimator: one of `ESTIMATORS`, or an object that satisfies `Estimator`.
        period: T, the length of a step.
        prior: the prior of the rates; default `weak_prior(period)`.
        options: `retention` of "gamma-poisson", "changed" and "signals", `retentions` of
            "forgetting", and `hazard` and `counts` of "signals".

    Raises:
        ValueError: the name or an option is unknown, an argument is out of range, or `prior` or
            options are given together with an object.

    >>> make_estimator("changed").counts
    False
    >>> make_estimator("gamma-poisson", retention=0.99).retention
    0.99
    """
    return made(ESTIMATORS, estimator, period, prior, options)


def made(
    table: dict[str, Callable[..., Estimator]],
    estimator: str | Estimator,
    period: float,
    prior: Posterior | None,
    options: dict[str, Any],
) -> Estimator:
    """Return an estimator from a table of names; see `make_estimator` for the other arguments."""
    if not isinstance(estimator, str):
        if isinstance(estimator, type) or not hasattr(estimator, "posterior"):
            raise ValueError(
                f"estimator is {shown(estimator)}; give one of {', '.join(table)}, or an object, "
                "such as agents.inference.GammaPoisson()"
            )
        if prior is not None or options:
            raise ValueError(
                "prior and options were given together with an estimator object; pass them to its "
                "constructor, or give the estimator by name"
            )
        return estimator
    check_positive("period", period)
    if estimator not in table:
        raise unknown("estimator", estimator, table)
    make = table[estimator]
    allowed = options_of(make)
    for name in options:
        if name not in allowed:
            there = f"its options are: {', '.join(allowed)}" if allowed else "it has no options"
            raise ValueError(f"estimator {estimator!r} has no option {name!r}; {there}")
    return make(period, weak_prior(period) if prior is None else prior, **options)


def options_of(make: Callable[..., Estimator]) -> tuple[str, ...]:
    """Return the names of the options of an entry of the table, besides period and prior."""
    return tuple(signature(make).parameters)[2:]
