"""Scores of the recorded runs, and which of them failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from agents.evaluation import aggregate, statistics
from agents.evaluation.statistics import Estimate
from crawl_env.numerics import FloatArray
from experiments.benchmark.plan import BASELINES, BOUND, IDLE, UNOBSERVED_BOUND

Row = dict[str, Any]


@cache
def numbers(text: str) -> FloatArray:
    """Return the numbers of `listed`, as an array that cannot be written to."""
    array = np.array(str(text).split(), dtype=float)
    array.flags.writeable = False
    return array


class Point(NamedTuple):
    """An evaluation during a training."""

    source_steps: int
    seconds: float
    score: float


@dataclass(frozen=True)
class Run:
    """One training, or one policy, evaluated on one task. A random policy scores 0, Whittle 1."""

    score: float
    idle: float  # score of the best policy that learns nothing, on the same arrivals
    failed: bool  # whether it is not clearly above that policy
    fraction: float  # of the bound for its observations; NaN where there is none
    bound: str  # its information set, see `agents.theory.task_bound.Bound`; "" where there is none
    source_steps: int = 0
    seconds: float = 0.0  # on one core
    index_error: float = np.nan  # of a learner that estimates the Whittle index
    curve: tuple[Point, ...] = ()  # empty where the task was not evaluated during the training

    def area(self, budget: int) -> float:
        """Return the area under the learning curve; see `aggregate.area`. NaN without a curve."""
        if not self.curve:
            return np.nan
        steps, _, scores = zip(*self.curve, strict=True)
        return aggregate.area(steps, scores, budget)


@dataclass
class ScoreTable:
    """Runs of all agents on all tasks with one budget; agents and tasks in the order of the
    records."""

    budget: int
    runs: dict[str, dict[str, list[Run]]] = field(default_factory=dict)  # by agent and task
    baselines: dict[str, dict[str, list[Run]]] = field(default_factory=dict)
    information: dict[str, str] = field(default_factory=dict)  # what each agent knows and observes
    trials: dict[str, int] = field(default_factory=dict)  # the trial of tuning that was chosen
    settings: dict[str, str] = field(default_factory=dict)

    @cached_property
    def number(self) -> int:
        """Number of runs of all agents on all tasks."""
        return sum(len(runs) for by_task in self.runs.values() for runs in by_task.values())

    @cached_property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(task for runs in self.runs.values() for task in runs))

    @cached_property
    def ranked(self) -> list[str]:
        """The tasks that leave room for learning: on which Whittle is clearly better than the best
        policy that learns nothing. Nobody can fail on the others, and none is ranked by them."""
        return [task for task in self.tasks if self.room(task).low > 0]

    def room(self, task: str) -> Estimate:
        """Return by how much Whittle's score exceeds that of the best policy that learns nothing,
        with its interval over fleets or arrivals."""
        gaps = np.array([1 - run.idle for run in self.baselines["whittle"][task]])
        clear = all(not run.failed for run in self.baselines["whittle"][task])
        if gaps.size < statistics.FEWEST_RUNS:
            return Estimate(float(gaps.mean()), *(2 * [float(gaps.min()) if clear else 0.0]))
        return statistics.mean(gaps)

    def agents(self, tasks: Iterable[str]) -> list[str]:
        """Return the agents trained on any of these tasks, best first."""
        present = [task for task in tasks if task in self.tasks]
        names = [name for name, runs in self.runs.items() if set(present) & set(runs)]
        return sorted(names, key=lambda name: -self.interquartile_mean(name, present))

    def of(self, agent: str, tasks: Iterable[str]) -> list[list[Run]]:
        """Return an agent's runs on each of the tasks on which it was trained."""
        runs = (self.runs if agent in self.runs else self.baselines)[agent]
        return [runs[task] for task in tasks if task in runs]

    def scores(self, agent: str, tasks: Iterable[str]) -> list[FloatArray]:
        """Return an agent's scores, (S,), on each of the tasks on which it was trained."""
        return [np.array([run.score for run in runs]) for runs in self.of(agent, tasks)]

    def iqm(self, agent: str, tasks: Iterable[str]) -> Estimate:
        return aggregate.iqm(self.scores(agent, tasks))

    def interquartile_mean(self, agent: str, tasks: Iterable[str]) -> float:
        """Return the mean of `iqm` without its interval, which takes resamples."""
        return aggregate.iqm(self.scores(agent, tasks), resamples=0).mean

    def gain(self, agent: str, task: str) -> Estimate:
        """Return the paired difference in score to the best policy that learns nothing."""
        (runs,) = self.of(agent, [task])
        return statistics.difference([run.score for run in runs], [run.idle for run in runs])

    def failed(self, agent: str, tasks: Iterable[str]) -> float:
        """Return the share of the runs that failed, on the ranked ones of the tasks, which have
        equal weight; NaN if there are none."""
        ranked = [task for task in tasks if task in self.ranked]
        shares = [np.mean([run.failed for run in runs]) for runs in self.of(agent, ranked)]
        return float(np.mean(shares)) if shares else np.nan

    def full(self, agents: Sequence[str], tasks: Sequence[str]) -> list[str]:
        """Return the tasks on which all of the agents were trained."""
        return [task for task in tasks if all(task in self.runs[agent] for agent in agents)]


