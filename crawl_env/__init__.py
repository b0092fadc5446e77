"""EphemeralCrawl: timely crawling as a restless bandit, as a Gymnasium environment.

Importing this package registers `EphemeralCrawl-v0`. See `CrawlEnv` for the task and its
arguments, `Sources` for fleets, `relaxed_bound` and `optimal_reward` for what cannot be beaten.
"""

import gymnasium as gym

from crawl_env.arrivals import Arrivals, Deterministic, Poisson
from crawl_env.bounds import optimal_reward, relaxation, relaxed_bound
from crawl_env.bursts import Bursts
from crawl_env.curves import Curves
from crawl_env.env import CrawlEnv
from crawl_env.items import Items
from crawl_env.sources import Sources
from crawl_env.task import Task
from crawl_env.trace import Trace
from crawl_env.varying import DailyCycle, Drift, Jumps, Varying
from crawl_env.vector_env import CrawlVectorEnv
from crawl_env.world import NEVER, World

__all__ = [
    "NEVER",
    "Arrivals",
    "Bursts",
    "CrawlEnv",
    "CrawlVectorEnv",
    "Curves",
    "DailyCycle",
    "Deterministic",
    "Drift",
    "Items",
    "Jumps",
    "Poisson",
    "Sources",
    "Task",
    "Trace",
    "Varying",
    "World",
    "optimal_reward",
    "relaxation",
    "relaxed_bound",
]

gym.register(
    id="EphemeralCrawl-v0",
    entry_point="crawl_env.env:CrawlEnv",
    vector_entry_point="crawl_env.vector_env:CrawlVectorEnv",
)
