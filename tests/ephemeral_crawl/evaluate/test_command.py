"""The evaluate command, as a crawl engineer uses it."""

import re
import signal
import subprocess
import time
from functools import cache

import numpy as np
import pytest

from agents import AGENTS as ALL
from agents import relaxed_bound, task_bound
from agents.evaluation.rollout import Evaluation
from agents.registry import ON_REQUEST
from agents.theory.engine import backlog
from crawl_env import Engine, Sources, Task
from ephemeral_crawl.evaluate.command import Evaluate
from tests.ephemeral_crawl.commands import FEW, FLEET, evaluated, rows, run, totals
from tests.processes import command

AGENTS = [name for name in ALL if name not in ON_REQUEST]  # those compared by default


def test_it_writes_records_sources_and_a_report(tmp_path, capsys):
    out = evaluated(tmp_path)
    records = rows(out / "records.csv")
    peers = len(AGENTS) - 1  # content is not seen, where whittle-exact is whittle
    assert len(records) == (peers + 2) * 3
    played = {*AGENTS, "clairvoyant", "schedule"} - {"whittle-exact"}
    assert {r["agent"] for r in records} == played
    assert {"numpy", "commit", "machine", "command", "seed", "date"} <= set(records[0])
    assert all(float(r["cost"]) <= 4 * (1 + 1e-9) for r in records)
    assert len(rows(out / "sources.csv")) == 20
    printed = capsys.readouterr().out
    assert "of published" in printed
    assert "Recommended policy: " in printed or "No significant difference" in printed
    assert not list(tmp_path.glob(".*")), "nothing unfinished is left behind"


def test_where_rates_vary_no_bound_is_told(tmp_path, capsys):
    hawkes = {"arrivals": "poisson-hawkes", "steps": 20, "agents": FEW}
    evaluated(tmp_path, sources="table1", budget="2", **hawkes)
    printed = capsys.readouterr().out
    assert "of bound (unknown)" in printed
    assert "No upper bound is known" in printed


def test_numbers_are_those_of_the_public_evaluation(tmp_path):
    out = evaluated(tmp_path, sources="table1", budget="2", arrivals="deterministic", steps=28)
    reward = {r["agent"]: float(r["reward"]) for r in rows(out / "records.csv")}
    assert reward["whittle"] == pytest.approx(337.774550, rel=1e-8)
    assert reward["fixed"] == pytest.approx(179.790963 + 147.655955, rel=1e-8)
    assert reward["whittle"] <= relaxed_bound(Sources.preset("table1"), 2)


def test_no_clear_winner_where_policies_do_the_same(tmp_path, capsys):
    # Among those that know the rates: others have content left behind to collect for a while.
    names = tuple(name for name in AGENTS if not name.startswith("adaptive-"))
    table1 = {"sources": "table1", "budget": "1", "arrivals": "deterministic", "steps": 28}
    evaluated(tmp_path, agents=names, **table1)
    # With M = 1 the myopic policy alternates between sources 1 and 2 just like Whittle's.
    printed = capsys.readouterr().out
    assert "No significant difference between whittle, lagrangian, myopic" in printed
    assert "clairvoyant (observes" not in printed, "nothing is hidden where nothing is random"


def test_the_clairvoyant_is_last_and_never_recommended(tmp_path, capsys):
    out = evaluated(tmp_path, budget="4, 3", agents=FEW)
    printed = capsys.readouterr().out
    assert (out / "report.html").read_text(encoding="utf-8").count("<svg ") == 1
    assert {r["budget"] for r in rows(out / "records.csv")} == {"3.0", "4.0"}
    tables = printed.split("Policies under budget")[1:]
    assert len(tables) == 2
    for table in tables:
        lines = table.split("\n\n")[0].splitlines()
        assert lines[-1].startswith("clairvoyant (observes all content; reference)")
        assert sum("clairvoyant" in line for line in lines) == 1
    assert "Recommended policy: clairvoyant" not in printed
    assert "clairvoyant never" not in printed
    curve = printed.split("Fraction of all published utility, and the Lagrange")[1]
    last = [line.split()[0] for line in curve.split("\n\n")[0].splitlines()[-3:]]
    assert last == ["clairvoyant", "upper", "λ*"]


