"""What is timed in processes of its own: imports, the compilation before the first step, and a
replay of a log under every policy, as `ephemeral-crawl evaluate --items` runs it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from experiments.core.clock import Figure, absent

START, REPLAY = "Start", "Replay"
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
_REPLAY = "replay of a log under every policy; the limit is for a year of hours at 105 sites"
_ALONE = ("--jobs", "1", "--run-on", "sequential")  # in one process


def start_figures(rounds: int) -> Iterator[Figure]:
    """Yield the time of the import, and that of compiling for the first step."""
    runs = max(3, rounds // 2)
    with tempfile.TemporaryDirectory() as cache:
        first = _seconds(_FIRST_STEP, cache)  # fills the cache
        again = [_seconds(_FIRST_STEP, cache) for _ in range(runs)]
        imports = [_seconds(_IMPORT, cache) for _ in range(runs)]
    empty = [first]
    for _ in range(runs - 1):
        with tempfile.TemporaryDirectory() as cache:
            empty.append(_seconds(_FIRST_STEP, cache))
    for what, seconds, limit, note in (
        ("import crawl_env, beyond Gymnasium", imports, 0.5, ""),
        (
            "first gym.make, reset and step with an empty cache of compiled functions",
            empty,
            2.0,
            f"{median(again):.2f} s once they are cached",
        ),
    ):
        spread = min(seconds), max(seconds)
        yield Figure(START, what, median(seconds), "s", "≤", limit, *spread, note=note)


def _seconds(code: str, cache: str) -> float:
    """Return what a program prints, run with compiled functions cached in a folder."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def replay_figures(items: str, curves: str = "", budget: float = 10.0) -> Iterator[Figure]:
    """Yield the CPU time of a replay.

    Arguments:
        items: the log; if empty, nothing is run.
        curves: the decay curves, or "".
        budget: crawls per hour.
    """
    if not items:
        why = "not measured: no log given (--items)"
        yield absent(REPLAY, _REPLAY, "min of CPU", "≤", 1.0, why)
        return
    given = {"--items": items, "--curves": curves, "--budget": f"{budget:g}"}
    words = [word for name, value in given.items() if value for word in (name, value)]
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "replay")
        command = [sys.executable, "-m", "ephemeral_crawl", "evaluate", *words, "--out", out]
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        before = _spent()
        subprocess.run([*command, *_ALONE], check=True, stdout=subprocess.DEVNULL, env=one_thread)
        minutes = (_spent() - before) / 60
    note = f"evaluate {' '.join(Path(word).name for word in words)}"
    yield Figure(REPLAY, _REPLAY, minutes, "min of CPU", "≤", 1.0, note=note)


def _spent() -> float:
    """Return the processor time of all child processes so far, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
