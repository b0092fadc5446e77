"""Adaptive agents, which estimate arrival rates, mean utility and decay rates while they crawl."""

from agents.adaptive.base import Adaptive, KnownParameters
from agents.adaptive.content import Harvests, HarvestSums
from agents.adaptive.estimators import (
    ESTIMATORS,
    Changed,
    CrawlOutcome,
    Estimator,
    FleetPrior,
    Forgetting,
    GammaPoisson,
    Posterior,
    Quality,
    SignalQuality,
    make_estimator,
    weak_prior,
)
from agents.adaptive.policies import (
    Certainty,
    Optimism,
    SelfTuning,
    Thompson,
)

__all__ = [
    "ESTIMATORS",
    "Adaptive",
    "Certainty",
    "Changed",
    "CrawlOutcome",
    "Estimator",
    "FleetPrior",
    "Forgetting",
    "GammaPoisson",
    "HarvestSums",
    "Harvests",
    "KnownParameters",
    "Optimism",
    "Posterior",
    "Quality",
    "SelfTuning",
    "SignalQuality",
    "Thompson",
    "make_estimator",
    "weak_prior",
]
