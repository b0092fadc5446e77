"""The example files lead the whole way from a log to a schedule."""

import shlex

import numpy as np

from crawl_env import ItemLog, Sources
from ephemeral_crawl import __main__ as cli
from ephemeral_crawl import example
from ephemeral_crawl.core.results import read_csv
from ephemeral_crawl.example import Example
from ephemeral_crawl.fit.lives import lives


def test_the_printed_commands_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Example().run()
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("ephemeral-crawl ")]
    assert [command[1] for command in commands] == [
        *("fit", "replay", "evaluate", "evaluate", "backtest"),
    ]
    few = {
        "fit": [],
        "replay": ["--steps", "30", "--seeds", "1", "--agents", "nutch", "--quick"],
        "evaluate": ["--steps", "20", "--seeds", "3", "--agents", "nutch", "--quick"],
        "backtest": ["--begin", "0.98", "--quick"],
    }
    for _, *words in commands:
        cli.main([*words, *few[words[0]]])
    printed = capsys.readouterr().out
    assert "Dead: 1 source" in printed
    assert example.CLOSED in printed.split("Dead: 1 source")[1][:120]
    for name in ("replay", "evaluate"):
        rows = read_csv(tmp_path / "results" / name / "schedule.csv")
        assert len(rows) == len(example.fleet())
        spent = sum(1 / float(row["interval"]) for row in rows if row["interval"])
        assert abs(spent - 3) < 0.01, "the budget"
    assert all(float(row["interval"]) <= 48 for row in rows)


def test_the_log_is_that_of_the_fleet(tmp_path):
    Example(out=tmp_path / "e").run()
    log = ItemLog.from_csv(tmp_path / "e" / "log.csv", tmp_path / "e" / "curves.csv")
    fleet = Sources.from_csv(tmp_path / "e" / "sources.csv")
    assert log.curves is not None
    counts = np.bincount(log.source, minlength=len(log.names))
    expected = dict(zip(fleet.names, fleet.arrival_rate * example.SPAN, strict=True))
    for name, n in zip(log.names, counts, strict=True):
        if name not in (example.CLOSED, example.OPENED):
            assert abs(n - expected[name]) < 5 * np.sqrt(expected[name])
    alive = lives(log)
    assert [log.names[i] for i in np.flatnonzero(alive.dead)] == [example.CLOSED]
    assert [log.names[i] for i in np.flatnonzero(alive.new)] == [example.OPENED]
