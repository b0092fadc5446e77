"""Evaluation of agents on the same arrivals, and statistics of the results."""

from agents.evaluation.experience import Experienced
from agents.evaluation.rollout import (
    REFERENCES,
    AgentLike,
    EnvironmentLike,
    Evaluation,
    Rollout,
    compare,
    evaluate,
    with_features,
)

__all__ = [
    "REFERENCES",
    "AgentLike",
    "EnvironmentLike",
    "Evaluation",
    "Experienced",
    "Rollout",
    "compare",
    "evaluate",
    "with_features",
]
