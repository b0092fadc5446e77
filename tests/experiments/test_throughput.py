"""The clock and the throughput command, on small sizes: that they measure, not how fast."""

from functools import partial

import numpy as np
import pytest

from ephemeral_crawl.core.results import read_csv, write_csv
from experiments.core import clock
from experiments.core.clock import Figure, Timing, compared, interleaved
from experiments.throughput import command, steps, tensors
from experiments.throughput.command import Throughput


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Rounds of 5 ms: how fast anything is does not matter."""
    monkeypatch.setattr(interleaved, "__defaults__", (9, 0.005))


def test_the_clock_tells_a_short_call_from_a_longer_one(monkeypatch):
    now = 0.0

    def taking(seconds):
        nonlocal now
        now += seconds

    monkeypatch.setattr(clock, "perf_counter", lambda: now)
    calls = {name: partial(taking, took) for name, took in (("short", 0.002), ("long", 0.008))}
    times = interleaved(calls, 3, 0.02)
    assert times["long"].ratio_to(times["short"]) == pytest.approx((4.0, 4.0, 4.0))
    assert times["short"].median == pytest.approx(0.002)


def test_a_figure_is_met_or_not_or_not_measured():
    low, high = (Timing((x, x)) for x in (1.0, 3.0))
    assert compared("g", "w", "≤", 0.5, low, high).met
    assert compared("g", "w", "≤", 0.5, high, low).met is False
    assert compared("g", "w", "≥", 2.0, low, high).met
    assert compared("g", "w", "≥", 4.0, low, high).met is False
    assert high.minus(low).rounds == (2.0, 2.0)
    assert low.minus(high).rounds == (0.0, 0.0)


@pytest.mark.parametrize("limit", [0.5, np.nan])
def test_a_figure_is_read_as_it_was_written(limit, tmp_path):
    figure = compared("g", "w", "≤", limit, *[Timing((1.0, 2.0))] * 2)
    write_csv(tmp_path / "figures.csv", [figure.row()])
    (row,) = read_csv(tmp_path / "figures.csv")
    assert repr(Figure.of(row)) == repr(figure)  # NaN is not equal to NaN


def test_large_fleets_are_measured_beside_copies(monkeypatch):
    whittle = list(steps.whittle_figures(1, 1000))
    assert [figure.limit for figure in whittle] == [2.0, 5.0]
    (content,) = steps.content_figures(1, 1000)
    # One is a difference of times, which may be negative on a busy machine.
    assert all(np.isfinite(figure.value) for figure in (*whittle, content))
    per_crawl, growth = steps.scheduler_figures(2, 1000, 4000, 50)
    assert per_crawl.unit == "µs"
    assert growth.ours > 0
    (signals,) = steps.signal_figures(2, ((1000, 50),))
    assert signals.value > 0
    assert [figure.value > 0 for figure in steps.making_figures(3, 1000)] == [True, True]


def test_signals_are_measured_beside_none():
    figures = list(steps.option_figures("Signals", 1, (2, 10)))
    assert len(figures) == 6
    assert all(figure.value > 0 and figure.limit == 1.3 for figure in figures)
    assert all("pings an item" in figure.note for figure in figures)


def test_payoffs_and_costs_are_measured_beside_none():
    figures = list(steps.option_figures(steps.PAYOFFS, 1, (2, 20)))
    assert len(figures) == 2 * len(steps.OPTIONS[steps.PAYOFFS][1])
    assert all(figure.value > 0 for figure in (*figures, steps.knapsack_figure(1, (2, 20))))


def test_tensors_are_measured_on_the_cpu_where_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(tensors, "CPU", (2, 10))
    monkeypatch.setattr(tensors, "TRAINING_CPU", (2, 10))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    figures = list(tensors.figures(1))
    assert len(figures) == 7
    assert all(figure.value > 0 and figure.met is None for figure in figures)


def test_the_command_writes_records_and_a_report(tmp_path, monkeypatch, capsys):
    ours = steps.single(1, 1.0, 1)
    out = tmp_path / "t"
    for part in ("gymnasium", "start"):
        monkeypatch.setitem(command.FIGURES, part, lambda job: iter([ours]))
    Throughput(out=out, rounds=1, only=("gymnasium", "replay", "start")).run()  # there is no log
    assert [row["part"] for row in read_csv(out / "figures.csv")] == ["gymnasium", "start"]
    said = capsys.readouterr().out
    assert "CartPole-v1" in said
    assert "of 2 figures meet their limit" in said
    monkeypatch.setitem(command.FIGURES, "gymnasium", lambda job: iter([ours._replace(value=7.5)]))
    Throughput(out=out, only=("gymnasium",)).run()  # the rest of the record stays
    values = [(row["part"], row["value"]) for row in read_csv(out / "figures.csv")]
    assert values == [("gymnasium", "7.5"), ("start", str(ours.value))]
    with pytest.raises(ValueError, match="unknown part 'gpu'"):
        Throughput(out=out, only=("gpu",)).run()


def test_starts_and_replays_are_timed_in_processes_of_their_own(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "_IMPORT", "print(0.25)")
    monkeypatch.setattr(
        command, "_FIRST_STEP", "import os; print(len(os.environ['NUMBA_CACHE_DIR']))"
    )
    imports, first = command.start_figures(1)
    assert (imports.value, imports.met) == (0.25, True)
    assert (first.value > 2, first.met) == (True, False)
    ran = []
    monkeypatch.setattr("subprocess.run", lambda command, **options: ran.append(command))
    (figure,) = command.replay_figures("/home/me/log.csv", budget=5)
    assert ran[0][2:6] == ["ephemeral_crawl", "evaluate", "--items", "/home/me/log.csv"]
    assert figure.note == "evaluate --items log.csv --budget 5"
    assert figure.met
