"""`python -m experiments core-tasks`: which five tasks predict the scores on all ranked ones?

As M. Aitchison, P. Sweetser and M. Hutter chose five of the Atari games (Atari-5: distilling the
arcade learning environment down to five games, ICML 2023, arXiv 2210.02019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.benchmark import play, playable, reference_run
from crawl_env import tasks
from crawl_env.benchmark import CORE, named
from crawl_env.benchmark.task import BenchmarkTask
from crawl_env.numerics import FloatArray, IntArray
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import ParallelStudy
from experiments.core.data import Across, Data, Table
from experiments.core.study import Part, PartsStudy, single

SIZE = 5  # tasks of a core
RANKED = ("learning", "open")  # tiers that agents without parameters play
# Agents that observe what the tasks show, and policies that are shown the true parameters.
LEARN = ("in-context", "adaptive-self-tuning", "nutch", "miniflux", "oldest-first", "random")
TOLD = (
    *("whittle", "myopic", "fixed", "lagrangian", "static", "lambda-crawl", "freshness"),
    *("adaptive-thompson", "adaptive-optimism", "adaptive-certainty"),
)
_SHOWN = 10  # sets of tasks in the table


class Fit(NamedTuple):
    """How well sets of tasks predict the mean score of agents that were left out."""

    chosen: IntArray  # (C, SIZE) positions of the tasks
    error: FloatArray  # (C,) root mean square error of the regression, each agent left out once
    plain: FloatArray  # (C,) the same of the mean score of the set, which has nothing to fit


def jobs(study: Any) -> list[Job]:
    """Return a job for every agent on every ranked task."""
    return [
        {"columns": {"agent": agent, "task": task.name, "tier": task.tier}, "runs": study.runs}
        for task in ranked()
        for agent in (*LEARN, *TOLD)
    ]


def ranked() -> list[BenchmarkTask]:
    """Return the tasks among which the core is chosen."""
    return [task for tier in RANKED for task in tasks(tier).values()]


def measured(job: Job) -> Result:
    """Return the rewards of an agent in the first test runs, and those that score 0 and 1."""
    agent, task = job["columns"]["agent"], named(job["columns"]["task"])
    runs, known = range(job["runs"]), task.references
    if agent in LEARN:
        playable(agent, [task.name])
        reward = [play(agent, task, run)["reward"] for run in runs]
    else:
        reward = [reference_run(agent, task, run) for run in runs]
    low, high = (list(known[name].rewards[: job["runs"]]) for name in ("random", task.best))
    return {"reward": reward, "random": low, "best": high}


def score(data: Data, case: Mapping[str, Any]) -> statistics.Estimate:
    """Return the score of an agent on a task."""
    return statistics.score(*(data.numbers(name, **case) for name in ("reward", "random", "best")))


def matrix(data: Data) -> FloatArray:
    """Return the scores of all agents on all tasks, (A, T), in the order of the rows."""
    agents, names = data.values("agent"), data.values("task")
    return np.array([[score(data, {"agent": a, "task": t}).mean for t in names] for a in agents])


def mean_of_tiers(scores: FloatArray, tiers: Sequence[str]) -> FloatArray:
    """Return the mean score of each agent, (A,), in which every tier has equal weight."""
    place = np.array(tiers)
    return np.mean([scores[:, place == tier].mean(axis=1) for tier in dict.fromkeys(tiers)], axis=0)


def best_subsets(scores: FloatArray, target: FloatArray, size: int = SIZE) -> Fit:
    """Return how well each set of tasks predicts a target, from the best to the worst.

    The prediction is linear in the scores on the tasks, without a constant, so that the random
    policy is predicted to score 0. Its error is that of leave-one-out cross-validation, by the
    leverages of least squares.

    Arguments:
        scores: (A, T) of A agents on T tasks.
        target: (A,) what is predicted.

    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=(12, 6))
    >>> best_subsets(scores, scores[:, 1] + 2 * scores[:, 4], size=2).chosen[0]
    array([1, 4])
    """
    chosen = np.array(list(combinations(range(scores.shape[1]), size)))
    x = scores[:, chosen].transpose(1, 0, 2)  # (C, A, size)
    inverse = np.linalg.pinv(x)
    leverage = (x * inverse.transpose(0, 2, 1)).sum(axis=-1)
    off = target - (x @ (inverse @ target)[..., None])[..., 0]
    error = np.sqrt(((off / np.maximum(1 - leverage, 1e-9)) ** 2).mean(axis=1))
    plain = np.sqrt(((target - x.mean(axis=-1)) ** 2).mean(axis=1))
    order = np.argsort(error, kind="stable")
    return Fit(chosen[order], error[order], plain[order])


def _found(data: Data) -> tuple[Fit, list[str], int]:
    """Return the fit of all sets, the names of the tasks, and the place of the present core."""
    names = data.values("task")
    tiers = [data.values("tier", task=name)[0] for name in names]
    scores = matrix(data)
    fit = best_subsets(scores, mean_of_tiers(scores, tiers))
    core = sorted(names.index(name) for name in CORE)
    return fit, names, int(np.flatnonzero((fit.chosen == core).all(axis=1))[0])


def claim(data: Data) -> str:
    """Return which set is best, and how good the present core is."""
    fit, names, core = _found(data)
    best = ", ".join(names[i] for i in fit.chosen[0])
    return (
        f"of {len(fit.error):,} sets of five tasks {best} predict the mean of the tiers best "
        f"(error {fit.error[0]:.4f}, by {len(data.values('agent'))} agents); the core has "
        f"{fit.error[core]:.4f}, and {core:,} sets are better"
    )


def _sets(report: Report, tables: Mapping[str, Data]) -> None:
    """Add the table of the best sets and the core."""
    fit, names, core = _found(tables[""])
    shown = [*range(_SHOWN), *([core] if core >= _SHOWN else [])]
    simple = int(np.argmin(fit.plain))
    rows = [
        [
            f"{i + 1:,}" + " (core)" * (i == core),
            ", ".join(names[j] for j in fit.chosen[i]),
            f"{fit.error[i]:.4f}",
            f"{fit.plain[i]:.4f}",
        ]
        for i in dict.fromkeys([*shown, simple])
    ]
    columns = ["place", "tasks", "error of the regression", "error of their plain mean"]
    report.table("Sets of five tasks; the last row has the best plain mean", columns, rows)


@dataclass(kw_only=True)
class CoreTasks(PartsStudy, ParallelStudy):
    """Finds five tasks whose scores predict the mean score on all tasks without parameters.

    Errors are root mean squares over agents, each left out of the regression that predicts it; the
    mean gives both tiers equal weight.
    """

    title: ClassVar[str] = "A core of five tasks"
    parts: ClassVar[Mapping[str, Part]] = single(
        Part(
            jobs=jobs,
            work=measured,
            content=(
                "Scores: 0 is the random policy, 1 the reference of the task. The agents from "
                f"{TOLD[0]} on are shown the true parameters, or some of them.",
                Table(
                    "Mean scores",
                    {"task": "task"},
                    (Across("agent", (score,), lambda found: f"{found.mean:.3f}"),),
                ),
            ),
            claim=claim,
        )
    )
    after: ClassVar[Any] = (_sets,)

    runs: int = 5
    """Test runs of each task that are used, the first ones."""
