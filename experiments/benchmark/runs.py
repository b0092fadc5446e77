"""The records of the finished jobs, and their files.

`runs.csv.gz` has one row for every test of a training, for every trial of tuning, and for every
baseline and bound; `curves.csv.gz` has one row for every evaluation during a training. Both can be
moved to another machine: recorded jobs are not run again, whichever code produced them (each row
names its commit).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from crawl_env.errors import unknown
from ephemeral_crawl.core.results import provenance, read_csv
from ephemeral_crawl.core.runner import Job, Runner, Version
from experiments.benchmark.entrants import Entrant, Suite
from experiments.benchmark.plan import (
    BASELINES,
    BOUND,
    UNOBSERVED_BOUND,
    TrialChoice,
    key_of,
    plan,
    tuning,
    version_of,
    work,
)
from experiments.benchmark.scores import Levels, Row, numbers

RUNS, CURVES = "runs.csv.gz", "curves.csv.gz"


class Records:
    """The rows of the record; values are text where they were read from files."""

    def __init__(self, runs: list[Row], curves: list[Row]) -> None:
        self.runs, self.curves = runs, curves

    @staticmethod
    def read(folder: Path) -> Records:
        """Return the record of a folder; an empty one if there is none."""
        runs, curves = folder / RUNS, folder / CURVES
        if not (runs.exists() and curves.exists()):
            return Records([], [])
        return Records(read_csv(runs), read_csv(curves))

    def of(self, keys: Iterable[str], among: bool = True) -> Records:
        """Return the rows of the jobs with these keys or, with `among=False`, all other rows."""
        key_set = set(keys)
        return Records(
            [row for row in self.runs if (row["job"] in key_set) == among],
            [row for row in self.curves if (row["job"] in key_set) == among],
        )

    def without(self, others: Records) -> Records:
        """Return the rows that are not among others, nor superseded by them: no runs of the same
        learner on the same task with the same budget and seed, but other settings."""
        keys = {row["job"] for row in others.runs}
        instead = {_place(row) for row in others.runs}
        rows = [row for row in self.runs if row["job"] not in keys and _place(row) not in instead]
        return Records(rows, []) + Records([], self.of(row["job"] for row in rows).curves)

    def __add__(self, other: Records) -> Records:
        return Records(self.runs + other.runs, self.curves + other.curves)


def _place(row: Row) -> tuple[str, ...]:
    names = "protocol", "entrant", "budget", "task", "fleet", "run"
    trial = row["trial"] if row["protocol"] == "tuning" else ""
    return (*(str(row.get(name, "")) for name in names), str(trial))


def complete(
    suite: Suite,
    before: Records,
    runner: Runner,
    redo: Sequence[str] = (),
    only_done: bool = False,
    version: Version | None = version_of,
) -> Records:
    """Return the records of a suite: of the trials of tuning and, with the settings that these
    choose, of all trainings; run the jobs that `before` lacks or `redo` names.

    Arguments:
        runner: stores finished jobs while others still run; a later call reuses them as long as
            `version` is the same; see `ephemeral_crawl.core.runner`.
        redo: names of entrants, baselines or bounds, or "all".
        only_done: run nothing, and leave out jobs that have not been run before.

    Raises:
        ValueError: `redo` has an unknown name, the engine uses threads, or nothing has been run.
        SystemExit: stopped by Ctrl-C; finished jobs are kept.
    """
    learners = [entrant.learner for entrant in suite.entrants]
    names = [*learners, *BASELINES, BOUND, UNOBSERVED_BOUND, "all"]
    for name in redo:
        if name not in names:
            raise unknown("name after --redo,", name, names)
    if runner.run_on == "threading":
        raise ValueError(
            "engine is 'threading', but a training uses the random generators and the CPU time of "
            "the whole process, which threads share; use --run-on loky, or sequential with --jobs 1"
        )

    def finished(jobs: Sequence[Job]) -> Records:
        return _finished(jobs, before, runner, redo, only_done, version)

    trials = finished(tuning(suite))
    records = trials + finished(plan(suite, choice(trials, suite)))
    if only_done and not records.runs:
        raise ValueError("there are no records yet; leave out --only-report")
    return records


def choice(trials: Records, suite: Suite) -> TrialChoice:
    """Return the trial with the largest mean score in the records of tuning, by entrant and budget;
    trial 0, the defaults, where trials are missing."""
    levels = Levels(trials.runs)
    scores: dict[tuple[str, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in trials.runs:
        if row["protocol"] == "tuning" and levels.has(row):
            score = levels.score(float(numbers(row["rewards"]).mean()), row, "full")
            scores[row["entrant"], int(row["budget"])][int(row["trial"])].append(score)

    def trial_of(entrant: Entrant, budget: int) -> int:
        of_trial = scores[entrant.learner, budget]
        if len(of_trial) < suite.trials or len({len(values) for values in of_trial.values()}) > 1:
            return 0
        return max(sorted(of_trial), key=lambda trial: float(np.mean(of_trial[trial])))

    return trial_of


def _finished(
    jobs: Sequence[Job],
    before: Records,
    runner: Runner,
    redo: Sequence[str],
    only_done: bool,
    version: Version | None,
) -> Records:
    todo = {key_of(job): job for job in jobs}
    old = before.of(
        row["job"]
        for row in before.runs
        if row["job"] in todo and not {"all", row["entrant"]} & set(redo)
    )
    old_keys = {row["job"] for row in old.runs}
    missing = [key for key in todo if key not in old_keys]
    if only_done:
        missing = [key for key in missing if runner.has(todo[key], version)]
    results = runner.run([todo[key] for key in missing], work, version)
    fresh = Records([], [])
    command = {"command": provenance()["command"]}
    for key, result in zip(missing, results, strict=True):
        fresh.runs += [{"job": key, **row, **command} for row in result["runs"]]
        fresh.curves += [{"job": key, **row} for row in result["curves"]]
    order = {key: i for i, key in enumerate(todo)}
    together = old + fresh
    for rows in (together.runs, together.curves):
        rows.sort(key=lambda row: order[row["job"]])
    return together
