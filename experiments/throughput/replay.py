"""The replay of a log under every policy, as `ephemeral-crawl evaluate --items` runs it."""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from experiments.throughput.figure import Figure, absent

GROUP = "Replay"
WHAT = "replay of a log under every policy; the limit is for a year of hours at 105 sites"
_LIMIT = 1.0


def figures(arguments: str) -> Iterator[Figure]:
    """Yield the CPU time of a replay.

    Arguments:
        arguments: those of `ephemeral-crawl evaluate`, such as "--items LOG --budget 10"; if empty,
            nothing is run.
    """
    if not arguments:
        why = "not measured: no log was given (--replay)"
        yield absent(GROUP, WHAT, "min of CPU", "≤", _LIMIT, why)
        return
    with tempfile.TemporaryDirectory() as folder:
        words = [*shlex.split(arguments), "--out", str(Path(folder) / "replay")]
        command = [sys.executable, "-m", "ephemeral_crawl", "evaluate", *words]
        before = _spent()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=_one_thread())
        minutes = (_spent() - before) / 60
    shown = " ".join(Path(word).name if "/" in word else word for word in shlex.split(arguments))
    yield Figure(GROUP, WHAT, minutes, "min of CPU", "≤", _LIMIT, note=f"evaluate {shown}")


def _spent() -> float:
    """Return the processor time of all child processes so far, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}
