"""The search for hyper-parameters: its ranges, its trials, and that it goes on where it stopped."""

from __future__ import annotations

import csv
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.learning import LEARNERS
from agents.learning.wiql import WIQL
from agents.statistics import Estimate
from experiments.benchmark.learning import plan
from experiments.benchmark.learning.players import FULL, QUICK, Player, each
from experiments.benchmark.suite import DETERMINISTIC, POISSON_UNSEEN, Setting
from experiments.report import Report
from experiments.runner import Result, Unit
from experiments.tune import summary, trials
from experiments.tune.command import Group, Tune
from experiments.tune.search import FILE, Search, Trial
from experiments.tune.spaces import SPACES, Choice, Range
from experiments.tune.summary import Fresh
from experiments.tune.trials import Outcome, player_of

# -- the spaces --------------------------------------------------------------------


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_has_a_space_with_its_defaults_within(name: str) -> None:
    assert name in SPACES, f"say what is searched for {name!r} in experiments/tune/spaces.py"
    fields = {f.name: f.default for f in dataclasses.fields(LEARNERS[name].Settings)}
    for field, within in SPACES[name].items():
        assert field in fields, f"{name} has no setting {field!r}"
        default = fields[field]
        assert within.holds(default), f"{name}: default {field} = {default} is not in {within}"
        assert within.taken(within.proposed(default)) == default
        assert type(within.taken(within.proposed(default))) is type(default)


@pytest.mark.parametrize("name", LEARNERS)
def test_settings_can_be_built_at_the_corners_of_their_space(name: str) -> None:
    space, build = SPACES[name], LEARNERS[name].Settings
    for end in (0, -1):
        build(**{field: within.ends[end] for field, within in space.items()})
    for field, within in space.items():
        for value in within.ends:
            assert getattr(build(**{field: value}), field) == value


@pytest.mark.parametrize("player", [*QUICK, *FULL], ids=lambda player: player.name)
def test_the_benchmarks_settings_lie_within(player: Player) -> None:
    for field, value in player.settings.items():
        if field in SPACES[player.learner]:
            assert SPACES[player.learner][field].holds(value)


def test_ranges_take_whole_numbers_or_three_digits_and_choices_anything() -> None:
    assert Range(1, 8).taken(3) == 3
    assert not Range(1, 8).holds(2.5)
    assert not Range(0.1, 0.9).holds(0.95)
    assert Range(1e-4, 1.0, log=True).taken(0.00123456) == 0.00123
    tuples = Choice(((1, 2), (1, 3)))
    assert tuples.taken(tuples.proposed((1, 3))) == (1, 3)


def test_the_commands_groups_are_those_that_there_are() -> None:
    assert set(Group.__args__) == set(trials.TASKS)  # type: ignore[attr-defined]


# -- the search --------------------------------------------------------------------

STILL = Setting("Tiny", "M = 1", {"sources": "table1", "budget": 1, **DETERMINISTIC}, epochs=40)
FLEETS = Setting(
    "Tiny", "fleets", {"sources": "random-dense-10", "budget": 1, **POISSON_UNSEEN}, 30, seeds=2
)
BEST = 0.1  # of `fast`, in trainings that are only said to have been


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    player = Player("wiql", each(STILL, FLEETS, rows=1, epochs=100))
    monkeypatch.setattr(trials, "FULL", (player,))
    monkeypatch.setattr(trials, "TASKS", {"table1": (STILL,), "random": (FLEETS,)})


@pytest.fixture
def said(small: None, monkeypatch: pytest.MonkeyPatch) -> list[Unit]:
    """Nothing is trained or drawn; the score depends on `fast` and the seed. Returns what would be
    trained."""
    units: list[Unit] = []

    def work(unit: Unit) -> Result:
        if unit["kind"] == "baseline":
            reward = float(unit["player"] == "whittle")
            row = {name: unit[name] for name in ("player", "task", "fleet", "protocol")}
            return {"runs": [{**row, "reward": reward}]}
        units.append(unit)
        reward = 1 - abs(np.log(unit["settings"]["fast"] / BEST)) + unit["seed"] / 1000
        rows = [
            {"task": exam["task"], "fleet": exam["fleet"], "reward": reward}
            for exam in unit["exams"]
        ]
        return {"runs": [{**row, "cpu_seconds": 2.0} for row in rows]}

    monkeypatch.setattr(plan, "work", work)
    monkeypatch.setattr(Report, "figure", lambda *_: None)
    return units


