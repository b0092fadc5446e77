"""What signals are worth, as `evaluate` and `replay` say it."""

from pathlib import Path

import numpy as np
import pytest

from agents.theory.task_bound import task_bound
from crawl_env import Sources, Task
from ephemeral_crawl import example
from ephemeral_crawl.comparison.signals import net_worth, without_signals
from ephemeral_crawl.evaluate import large
from ephemeral_crawl.evaluate.command import Evaluate
from ephemeral_crawl.example import Example
from tests.ephemeral_crawl.commands import rows, run
from tests.refusals import refused


def table(report, of):
    """The text of a report from a caption on."""
    return report.read_text(encoding="utf-8").split(of, 1)[1]


def test_the_worth_by_the_model_bounds_what_signals_can_add():
    fleet = Sources.preset("fleet-f")
    before = np.zeros(len(fleet))
    for recall, precision in ((0.3, 0.5), (0.6, 0.5), (0.6, 0.9), (1.0, 1.0)):
        task = Task(
            fleet,
            budget=3,
            signals={"recall": recall, "precision": precision},
            observed=False,
            budget_rule="average",
        )
        quiet = task.replaced(sources=without_signals(task.sources), signals=None)
        worth = net_worth(task, quiet)
        assert worth.of_source is not None
        assert np.all(worth.of_source >= before - 1e-9 * fleet.ceiling)
        before = worth.of_source
        gained = task_bound(task).bound - task_bound(quiet).bound
        assert 0 < gained <= worth.of_source.sum() * (1 + 1e-9)
        assert worth.multiplier == pytest.approx(task_bound(quiet).multiplier)


@pytest.mark.filterwarnings("ignore:budget is")
def test_signals_of_a_source_that_can_never_be_crawled_are_worth_nothing():
    fleet = Sources([2.0, 1.0], 1.0, 0.2, cost=[1, 2], recall=0.8, precision=0.9)
    task = Task(fleet, budget=1, observed=False)
    quiet = task.replaced(sources=without_signals(fleet))
    worth = net_worth(task, quiet)
    assert worth.of_source[0] > 0 == worth.of_source[1]
    alone = Task(without_signals(fleet.select([0])), budget=1, observed=False)
    assert worth.multiplier == pytest.approx(task_bound(alone).multiplier)


def test_evaluate_says_what_signals_are_worth(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = "--budget 2 --quick --steps 150 --warmup 20 --seeds 3 --agents oldest-first --out"
    run(f"evaluate --sources fleet-f --recall .6 --precision .9 --delay .2 {few} given")
    printed = capsys.readouterr().out
    assert "With signals, whittle collects" in printed
    assert "information" not in printed.split("With signals")[0]
    found = rows(tmp_path / "given" / "signals.csv")
    assert len(found) == len(Sources.preset("fleet-f"))
    assert {row["recall"] for row in found} == {"0.6"}
    reward = {
        row["run"]: float(row["reward"])
        for row in rows(tmp_path / "given" / "records.csv")
        if row["agent"] == "whittle"
    }
    # A fleet of one's own with these columns gives the same.
    fleet = Sources.preset("fleet-f")
    state = {**fleet.__getstate__(), "recall": 0.6, "precision": 0.9, "signal_delay": 0.2}
    Sources(**state).to_csv("fleet.csv")
    run(f"evaluate --sources fleet.csv {few} columns")
    again = rows(tmp_path / "columns" / "signals.csv")
    assert [float(row["gain"]) for row in again] == [float(row["gain"]) for row in found]
    # The gains of the sources add up to that of whittle, run by run on the same arrivals.
    run(f"evaluate --sources fleet-f --arrivals poisson {few} none")
    quiet = {
        row["run"]: float(row["reward"])
        for row in rows(tmp_path / "none" / "records.csv")
        if row["agent"] == "whittle"
    }
    gain = np.mean([reward[run] - quiet[run] for run in reward])
    assert sum(float(row["gain"]) for row in found) == pytest.approx(gain, rel=1e-9)
    assert not (tmp_path / "none" / "signals.csv").exists()
    in_turn = table(tmp_path / "given" / "report.html", "Policies without and with signals")
    assert "oldest-first" in in_turn
    assert "0.00%" in in_turn.split("oldest-first")[1][:400]


def test_a_replay_with_recorded_pings(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Example().run()
    words = "--items example/log.csv --half-life 7h --budget 2 --quick --steps 80 --seeds 1"
    replayed = f"replay {words} --agents oldest-first"
    run(f"{replayed} adaptive-self-tuning --signals example/pings.csv --out pings")
    printed = capsys.readouterr().out
    assert "With signals, whittle collects" in printed
    assert "Pings precede" not in printed
    run(f"{replayed} adaptive-self-tuning --out none")
    found = rows(tmp_path / "pings" / "signals.csv")
    reward = {}
    for name in ("pings", "none"):
        of = [r for r in rows(tmp_path / name / "records.csv") if r["agent"] == "whittle"]
        reward[name] = sum(float(row["reward"]) for row in of)
    assert reward["pings"] > reward["none"]
    gained = 80 * sum(float(row["gain"]) for row in found)
    assert gained == pytest.approx(reward["pings"] - reward["none"], rel=1e-9)
    # Fitted to the first half of the log: news announce nearly all items, videos none.
    recall = {row["source"]: float(row["recall"]) for row in found}
    assert recall["city-news"] > 0.8
    assert recall["street-food-channel"] < 0.2
    assert max(found, key=lambda row: float(row["worth"]))["source"] == "national-news"
    run(f"{replayed} --steps 20 --recall .9 --out simulated")
    simulated = rows(tmp_path / "simulated" / "signals.csv")
    assert {row["recall"] for row in simulated} == {"0.9"}
    assert sum(float(row["worth"]) for row in simulated) > sum(float(r["worth"]) for r in found)
    # A zone that is wrong by two hours makes pings precede their items, which is said.
    stamps = Path("example/pings.csv").read_text(encoding="utf-8").replace("Z\n", "+02:00\n")
    Path("early.csv").write_text(stamps, encoding="utf-8")
    run(f"{replayed} --steps 20 --signals early.csv --out early")
    printed = capsys.readouterr().out
    assert "Pings precede the recorded publication" in printed
    assert "by up to 2 hours" in printed


def test_large_fleets_with_signals_are_refused():
    study = Evaluate(sources="fleet.csv", budget="2")
    fleet = Sources(np.ones(large.LARGE), 1.0, 1.0)
    assert large.as_columns(study, fleet) is not None
    announced = Sources(np.ones(large.LARGE), 1.0, 1.0, recall=0.5)
    with refused("200,000 sources and sends signals", "--quick"):
        large.as_columns(study, announced)


def test_the_pings_of_the_example_are_those_of_its_fleet():
    log = example.log(0)
    pings, fleet = example.pings(log, 0), example.fleet()
    expected = fleet.ping_rate * example.SPAN
    for i, name in enumerate(fleet.names):
        if name not in (example.CLOSED, example.OPENED):
            assert abs(pings.counts[i] - expected[i]) < 5 * np.sqrt(expected[i]) + 1e-9
