"""The clock and the throughput command, on small sizes: that they measure, not how fast."""

import time

import pytest

from ephemeral_crawl.core.results import read_csv
from experiments.throughput import versus, world
from experiments.throughput.clock import interleaved
from experiments.throughput.command import Throughput


def test_the_clock_tells_a_sleep_from_a_longer_one():
    times = interleaved(
        {"short": lambda: time.sleep(0.002), "long": lambda: time.sleep(0.008)}, 3, 0.02
    )
    median, low, high = times["long"].ratio_to(times["short"])
    assert 2.0 < median < 6.0
    assert low <= median <= high
    assert 0.002 <= times["short"].median < 0.02


def test_copying_as_much_is_measured_beside_the_world():
    costs = list(world.all_costs(largest=100, rounds=1))
    assert {(c.n, c.rows) for c in costs} == {(4, 1), (4, 1024), (100, 1), (100, 1024)}
    assert all(min(c.world, c.env, c.whittle, c.copy, c.memory) > 0 for c in costs)
    assert {c.arrivals for c in costs} == set(world.RATES)


def test_the_command_writes_records_and_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(world, "SIZES", ((4, 2),))
    ours = versus._single(1, 1.0, 1)
    monkeypatch.setattr(versus, "all_comparisons", lambda rounds: [ours])
    Throughput(out=tmp_path / "t", rounds=1, largest_file=200).run()
    assert (tmp_path / "t" / "versus.csv").exists()
    assert (tmp_path / "t" / "world.csv").read_text(encoding="utf-8").count("\n") == 4
    read = read_csv(tmp_path / "t" / "files.csv")
    assert {row["rows"] for row in read} == {"20", "200"}
    assert all(float(row["read"]) > 0 and float(row["written"]) > 0 for row in read)
    assert "CartPole-v1" in capsys.readouterr().out
    assert ours.speedup == pytest.approx(ours.other / ours.ours, rel=1e-9)
