"""Scores of the recorded runs: every agent on every task, and aggregates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from agents.evaluation import aggregate
from agents.evaluation.statistics import UNKNOWN, Estimate
from crawl_env.numerics import FloatArray
from experiments.benchmark.learning.plan import BASELINES, BOUND, UNOBSERVED_BOUND
from experiments.benchmark.learning.runs import Records, Row

LEVELS = (0.9, 0.95, 0.99)
FAILED = 0.8  # a run that scores less has failed


class Point(NamedTuple):
    """An evaluation during a training."""

    env_steps: int
    source_steps: int
    seconds: float
    score: float


@dataclass(frozen=True)
class Run:
    """One training, or one policy, evaluated on one task. A random policy scores 0, Whittle 1."""

    score: float
    fraction: float  # of the bound for its observations; NaN where there is none
    bound: str  # its information set, see `agents.theory.task_bound.Bound`; "" where there is none
    env_steps: int = 0
    source_steps: int = 0
    seconds: float = 0.0  # on one core
    index_error: float = np.nan  # of a learner that estimates the Whittle index
    curve: tuple[Point, ...] = ()  # empty where the task was not evaluated during the training

    def reached(self, level: float) -> Point | None:
        """Return the first evaluation from which on the score was at least `level`, or None."""
        found: Point | None = None
        for point in self.curve:
            if point.score < level:
                found = None
            elif found is None:
                found = point
        return found


class Spread(NamedTuple):
    """What an interquartile mean trims away."""

    mean: float
    minimum: float
    failed: float  # share of the runs that score less than `FAILED`


def spread(scores: FloatArray) -> Spread:
    """Return the spread of the scores of some runs.

    >>> spread(np.array([1.0, 1.0, 0.79, 0.21]))
    Spread(mean=0.75, minimum=0.21, failed=0.5)
    """
    return Spread(float(scores.mean()), float(scores.min()), float((scores < FAILED).mean()))


@dataclass
class Table:
    """Runs of all agents on all tasks; agents and tasks in the order of the records."""

    runs: dict[str, dict[str, list[Run]]] = field(default_factory=dict)  # by agent and task
    baselines: dict[str, dict[str, list[Run]]] = field(default_factory=dict)
    features: dict[str, str] = field(default_factory=dict)  # that each agent observes
    versions: dict[str, Counter[str]] = field(default_factory=dict)  # of each agent's code: runs

    @cached_property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(task for runs in self.runs.values() for task in runs))

    def among(self, tasks: Sequence[str]) -> list[str]:
        """Return the agents trained on any of these tasks, in decreasing number of tasks and, among
        equals, decreasing score."""

        def place(agent: str) -> tuple[int, float]:
            learnt = [task for task in tasks if task in self.runs[agent]]
            return -len(learnt), -self.iqm(agent, learnt).mean if learnt else 0.0

        agents = [name for name, runs in self.runs.items() if set(tasks) & set(runs)]
        return sorted(agents, key=place)

    def scores(self, agent: str, tasks: Iterable[str]) -> list[FloatArray]:
        """Return an agent's scores, (S,), on each of the tasks on which it was trained."""
        runs = self.runs.get(agent, {})
        return [np.array([run.score for run in runs[task]]) for task in tasks if task in runs]

    def spread(self, agent: str, tasks: Iterable[str]) -> Spread:
        """Return mean, minimum and share of failed runs, which the IQM does not show."""
        return spread(np.concatenate(self.scores(agent, tasks)))

    def iqm(self, agent: str, tasks: Iterable[str]) -> Estimate:
        found = self.scores(agent, tasks)
        return aggregate.iqm(found) if found else UNKNOWN


def table_of(records: Records) -> Table:
    """Return the runs with their scores, relative to the baselines on the same task and fleet.

    Raises:
        ValueError: a baseline is missing, as when a run was stopped before any training.
    """
    table, levels = Table(), Levels(records.runs)
    curves: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in records.curves:
        curves[row["job"], row["task"]].append(row)
    for row in records.runs:
        entrant, task = row["entrant"], row["task"]
        if not row.get("protocol"):
            learnt = table.runs.setdefault(entrant, {}).setdefault(task, [])
            learnt.append(_run(levels, row, curves[row["job"], task]))
            table.features[entrant] = row["features"]
            table.versions.setdefault(entrant, Counter())[row["code"]] += 1
        elif entrant in BASELINES and row["protocol"] == "full":
            policy = table.baselines.setdefault(entrant, {}).setdefault(task, [])
            score = levels.score(float(row["reward"]), row, "full")
            fraction, bound = levels.fraction(float(row["reward"]), row, observes=True)
            policy.append(Run(score, fraction, bound))
    return table


def _run(levels: Levels, row: Row, evaluations: list[Row]) -> Run:
    reward, error = float(row["reward"]), row["index_error"]
    fraction, bound = levels.fraction(reward, row, "value" in row["features"].split())
    return Run(
        score=levels.score(reward, row, "full"),
        fraction=fraction,
        bound=bound,
        env_steps=int(row["env_steps"]),
        source_steps=int(row["source_steps"]),
        seconds=float(row["cpu_seconds"]),
        index_error=np.nan if error in ("", None) else float(error),
        curve=tuple(
            Point(
                int(evaluation["env_steps"]),
                int(evaluation["source_steps"]),
                float(evaluation["cpu_seconds"]),
                levels.score(float(evaluation["reward"]), evaluation, "short"),
            )
            for evaluation in evaluations
        ),
    )


class Levels:
    """The rewards of baselines and bounds, by task and fleet."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._known = {
            (row["entrant"], row["task"], str(row["fleet"]), row["protocol"]): row
            for row in rows
            if row.get("protocol")
        }

    def score(self, reward: float, row: Row, protocol: str) -> float:
        """Return (reward − random)/(Whittle − random) in the task and fleet of a row.

        Raises:
            ValueError: these have not been measured.
        """
        random, whittle = (
            float(self._find(who, row, protocol)["reward"]) for who in ("random", "whittle")
        )
        return (reward - random) / (whittle - random)

    def fraction(self, reward: float, row: Row, observes: bool) -> tuple[float, str]:
        """Return a reward as a fraction of the bound, and the bound's name; NaN and "" if none.

        Arguments:
            observes: whether the agent observes content where the task allows it.
        """
        names = (BOUND,) if observes else (UNOBSERVED_BOUND, BOUND)
        for name in names:
            if (name, *self._place(row), "full") in self._known:
                found = self._find(name, row, "full")
                return reward / float(found["reward"]), found["information"]
        return np.nan, ""

    def _find(self, entrant: str, row: Row, protocol: str) -> Row:
        key = entrant, *self._place(row), protocol
        if key not in self._known:
            raise ValueError(
                f"{entrant} has not been evaluated on {row['task']} (fleet {row['fleet']}) yet; "
                "run the same command without --only-report"
            )
        return self._known[key]

    def _place(self, row: Row) -> tuple[str, str]:
        return row["task"], str(row["fleet"])
