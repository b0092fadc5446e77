"""What is asked of every neural learner: the same run from the same seed, stopped or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from agents.learning.base import Learner
from crawl_env import CrawlVectorEnv


def crawl(rows: int, **arguments: Any) -> CrawlVectorEnv:
    """Return an environment that learners can learn from."""
    features = ("age", "crawled", "harvest")
    return CrawlVectorEnv(rows, features=features, horizon=None, **arguments)


def same(a: Any, b: Any) -> bool:
    """Return whether two trees hold the same, bit by bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind == "f")


def check_runs(kind: type[Learner], rows: int, some: int, more: int, folder: Path) -> None:
    """Raise AssertionError unless runs repeat, differ with the seed, and go on when stopped."""

    def agent(seed: int = 3) -> Learner:
        return kind(crawl(rows, budget=2, arrivals="poisson", observed=False), seed=seed)

    through = agent().learn(more)
    again = agent().learn(more)
    assert same(through.state_dict(), again.state_dict())
    assert not same(through.state_dict(), agent(4).learn(more).state_dict())
    file = folder / "agent.safetensors"
    agent().learn(some, checkpoint=file)
    resumed = agent().learn(more, checkpoint=file)
    assert resumed.steps == through.steps
    assert same(through.state_dict(), resumed.state_dict())
    loaded = kind.load(file, crawl(1, budget=2) if rows == 8 else crawl(rows, budget=2))
    state = np.arange(1.0, 9.0).reshape(2, 4, 1)
    np.testing.assert_array_equal(loaded.score(state), through.score(state))