def test_silent_sources_give_no_advice_and_no_nan_winner(tmp_path, capsys):
    path = tmp_path / "silent.csv"
    Sources(np.zeros(3), 1.0, 0.1).to_csv(path)
    evaluated(tmp_path, sources=str(path), budget="1")
    assert "the sources publish nothing" in capsys.readouterr().out


def model(**options):
    return Evaluate(**{"sources": str(FLEET), "budget": "10", **options})._events()


of_example = cache(model)  # which reads a file


@pytest.mark.parametrize("arrivals", ["poisson", "poisson-lognormal", "poisson-items"])
def test_arrivals_are_single_items_where_that_matters(arrivals, tmp_path):
    busy = Sources(np.full(3, 2e3), 1.0, 0.1)
    busy.to_csv(tmp_path / "busy.csv")
    busy.replaced(capacity=5.0).to_csv(tmp_path / "capped.csv")
    items = arrivals.removesuffix("-items") + "-items"
    few, many, capped, queued = (
        model(sources=str(sources), arrivals=arrivals, **more).arrivals
        for sources, more in (
            *((FLEET, {}), (tmp_path / "busy.csv", {}), (tmp_path / "capped.csv", {})),
            (tmp_path / "busy.csv", {"engine_rate": 1.0}),
        )
    )
    assert (few, many, capped, queued) == (items, arrivals, items, items)
    assert model(arrivals="deterministic").arrivals == "deterministic"


def told_apart(rewards):
    """The number of policies that are called worse than the best of some, given their rewards."""
    order = sorted(rewards, key=lambda name: -rewards[name].mean())
    peers = {name: Evaluation(*[rewards[name]] * 4, np.zeros(1)) for name in order}
    return len(rewards) - 1 - len(of_example().rivals(peers))


def test_equal_policies_are_rarely_told_apart():
    """Of 2,000 comparisons of equal policies 5 % may miss (standard error .5 %): as many runs as
    are required at least, and as many as are usual; rewards of a symmetric and of a skew law."""
    rng = np.random.default_rng(0)
    for runs in (3, 20):
        for draw in (lambda n: rng.normal(1, 0.1, n), lambda n: rng.lognormal(0, 1, n)):
            apart = 0
            for _ in range(2000):
                shared = draw(runs)  # by the arrivals, which are the same for both
                apart += told_apart({name: shared + draw(runs) for name in "ab"})
            assert apart <= 2000 * 0.05 + 4 * np.sqrt(2000 * 0.05 * 0.95)


def test_the_best_of_many_equal_policies_is_rarely_recommended():
    rng, chosen = np.random.default_rng(1), 0
    names = ("whittle", *(f"policy {i}" for i in range(13)))
    for _ in range(300):
        rewards = {name: rng.normal(1, 0.1, 5) for name in names}
        order = sorted(names, key=lambda name: -rewards[name].mean())
        peers = {name: Evaluation(*[rewards[name]] * 4, np.zeros(1)) for name in order}
        chosen += of_example().recommended(peers) != "whittle"
    assert chosen <= 300 * 0.05 + 4 * np.sqrt(300 * 0.05 * 0.95)


def test_seeds_in_parts_are_the_same_for_every_policy_and_are_joined(tmp_path, monkeypatch):
    monkeypatch.setattr("ephemeral_crawl.evaluate.model.PART", 2 * 20 * 70)
    out = evaluated(tmp_path, seeds=5, agents=FEW)
    records = rows(out / "records.csv")
    assert len(records) == (len(FEW) + 2) * 5  # the clairvoyant and the schedule, too
    assert len({r["reward"] for r in records if r["agent"] == "static"}) == 5
    monkeypatch.setattr("ephemeral_crawl.evaluate.model.PART", 2e8)
    whole = rows(evaluated(tmp_path / "whole", seeds=5, agents=("static",)) / "records.csv")
    mean = [
        np.mean([float(r["reward"]) for r in x if r["agent"] == "static"]) for x in (records, whole)
    ]
    assert mean[0] == pytest.approx(mean[1], rel=0.1)


