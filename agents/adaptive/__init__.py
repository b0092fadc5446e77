"""Adaptive agents, which estimate arrival rates, mean utility and decay rates while they crawl.

Their estimators are in `agents.inference`; those that documents name are found here, too.
"""

from agents.adaptive.base import Adaptive
from agents.adaptive.engine import AdaptiveEngine
from agents.adaptive.in_context import InContext
from agents.adaptive.policies import Certainty, Optimism, SelfTuning, Thompson
from agents.adaptive.stories import AdaptiveStories
from agents.inference import ESTIMATORS, Estimator, GammaPoisson, Posterior

__all__ = [
    "ESTIMATORS",
    "Adaptive",
    "AdaptiveEngine",
    "AdaptiveStories",
    "Certainty",
    "Estimator",
    "GammaPoisson",
    "InContext",
    "Optimism",
    "Posterior",
    "SelfTuning",
    "Thompson",
]
