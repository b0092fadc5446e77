"""The learners' benchmark: what is measured, what is taken up again, and what the tables say."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from agents.learning.fleet.ppo import EquivariantPPO
from agents.learning.tabular.wiql import WIQL
from agents.theory.index import whittle_index
from crawl_env import CrawlEnv, CrawlVectorEnv
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.evaluation import arguments_of
from ephemeral_crawl.core.results import ROOT, write_csv
from ephemeral_crawl.core.runner import Runner
from experiments.benchmark.learning import (
    figures,
    leaderboard,
    plan,
    runs,
    section,
    tasks,
    training,
)
from experiments.benchmark.learning.entrants import (
    AGES,
    FULL,
    KINDS,
    KNOWN,
    QUICK,
    Entrant,
    Training,
    each,
)
from experiments.benchmark.learning.plan import key_of
from experiments.benchmark.learning.runs import Records, complete
from experiments.benchmark.learning.scores import Point, Run, Table, table_of
from experiments.benchmark.suite import BenchmarkTask


def short(setting: BenchmarkTask) -> BenchmarkTask:
    return dataclasses.replace(setting, steps=40, warmup=10, seeds=2)


M2 = short(tasks.DETERMINISTIC[1])
SMALL = (
    Entrant("wiql", each(M2, num_envs=1, steps=200), seeds=2),
    Entrant("whittle-q", each(M2, short(tasks.RANDOM[0]), num_envs=1, steps=200), seeds=2),
)


def run(folder: Any, these: Any = SMALL, found: Records | None = None, **k: Any) -> Records:
    nothing = Records([], [])
    return complete(
        these, found or nothing, Runner(folder / "kept", engine="sequential", jobs=1), **k
    )


def write(records: Records, folder: Any) -> None:
    write_csv(folder / runs.RUNS, records.runs)
    write_csv(folder / runs.CURVES, records.curves)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return run(tmp_path_factory.mktemp("small"))


def as_text(row: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in row.items() if value not in ("", None)}


# -- what is run, and what is not run again ----------------------------------------


def test_the_suites_name_learners_tasks_and_settings_that_exist() -> None:
    for player in (*QUICK, *FULL):
        assert player.learner in KINDS
        player.kind.Settings(**player.settings)
        assert player.trainings
    assert len({player.name for player in FULL}) == len(FULL)


def test_every_learner_is_in_the_full_suite() -> None:
    assert {player.learner for player in FULL} == set(KINDS)


def test_units_differ_and_their_names_do_not_depend_on_code() -> None:
    units = plan.plan(SMALL)
    assert len({key_of(unit) for unit in units}) == len(units)
    faster = (dataclasses.replace(SMALL[0], settings={"learning_rate": 0.4}),)
    trainings = [unit for unit in plan.plan(faster) if unit["kind"] == "training"]
    assert not {key_of(unit) for unit in trainings} & {key_of(unit) for unit in units}


def test_records_survive_files_and_are_not_run_again(
    records: Records, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(records, tmp_path)
    read = Records.read(tmp_path)
    for mine, its in ((records.runs, read.runs), (records.curves, read.curves)):
        assert [as_text(row) for row in mine] == [as_text(row) for row in its]

    def fail(unit: Any) -> Any:
        raise AssertionError(f"{unit} is run again")

    monkeypatch.setattr(runs, "work", fail)
    again = run(tmp_path, found=read)
    assert [row["job"] for row in again.runs] == [row["job"] for row in records.runs]
    first, second = table_of(records), table_of(again)
    assert [r.score for r in first.runs["whittle-q"][plan.name_of(M2)]] == [
        r.score for r in second.runs["whittle-q"][plan.name_of(M2)]
    ]


def test_only_what_is_missing_or_to_be_redone_is_run(
    records: Records, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    work = runs.work

    def noted(unit: Any) -> Any:
        ran.append(unit.get("entrant", unit["kind"]))
        return work(unit)

    monkeypatch.setattr(runs, "work", noted)
    more = (*SMALL, Entrant("lspe", SMALL[0].trainings, seeds=1))
    grown = run(tmp_path / "a", more, records)
    assert ran == ["lspe"]
    ran.clear()
    redone = run(tmp_path / "b", more, grown, redo=["wiql"])
    assert ran == ["wiql", "wiql"]
    assert len(redone.runs) == len(grown.runs)
    ran.clear()
    run(tmp_path / "b", more, grown, redo=["random"])
    assert set(ran) == {"random"}
    ran.clear()
    # What an interrupted run has kept is taken up by the same code, not by another.
    monkeypatch.setattr(plan, "code_of", lambda kind: "another day")
    run(tmp_path / "b", more, grown, redo=["wiql"])
    assert ran == ["wiql", "wiql"]
    with pytest.raises(ValueError, match="did you mean 'wiql'"):
        run(tmp_path / "c", redo=["wiqll"])
    with pytest.raises(ValueError, match="threads"):
        runs.complete(SMALL, grown, Runner(tmp_path / "d", engine="threading"))


def test_a_report_of_what_is_done_runs_nothing(records: Records, tmp_path: Any) -> None:
    some = Records([row for row in records.runs if row["entrant"] != "wiql"], records.curves)
    shown = run(tmp_path, found=some, only_done=True)
    assert {row["entrant"] for row in shown.runs} == {row["entrant"] for row in some.runs}
    with pytest.raises(ValueError, match="there are no records yet"):
        run(tmp_path, only_done=True)


def test_a_learners_code_is_all_that_it_imports_of_the_learners() -> None:
    from agents.learning.fleet import networks as fleet_networks
    from agents.learning.neural import networks

    before = training.code_of(EquivariantPPO)
    assert before == training.code_of(EquivariantPPO)
    assert before != training.code_of(WIQL)
    found = training.modules_of(EquivariantPPO)
    assert fleet_networks.__name__ in found
    assert networks.__name__ not in found  # of others
    assert "agents.learning.storage" in found


# -- what is measured ----------------------------------------


def test_pauses_do_not_change_what_is_learnt() -> None:
    (unit,) = [u for u in plan.plan(SMALL[:1]) if u["kind"] == "training" and u["seed"] == 0]
    paused = training.train(unit)
    through = training.train({**unit, "evaluate_at": [unit["steps"]]})
    assert paused["runs"][0]["reward"] == through["runs"][0]["reward"]
    assert len(paused["curves"]) > 1
    assert paused["curves"][-1]["reward"] == through["curves"][-1]["reward"]


def test_measured_is_the_frozen_policy_not_the_exploring_run(records: Records) -> None:
    """An agent whose every choice in training is chance still learns what is worth crawling."""
    chance = (Entrant("whittle-q", each(M2, num_envs=1, steps=3000), settings={"epsilon": 1.0}),)
    unit = next(u for u in plan.plan(chance) if u["kind"] == "training")
    level = {r["entrant"]: r["reward"] for r in records.runs if r["task"] == plan.name_of(M2)}
    reward = training.train(unit)["runs"][0]["reward"]
    assert reward > level["random"] + 0.8 * (level["whittle"] - level["random"])


def test_no_training_meets_the_arrivals_of_the_measurements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[Any] = []
    for kind in (CrawlVectorEnv, CrawlEnv):
        reset = kind.reset

        def noted(self: Any, *, seed: Any = None, reset: Any = reset, **k: Any) -> Any:
            begun.append(seed)
            return reset(self, seed=seed, **k)

        monkeypatch.setattr(kind, "reset", noted)
    for entrant in FULL:
        begun.clear()
        num_envs = min(8, entrant.trainings[0].num_envs)
        small = dataclasses.replace(entrant.trainings[0], num_envs=num_envs)
        unit = plan.training_job(entrant, small, 19)
        training._learner(unit, training._envs(unit))
        met = {seed for seed in begun if seed is not None}
        assert met or entrant.learner == "neurwin"  # whose simulator draws from its own generator
        assert plan.EVALUATION_SEED not in met


def test_fleets_of_runs_are_those_of_their_baselines() -> None:
    trained = [unit for unit in plan.plan(SMALL) if unit["kind"] == "training"]
    for unit in trained:
        (test,) = unit["tests"]
        assert {**test["arguments"], "horizon": None} == unit["environments"][0]
    fleets = {
        unit["seed"]: arguments_of(unit["tests"][0])["sources"]
        for unit in trained
        if "Random" in unit["tests"][0]["task"]
    }
    assert set(fleets) == {0, 1}
    assert not np.array_equal(fleets[0].arrival_rate, fleets[1].arrival_rate)


class Knows:
    """Stands for a learner whose index is `factor` times the true one."""

    estimates_index = True
    state_features = ("age",)

    def __init__(self, factor: float, discount: float = 1.0) -> None:
        from crawl_env import Sources

        self.sources, self.factor = Sources.preset("table1"), factor
        self.discount = discount
        self.settings = type("Settings", (), {"gamma": discount})()

    def score(self, state: Any) -> Any:
        age = state[..., 0].astype(float)
        value = self.sources.ceiling * (1 - self.sources.retention**age)
        return self.factor * whittle_index(value, self.sources, self.discount)

    def predict(self, observation: Any) -> Any:
        score = self.score(observation[..., [0]])
        return (score / (1 + score)).astype(np.float32), None


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_the_index_error_is_relative_and_knows_the_discount(discount: float) -> None:
    arguments = {"sources": "table1", "budget": 2, "features": AGES}
    found = [training.index_error(Knows(f, discount), arguments) for f in (1.0, 1.5)]  # type: ignore[arg-type]
    assert found == pytest.approx([0.0, 0.5], abs=1e-6)
    other = Knows(1.0, 0.5)
    other.settings = Knows(1.0, discount).settings  # says one discount, and has another's index
    assert training.index_error(other, arguments) > 0.02  # type: ignore[arg-type, operator]


def test_learners_without_an_index_have_no_error(records: Records) -> None:
    by_player = {row["entrant"]: row.get("index_error") for row in records.runs}
    assert by_player["wiql"] is None
    assert by_player["whittle-q"] >= 0


def test_epochs_are_counted_in_all_rows_and_of_all_sources() -> None:
    both = Training((M2, M2), (M2,), 4, 32)
    pair = Entrant("equivariant-ppo", (both,), KNOWN, seeds=1)
    unit = next(u for u in plan.plan((pair,)) if u["kind"] == "training")
    row = training.train(unit)["runs"][0]
    assert (row["env_steps"], row["source_steps"]) == (2 * 4 * 32, 2 * 4 * 32 * 4)


# -- what the tables say ----------------------------------------


def a_run(*curve: float, score: float = 1.0) -> Run:
    points = tuple(Point(10 * i, 40 * i, i / 2, s) for i, s in enumerate(curve, 1))
    return Run(score, 0.9, "deterministic", 100, 400, 5.0, np.nan, points)


def test_a_level_is_reached_when_it_is_kept() -> None:
    jumpy = a_run(0.96, 0.5, 0.97, 0.99, 0.98)
    assert jumpy.reached(0.95) == (30, 120, 1.5, 0.97)
    assert jumpy.reached(0.99) is None
    assert a_run(0.1, 0.2).reached(0.9) is None


def test_the_whittle_policy_scores_1_and_chance_0(records: Records) -> None:
    table = table_of(records)
    for task in table.tasks:
        assert [run.score for run in table.baselines["whittle"][task]] == pytest.approx(
            [1.0] * len(table.baselines["whittle"][task])
        )
        assert [run.score for run in table.baselines["random"][task]] == pytest.approx(
            [0.0] * len(table.baselines["random"][task])
        )


def test_nobody_is_above_the_bound(records: Records) -> None:
    table = table_of(records)
    assert leaderboard.above_bound(table) == []
    bounds = {run.bound for by_task in table.runs.values() for rs in by_task.values() for run in rs}
    assert bounds == {"deterministic", "not observed"}


def test_half_of_the_runs_must_get_there() -> None:
    arrived, lost, untimed = a_run(0.2, 0.95), a_run(0.2, 0.3), a_run()
    for these, shown in (
        ([arrived, arrived, lost], "80, 1"),
        ([arrived, lost], "80, 1"),
        ([arrived, lost, lost], "–"),
        ([arrived, untimed, untimed], "80, 1"),  # not measured in pauses
        ([untimed], ""),
    ):
        assert leaderboard.Line(Table({"a": {"t": these}}), "a", ["t"]).to(0.9) == shown


def test_agents_that_see_ages_alone_are_held_against_the_bound_of_not_seeing() -> None:
    unseen, seen = short(tasks.UNOBSERVED[1]), short(tasks.OBSERVED[1])
    blindly = Training((unseen,), (unseen, seen), 1, 100)
    blind, sighted = (
        Entrant("wiql", (blindly,), seeds=1),
        Entrant("equivariant-ppo", (Training((seen,), (seen,), 4, 32),), KNOWN, seeds=1),
    )
    rows = Records([], [])
    for unit in plan.plan((blind, sighted)):
        result = plan.work(unit)
        rows.runs += [{"job": key_of(unit), **row} for row in result["runs"]]
        rows.curves += [{"job": key_of(unit), **row} for row in result["curves"]]
    table = table_of(rows)
    (run,) = table.runs["wiql"][plan.name_of(seen)]
    assert (run.bound, run.curve) == (
        "not observed",
        (),
    )  # examined in two tasks, paused in the first
    assert table.runs["wiql"][plan.name_of(unseen)][0].curve
    assert table.runs["equivariant-ppo"][plan.name_of(seen)][0].bound == "observed"
    assert [leaderboard.observations(table, a) for a in table.runs] == [
        "ages",
        "ages, values, parameters",
    ]
    alone, both = (
        leaderboard.Line(table, "wiql", [plan.name_of(task) for task in these]).to(0.1)
        for these in ((unseen,), (unseen, seen))
    )
    assert alone == both


def test_baselines_of_other_fleets_are_not_taken(records: Records) -> None:
    lost = [
        row
        for row in records.runs
        if not (row["entrant"] == "random" and "Random" in row["task"] and row["fleet"] == 1)
    ]
    with pytest.raises(ValueError, match="random has not been evaluated"):
        table_of(Records(lost, records.curves))


def test_the_random_policy_meets_the_same_fleets_as_all() -> None:
    units = plan.plan(
        (Entrant("equivariant-ppo", (Training(tasks.TRAINING_FLEETS, tasks.DRAWN_ANEW, 2, 32),)),)
    )
    for unit in units:
        if unit["kind"] == "baseline":
            setting = next(s for s in tasks.DRAWN_ANEW if plan.name_of(s) == unit["task"])
            assert unit["runs"]["seeds"] == setting.seeds


def test_a_record_of_other_agents_is_kept(records: Records, tmp_path: Any) -> None:
    from experiments.benchmark.command import Benchmark

    out = tmp_path / "full"
    out.mkdir()
    stranger = {"job": "0123456789ab", "entrant": "of another day", "task": "t", "reward": 1.0}
    write(Records([*records.runs, stranger], records.curves), out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.benchmark.learning.entrants.SUITES", {"full": SMALL})
        patch.setattr(leaderboard, "ALL", SMALL)
        Benchmark(suite="full", out=out, only_report=True, engine="sequential").run()
        with pytest.raises(ValueError, match="record of suite full"):
            Benchmark(suite="quick", out=out).run()
        with pytest.raises(ValueError, match="there are no records yet"):
            Benchmark(suite="quick", out=tmp_path / "new", only_report=True).run()
        with pytest.raises(ValueError, match="did you mean 'wiql'"):
            Benchmark(suite="full", out=out, agents=("wiqll",)).run()
        Benchmark(
            suite="full", out=out, agents=("wiql",), redo=("wiql",), engine="sequential"
        ).run()
    again = Records.read(out)
    assert {row["entrant"] for row in again.runs} == {row["entrant"] for row in records.runs} | {
        "of another day"
    }
    kept = Records.read(out)
    assert len(kept.runs) == len(records.runs) + 1
    assert "of another day" not in (out / "learners.md").read_text(encoding="utf-8")
    assert (out / "report.html").stat().st_size > 10_000


def test_the_summary_has_a_line_for_every_agent_and_says_who_shares(records: Records) -> None:
    lines = leaderboard.summary(table_of(records), "from here").splitlines()
    assert lines[4:] == ["", leaderboard.CELLS, "", "from here"]
    assert lines[0].count("|") == lines[2].count("|")
    assert lines[2].startswith("| whittle-q |")  # which learnt more tasks
    assert lines[3].split("|")[3].strip() == ""  # wiql did not learn the random fleet
    assert leaderboard.shares_parameters("equivariant-ppo")
    assert not leaderboard.shares_parameters("lspe")


COMMITTED = ROOT / "results" / "benchmark-full"


@pytest.fixture(scope="module")
def record() -> Records:
    return Records.read(COMMITTED)


@pytest.fixture(scope="module")
def committed(record: Records) -> Table:
    return table_of(record)


def test_what_the_iqm_trims_away_is_shown_beside_it(committed: Table) -> None:
    table = committed
    failed = {
        line.agent: leaderboard.OVERVIEW["failed runs"](line)
        for line in leaderboard.lines(table, table.tasks)
    }
    assert failed["sac, default network"] == "30 %"
    assert failed["qwinn"] == "10 %"
    assert failed["adaptive-thompson"] == "0 %"
    answer = leaderboard.answer(table)
    for agent, shown in failed.items():
        scores = [run.score for runs in table.runs[agent].values() for run in runs]
        assert (shown != "0 %") == (min(scores) < 0.8)
        assert (f"{agent} {shown}" in answer) == (shown != "0 %")


def test_figures_have_no_blank_panels_and_compare_several_agents(committed: Table) -> None:
    table = committed
    for group, members in leaderboard.groups(table):
        curved = figures.evaluated(table, members)
        drawn = figures.curves(table, curved, figures.STEPS)
        panels = [axes for axes in drawn.axes if axes.get_title()]
        assert len(panels) == len(curved)
        assert all(axes.lines for axes in panels), group
        plots.close(drawn)
        compared = figures.compared(table, members)
        assert len(figures.full(table, compared)) > 1, group
        chances = figures.improvements(table, compared)
        assert len(chances.axes[0].texts) >= 2
        plots.close(chances)


def test_the_committed_record_holds_every_result_of_the_full_suite(
    record: Records, committed: Table
) -> None:
    assert {row["job"] for row in record.runs} == {key_of(unit) for unit in plan.plan(FULL)}
    shown = leaderboard.summary(committed, section.source(record))
    assert shown == (COMMITTED / "learners.md").read_text(encoding="utf-8")
    assert sum(not row.get("protocol") for row in record.runs) == 2480
