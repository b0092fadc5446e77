"""Policies, learners and bounds for EphemeralCrawl; policies by name with `make`."""

from agents.evaluation import compare, evaluate
from agents.policies.base import Agent, IndexAgent
from agents.registry import AGENTS, make
from agents.theory.index import index_at_age, myopic_index, whittle_index
from agents.theory.optimum import optimal_reward
from agents.theory.relaxation import relaxation, relaxed_bound
from agents.theory.task_bound import task_bound

__all__ = [
    "AGENTS",
    "Agent",
    "IndexAgent",
    "compare",
    "evaluate",
    "index_at_age",
    "make",
    "myopic_index",
    "optimal_reward",
    "relaxation",
    "relaxed_bound",
    "task_bound",
    "whittle_index",
]
