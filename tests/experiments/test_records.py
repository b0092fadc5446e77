"""The committed records: each is read by the code that would read it, and tells what is quoted."""

import csv
import gzip
import re
import shutil
from statistics import fmean

import numpy as np
import pytest
from matplotlib.figure import Figure

from agents.evaluation import statistics
from ephemeral_crawl.__main__ import PROGRAM as COMMANDS
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.folders import check_folder
from ephemeral_crawl.core.results import ROOT, read_csv
from experiments.__main__ import PROGRAM as STUDIES
from experiments.benchmark import policies
from experiments.benchmark.suite import SUITE

RESULTS = ROOT / "results"
REPLAY = RESULTS / "hacker-news-replay"
FOLDERS = {  # of which study, where its name does not say so
    "adaptive-weibo": "adaptive",
    "benchmark-full": "benchmark",
    "hacker-news-replay/observed": "replay",
    "hacker-news-replay/not-observed": "replay",
}
RECORDS = {
    **{
        path.name: path.name
        for path in RESULTS.iterdir()
        if path.name in STUDIES.commands() and path.name != "leaderboard"  # of others' results
    },
    **FOLDERS,
}


def test_every_committed_record_is_that_of_a_study():
    committed = {
        "paper",
        "arm",
        "libraries",
        "asymptotic",
        "decay",
        "benchmark",
        "adaptive",
        "sb3-time",
        "signals",
    }
    assert {*committed, "throughput", *FOLDERS} <= set(RECORDS)


@pytest.mark.parametrize("folder", RECORDS)
def test_a_record_is_read_and_may_be_replaced_by_its_study(folder):
    path = RESULTS / folder
    name = RECORDS[folder]
    program = STUDIES if name in STUDIES.commands() else COMMANDS
    check_folder(path, program._kind(name).outputs)
    assert (path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    tables = [file for file in path.iterdir() if ".csv" in file.suffixes]
    columns = []
    for file in tables:
        content = file.read_bytes()  # line by line from a compressed file takes three times as long
        text = gzip.decompress(content) if file.suffix == ".gz" else content
        lines = text.decode().splitlines(keepends=True)
        names = next(csv.reader(lines[:1]))
        plain = b'"' not in text  # then commas are counted, which takes a fifth of the time
        rows = {x.count(",") + 1 for x in lines} if plain else map(len, csv.reader(lines))
        assert set(rows) == {len(names)}, file
        assert str(ROOT) not in file.name
        columns.append(set(names))
    # At least one table says where it comes from.
    assert any({"commit", "numpy", "machine"} <= names for names in columns)


@pytest.mark.parametrize(
    "name", sorted({*RECORDS} & {*STUDIES.commands()} - {"benchmark", "adaptive"})
)
def test_a_report_can_be_written_again_and_does_not_change_its_record(
    name, tmp_path, capsys, monkeypatch
):
    """Its figures are made and not drawn, which takes half of the time: each study's test does."""
    picture = '<svg width="1pt" height="1pt"></svg>', 1.0, False
    monkeypatch.setattr(plots, "inline", lambda figure, number: picture)
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **how: None)
    out = tmp_path / name
    shutil.copytree(RESULTS / name, out)
    STUDIES.run([name, "--only-report", "--out", str(out)])
    assert capsys.readouterr().out
    for file in (RESULTS / name).glob("*.csv"):
        assert (out / file.name).read_bytes() == file.read_bytes()


def test_the_benchmarks_summary_is_that_of_its_records():
    """Whittle's rewards; `benchmark --only-report` makes all of it, which takes a minute."""
    bounds = [(np.zeros(()), "")] * len(SUITE)
    done = policies.results(read_csv(RESULTS / "benchmark" / "records.csv"), bounds)
    lines = (RESULTS / "benchmark" / "summary.md").read_text(encoding="utf-8").splitlines()
    shown = {tuple(cell.strip() for cell in line.split("|")[1:3]) for line in lines}
    for task, found in zip(SUITE, done, strict=True):
        assert (task.name, f"{found.rewards['whittle'].mean():.5g}") in shown
        assert all(reward.size == task.seeds for reward in found.rewards.values())
    with pytest.raises(ValueError, match="leave out --only-report"):
        policies.results([], bounds)


