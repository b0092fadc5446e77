"""What a type checker sees of the public interface: right calls pass, wrong ones are errors."""

from __future__ import annotations

from pathlib import Path

import pytest

SAMPLE = """
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
CrawlEnv(sorces="table1")  # error: Unexpected keyword argument "sorces"
CrawlEnv(budget="two")  # error: Argument "budget"
CrawlEnv(budget_rule="avarage")  # error: Argument "budget_rule"
CrawlEnv("table1", 1.0, "average")  # error: Too many positional arguments
CrawlVectorEnv(3, start="middle")  # error: Argument "start"
CrawlVecEnv(3, observd=True)  # error: Unexpected keyword argument "observd"
Task(horizon=2.5)  # error: Argument "horizon"
wrong: TaskArguments = {"budgte": 2}  # error: Extra key "budgte"
"""


def test_wrong_keywords_and_types_are_errors_and_nothing_else_is(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    path = tmp_path / "sample.py"
    path.write_text(SAMPLE, encoding="utf-8")
    root = Path(__file__).parents[3]
    configuration = ["--config-file", str(root / "pyproject.toml")]
    found, failure, _ = api.run(
        [*configuration, "--cache-dir", str(root / ".mypy_cache"), str(path)]
    )
    assert not failure
    errors = {
        int(line.split(": error: ")[0].rsplit(":", 1)[1]): line
        for line in found.splitlines()
        if ": error: " in line
    }
    lines = SAMPLE.splitlines()
    expected = {
        n: line.split("# error: ")[1] for n, line in enumerate(lines, 1) if "# error" in line
    }
    assert set(errors) == set(expected), found
    for number, words in expected.items():
        assert words in errors[number]
