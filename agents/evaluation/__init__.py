"""Evaluating agents on the same arrivals, and the statistics of what was measured."""

from agents.evaluation.rollout import (
    REFERENCES,
    Evaluation,
    Player,
    Predicts,
    Rollout,
    compare,
    evaluate,
    posed_to,
)

__all__ = [
    "REFERENCES",
    "Evaluation",
    "Player",
    "Predicts",
    "Rollout",
    "compare",
    "evaluate",
    "posed_to",
]
