"""What studies are made of: rows and what is shown of them, and how parts are run and kept."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from agents.evaluation import statistics
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import read_csv
from ephemeral_crawl.core.study import ParallelStudy
from experiments.core.data import (
    Across,
    Column,
    Data,
    Lines,
    Table,
    change,
    gain,
    mean,
    share,
    value,
    write,
)
from experiments.core.study import Part, PartsStudy, each_run

REWARDS = {("a", "1", "x"): [1, 2, 3], ("a", "1", "y"): [2, 4, 6], ("a", "20000", "x"): [4, 4, 4],
           ("b", "1", "x"): [8, 8, 8]}  # fmt: skip
ROWS = [
    {"fleet": fleet, "n": n, "agent": agent, "run": run, "reward": reward, "most": "8"}
    for (fleet, n, agent), rewards in REWARDS.items()
    for run, reward in enumerate(rewards)
]


def shown(*content, rows=ROWS, capsys):
    """Return what a report prints, in cells."""
    capsys.readouterr()
    write(Report("Title"), Data(rows), content)
    lines = capsys.readouterr().out.splitlines()[3:]
    return [line.split() for line in lines if line]


def test_values_are_found_as_text_and_zero_is_a_number():
    data = Data([{"n": 1, "x": 0.0}, {"n": "1", "x": ""}, {"n": 2, "x": "5"}])
    np.testing.assert_equal(data.numbers("x", n=1), [0.0, np.nan])
    assert data.cases("n") == [{"n": "1"}, {"n": "2"}]
    assert data.values("x", n="2") == ["5"]
    assert data.where(missing="7") == []
    assert Data(ROWS).numbers("reward", per="most", fleet="b").tolist() == [1.0] * 3


def test_a_table_has_a_row_for_each_case_and_compares_them(capsys):
    table = Table(
        "Fleet {fleet}",
        {"n": "sources"},
        (
            Across("agent", (mean("reward", "most"),), share),
            Column("gain", gain("reward", agent="x"), change, {"agent": "y"}),
            Column("most", value("most"), str),
        ),
        each=("fleet",),
    )
    assert shown(table, capsys=capsys) == [
        ["Fleet", "a"],
        ["sources", "x", "y", "gain", "most"],
        ["1", "25.0%", "50.0%", "+100.0%", "8"],
        ["20,000", "50.0%", "n/a", "8"],
        ["Fleet", "b"],
        ["sources", "x", "gain", "most"],
        ["1", "100.0%", "n/a", "8"],
    ]
    only = Table("T", {"fleet": ""}, (Across("agent", (mean("reward"),), str, ("y", "z")),))
    assert shown(only, capsys=capsys)[1:] == [["y"], ["a", "4", "[-0.96828,", "8.9683]"], ["b"]]


def test_a_single_run_has_no_interval_and_paired_ones_have_that_of_their_level():
    data = Data(ROWS[:6])
    narrow, wide = (
        gain("reward", level=level, agent="y")(data, {"agent": "x"}) for level in (0.5, 0.8)
    )
    assert narrow == wide == (-0.5, -0.5, -0.5)  # y collects twice as much in every run
    noisy = Data([{**row, "reward": i**2 + 5} for i, row in enumerate(ROWS[:6])])
    narrow, wide = (
        gain("reward", level=level, agent="y")(noisy, {"agent": "x"}) for level in (0.5, 0.8)
    )
    assert wide.low < narrow.low < narrow.mean == wide.mean < narrow.high < wide.high
    assert mean("reward")(Data(ROWS[:1]), {"agent": "x"}) == (1.0, 1.0, 1.0)
    assert np.isnan(mean("reward")(data, {"agent": "nobody"}).mean)


def test_lines_are_drawn_at_their_estimates():
    report = Report("Title", quiet=True)
    drawn = []
    report.figure = lambda figure, *_: drawn.append(figure)
    Lines("L", x="n", y=mean("reward"), line="agent", columns="fleet", scale=10, log="x")(
        report, Data(ROWS)
    )
    first, second = drawn[0].axes
    points = [line.get_xydata().tolist() for line in first.lines if line.get_label() != "_child0"]
    assert [[1.0, 20.0], [20000.0, 40.0]] in points
    assert [axis.get_title() for axis in (first, second)] == ["a", "b"]
    assert first.get_xscale() == "log"
    names = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert names == ["x", "y"]


@dataclass(kw_only=True)
class Doubled(PartsStudy, ParallelStudy):
    """Doubles numbers."""

    title: ClassVar[str] = "Numbers"
    parts: ClassVar[dict[str, Part]] = {
        name: Part(
            jobs=lambda study, name=name: [
                {"columns": {"name": name, "i": i}} for i in range(study.most)
            ],
            work=lambda job: {"double": [2 * job["columns"]["i"], 1.5], "all": "yes"},
            claim=lambda data: f"the sum is {data.numbers('double').sum():g}",
            content=("Text.",),
            heading=f"Part {name}",
        )
        for name in ("one", "two")
    }

    most: int = 2
    only: tuple[str, ...] = ()

    def asked(self):
        return self.only or super().asked()


def test_parts_are_run_kept_and_written_again(tmp_path, capsys):
    out = {"out": tmp_path / "out", "jobs": 1, "run_on": "sequential"}
    Doubled(**out).run()
    rows = read_csv(tmp_path / "out" / "one.csv.gz")
    assert [(row["i"], row["run"], row["double"]) for row in rows] == [
        ("0", "0", "0"), ("0", "1", "1.5"), ("1", "0", "2"), ("1", "1", "1.5"),
    ]  # fmt: skip
    assert {row["all"] for row in rows} == {"yes"}
    assert {"commit", "machine"} <= set(rows[0])
    Doubled(most=3, only=("two",), **out).run()
    assert read_csv(tmp_path / "out" / "one.csv.gz") == rows
    said = capsys.readouterr().out
    Doubled(only_report=True, **out).run()
    again = capsys.readouterr().out
    assert "The sum is 5." in again
    assert "The sum is 10.5." in again
    assert again.partition("Report:")[0] in said
    assert set(Doubled.outputs) == {"one.csv.gz", "two.csv.gz", "*.png", "report.html"}


def test_results_without_runs_are_one_row():
    assert list(each_run({"columns": {"a": 1}}, {"x": 0.1})) == [{"a": 1, "x": "0.1"}]


def test_a_statistic_of_nothing_is_unknown():
    cell = gain("reward", agent="nobody")
    assert cell(Data(ROWS), {"agent": "x"}) is statistics.UNKNOWN
