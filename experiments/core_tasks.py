"""`python -m experiments core-tasks`: which five tasks predict the scores on all ranked ones?

As M. Aitchison, P. Sweetser and M. Hutter chose five of the Atari games (Atari-5: distilling the
arcade learning environment down to five games, ICML 2023, arXiv 2210.02019). `CORE` of
`crawl_env.benchmark` is what was found, and it is frozen: agents that are added do not change it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np

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

    subsets: IntArray  # (C, SIZE) positions of the tasks
    error: FloatArray  # (C,) root mean square error of the regression, each agent left out once
    plain: FloatArray  # (C,) the same of the mean score of the set, which has nothing to fit
    limit: float  # error that is one standard error above the least one

    @property
    def place(self) -> int:
        """Return the place of the set to choose.

        Many sets predict equally well, given few agents. By the rule of one standard error the
        simplest prediction is preferred among them: the mean score, which leaderboards show.
        """
        return int(np.argmin(np.where(self.error <= self.limit, self.plain, np.inf)))


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
    runs, references = range(job["runs"]), task.references
    if agent in LEARN:
        playable(agent, [task.name])
        reward = [play(agent, task, run)["reward"] for run in runs]
    else:
        reward = [reference_run(agent, task, run) for run in runs]
    low, high = (list(references[name].rewards[: job["runs"]]) for name in ("random", task.best))
    return {"reward": reward, "random": low, "best": high}


def score(data: Data, case: Mapping[str, Any]) -> float:
    """Return the score of an agent on a task: that of its mean reward."""
    mine, low, high = (data.numbers(x, **case).mean() for x in ("reward", "random", "best"))
    return float((mine - low) / (high - low))


def matrix(data: Data) -> FloatArray:
    """Return the scores of all agents on all tasks, (A, T), in the order of the rows."""
    agents, names = data.values("agent"), data.values("task")
    return np.array([[score(data, {"agent": a, "task": t}) for t in names] for a in agents])


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
    >>> best_subsets(scores, scores[:, 1] + 2 * scores[:, 4], size=2).subsets[0]
    array([1, 4])
    """
    subsets = np.array(list(combinations(range(scores.shape[1]), size)))
    gram, along = scores.T @ scores, scores.T @ target
    inverse = np.linalg.inv(gram[subsets[:, :, None], subsets[:, None, :]])  # (C, size, size)
    x = scores[:, subsets].transpose(1, 0, 2)  # (C, A, size)
    leverage = ((x @ inverse) * x).sum(axis=-1)
    off = target - (x @ (inverse @ along[subsets][..., None]))[..., 0]
    square = (off / np.maximum(1 - leverage, 1e-9)) ** 2  # (C, A)
    error = np.sqrt(square.mean(axis=1))
    plain = np.sqrt(((target - x.mean(axis=-1)) ** 2).mean(axis=1))
    order = np.argsort(error, kind="stable")
    least = square[order[0]]
    limit = float(np.sqrt(least.mean() + least.std(ddof=1) / np.sqrt(least.size)))
    return Fit(subsets[order], error[order], plain[order], limit)


def weights_of(scores: FloatArray, target: FloatArray, subset: IntArray) -> FloatArray:
    """Return the weights of a set of tasks in the prediction, (SIZE,)."""
    return np.asarray(np.linalg.lstsq(scores[:, subset], target, rcond=None)[0])


class LeaveOneOut(NamedTuple):
    """Errors for agents that had no part in choosing the tasks either."""

    error: float  # of the regression
    plain: float  # of the mean score
    same: int  # number of agents without which the same set is chosen


def left_out(scores: FloatArray, target: FloatArray, size: int = SIZE) -> LeaveOneOut:
    """Return the errors for agents without each of which the set was chosen anew."""
    first, off, plain, same = _best_subset(scores, target, size), [], [], 0
    for agent in range(len(scores)):
        others = np.arange(len(scores)) != agent
        subset = _best_subset(scores[others], target[others], size)
        weights = weights_of(scores[others], target[others], subset)
        off.append(target[agent] - scores[agent, subset] @ weights)
        plain.append(target[agent] - scores[agent, subset].mean())
        same += int((subset == first).all())
    error, other = (float(np.sqrt(np.mean(np.square(x)))) for x in (off, plain))
    return LeaveOneOut(error, other, same)


