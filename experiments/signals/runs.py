"""One agent on one task: what it collects in each run, and the relaxed bound of the task."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.statistics import Estimate
from crawl_env import Task
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import Rows
from experiments.parts import Size

ARRIVALS = "poisson-items"  # signals announce single items


QUICK = Size(seeds=4, steps=200, warmup=50, quick=True)
FULL = Size(seeds=24, steps=1500, warmup=200, quick=False)


def signals(recall: float, precision: float, delay: float = 0.0) -> dict[str, float]:
    """Return the environment's argument `signals` as JSON."""
    return {"recall": recall, "precision": precision, "delay": delay}


def job(
    part: str, case: str, agent: str, arguments: Mapping[str, Any], size: Size, **columns: Any
) -> Job:
    """Return the job of an agent on a task.

    Arguments:
        part, case: the part of the study, and its task.
        agent: a name of `agents.registry.AGENTS`.
        arguments: of the environment, as JSON; `arrivals` are Poisson items unless they say so.
        columns: more columns of the records; with `bound=False`, the bound is that of another job
            of the same task.
    """
    return {
        "part": part,
        "case": case,
        "agent": agent,
        "arguments": {"arrivals": ARRIVALS, "observed": False, **arguments},
        "runs": {
            "seeds": size.seeds,
            "seed": size.seed,
            "steps": size.steps,
            "warmup": size.warmup,
        },
        "columns": columns,
    }


def work(job: Job) -> Result:
    """Evaluate the job's agent.

    Returns the reward per step of each run (S,), the expected utility that is published per step,
    and, where it is asked for, the bound and the information set that it holds for.
    """
    fleet = Task(**evaluation.arguments_of(job)).sources
    result = {
        "reward": evaluation.work(job)["reward"],
        "published": float((fleet.arrival_rate * fleet.mean_utility).sum() * fleet.period),
    }
    if job["columns"].get("bound", True):
        found = evaluation.bound(job)
        result |= {"bound": found["bound"], "information": found["name"]}
    return result


def records(jobs: Sequence[Job], results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """Yield one row for each run of each job."""
    bounds = {
        json.dumps(job["arguments"]): (repr(result["bound"]), result["information"])
        for job, result in zip(jobs, results, strict=True)
        if "bound" in result
    }
    for job, result in zip(jobs, results, strict=True):
        bound, information = bounds.get(json.dumps(job["arguments"]), ("", ""))
        for run, reward in enumerate(result["reward"]):
            yield {
                "case": job["case"],
                "agent": job["agent"],
                "budget": job["arguments"]["budget"],
                **{name: value for name, value in job["columns"].items() if name != "bound"},
                "seed": job["runs"]["seed"],
                "run": run,
                "reward": repr(reward),
                "published": repr(result["published"]),
                "bound": bound,
                "information": information,
            }


class Results:
    """The rewards and bounds of records, by some of their columns.

    >>> rows = [dict(case="a", agent="whittle", reward="1", published="4", bound="2")]
    >>> results = Results(rows, "case", "agent")
    >>> results.share("a", "whittle"), results.bound("a", "whittle")
    (array([0.25]), 0.5)
    """

    def __init__(self, rows: Rows, *columns: str) -> None:
        self._rows: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
        for row in rows:
            self._rows[tuple(str(row[name]) for name in columns)].append(row)

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return tuple(map(str, key)) in self._rows

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self._rows)

    def values(self, position: int) -> list[str]:
        """Return the different values of a column, in order of appearance."""
        return list(dict.fromkeys(key[position] for key in self._rows))

    def rows(self, *key: Any) -> list[Mapping[str, Any]]:
        """Return the rows of a key: one for each run."""
        return self._rows[tuple(map(str, key))]

    def share(self, *key: Any) -> FloatArray:
        """Return the share of the published utility that each run collects, (S,)."""
        return np.array([float(r["reward"]) / float(r["published"]) for r in self.rows(*key)])

    def bound(self, *key: Any) -> float:
        """Return the bound as a share of the published utility; NaN if none was computed."""
        row = self.rows(*key)[0]
        return float(row["bound"]) / float(row["published"]) if row["bound"] else float("nan")

    def gain(self, key: tuple[Any, ...], other: tuple[Any, ...], level: float = 0.95) -> Estimate:
        """Return what runs collect more than those of another key on the same arrivals, relative
        to these, with an interval of this level."""
        found = statistics.ratio(self.share(*key), self.share(*other), level=level)
        return Estimate(*(x - 1 for x in found))