def tune(out: Path, **changed: Any) -> Tune:
    options = {"trials": 3, "seeds": 2, "fresh": 2, "jobs": 1, "engine": "sequential", "out": out}
    return Tune("wiql", ("table1", "random"), **{**options, **changed})


def rows_of(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))


def test_a_search_with_trainings(small: None, tmp_path: Path) -> None:
    tune(tmp_path / "out", trials=2, seeds=1).run()
    found = rows_of(tmp_path / "out" / "trials.csv")
    assert [row["trial"] for row in found] == ["0", "1"]
    for name, value in dataclasses.asdict(WIQL.Settings()).items():
        assert found[0][name] == str(value)  # the defaults come first
    assert found[0]["fast"] != found[1]["fast"]
    assert all(0 < float(row["value"]) < 1.2 for row in found)
    assert all(float(row["core_seconds"]) > 0 and row["broke_off"] == "0" for row in found)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png") == 2


def test_the_best_is_compared_on_fresh_seeds(
    said: list[Unit], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tune(tmp_path / "out", trials=6).run()
    # The benchmark's runs are 0 … 19.
    assert {unit["seed"] for unit in said} == {100, 101, 200, 201}
    fleets = {str(unit["practice"][0]["sources"]) for unit in said}
    assert fleets == {"table1", *(f"random-dense-10-{seed}" for seed in (100, 101, 200, 201))}
    found = rows_of(tmp_path / "out" / "trials.csv")
    for row in found:
        score = 1 - abs(np.log(float(row["fast"]) / BEST)) + 0.1005
        assert float(row["value"]) == pytest.approx(score)
        assert float(row["core_seconds"]) == 2.0 * 4
    best = max(found, key=lambda row: float(row["value"]))
    assert best["trial"] != "0"
    fresh = rows_of(tmp_path / "out" / "fresh.csv")
    assert len(fresh) == 2 * 2 * 2  # settings, tasks, seeds
    gain = abs(np.log(0.5 / BEST)) - abs(np.log(float(best["fast"]) / BEST))
    printed = capsys.readouterr().out
    assert f"Better on fresh seeds by {gain:.4f}" in printed
    assert f"WIQLSettings(states={best['states']}, " in printed


def test_more_trials_are_added_to_those_that_there_are(said: list[Unit], tmp_path: Path) -> None:
    tune(tmp_path / "out").run()
    first = rows_of(tmp_path / "out" / "trials.csv")
    said.clear()
    tune(tmp_path / "out", trials=4).run()
    assert sum(unit["seed"] < 200 for unit in said) == 4
    assert rows_of(tmp_path / "out" / "trials.csv")[:3] == first


def test_a_search_that_was_stopped_goes_on_as_if_it_had_not_been(
    said: list[Unit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(tmp_path / "whole", trials=13).run()  # random at first, and later not
    work, count = plan.work, itertools.count()

    def stopped(unit: Unit) -> Result:
        if unit["kind"] == "training" and next(count) == 46:  # of four a trial
            raise KeyboardInterrupt
        return work(unit)

    with monkeypatch.context() as patched:
        patched.setattr(plan, "work", stopped)
        with pytest.raises(SystemExit):
            tune(tmp_path / "parts", trials=13).run()
    assert not (tmp_path / "parts" / "report.html").exists()
    said.clear()
    tune(tmp_path / "parts", trials=13).run()
    # What was finished is not run again.
    assert sum(unit["seed"] < 200 for unit in said) == 13 * 4 - 46
    whole, parts = (rows_of(tmp_path / name / "trials.csv") for name in ("whole", "parts"))
    assert whole == parts


def test_a_record_of_another_search_is_refused(said: list[Unit], tmp_path: Path) -> None:
    tune(tmp_path / "out", trials=1).run()
    with pytest.raises(ValueError, match=r"with other epochs; name another --out"):
        tune(tmp_path / "out", trials=1, epochs=50).run()
    with pytest.raises(ValueError, match="with other number of seeds"):
        tune(tmp_path / "out", trials=1, seeds=1).run()
    (tmp_path / "out" / FILE).write_text("{]\n", encoding="utf-8")
    with pytest.raises(ValueError, match="damaged"):
        tune(tmp_path / "out", trials=1).run()


def test_trainings_that_break_off_count_as_chance_and_those_of_the_defaults_stop_it(
    said: list[Unit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, sound = plan.work, [0.5]

    def fragile(unit: Unit) -> Result:
        if unit["kind"] == "training" and unit["settings"]["fast"] not in sound:
            raise FloatingPointError("steps are too large")
        return work(unit)

    monkeypatch.setattr(plan, "work", fragile)
    tune(tmp_path / "out", trials=2).run()
    first, second = rows_of(tmp_path / "out" / "trials.csv")
    assert (first["broke_off"], second["broke_off"], second["value"]) == ("0", "4", "0.0")
    sound.clear()
    with pytest.raises(ValueError, match="breaks off in training: steps are too large"):
        tune(tmp_path / "other", trials=2).run()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "--trials is 0"),
        ({"seeds": 101}, "must be from 1 to 100"),
        ({"fresh": 1}, "--fresh is 1"),
        ({"epochs": -5}, "--epochs is -5"),
        ({"agent": "wiqll"}, "did you mean 'wiql'"),
    ],
)
def test_bad_options_are_refused(
    small: None, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    command = dataclasses.replace(tune(tmp_path / "out"), **options)
    with pytest.raises(ValueError, match=message):
        command.run()
    assert not (tmp_path / "out").exists()


def test_agents_without_ranges_are_refused(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tune(tmp_path / "out")
    monkeypatch.delitem(SPACES, command.agent)
    with pytest.raises(ValueError, match="has no ranges of hyper-parameters yet; give them in"):
        command.run()


def test_agents_without_lessons_are_told_where_to_get_some(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "QUICK", ())
    with pytest.raises(ValueError, match="give it a Player"):
        player_of("lspe", ["table1"], None)
    still = Player("lspe", each(STILL, rows=1, epochs=100))
    monkeypatch.setattr(trials, "QUICK", (still,))
    with pytest.raises(ValueError, match="no lessons in --tasks random"):
        player_of("lspe", ["random"], None)
    assert [lesson.epochs for lesson in player_of("lspe", ["table1"], 7).lessons] == [7]


# -- what is advised ---------------------------------------------------------------


def outcome(scores: Any) -> Outcome:
    return Outcome({"Tiny · one": list(scores)}, 1.0, 0, "", {})


def advised(gain: float) -> str:
    noise = np.random.default_rng(0).normal(0, 0.01, (2, 20))
    default = Trial(0, {"fast": 0.5, "slow": 0.2}, outcome([0.9]))
    best = Trial(1, {"fast": 0.7, "slow": 0.2}, outcome([0.95]))
    fresh = Fresh(outcome(0.9 + noise[0]), outcome(0.9 + gain + noise[1]))
    assert isinstance(fresh.gain, Estimate)
    return summary.advice(trials.FULL[0], default, best, fresh)


def test_only_what_is_better_on_fresh_seeds_is_advised(small: None) -> None:
    line = "agents/learning/wiql.py: WIQLSettings(fast=0.7)"
    assert line in advised(0.05)
    # The search had found .95 for .9; where that was luck, nothing changes.
    assert advised(0.0).startswith("The defaults stay")
    assert advised(-0.05).startswith("The defaults stay")


def test_the_sampler_learns_where_values_are_high(tmp_path: Path) -> None:
    # A training that is sure: the closer `fast` comes to .1, the better. Of 25 proposals drawn at
    # random in (.05, 1), log, the last ten would lie in (.07, .14) three times in ten.
    def examine(settings: Any, alone: bool) -> Outcome:
        return outcome([-abs(np.log(settings["fast"] / 0.1))])

    space = {"fast": Range(0.05, 1.0, log=True)}
    search = Search(tmp_path / FILE, space, {"fast": 0.5}, {}, seed=0)
    search.go_on(26, examine)
    last = [trial.settings["fast"] for trial in search.trials[-10:]]
    assert sum(0.07 < fast < 0.14 for fast in last) >= 6
    assert search.default.settings == {"fast": 0.5}
    assert abs(np.log(search.best.settings["fast"] / 0.1)) < 0.1