def _best_subset(scores: FloatArray, target: FloatArray, size: int) -> IntArray:
    fit = best_subsets(scores, target, size)
    return fit.subsets[fit.place]


class _CoreFit(NamedTuple):
    """The fit of all sets, and the place of the core."""

    names: list[str]  # of the tasks
    scores: FloatArray  # (A, T)
    target: FloatArray  # (A,)
    fit: Fit
    core: int

    def named(self, place: int) -> str:
        return ", ".join(self.names[i] for i in self.fit.subsets[place])


@lru_cache(maxsize=1)  # of the claim and of the table
def _core_fit(data: Data) -> _CoreFit:
    names = data.values("task")
    scores = matrix(data)
    target = mean_of_tiers(scores, [data.values("tier", task=name)[0] for name in names])
    fit = best_subsets(scores, target)
    core = sorted(names.index(name) for name in CORE)
    place = int(np.flatnonzero((fit.subsets == core).all(axis=1))[0])
    return _CoreFit(names, scores, target, fit, place)


def claim(data: Data) -> str:
    """Return how good the core is, and which set would be chosen with these agents."""
    core_fit = _core_fit(data)
    fit, core = core_fit.fit, core_fit.core
    now = "it" if fit.place == core else core_fit.named(fit.place)
    return (
        f"the core, {core_fit.named(core)}, predicts the mean score of both tiers with an error of "
        f"{fit.error[core]:.4f}; of {len(fit.error):,} sets of five tasks the best has "
        f"{fit.error[0]:.4f}, and the median {np.median(fit.error):.3f}. Of the "
        f"{(fit.error <= fit.limit).sum()} sets within one standard error of the best, {now} has "
        f"the least error by the plain mean of its scores (the core {fit.plain[core]:.4f})"
    )


def best_sets(report: Report, data: Data) -> None:
    """Add the table of the best sets and the core."""
    core_fit = _core_fit(data)
    fit = core_fit.fit
    special = {
        fit.place: " (chosen by these agents)",
        int(np.argmin(fit.plain)): " (best plain mean)",
        core_fit.core: " (core)",
    }
    rows = [
        [
            f"{i + 1:,}{special.get(i, '')}",
            core_fit.named(i),
            f"{fit.error[i]:.4f}",
            f"{fit.plain[i]:.4f}",
        ]
        for i in sorted({*range(_SHOWN), *special})
    ]
    columns = ["place", "tasks", "error of the regression", "error of their plain mean"]
    report.table("Sets of five tasks", columns, rows)
    other = left_out(core_fit.scores, core_fit.target)
    weights = weights_of(core_fit.scores, core_fit.target, fit.subsets[core_fit.core])
    report.paragraph(
        "For agents with a part neither in the choice nor in the fit, the regression has an error "
        f"of {other.error:.3f} and the plain mean one of {other.plain:.3f}: the set is chosen anew "
        f"without each, and is the same without {other.same} of the {len(core_fit.scores)}. The "
        f"regression weights the tasks of the core by "
        f"{', '.join(f'{weight:.2f}' for weight in weights)}; leaderboards weight them equally."
    )


@dataclass(kw_only=True)
class CoreTasks(PartsStudy, ParallelStudy):
    """Finds five tasks whose scores predict the mean score on all tasks without parameters.

    Errors are root mean squares over agents, each left out of the regression that predicts it; the
    mean gives both tiers equal weight. Of the sets of tasks within one standard error of the best,
    that whose plain mean has the least error is chosen.
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
                    (Across("agent", (score,), lambda number: f"{number:.3f}"),),
                ),
                best_sets,
            ),
            claim=claim,
        )
    )

    runs: int = 3
    """Test runs of each task that are used, the first ones."""
