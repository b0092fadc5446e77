"""Replays of recordings: the fleet is fitted to two thirds of one, and the rest is replayed."""

from __future__ import annotations

import warnings
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from crawl_env.files import table
from crawl_env.numerics import FloatArray
from ephemeral_crawl import example
from ephemeral_crawl.core.evaluation import fleet_as_json
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.replay.play import play, rollout_of
from ephemeral_crawl.replay.split import WEEK, Log, Split
from experiments.core.study import Size, each_run

FITTED = 2 / 3  # of the recording

each_week = partial(each_run, run="week")


@cache
def read(folder: str) -> Split:
    """Return a recording, split after two thirds, in steps of one hour; "" is the log of
    `ephemeral-crawl example`.

    Raises:
        FileNotFoundError: the folder lacks items.csv.gz or curves.csv.gz.
        ValueError: the log is invalid.
    """
    if folder:
        path = Path(folder)
        items, curves = path / "items.csv.gz", path / "curves.csv.gz"
        whole = Log().read(items)
        at = whole.start + FITTED * whole.span
        return Log(items=items, curves=curves, train_until=f"{at:g}").split(None, 1.0)
    log = example.log(0)
    assert log.curves is not None
    with TemporaryDirectory() as new_folder:
        table.write(Path(new_folder) / "items.csv.gz", example.rows(log))
        log.curves.to_csv(Path(new_folder) / "curves.csv.gz")
        return read(new_folder)


def folders(size: Size) -> list[tuple[str, str]]:
    """Return the names and the paths of the recordings that were given."""
    return [(folder.name, str(folder)) for folder in size.recordings]


def job(
    name: str,
    folder: str,
    size: Size,
    runs: int,
    agent: str,
    arguments: dict[str, Any],
    **columns: Any,
) -> Job:
    """Return the job that replays the rest of a recording with an agent.

    Arguments:
        runs: which start one step after the other.
        arguments: of the environment, beside the fleet and an empty start.
        columns: of the rows.
    """
    split = read(folder)
    own = {"agent": agent, "seed": size.seed, "runs": runs}
    return {
        "columns": {"recording": name, **columns, **own},
        "folder": folder,
        "log": split.digest,
        "arguments": {"sources": fleet_as_json(split.fleet), "start": "empty", **arguments},
        "steps": min(size.steps, split.steps) if size.quick else split.steps,
        **own,
    }


def replayed(job: Job) -> Result:
    """Replay the second part of the recording in a job's `folder`; return what its agent collects
    and what is published in each week."""
    split = read(job["folder"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = play(rollout_of(job, split.trace), split.trace, job["steps"])
    return {
        "reward": by_block(run.reward.mean(axis=0)),
        "published": by_block(split.published[: job["steps"]]),
    }


def by_block(of_steps: FloatArray, length: int = int(WEEK)) -> list[float]:
    """Return the sums of so many steps each, by default those of a week."""
    starts = np.arange(0, of_steps.size, length)
    return [float(x) for x in np.add.reduceat(of_steps, starts)]
