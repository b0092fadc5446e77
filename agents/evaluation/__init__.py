"""Evaluation of agents on the same arrivals, and statistics of the results."""

from agents.evaluation.experience import Experienced
from agents.evaluation.rollout import (
    AgentLike,
    EnvironmentLike,
    Evaluation,
    Rollout,
    compare,
    evaluate,
    with_features,
)

__all__ = [
    "AgentLike",
    "EnvironmentLike",
    "Evaluation",
    "Experienced",
    "Rollout",
    "compare",
    "evaluate",
    "with_features",
]
