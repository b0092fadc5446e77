"""An environment to learn from, and the comparison of learnt states."""

from __future__ import annotations

from typing import Any

import numpy as np

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
