"""Policies for EphemeralCrawl: the Whittle index baseline and others, by name with `make`."""

from agents.index import index_at_age, myopic_index, whittle_index
from agents.policies import Agent, IndexAgent
from agents.registry import AGENTS, make, task_of

__all__ = [
    "AGENTS",
    "Agent",
    "IndexAgent",
    "index_at_age",
    "make",
    "myopic_index",
    "task_of",
    "whittle_index",
]
