"""The index policies' part of the benchmark: its tasks and its aggregation."""

import numpy as np
import pytest

import crawl_env
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.evaluation import bound_of
from ephemeral_crawl.core.report import Report
from experiments.benchmark import command, entrants, policies
from experiments.benchmark.suite import SUITE, TABLE1, Setting


def short(setting):
    return Setting(
        **{**vars(setting), "steps": 12, "warmup": 0, "seeds": 2, "arguments": setting.arguments}
    )


def test_it_covers_what_the_readme_promises():
    names = [f"{s.group}: {s.name}" for s in SUITE]
    assert len(set(names)) == len(names)
    for m in (1, 2, 3):
        for arrivals in ("deterministic", "Poisson, observed", "Poisson, not observed"):
            assert f"Table 1 of the paper: M = {m}, {arrivals}" in names
    assert sum("NeurWIN" in name for name in names) == 3
    assert sum("DeepTOP" in name for name in names) == 3
    assert sum("dense" in name for name in names) == sum("sparse" in name for name in names) == 3


def test_the_whole_suite_runs_and_writes_report_records_and_summary(tmp_path, monkeypatch):
    monkeypatch.setattr(policies, "SUITE", [short(setting) for setting in SUITE])
    some = ("static", "myopic", "oldest-first", "nutch")
    few = {name: policies.AGENTS[name] for name in ("whittle", "random", *some)}
    monkeypatch.setattr(policies, "SUMMARISED", some)
    monkeypatch.setattr(policies, "published_results", lambda folder: [])
    monkeypatch.setattr(policies, "AGENTS", few)
    trainings = entrants.each(short(TABLE1[1]))
    quick = entrants.Suite((entrants.Entrant("wiql"),), trainings, (4_000,), 2, 1)
    monkeypatch.setattr(entrants, "SUITES", {"quick": quick})
    out = tmp_path / "benchmark"
    command.Benchmark(out=out, jobs=1, run_on="sequential").run()
    summary = (out / "summary.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in summary if line.startswith("| ")]
    assert len(rows) == len(SUITE) + 2 * len({s.group for s in SUITE})  # two make the head
    assert (out / "report.html").stat().st_size > 10_000
    runs = sum(
        2 * len(evaluation.entrants(policies.AGENTS, setting.arguments)) for setting in SUITE
    )
    assert (out / "records.csv").read_text(encoding="utf-8").count("\n") == 1 + runs
    assert len(rows[0].split("|")) - 2 <= 10
    page = (out / "report.html").read_text(encoding="utf-8")
    hidden = sum(setting.name.count("not observed") for setting in SUITE)
    assert page.count("clairvoyant (observes all content; reference)") == hidden


def test_the_core_shows_published_scores_of_agents_that_learn(capsys):
    rows = [
        {"task": task_id, "reward": reward}
        for task_id, task in crawl_env.tasks("core").items()
        for reward in task.references[task.best].rewards
    ]
    whole = {"agent": "in-context", "runs": rows, "scores": crawl_env.tasks("core")}
    part = {"agent": "adaptive-self-tuning", "runs": rows[:20], "scores": {}}
    policies.core(Report("Core"), [whole, part])
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    (row,) = [line for line in shown if line[:1] == ["Looks100"]]
    assert row[6:8] == ["1.000", "n/a"]
    assert row[-2:] == ["whittle-looks", "–"]


def test_one_seed_stands_for_all_only_where_nothing_is_random():
    for setting in SUITE:
        arguments = {**setting.arguments, "start": "fresh"}
        one = evaluation.seeds_needed(arguments, "whittle", 20) == 1
        drawn = str(arguments["sources"]).startswith("drawn")
        assert one == (arguments["arrivals"] == "deterministic" and not drawn)
        assert evaluation.seeds_needed(arguments, "random", 20) == 20


def test_a_large_fleet_is_not_made_to_text_to_see_whether_it_is_drawn():
    class Fleet(dict):
        def __repr__(self):
            pytest.fail("it was")

    given = {"arrivals": "deterministic", "sources": Fleet()}
    assert evaluation.seeds_needed(given, "whittle", 20) == 1


def test_the_bound_of_a_hard_budget_leaves_out_what_it_cannot_pay():
    from agents import relaxed_bound
    from crawl_env import Sources

    fleet = Sources([1, 100], 1.0, 0.1, cost=[1, 3])
    task = {"sources": fleet, "budget": 2.0}
    with pytest.warns(UserWarning, match="can never be crawled"):
        hard = bound_of(task, 1, 0).bound
    assert hard == pytest.approx(relaxed_bound(fleet.select([0]), 2.0))
    assert bound_of({**task, "budget_rule": "average"}, 1, 0).bound > 5 * hard


def test_bounds_of_drawn_fleets_are_those_of_the_fleets_that_are_run():
    from agents.evaluation.rollout import evaluate

    arguments = {
        "sources": "drawn-dense-6",
        "budget": 2,
        "features": ("value", "arrival_rate", "mean_utility", "decay_rate", "cost"),
    }
    bound = bound_of(arguments, 5, 3).bound
    run = evaluate("whittle", arguments, steps=400, warmup=100, seeds=5, seed=3)
    assert bound.shape == (5,)
    assert np.all(run.reward <= bound * 1.02)
    assert np.all(run.reward >= bound * 0.9)
    assert np.std(bound) > 0.05 * np.mean(bound)
