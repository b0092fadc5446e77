"""The raw records: what is to be run, what has been run already, and the files that hold both.

`runs.csv.gz` has one row for every training × exam, and every policy they are compared with;
`curves.csv.gz` one for every pause of a training. Both can be carried to another machine: what
they hold is not run again, whichever code made it (each row names its commit).
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from experiments import runner, units
from experiments.benchmark.learning.players import Lesson, Player
from experiments.benchmark.learning.training import MEASURED_WITH, made_by, train
from experiments.benchmark.suite import Setting
from experiments.results import provenance

RUNS, CURVES = "runs.csv.gz", "curves.csv.gz"
BASELINES = ("whittle", "random", "myopic")
BOUND = "bound"
SEPARATOR = " · "  # of the group and the name of a task
_RANDOM_RUNS = 20  # of the random policy, where all others are the same in every run

Row = dict[str, Any]


class Records:
    """All rows, as text where they come from files."""

    def __init__(self, runs: list[Row], curves: list[Row]) -> None:
        self.runs, self.curves = runs, curves

    @staticmethod
    def read(folder: Path) -> Records:
        """Return what a folder holds; nothing where there is none."""
        runs, curves = folder / RUNS, folder / CURVES
        if not (runs.exists() and curves.exists()):
            return Records([], [])
        return Records(_rows(runs), _rows(curves))

    def write(self, folder: Path) -> None:
        for name, rows in ((RUNS, self.runs), (CURVES, self.curves)):
            # Without a time stamp, so that the same rows make the same file.
            (folder / name).write_bytes(gzip.compress(_as_csv(rows).encode(), mtime=0))

    def of(self, keys: Iterable[str]) -> Records:
        """Return the rows of these units alone."""
        wanted = set(keys)
        return Records(
            [row for row in self.runs if row["unit"] in wanted],
            [row for row in self.curves if row["unit"] in wanted],
        )


def complete(
    players: Sequence[Player],
    found: Records,
    kept: Path,
    redo: Sequence[str] = (),
    jobs: int = -1,
    engine: str = "loky",
    only_done: bool = False,
    code: str | None = "",
) -> Records:
    """Return the records of all players, running what `found` lacks, and what is to be redone.

    With `only_done` nothing is run, and what has not been run before is left out. `code`: see
    `experiments.runner.run`; by default what is kept is taken up whichever code made it.

    Raises:
        ValueError: `redo` names no player.
        SystemExit: stopped by Ctrl-C; what was finished is kept.
    """
    names = {player.name for player in players}
    unknown = sorted(set(redo) - names)
    if unknown:
        raise ValueError(f"--redo {unknown[0]!r} is no agent of this suite: {', '.join(names)}")
    todo = {key_of(unit): unit for unit in _units(players)}
    past = found.of(todo)
    done = {row["unit"] for row in past.runs if row["player"] not in redo}
    missing = [key for key in todo if key not in done]
    if only_done:
        missing = [key for key in missing if runner.is_kept(todo[key], kept, code)]
        if not (done or missing):
            raise ValueError("nothing has been run yet; leave out --only-report")
    results = runner.run([todo[key] for key in missing], work, kept, jobs, engine, code)
    fresh = Records([], [])
    command = {"command": provenance()["command"]}
    for key, result in zip(missing, results, strict=True):
        fresh.runs += [{"unit": key, **row, **command} for row in result["runs"]]
        fresh.curves += [{"unit": key, **row} for row in result["curves"]]
    old = past.of(done)
    order = {key: i for i, key in enumerate(todo)}
    together = Records(old.runs + fresh.runs, old.curves + fresh.curves)
    for rows in (together.runs, together.curves):
        rows.sort(key=lambda row: order[row["unit"]])
    return together


def key_of(unit: runner.Unit) -> str:
    """Return what names a unit: task, agent, settings, length, seed and protocol, not the code."""
    return hashlib.sha256(json.dumps(unit, sort_keys=True).encode()).hexdigest()[:12]


def work(unit: runner.Unit) -> runner.Result:
    """Run a unit, whatever it is."""
    kinds: dict[str, Callable[[runner.Unit], runner.Result]] = {
        "training": train,
        "baseline": _baseline,
        "bound": _bound,
    }
    return kinds[unit["kind"]](unit)


def name_of(setting: Setting) -> str:
    return f"{setting.group}{SEPARATOR}{setting.name}"


def _units(players: Sequence[Player]) -> list[runner.Unit]:
    """Return the baselines, then all trainings: run 0 of every agent, run 1, …"""
    trainings = [
        training(player, lesson, seed)
        for seed in range(max(player.seeds for player in players))
        for player in players
        for lesson in player.lessons
        if seed < player.seeds
    ]
    exams = {json.dumps(exam, sort_keys=True): exam for t in trainings for exam in t["exams"]}
    paused = {t["exams"][0]["task"] for t in trainings}
    baselines = [
        baseline(name, exam, protocol)
        for exam in exams.values()
        for name, protocol in (
            *((name, "full") for name in BASELINES),
            *((name, "short") for name in ("whittle", "random") if exam["task"] in paused),
        )
    ]
    bounds = [
        {"kind": "bound", "exam": exam} for exam in exams.values() if exam["full"]["discount"] == 1
    ]
    return [*baselines, *bounds, *trainings]


def training(player: Player, lesson: Lesson, seed: int) -> runner.Unit:
    """Return run `seed` of a lesson as a unit of work."""
    return {
        "kind": "training",
        "player": player.name,
        "learner": player.learner,
        "settings": asdict(player.kind.Settings(**player.settings)),
        "features": list(player.features),
        "rows": lesson.rows,
        "epochs": lesson.epochs,
        "seed": seed,
        "practice": [_arguments(setting, seed) for setting in lesson.practice],
        "exams": [_exam(setting, seed) for setting in lesson.exams],
    }


def baseline(player: str, exam: dict[str, Any], protocol: str = "full") -> runner.Unit:
    """Return an exam of a policy that trainings are compared with, as a unit of work."""
    return {"kind": "baseline", "player": player, "protocol": protocol, "exam": exam}


def _exam(setting: Setting, seed: int) -> dict[str, Any]:
    """Return a task as it is posed in run `seed`, and its two protocols: for results, and, where
    this takes long, a shorter one for the pauses of a training."""
    full = {
        "epochs": setting.epochs,
        "warmup": setting.warmup,
        "discount": setting.discount,
        "seeds": 1 if setting.still else setting.seeds,
    }
    short = {**full, "epochs": 420 if setting.still else 200, "warmup": 60}
    if setting.discount < 1:
        short = full
    return {
        "task": name_of(setting),
        "arguments": _arguments(setting, seed),
        "fleet": seed if _of_run(setting) else 0,
        "full": full,
        "short": short,
    }


def _arguments(setting: Setting, seed: int) -> dict[str, Any]:
    arguments = dict(setting.arguments)
    if _of_run(setting):
        arguments["sources"] = f"{arguments['sources']}-{seed}"
    return arguments


def _of_run(setting: Setting) -> bool:
    """Whether each run has a fleet of its own."""
    return str(setting.arguments["sources"]).startswith("random-")


def _baseline(unit: runner.Unit) -> runner.Result:
    exam = unit["exam"]
    runs = dict(exam[unit["protocol"]], seed=MEASURED_WITH)
    if unit["player"] == "random" and exam["arguments"]["arrivals"] == "deterministic":
        runs["seeds"] = _RANDOM_RUNS
    result = units.work({"agent": unit["player"], "arguments": exam["arguments"], "runs": runs})
    return _one_row(unit, unit["player"], float(np.mean(result["reward"])), unit["protocol"])


def _bound(unit: runner.Unit) -> runner.Result:
    exam = unit["exam"]
    runs = {"seeds": exam["full"]["seeds"], "seed": MEASURED_WITH}
    result = units.bound({"arguments": exam["arguments"], "runs": runs})
    row = _one_row(unit, BOUND, float(np.mean(result["bound"])), "full")
    row["runs"][0]["information"] = result["name"]
    return row


def _one_row(unit: runner.Unit, player: str, reward: float, protocol: str) -> runner.Result:
    exam = unit["exam"]
    row = {"player": player, "task": exam["task"], "run": exam["fleet"], "reward": reward}
    return {"runs": [{**row, "protocol": protocol, **made_by()}], "curves": []}


def _rows(path: Path) -> list[Row]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _as_csv(rows: Sequence[Row]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
