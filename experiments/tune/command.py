"""`python -m experiments tune`: the search for a learner's hyper-parameters, done anew."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from experiments import runner
from experiments.benchmark.learning.players import Player
from experiments.report import Report
from experiments.results import check_out, whole_folder, write_csv
from experiments.tune import summary
from experiments.tune.search import FILE, Search
from experiments.tune.spaces import SPACES
from experiments.tune.summary import Fresh, with_settings
from experiments.tune.trials import (
    MEASURED_WITH,
    Outcome,
    Settings,
    about,
    examine,
    player_of,
    settings_of,
)

Group = Literal["table1", "deterministic", "recovering", "random", "large", "mixed", "drawn"]

# The benchmark's runs are 0, 1, …: what is chosen here has seen none of their trainings.
_SEARCHED, _FRESH = 100, 200


@dataclass
class Tune:
    """Which hyper-parameters would suit a learning agent better than its defaults, on which tasks?

    Searches the ranges in experiments/tune/spaces.py and compares the best with the defaults on
    seeds that the search has not used. The record is in the folder of the report: the same command
    goes on where it stopped, and with more --trials where it ended.
    """

    agent: str
    """A learner of the benchmark, as in experiments/benchmark/learning/players.py."""
    tasks: tuple[Group, ...] = ("table1",)
    """Groups of the agent's tasks."""
    trials: int = 40
    """How many settings are tried, the defaults among them."""
    seeds: int = 3
    """Trainings of each trial on each task."""
    fresh: int = 10
    """Trainings of the defaults and of the best on each task, in the end."""
    epochs: int | None = None
    """Length of each training; default as in the benchmark."""
    seed: int = 0
    """Seed of the search."""
    jobs: int = -1
    """Processes; -1 for all cores."""
    engine: str = "loky"
    """joblib backend: loky, threading, sequential, or ray / dask where installed."""
    out: Path | None = None
    """Folder of the report and the record; default results/tune/AGENT."""

    def run(self) -> None:
        self._check()
        player = player_of(self.agent, self.tasks, self.epochs)
        if player.learner not in SPACES:
            raise ValueError(
                f"{player.learner!r} has no ranges of hyper-parameters yet; give them in "
                "experiments/tune/spaces.py"
            )
        out = self._folder
        check_out(out)
        out.mkdir(parents=True, exist_ok=True)
        search = Search(
            out / FILE,
            SPACES[player.learner],
            settings_of(player),
            {**about(player), "number of seeds": str(self.seeds)},
            self.seed,
        )
        search.go_on(self.trials, lambda settings, alone: self._examine(player, settings, alone))
        fresh = self._fresh(player, search)
        report = Report(f"Settings of {player.name}: a search")
        summary.write(report, player, SPACES[player.learner], search, self._used(), fresh)
        with whole_folder(out) as folder:
            shutil.copy(out / FILE, folder)
            write_csv(folder / "trials.csv", summary.trial_rows(player, search.trials))
            if fresh is not None:
                write_csv(folder / "fresh.csv", summary.fresh_rows(fresh, self._seeds(_FRESH)))
            report.write(folder / "report.html")
        runner.forget(self._kept)
        print(f"Report: {out / 'report.html'}   every trial: {out / 'trials.csv'}")

    @property
    def _folder(self) -> Path:
        name = self.agent.replace(", ", "-").replace(" ", "-")
        return self.out or Path("results/tune") / name

    @property
    def _kept(self) -> Path:
        return self._folder.with_name(f".{self._folder.name}.kept")

    def _check(self) -> None:
        for name, least, most in (
            ("trials", 1, np.inf),
            ("seeds", 1, _FRESH - _SEARCHED),
            ("fresh", 2, MEASURED_WITH - _FRESH),
            ("epochs", 1, np.inf),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ValueError(f"--{name} is {value}; it must be from {least} to {most}")

    def _seeds(self, first: int) -> list[int]:
        return list(range(first, first + (self.seeds if first == _SEARCHED else self.fresh)))

    def _used(self) -> str:
        mine, other = self._seeds(_SEARCHED), self._seeds(_FRESH)
        return (
            f"Seeds: {mine[0]} to {mine[-1]} in the search, {other[0]} to {other[-1]} afterwards; "
            "the benchmark's are 0 to 19."
        )

    def _examine(
        self, player: Player, settings: Settings, alone: bool, first: int = _SEARCHED
    ) -> Outcome:
        tried = with_settings(player, settings)
        return examine(tried, self._seeds(first), self._kept, self.jobs, self.engine, alone)

    def _fresh(self, player: Player, search: Search) -> Fresh | None:
        default, best = search.default, search.best
        if best.number == default.number:
            return None
        print("Defaults and best on fresh seeds:", flush=True)
        return Fresh(
            self._examine(player, default.settings, True, _FRESH),
            self._examine(player, best.settings, False, _FRESH),
        )
