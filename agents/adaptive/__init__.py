"""Crawling while learning: estimators of arrival rates (mean utility, decay), agents on them."""

from agents.adaptive.changed import Changed
from agents.adaptive.counts import GammaPoisson, Windowed
from agents.adaptive.drift import Drifting
from agents.adaptive.evidence import WEAK, Estimator, Evidence, Posterior
from agents.adaptive.fleet_prior import FleetPrior
from agents.adaptive.forgetting import Forgetting
from agents.adaptive.harvests import Harvests
from agents.adaptive.item_sums import HarvestSums
from agents.adaptive.live import LiveCrawl
from agents.adaptive.names import ESTIMATORS, make_estimator
from agents.adaptive.policies import Adaptive, Certainty, Knowledge, Optimism, SelfTuning, Thompson
from agents.adaptive.streaming import Streaming

__all__ = [
    "ESTIMATORS",
    "WEAK",
    "Adaptive",
    "Certainty",
    "Changed",
    "Drifting",
    "Estimator",
    "Evidence",
    "FleetPrior",
    "Forgetting",
    "GammaPoisson",
    "HarvestSums",
    "Harvests",
    "Knowledge",
    "LiveCrawl",
    "Optimism",
    "Posterior",
    "SelfTuning",
    "Streaming",
    "Thompson",
    "Windowed",
    "make_estimator",
]
