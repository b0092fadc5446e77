"""The parts of the study of the live scheduler that measure its load."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest.mock import Mock

import pytest

from experiments.live import process
from experiments.live.command import Live


def test_finished_parts_are_kept_and_other_sizes_stay_in_the_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(process, "SMALL", 40)
    monkeypatch.setattr(process, "BATCHES", (1, 8))
    # All objects of the tests are neither collected nor thawed, and no processes are started.
    monkeypatch.setattr(process, "gc", Mock())
    monkeypatch.setattr(process, "ProcessPoolExecutor", lambda n, *_: ThreadPoolExecutor(n))
    done = []

    def stopped(job):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(job)
        return process.work(job)

    out = tmp_path / "live"
    monkeypatch.setitem(Live.parts, "process", replace(process.PART, work=stopped))
    with pytest.raises(SystemExit):
        Live(only=("process",), sources=80, seconds=0.02, out=out).run()
    assert "2 of 4 parts are finished" in capsys.readouterr().out
    monkeypatch.setitem(Live.parts, "process", process.PART)
    Live(only=("process",), sources=80, seconds=0.02, out=out).run()
    Live(only=("process",), sources=60, seconds=0.02, out=out).run()
    rows = Live(out=out).recorded()["process.csv"]
    assert {row["sources"] for row in rows} == {"80", "40", "60"}
    assert len(rows) == 3 * 2 * 2
    for row in rows:
        assert int(row["pairs_per_s"]) > 0
        assert (row["start_s"] == "") == (row["store"] == "memory")
    assert not list(tmp_path.glob(".live*"))
    assert "leases and outcomes per second" in (out / "report.html").read_text(encoding="utf-8")
