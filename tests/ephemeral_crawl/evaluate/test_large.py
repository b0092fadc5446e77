"""Large fleets: simulated crawl by crawl, wherever they come from, unless that would be wrong."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from agents.scheduling.relaxation import best_ages, columns_relaxation
from crawl_env import Sources
from crawl_env.fleet.columns import FleetColumns
from ephemeral_crawl.evaluate import large
from ephemeral_crawl.evaluate.command import Evaluate
from tests.ephemeral_crawl import commands
from tests.ephemeral_crawl.commands import rows

FLEET = FleetColumns.random(1500, seed=2, regime="sparse")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(large, "LARGE", 1000)


@pytest.fixture
def files(tmp_path):
    """The same fleet as Parquet and as CSV."""
    names = ("arrival_rate", "mean_utility", "decay_rate")
    found = {"parquet": tmp_path / "fleet.parquet", "csv": tmp_path / "fleet.csv"}
    parquet.write_table(pa.table({name: getattr(FLEET, name) for name in names}), found["parquet"])
    FLEET.to_sources().to_csv(found["csv"])
    return found


def evaluated(path, out, **options):
    given = {"budget": "15", "steps": 40, "warmup": 10, "seeds": None}
    return commands.evaluated(out, sources=str(path), **{**given, **options})


def test_parquet_and_csv_give_the_same_answer(files, tmp_path, capsys):
    outs = {kind: evaluated(path, tmp_path / f"out-{kind}") for kind, path in files.items()}
    said = capsys.readouterr().out
    assert said.count("1,500 sources, simulated crawl by crawl") == 2
    assert said.count("more than crawling all sources in turn") == 2
    records = {kind: rows(out / "records.csv") for kind, out in outs.items()}
    for one, other in zip(*records.values(), strict=True):
        assert [one[c] for c in ("agent", "run", "reward")] == [
            other[c] for c in ("agent", "run", "reward")
        ]
    assert {row["agent"] for row in records["csv"]} == {
        "whittle",
        "static",
        "myopic",
        "oldest-first",
    }
    bound = columns_relaxation(FLEET, 15)
    mean = np.mean([float(r["reward"]) for r in records["csv"] if r["agent"] == "whittle"])
    assert mean == pytest.approx(bound.bound, rel=0.05)
    ages = best_ages(FLEET, bound.multiplier, slice(None))
    table = parquet.read_table(outs["parquet"] / "schedule.parquet").to_pydict()
    assert table["interval"] == ages.astype(np.float32).tolist()
    assert table["source"] == list(range(1, 1501))
    written = rows(outs["csv"] / "schedule.csv")
    intervals = [float(row["interval"] or "inf") for row in written]
    assert intervals == ages.tolist()
    assert [row["source"] for row in written] == list(FLEET.to_sources().names)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_names_of_the_file_are_kept(files, tmp_path, monkeypatch, suffix):
    names = [f"site-{i % 7}/{i}" for i in range(1500)]
    table = parquet.read_table(files["parquet"]).append_column(
        "source", pa.array(names).dictionary_encode() if suffix == ".arrow" else [names]
    )
    path = tmp_path / f"named{suffix}"
    if suffix == ".arrow":
        with pa.OSFile(str(path), "w") as sink, pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table, max_chunksize=400)
    else:
        parquet.write_table(table, path, row_group_size=400)
    monkeypatch.setattr("crawl_env.files.batches.ROWS", 300)
    out = evaluated(path, tmp_path / "out", budget="10,20")
    written = parquet.read_table(out / "schedule.parquet").to_pydict()
    assert written["source"] == names * 2
    for m, half in ((10.0, slice(0, 1500)), (20.0, slice(1500, 3000))):
        assert set(written["budget"][half]) == {m}
        ages = best_ages(FLEET, columns_relaxation(FLEET, m).multiplier, slice(None))
        assert written["interval"][half] == ages.astype(np.float32).tolist()
        first = names[int(np.argmin(ages))]
        assert first in (out / "report.html").read_text(encoding="utf-8")


def test_the_present_rule_and_several_budgets(files, tmp_path, capsys):
    evaluated(files["parquet"], tmp_path / "out", budget="10,20", present="myopic")
    said = capsys.readouterr().out
    assert "more than your present rule" in said
    assert "fewer fetches" in said
    assert "Budget 10" in said
    assert "Budget 20" in said


@pytest.mark.parametrize(
    "options",
    [
        {"observed": True},
        {"budget_rule": "average"},
        {"arrivals": "poisson-drift"},
        {"arrivals": "deterministic"},
        {"max_interval": 30.0},
    ],
    ids=str,
)
def test_what_needs_every_source_in_every_step(files, tmp_path, options):
    for path in files.values():
        study = Evaluate(sources=str(path), budget="15", out=tmp_path / "out", **options)
        assert large.columns_of(study) is None
        assert large.as_columns(study, FLEET.to_sources()) is None


def test_small_fleets_and_those_with_capacities(tmp_path):
    study = Evaluate(sources="fleet.csv", budget="15", out=tmp_path / "out")
    plain = FLEET.to_sources()
    assert large.as_columns(study, plain) is not None
    assert large.as_columns(study, plain.select(slice(0, 900))) is None
    capped = plain.replaced(capacity=3)
    assert large.as_columns(study, capped) is None


def test_costs_and_hosts(tmp_path, capsys):
    rng = np.random.default_rng(0)
    costs = {"cost": rng.uniform(0.5, 2, 1500), "hosts": ["a", "a", *[""] * 1498]}
    Sources(**{**FLEET.to_sources().__getstate__(), **costs}).to_csv(tmp_path / "fleet.csv")
    out = evaluated(tmp_path / "fleet.csv", tmp_path / "out")
    assert "simulated crawl by crawl" in capsys.readouterr().out
    spent = [float(row["cost"]) for row in rows(out / "records.csv") if row["agent"] == "whittle"]
    assert 14 < np.mean(spent) <= 15


def test_an_interrupted_run_goes_on(files, tmp_path, monkeypatch):
    whole = evaluated(files["parquet"], tmp_path / "whole")
    played = []
    work = large.work

    def stopped(job):
        played.append(job["policy"])
        if len(played) == 5:
            raise KeyboardInterrupt
        return work(job)

    monkeypatch.setattr(large, "work", stopped)
    with pytest.raises(SystemExit):
        evaluated(files["parquet"], tmp_path / "out")
    assert not (tmp_path / "out" / "out").exists()
    evaluated(files["parquet"], tmp_path / "out")
    assert len(played) == 13  # 12 parts, and the one that was stopped
    one, other = (rows(out / "records.csv") for out in (whole, tmp_path / "out" / "out"))
    assert [r["reward"] for r in one] == [r["reward"] for r in other]
    assert not (tmp_path / "out" / ".out.kept").exists()


def test_silent_fleets(tmp_path, capsys):
    path = tmp_path / "fleet.parquet"
    columns = {"arrival_rate": np.zeros(1200), "mean_utility": np.ones(1200)}
    parquet.write_table(pa.table({**columns, "decay_rate": np.ones(1200)}), path)
    evaluated(path, tmp_path / "out")
    assert "the sources publish nothing" in capsys.readouterr().out
