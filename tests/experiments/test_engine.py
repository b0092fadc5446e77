"""The study of an indexing engine: its parts, and its report."""

import pytest

from ephemeral_crawl.core.results import read_csv
from experiments.__main__ import PROGRAM
from experiments.engine import exact


def test_the_quick_study_and_its_report(tmp_path, capsys):
    out = tmp_path / "engine"
    short = ["--suite", "quick", "--seeds", "2", "--steps", "20"]
    PROGRAM.run(["engine", *short, "--part", "service", "--engine", "sequential",
                 "--out", str(out)])  # fmt: skip
    assert "whittle-engine" in capsys.readouterr().out
    rows = read_csv(out / "service.csv.gz")
    assert {row["agent"] for row in rows} >= {"whittle", "whittle-engine", "static"}
    assert all(float(row["bound"]) > 0 for row in rows if row["bound"])
    before = (out / "service.csv.gz").read_bytes()
    PROGRAM.run(["engine", "--only-report", "--out", str(out)])
    assert (out / "service.csv.gz").read_bytes() == before


@pytest.mark.parametrize("case", [6, 8])
def test_small_cases_are_in_order(case):
    found = exact.work({"case": case, "seed": 0})
    assert found["bound"] > found["optimum"]
    for policy in exact.POLICIES:
        assert found[policy] <= found["optimum"] * (1 + 1e-3)
    assert found["whittle-engine"] > 0.98 * found["optimum"]
