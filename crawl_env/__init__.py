"""EphemeralCrawl: timely crawling as a restless bandit, as a Gymnasium environment.

Importing this package registers `EphemeralCrawl-v0`, `EphemeralCrawlFlat-v0` (flat and scaled
observations), `EphemeralCrawlDiscrete-v0` (the same, with discrete actions) and the tasks of the
benchmark, `EphemeralCrawl/<Task>-v<version>` (see `tasks`). `CrawlEnv` documents the task and its
arguments, `Sources` the fleets. The policies and the bounds are in `agents`.
"""

from typing import Any

import gymnasium as gym

from crawl_env.benchmark import BenchmarkTask, tasks
from crawl_env.content.arrivals import Arrivals, Deterministic
from crawl_env.content.engine import Engine
from crawl_env.content.payoff import Deadline, DiminishingReturns, Payoff
from crawl_env.content.process import ArrivalProcess
from crawl_env.content.rates import Constant, DailyCycle, Drift, Hawkes, Jumps, Regimes
from crawl_env.content.signals import Signals
from crawl_env.content.stories import Stories
from crawl_env.content.trace import Trace
from crawl_env.content.world import NEVER, World
from crawl_env.envs.env import CrawlEnv
from crawl_env.envs.unwrap import task_of
from crawl_env.envs.vector_env import CrawlVectorEnv
from crawl_env.fleet.sources import Sources
from crawl_env.log.decay_curves import DecayCurves
from crawl_env.log.item_log import ItemLog
from crawl_env.log.ping_log import PingLog
from crawl_env.simulation.task import Task, TaskArguments

__version__ = "0.1.0"

__all__ = [
    "NEVER",
    "ArrivalProcess",
    "Arrivals",
    "BenchmarkTask",
    "Constant",
    "CrawlEnv",
    "CrawlVectorEnv",
    "DailyCycle",
    "Deadline",
    "DecayCurves",
    "Deterministic",
    "DiminishingReturns",
    "Drift",
    "Engine",
    "Hawkes",
    "ItemLog",
    "Jumps",
    "Payoff",
    "PingLog",
    "Regimes",
    "Signals",
    "Sources",
    "Stories",
    "Task",
    "TaskArguments",
    "Trace",
    "World",
    "task_of",
    "tasks",
]


def _register(id: str, arguments: dict[str, Any], *made_by: str) -> None:
    one, several = made_by or ("env:CrawlEnv", "vector_env:CrawlVectorEnv")
    gym.register(
        id=id,
        entry_point=f"crawl_env.envs.{one}",
        vector_entry_point=f"crawl_env.envs.{several}",
        kwargs=arguments,
    )


_FLAT = {"flat": True, "scaled": True}
_DISCRETE = ("wrappers:discrete_env", "wrappers:discrete_vector_env")
_RECORDED = ("recorded:recorded_env", "recorded:recorded_vector_env")

_register("EphemeralCrawl-v0", {})
_register("EphemeralCrawlFlat-v0", {**_FLAT})
_register("EphemeralCrawlDiscrete-v0", {**_FLAT}, *_DISCRETE)
for _task in tasks().values():
    if _task.recording is None:
        _register(_task.id, _task.environment)
    else:  # the log is read when an environment is made
        _register(_task.id, {"task": _task.name}, *_RECORDED)
