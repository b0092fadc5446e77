"""What a type checker sees of the public interface; mypy reads this file, nothing runs it.

Right calls pass. Each wrong one is an error of the kind named beside it, or else mypy reports the
comment as unused.
"""

from __future__ import annotations

from crawl_env import CrawlEnv, CrawlVectorEnv, Sources, Task, TaskArguments, task_of
from crawl_env.envs.sb3 import CrawlVecEnv

env = CrawlEnv(sources="table1", budget=2, observed=False)
fleet: Sources = env.unwrapped.sources
low: float = float(env.action_space.low[0])
vec = CrawlVectorEnv(3, sources=fleet, budget=2.0, budget_rule="average")
arguments: TaskArguments = {"sources": "table1", "budget": 2.0}
task: Task = task_of(CrawlEnv(**arguments)).replaced(budget=3)
observation, info = env.reset(seed=0)
shape: tuple[int, ...] = observation.shape

CrawlEnv(sorces="table1")  # type: ignore[call-arg]
CrawlEnv(budget="two")  # type: ignore[arg-type]
CrawlEnv(budget_rule="avarage")  # type: ignore[arg-type]
CrawlEnv("table1", 1.0, "average")  # type: ignore[call-arg]
CrawlVectorEnv(3, start="middle")  # type: ignore[arg-type]
CrawlVecEnv(3, observd=True)  # type: ignore[call-arg]
Task(horizon=2.5)  # type: ignore[arg-type]
wrong: TaskArguments = {"budgte": 2}  # type: ignore[typeddict-unknown-key]
