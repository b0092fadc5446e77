"""The study of large fleets, on small ones."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ephemeral_crawl.core.results import read_csv
from experiments import scale
from experiments.scale import POLICIES, Scale, measured


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(scale, "STEPS", (5, 10))
    monkeypatch.setattr(scale, "WARMUP", 20)
    monkeypatch.setattr(scale, "MOST_ADAPTIVE", 2000)
    monkeypatch.setitem(Scale.parts, "", replace(Scale.parts[""], work=_measured_here))


NAMES = ("n", "budget", "regime", "dense")


@cache  # by both tests
def _rows(n, budget, regime, dense):
    return [size._asdict() for size in measured(n, budget, regime, dense)]


def _measured_here(job):
    return {"rows": _rows(*(job[name] for name in NAMES))}


@pytest.mark.usefixtures("quick")
def test_study(tmp_path):
    study = Scale(sizes=(2000, 6000), largest_dense=2000, out=tmp_path / "scale")
    study.run()
    rows = read_csv(tmp_path / "scale" / "records.csv")
    cases = {(row["n"], row["budget"]) for row in rows}
    assert cases == {("2000", "20.0"), ("6000", "60.0"), ("6000", "1000.0")}
    assert len(rows) == len(cases) * len(POLICIES) + 2
    share = {row["policy"]: float(row["expected"]) / float(row["bound"]) for row in rows}
    assert 0.95 < share["whittle"] < 1.05
    assert share["oldest-first"] < 0.9 * share["whittle"]
    timed = [row for row in rows if np.isfinite(float(row["dense"]))]
    assert [(row["n"], row["policy"]) for row in timed] == [("2000", "whittle")]
    page = (tmp_path / "scale" / "report.html").read_text()
    Scale(out=tmp_path / "scale", only_report=True).run()
    assert (tmp_path / "scale" / "report.html").read_text() == page
    assert "Of 6,000 sources" in page
    assert "adaptive-thompson" in page


@pytest.mark.usefixtures("quick")
def test_an_interrupted_study_keeps_the_sizes_that_are_finished(tmp_path, monkeypatch):
    played = []

    def interrupted(job):
        played.append(job["n"])
        if played == [2000, 6000]:
            raise KeyboardInterrupt
        return _measured_here(job)

    monkeypatch.setitem(Scale.parts, "", replace(Scale.parts[""], work=interrupted))
    study = Scale(sizes=(2000, 6000), largest_dense=2000, out=tmp_path / "scale")
    with pytest.raises(SystemExit):
        study.run()
    study.run()
    assert played == [2000, 6000, 6000, 6000]
    assert {row["n"] for row in read_csv(tmp_path / "scale" / "records.csv")} == {"2000", "6000"}