def tables_of(runs: Sequence[Row], curves: Sequence[Row]) -> dict[int, ScoreTable]:
    """Return the tables of all budgets. Runs are left out whose baselines have not been measured,
    as when a study was stopped."""
    levels, tables = Levels(runs), dict[int, ScoreTable]()
    points: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in curves:
        points[row["job"], row["task"]].append(row)
    for row in runs:
        if row["protocol"] == "" and levels.has(row, *BASELINES):
            table = tables.setdefault(int(row["budget"]), ScoreTable(int(row["budget"])))
            agent, task = row["entrant"], row["task"]
            learnt = table.runs.setdefault(agent, {}).setdefault(task, [])
            learnt.append(_run(levels, row, points[row["job"], task]))
            table.information[agent] = row["information"]
            table.trials[agent], table.settings[agent] = int(row["trial"]), row["settings"]
    for row in runs:
        if (
            row["protocol"] == "full"
            and row["entrant"] in BASELINES
            and levels.has(row, *BASELINES)
        ):
            run = _run(levels, row, [])
            for table in tables.values():
                if row["task"] in table.tasks:
                    of_task = table.baselines.setdefault(row["entrant"], {})
                    of_task.setdefault(row["task"], []).append(run)
    return tables


def _run(levels: Levels, row: Row, evaluations: list[Row]) -> Run:
    rewards = numbers(row["rewards"])
    reward, error = float(rewards.mean()), row.get("index_error", "")
    observes = "value" in row.get("features", "value").split()
    fraction, bound = levels.fraction(reward, row, observes)
    best = max(IDLE, key=lambda name: levels.mean(name, row))
    return Run(
        score=levels.score(reward, row, "full"),
        idle=levels.score(levels.mean(best, row), row, "full"),
        failed=not clearly_above(rewards, levels.rewards(best, row)),
        fraction=fraction,
        bound=bound,
        source_steps=int(row.get("source_steps") or 0),
        seconds=float(row.get("cpu_seconds") or 0.0),
        index_error=np.nan if error in ("", None) else float(error),
        curve=tuple(
            Point(
                int(evaluation["source_steps"]),
                float(evaluation["cpu_seconds"]),
                levels.score(float(evaluation["reward"]), evaluation, "short"),
            )
            for evaluation in evaluations
        ),
    )


def clearly_above(rewards: FloatArray, idle: FloatArray) -> bool:
    """Whether a policy collects more than another one on the same arrivals, by the paired interval.

    One run stands for all where nothing is random.

    >>> clearly_above(np.array([3.0, 4.0, 5.0]), np.array([2.9, 4.1, 4.9]))
    False
    """
    if rewards.size == 1:
        return bool(rewards[0] > idle.mean() * (1 + 1e-9))
    if rewards.size != idle.size:  # the random policy on a deterministic task
        return bool(rewards.mean() > idle.mean())
    return statistics.difference(rewards, idle).low > 0


class Levels:
    """The rewards of baselines and bounds, by task and fleet."""

    def __init__(self, rows: Iterable[Row]) -> None:
        levels = {
            (row["entrant"], row["task"], str(row["fleet"]), row["protocol"]): row
            for row in rows
            if row["protocol"] in ("full", "short")
        }
        self._rewards = {key: numbers(row["rewards"]) for key, row in levels.items()}
        self._mean = {key: float(rewards.mean()) for key, rewards in self._rewards.items()}
        self._information = {key: row.get("information", "") for key, row in levels.items()}

    def has(self, row: Row, *names: str) -> bool:
        """Return whether policies, by default those at which scores are 0 and 1, were evaluated on
        the task and fleet of a row."""
        policies = names or ("random", "whittle")
        return all((name, *self._place(row), "full") in self._mean for name in policies)

    def rewards(self, entrant: str, row: Row, protocol: str = "full") -> FloatArray:
        """Return the rewards of a policy on the task and fleet of a row, (S,)."""
        return self._rewards[entrant, *self._place(row), protocol]

    def mean(self, entrant: str, row: Row, protocol: str = "full") -> float:
        """Return the mean reward of a policy on the task and fleet of a row."""
        return self._mean[entrant, *self._place(row), protocol]

    def score(self, reward: float, row: Row, protocol: str) -> float:
        """Return (reward − random)/(Whittle − random) in the task and fleet of a row."""
        random = self.mean("random", row, protocol)
        whittle = self.mean("whittle", row, protocol)
        return (reward - random) / (whittle - random)

    def fraction(self, reward: float, row: Row, observes: bool) -> tuple[float, str]:
        """Return a reward as a fraction of the bound, and the bound's name; NaN and "" if none.

        Arguments:
            observes: whether the agent observes content where the task allows it.
        """
        names = (BOUND,) if observes else (UNOBSERVED_BOUND, BOUND)
        for name in names:
            if self.has(row, name):
                key = name, *self._place(row), "full"
                return reward / self._mean[key], self._information[key]
        return np.nan, ""

    def _place(self, row: Row) -> tuple[str, str]:
        return row["task"], str(row["fleet"])
