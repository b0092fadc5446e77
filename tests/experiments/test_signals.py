"""The study of signals: its shares against an independent simulation, its parts, its report."""

import numpy as np
import pytest

from crawl_env import Sources
from ephemeral_crawl.core.results import read_csv
from experiments.__main__ import PROGRAM
from experiments.core.data import Data, mean
from experiments.core.study import Size, collected
from experiments.signals import tasks
from experiments.signals.command import Signals
from experiments.signals.tasks import NONE, OBSERVED, job, label, signals
from tests.references import Z_LIMIT, share_collected

SIZE = Size(seeds=12, steps=1200, warmup=0, quick=True, seed=3)


@pytest.mark.parametrize(
    ("sources", "budget", "recall", "precision"),
    [
        ("hacker-news", 2, 0.5, 0.8),
        ("fleet-f", 2, 1.0, 1.0),
        ("fleet-f", 10, 0.5, 0.2),
    ],
)
def test_shares_are_those_of_an_independent_simulation(sources, budget, recall, precision):
    """Each fails by chance once in 150,000 seeds."""
    fleet = Sources.preset(sources)
    columns = fleet.arrival_rate, fleet.mean_utility, fleet.decay_rate
    theirs = share_collected(*columns, budget, recall, precision, False, 12, 1200, seed=1)
    done = collected(job(SIZE, ("", sources, budget), "whittle", signals(recall, precision)))
    mine = np.array(done["reward"]) / done["published"]
    error = np.hypot(mine.std(ddof=1), theirs.std(ddof=1)) / np.sqrt(12)
    assert abs(mine.mean() - theirs.mean()) < Z_LIMIT * error
    assert error < 0.02 * mine.mean()


def test_the_quick_study_and_its_report(tmp_path, capsys):
    out = tmp_path / "signals"
    short = ["--suite", "quick", "--seeds", "2", "--steps", "100"]
    PROGRAM.run(["signals", *short, "--engine", "sequential", "--out", str(out)])
    said = capsys.readouterr().out
    assert "share of all utility" in said
    assert {path.name for path in out.glob("*.csv.gz")} == {
        f"{name}.csv.gz" for name in Signals.parts if name != "recordings"
    }
    data, bound = Data(read_csv(out / "quality.csv.gz")), mean("bound", "published")
    none, signalled, observed = (
        bound(data, {"fleet": "fleet F", "budget": 2, "quality": name}).mean
        for name in (NONE, label(0.5, 0.8), OBSERVED)
    )
    assert none < signalled < observed


def test_what_should_not_be_is_found():
    """Rewards above the bound, and better signals that are worth less."""
    rng = np.random.default_rng(0)

    def rows(recall, level, bound):
        return [
            {
                "fleet": "a", "case": "a", "agent": "whittle", "budget": "1",
                "recall": str(recall), "precision": "1", "quality": label(recall, 1),
                "seed": "0", "run": str(run), "reward": str(level + 0.01 * rng.random()),
                "published": "1", "bound": str(bound), "information": "signals",
            }
            for run in range(10)
        ]  # fmt: skip

    right = [*rows(0.5, 0.2, 0.5), *rows(1.0, 0.4, 0.5)]
    wrong = [*rows(0.5, 0.4, 0.5), *rows(1.0, 0.3, 0.2)]
    for table, clear in ((right, 0), (wrong, 1)):
        for compared in (tasks.above({"quality": Data(table)}), tasks.falls(Data(table))):
            assert tasks.row("", list(compared))[2] == str(clear)