def test_absolute_paths_do_not_enter_the_records(tmp_path):
    few = "--steps 9 --seeds 3 --run-on sequential --agents static"
    run(f"evaluate --sources {FLEET} --budget 4 {few} --out", str(tmp_path / "o"))
    text = (tmp_path / "o" / "records.csv").read_text(encoding="utf-8")
    assert str(tmp_path) not in text
    assert str(FLEET.parent) not in text


def test_the_value_of_more_budget_falls_with_budget_also_where_it_pays_for_few(tmp_path):
    prices = model().prices((1, 2, 3, 4, 8))["λ*"]
    assert prices == sorted(prices, reverse=True)
    assert model().bound(1) < 40, "sources that cost 2 and more are out of reach"


def test_a_killed_run_goes_on_where_it_stopped(tmp_path):
    out = tmp_path / "out"
    many = ",".join(map(str, range(1, 10)))  # parts, so that the run is stopped long before its end
    words = ["evaluate", "--sources", str(FLEET), "--budget", many, "--engine", "sequential"]
    words += ["--steps", "400", "--warmup", "0", "--seeds", "40", "--out", str(out)]
    kept = tmp_path / ".out.kept"
    first = command(*words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    while first.poll() is None and len(list(kept.glob("*.json"))) < 3:
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    printed, _ = first.communicate()
    assert first.returncode == 130, printed
    found = re.search(r"Stopped. (\d+) of (\d+) parts are finished", printed)
    done, parts = map(int, found.groups())
    assert 3 <= done < parts
    before = {path.name: path.stat().st_mtime_ns for path in kept.glob("*.json")}
    assert len(before) == done
    second = command(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while second.poll() is None and len(list(kept.glob("*.json"))) <= done:
        time.sleep(0.02)
    second.kill()  # without a chance to say or to keep anything
    second.wait()
    after = {path.name: path.stat().st_mtime_ns for path in kept.glob("*.json")}
    assert before.items() < after.items(), "nothing that was finished is run again"


def test_a_quick_answer_on_a_large_fleet_is_a_sample(tmp_path, capsys):
    path = tmp_path / "large.csv"
    Sources.random(2000, seed=0, regime="sparse").to_csv(path)
    few = {"agents": ("nutch",), "steps": 30, "present": "nutch", "max_interval": 900.0}
    out = evaluated(tmp_path, sources=str(path), budget="40", quick=True, seeds=5, **few)
    printed = capsys.readouterr().out
    assert "A sample: 300 of 2,000 sources" in printed
    assert "(40 to 6)" in printed
    assert "A maximum interval of 900 costs" in printed
    assert "have no maximum interval; without one, λ* of the schedule is " in printed
    assert "Your present rule (nutch)" in printed
    schedule = rows(out / "schedule.csv")
    assert len(schedule) == 2000, "of all sources"
    assert sum(1 / float(row["interval"]) for row in schedule) == pytest.approx(40, rel=1e-3)
    assert len(rows(out / "sources.csv")) == 300


def test_an_indexing_engine_and_what_it_costs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(backlog, "_ROUNDS", 1)  # how good the index is does not matter
    few = {"agents": ("whittle",)}
    free = evaluated(tmp_path, arrivals="poisson-items", **few)
    without = totals(free)["whittle"] / 3
    capsys.readouterr()
    out = evaluated(tmp_path, engine_rate=1.0, engine_capacity=2, engine_service="poisson", **few)
    printed = capsys.readouterr().out
    mean = {name: total / 3 for name, total in totals(out).items()}  # of three runs
    assert mean.keys() == {"whittle", "whittle-engine", "random", "clairvoyant", "schedule"}
    part = re.search(r"^whittle +([\d.]+) +([\d.]+)% \[", printed.split("lost of")[1], re.M)
    assert float(part[1]) == pytest.approx(mean["whittle"], rel=1e-3)
    assert float(part[2]) == pytest.approx(100 * (1 - mean["whittle"] / without), abs=0.01)
    reference = re.search(r"^whittle without an engine +([\d.]+)", printed, re.M)
    assert float(reference[1]) == pytest.approx(without, rel=1e-3)
    bound = task_bound(
        Task(str(FLEET), 4, engine=Engine(1.0), arrivals="poisson-items", observed=False)
    )
    assert f"κ* = {bound.price:.4g}." in printed
    assert "more at twice the rate and" in printed
    assert "more refusing items worth less than κ*" in printed
