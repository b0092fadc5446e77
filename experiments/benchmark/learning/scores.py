"""From records to scores: every agent's runs on every task, and their aggregates."""

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
from experiments.benchmark.learning.plan import BASELINES, BLIND_BOUND, BOUND
from experiments.benchmark.learning.runs import Records, Row

LEVELS = (0.9, 0.95, 0.99)


class Point(NamedTuple):
    """An evaluation during a training."""

    env_steps: int
    source_steps: int
    seconds: float
    score: float


@dataclass(frozen=True)
class Run:
    """One training, measured in one task, or a policy. Scores: 0 is a random choice, 1 Whittle."""

    score: float
    share: float  # of the bound for its observations; NaN where there is none
    bound: str  # for whom that holds: "deterministic", "unseen", "seen", "mixed", or ""
    env_steps: int = 0
    source_steps: int = 0
    seconds: float = 0.0  # of one core
    index_error: float = np.nan  # of a learner that finds an index
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
        """Return the agents that learnt any of these tasks: first those that learnt most of them,
        of equal ones the best first."""

        def place(agent: str) -> tuple[int, float]:
            learnt = [task for task in tasks if task in self.runs[agent]]
            return -len(learnt), -self.iqm(agent, learnt).mean if learnt else 0.0

        agents = [name for name, runs in self.runs.items() if set(tasks) & set(runs)]
        return sorted(agents, key=place)

    def scores(self, agent: str, tasks: Iterable[str]) -> list[FloatArray]:
        """Return an agent's scores on each of the tasks that it learnt, (S,) each."""
        runs = self.runs.get(agent, {})
        return [np.array([run.score for run in runs[task]]) for task in tasks if task in runs]

    def iqm(self, agent: str, tasks: Iterable[str]) -> Estimate:
        found = self.scores(agent, tasks)
        return aggregate.iqm(found) if found else UNKNOWN


def table_of(records: Records) -> Table:
    """Return the runs with their scores, which the baselines of the same task and fleet give.

    Raises:
        ValueError: a baseline is missing, as when a run was stopped before any training.
    """
    table, levels = Table(), Levels(records.runs)
    curves: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in records.curves:
        curves[row["unit"], row["task"]].append(row)
    for row in records.runs:
        entrant, task = row["entrant"], row["task"]
        if not row.get("protocol"):
            learnt = table.runs.setdefault(entrant, {}).setdefault(task, [])
            learnt.append(_run(levels, row, curves[row["unit"], task]))
            table.features[entrant] = row["features"]
            table.versions.setdefault(entrant, Counter())[row["code"]] += 1
        elif entrant in BASELINES and row["protocol"] == "full":
            policy = table.baselines.setdefault(entrant, {}).setdefault(task, [])
            score = levels.score(float(row["reward"]), row, "full")
            share, bound = levels.share(float(row["reward"]), row, sees=True)
            policy.append(Run(score, share, bound))
    return table


def _run(levels: Levels, row: Row, evaluations: list[Row]) -> Run:
    reward, error = float(row["reward"]), row["index_error"]
    share, bound = levels.share(reward, row, "value" in row["features"].split())
    return Run(
        score=levels.score(reward, row, "full"),
        share=share,
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
    """What baselines and bounds earn, by task and fleet."""

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

    def share(self, reward: float, row: Row, sees: bool) -> tuple[float, str]:
        """Return the share of the bound, and its name: of one that `sees` content where the task
        shows it, or of one that does not. NaN and "" where there is no bound."""
        names = (BOUND,) if sees else (BLIND_BOUND, BOUND)
        for name in names:
            if (name, *self._place(row), "full") in self._known:
                found = self._find(name, row, "full")
                return reward / float(found["reward"]), found["information"]
        return np.nan, ""

    def _find(self, entrant: str, row: Row, protocol: str) -> Row:
        key = entrant, *self._place(row), protocol
        if key not in self._known:
            raise ValueError(
                f"{entrant} has not been measured yet in {row['task']} (fleet {row['fleet']}); run "
                "the same command without --only-report"
            )
        return self._known[key]

    def _place(self, row: Row) -> tuple[str, str]:
        return row["task"], str(row["fleet"])
