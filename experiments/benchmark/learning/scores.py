"""From records to what is compared: every agent's runs on every task, and their aggregates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from agents import aggregate
from agents.statistics import UNKNOWN, Estimate
from crawl_env.numerics import FloatArray
from experiments.benchmark.learning.runs import BASELINES, BOUND, Records, Row

LEVELS = (0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Run:
    """One training, measured in one task. Scores: 0 is a random choice, 1 the Whittle policy."""

    score: float
    share: float  # of the bound; NaN where there is none
    crawl_epochs: int
    source_epochs: int
    seconds: float  # of one core
    index_error: float  # NaN for a learner that finds no index
    curve: tuple[tuple[int, int, float, float], ...]  # crawl epochs, source-epochs, seconds, score

    def reached(self, level: float) -> tuple[int, int, float]:
        """Return after how many epochs and seconds the score was at least `level` for good; inf
        where it was not."""
        found: tuple[int, int, float] | None = None
        for crawls, sources, seconds, score in self.curve:
            if score < level:
                found = None
            elif found is None:
                found = crawls, sources, seconds
        endless: tuple[int, int, float] = (np.inf, np.inf, np.inf)  # type: ignore[assignment]
        return endless if found is None else found


@dataclass
class Table:
    """Runs of all agents on all tasks; agents and tasks in the order of the records."""

    runs: dict[str, dict[str, list[Run]]] = field(default_factory=dict)  # by agent and task
    baselines: dict[str, dict[str, list[Run]]] = field(default_factory=dict)
    information: dict[str, str] = field(default_factory=dict)  # name of each task's bound

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
    """Return the runs with their scores, which the baselines of the same task and fleet give."""
    table = Table()
    for row in records.runs:
        if row["player"] == BOUND:
            table.information[row["task"]] = row["information"]
    level = Levels(records.runs)
    curves: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in records.curves:
        curves[row["unit"], row["task"]].append(row)
    for row in records.runs:
        task, run, reward = row["task"], str(row["run"]), float(row["reward"])
        if row.get("protocol"):
            if row["player"] in BASELINES and row["protocol"] == "full":
                measured = _baseline(level, task, run, reward)
                table.baselines.setdefault(row["player"], {}).setdefault(task, []).append(measured)
            continue
        points = [
            (
                int(point["crawl_epochs"]),
                int(point["source_epochs"]),
                float(point["cpu_seconds"]),
                level.score(float(point["reward"]), task, run, "short"),
            )
            for point in curves[row["unit"], task]
        ]
        error = row["index_error"]
        measured = Run(
            score=level.score(reward, task, run, "full"),
            share=reward / level(BOUND, task, run, "full"),
            crawl_epochs=int(row["crawl_epochs"]),
            source_epochs=int(row["source_epochs"]),
            seconds=float(row["cpu_seconds"]),
            index_error=np.nan if error in ("", None) else float(error),
            curve=tuple(points),
        )
        table.runs.setdefault(row["player"], {}).setdefault(task, []).append(measured)
    return table


class Levels:
    """What baselines and bounds earn; a fleet of its own in each run, or one for all runs."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._known = {
            (row["player"], row["task"], str(row["run"]), row["protocol"]): float(row["reward"])
            for row in rows
            if row.get("protocol")
        }

    def __call__(self, player: str, task: str, run: str, protocol: str) -> float:
        for fleet in (run, "0"):
            if (player, task, fleet, protocol) in self._known:
                return self._known[player, task, fleet, protocol]
        return np.nan

    def score(self, reward: float, task: str, run: str, protocol: str) -> float:
        """Return (reward − random)/(Whittle − random)."""
        floor = self("random", task, run, protocol)
        return (reward - floor) / (self("whittle", task, run, protocol) - floor)


def _baseline(level: Levels, task: str, run: str, reward: float) -> Run:
    return Run(
        score=level.score(reward, task, run, "full"),
        share=reward / level(BOUND, task, run, "full"),
        crawl_epochs=0,
        source_epochs=0,
        seconds=0.0,
        index_error=np.nan,
        curve=(),
    )
