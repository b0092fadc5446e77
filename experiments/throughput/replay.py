"""The replay of a log under every policy, as `ephemeral-crawl evaluate --items` runs it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from experiments.throughput.figure import Figure, absent

GROUP = "Replay"
WHAT = "replay of a log under every policy; the limit is for a year of hours at 105 sites"
_LIMIT = 1.0
_ALONE = ("--jobs", "1", "--engine", "sequential")  # in one process


def figures(items: str, curves: str = "", budget: float = 10.0) -> Iterator[Figure]:
    """Yield the CPU time of a replay.

    Arguments:
        items: the log; if empty, nothing is run.
        curves: the decay curves, or "".
        budget: crawls per hour.
    """
    if not items:
        yield absent(GROUP, WHAT, "min of CPU", "≤", _LIMIT, "not measured: no log given (--items)")
        return
    given = {"--items": items, "--curves": curves, "--budget": f"{budget:g}"}
    words = [word for name, value in given.items() if value for word in (name, value)]
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "replay")
        command = [sys.executable, "-m", "ephemeral_crawl", "evaluate", *words, "--out", out]
        before = _spent()
        subprocess.run(
            [*command, *_ALONE], check=True, stdout=subprocess.DEVNULL, env=_one_thread()
        )
        minutes = (_spent() - before) / 60
    note = f"evaluate {' '.join(Path(word).name for word in words)}"
    yield Figure(GROUP, WHAT, minutes, "min of CPU", "≤", _LIMIT, note=note)


def _spent() -> float:
    """Return the processor time of all child processes so far, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}
