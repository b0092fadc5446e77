"""What a user waits for at the start: imports, and the compilation before the first step."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from statistics import median

from experiments.throughput.figure import Figure

GROUP = "Start"
_IMPORT = """
import time
import gymnasium
start = time.perf_counter()
import crawl_env
print(time.perf_counter() - start)
"""
_FIRST_STEP = """
import time
import gymnasium as gym
import numpy as np
import crawl_env
start = time.perf_counter()
env = gym.make("EphemeralCrawl-v0", budget=2)
env.reset(seed=0)
env.step(np.ones(4, np.float32))
print(time.perf_counter() - start)
"""


def figures(rounds: int) -> Iterator[Figure]:
    """Yield the time of the import, and that of compiling for the first step, each in processes of
    their own."""
    runs = max(3, rounds // 2)
    with tempfile.TemporaryDirectory() as cache:
        first = _seconds(_FIRST_STEP, cache)  # fills the cache
        again = [_seconds(_FIRST_STEP, cache) for _ in range(runs)]
        imports = [_seconds(_IMPORT, cache) for _ in range(runs)]
    empty = [first]
    for _ in range(runs - 1):
        with tempfile.TemporaryDirectory() as cache:
            empty.append(_seconds(_FIRST_STEP, cache))
    yield _figure("import crawl_env, beyond Gymnasium", imports, 0.5)
    yield _figure(
        "first gym.make, reset and step with an empty cache of compiled functions",
        empty,
        2.0,
        f"{median(again):.2f} s once they are cached",
    )


def _figure(what: str, seconds: list[float], limit: float, note: str = "") -> Figure:
    low, high = min(seconds), max(seconds)
    return Figure(GROUP, what, median(seconds), "s", "≤", limit, low, high, note=note)


def _seconds(code: str, cache: str) -> float:
    """Return what a program prints, run with compiled functions cached in a folder."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)
