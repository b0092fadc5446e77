"""Evaluating agents on the same arrivals, and the statistics of what was measured."""

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
    "Rollout",
    "compare",
    "evaluate",
    "with_features",
]
