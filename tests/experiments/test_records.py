"""The committed records: each is read by the code that would read it, and tells what is quoted."""

import csv
import gzip
import re
import shutil

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


def test_the_replays_findings_are_those_of_its_records():
    text = (REPLAY / "findings.md").read_text(encoding="utf-8")
    sums = {}  # by budget and agent: rewards of the blocks
    for row in read_csv(REPLAY / "not-observed" / "records.csv"):
        if row["block"] != "all":
            of_budget = sums.setdefault(row["budget"], {})
            of_budget.setdefault(row["agent"], []).append(float(row["reward"]))
    for name in ("static", "lagrangian", "nutch", "miniflux"):
        gains = [statistics.gain(agents["whittle"], agents[name]) for agents in sums.values()]
        cells = [f"{100 * g.mean:+.1f} [{100 * g.low:+.1f}, {100 * g.high:+.1f}]" for g in gains]
        assert f"| {name} | {' | '.join(cells)} |" in text
    shares = re.search(r"\| whittle \| ([\d.]+) %", text)
    assert shares
    rows = [
        row
        for row in read_csv(REPLAY / "not-observed" / "records.csv")
        if (row["budget"], row["agent"]) == ("2.0", "whittle")
    ]
    collected = np.sum([float(row["reward"]) for row in rows])
    published = np.sum([float(row["published"]) for row in rows])
    assert float(shares[1]) == pytest.approx(100 * collected / published, abs=0.05)