def test_numbers_of_the_front_page_are_those_of_its_record():
    rewards: dict[tuple[str, int], list[float]] = {}  # of each week; of the bound, of all
    published: dict[tuple[str, int], float] = {}
    for row in read_csv(REPLAY / "not-observed" / "records.csv"):
        policy = row["agent"], round(float(row["budget"]))
        rewards.setdefault(policy, []).append(float(row["reward"]))
        published[policy] = published.get(policy, 0.0) + float(row["published"])
    fractions, gains = (REPLAY / "findings.md").read_text(encoding="utf-8").split("The gain of")

    rows = re.findall(r"^\| ([a-z -]+?)(?: \(.*?\))? \|(.* %) \|$", fractions, re.M)
    assert len(rows) == 16
    for name, cells in rows:
        for budget, cell in zip((2, 5, 10, 20), cells.split("|"), strict=True):
            policy = name.replace(" ", "-"), budget
            fraction = sum(rewards[policy]) / published[policy]
            assert float(cell.strip(" %")) == pytest.approx(100 * fraction, abs=0.051)

    rows = re.findall(r"^\| ([a-z-]+) \|(.*\]) \|$", gains, re.M)
    assert len(rows) == 6
    for name, cells in rows:
        for budget, cell in zip((2, 5, 10, 20), cells.split("|"), strict=True):
            gain = statistics.gain(rewards["whittle", budget], rewards[name, budget])
            estimate = [100 * x for x in gain]
            assert [float(x) for x in re.findall(r"[-+][\d.]+", cell)] == pytest.approx(
                estimate, abs=0.051
            )


def test_numbers_of_the_simulated_crawls_are_those_of_their_record():
    text = (ROOT / "docs" / "engineers" / "live.md").read_text(encoding="utf-8")
    collected: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in read_csv(RESULTS / "live" / "feeds.csv"):
        policies = collected.setdefault((row["case"], row["budget"]), {})
        policies.setdefault(row["policy"], []).append(float(row["fraction"]))
    rows = re.findall(r"^\| (\w+ hosts) \| (\d+) \|(.*) \((\w+)\) \|$", text, re.M)
    assert len(rows) == 6
    for case, budget, cells, best in rows:
        policies = collected[case, budget]
        own, oracle = policies["Scheduler"], policies["oracle"]
        means = {policy: fmean(fractions) for policy, fractions in policies.items()}
        rules = means.keys() - {"Scheduler", "Scheduler over HTTP", "oracle", "bound"}
        assert best == max(rules, key=means.__getitem__)
        shown = [float(cell.strip(" %")) for cell in cells.split("|")]
        assert [shown[0], shown[1], shown[4], shown[5]] == pytest.approx(
            [means["Scheduler"], means["oracle"], means["bound"], means[best]], abs=0.0006
        )
        parts = [100 * x / y for x, y in zip(own, oracle, strict=True)]
        assert shown[2:4] == pytest.approx([fmean(parts), min(parts)], abs=0.051)

    days: dict[tuple[str, str], list[list[float]]] = {}
    for row in read_csv(RESULTS / "live" / "failing.csv"):
        of_policy = days.setdefault((row["case"], row["policy"]), [])
        of_policy.append([float(row[f"day {day}"]) for day in (1, 2, 3, 4)])
    rows = re.findall(r"^\| (none dead|\d+ % dead|some die and recover) \|(.*)\|$", text, re.M)
    assert len(rows) == 4
    columns = ("Scheduler", "dead ones paused at once", "miniflux", "commafeed")
    for case, cells in rows:
        for policy, cell in zip(columns, cells.split("|"), strict=True):
            means_of_days = [fmean(day) for day in zip(*days[case, policy], strict=True)]
            assert [float(x) for x in cell.split()] == pytest.approx(means_of_days, abs=0.0006)
