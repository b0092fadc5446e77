"""Logs of pings: what is read, what is refused, and pings on the clock of a log of items."""

import pickle

import numpy as np
import pytest

from crawl_env import ItemLog, PingLog
from tests.crawl_env.log.test_item_log import STAMPS, write
from tests.refusals import refused

HEADER = "source,time\n"
ORIGIN = "2026-03-02T00:00:00Z"


def items(**given):
    return ItemLog(["a", "b", "c"], [0, 1, 0], [1, 5, 9], [1, 1, 1], 0.0, 10.0, **given)


def test_a_table_is_read_whatever_the_order(tmp_path):
    text = "time;source\n7;b\n\n2.5;a\n1;b\n"
    log = PingLog.from_csv(write(tmp_path / "p.csv", text), start=0, end=10)
    assert log.names == ("b", "a")
    assert (log.time.tolist(), log.source.tolist()) == ([1.0, 2.5, 7.0], [0, 1, 0])
    assert (log.start, log.end, log.origin, log.counts.tolist()) == (0.0, 10.0, "", [2, 1])
    assert log.between(1, 7).time.tolist() == [1.0, 2.5]
    assert log.select(["a"]).time.tolist() == [2.5]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_what_is_written_is_read_back_to_the_last_bit(tmp_path, suffix):
    rng = np.random.default_rng(0)
    log = PingLog(["x", "y,z", "silent"], rng.integers(0, 2, 50), rng.normal(size=50), -9, 9)
    log.to_csv(tmp_path / f"p{suffix}")
    read = PingLog.from_csv(tmp_path / f"p{suffix}", start=-9, end=9, sources=log.names)
    for again in (read, pickle.loads(pickle.dumps(log))):
        assert again.time.tolist() == log.time.tolist()
        assert again.source.tolist() == log.source.tolist()
        assert (again.names, again.start, again.end) == (log.names, log.start, log.end)


def test_times_are_read_like_those_of_items(tmp_path):
    for stamps in STAMPS.values():
        text = HEADER + f'a,"{stamps[1]}"\na,"{stamps[0]}"\n'
        log = PingLog.from_csv(write(tmp_path / "p.csv", text))
        assert (log.time.tolist(), log.origin) == ([6.0, 25.5], "2020-11-07T00:00:00Z")
    log = PingLog.from_csv(write(tmp_path / "p.csv", HEADER + "a,1604728800\n"))
    assert (log.time.tolist(), log.origin) == ([6.0], "2020-11-07T00:00:00Z")
    assert "column time are read as Unix times" in log.notes[0]


WRONG = {
    "empty file": ("", ["is empty", "source,time"]),
    "header only": (HEADER, ["no pings", "one row per ping"]),
    "column of items": ("source,published\na,1\n", ["unknown column 'published'"]),
    "no number": (HEADER + "a,1\na,soon\n", ["row 3", "'soon'", "number"]),
    "no source": (HEADER + "a,1\n,1\n", ["row 3", "ping has no source"]),
    "mixed zones": (HEADER + "a,2020-11-07T01:00\na,2020-11-07T02:00Z\n", ["row 3", "time zone"]),
    "number, then stamp": (HEADER + "a,1\na,2020-11-07\n", ["row 3", "'2020-11-07'"]),
    "outside the span": (HEADER + "a,1\na,12\n", ["row 3", "received at 12", "covers 0 to 10"]),
    "unknown source": (HEADER + "a,1\nbb,2\n", ["row 3", "unknown source 'bb'", "select"]),
    "cannot be told": (HEADER + "a,20240501\n", ["time is 20240501", "for most pings"]),
}


def test_what_is_wrong_is_named_with_file_and_row(tmp_path):
    for text, expected in WRONG.values():
        with refused("my pings", *expected):
            PingLog.from_csv(write(tmp_path / "my pings.csv", text), "hour", 0, 10, ["a", "b"])


def test_duplicates_are_counted_and_dropped_on_request(tmp_path):
    path = write(tmp_path / "p.csv", HEADER + "a,2\nb,1\na,2\nb,2\na,2\n")
    log = PingLog.from_csv(path)
    assert len(log) == 5
    assert log.notes[0].startswith("2 of 5 pings repeat another one")
    log = PingLog.from_csv(path, drop_duplicates=True)
    assert (log.counts.tolist(), log.time.tolist()) == ([1, 2], [1.0, 2.0, 2.0])
    assert log.notes[0].endswith("they were dropped.")


def test_pings_take_the_clock_and_the_sources_of_the_items():
    pings = PingLog(["b", "a"], [0, 1, 1, 0], [-48, -47, -40, -30], unit="hour", origin=ORIGIN)
    moved = pings.aligned_with(items(unit="day", origin="2026-02-28T00:00:00Z"))
    assert moved.names == ("a", "b", "c")
    assert moved.time.tolist() == pytest.approx([0, 1 / 24, 8 / 24, 18 / 24])
    assert moved.counts.tolist() == [2, 2, 0]
    assert (moved.start, moved.end, moved.unit) == (0.0, 10.0, "day")
    assert moved.origin == "2026-02-28T00:00:00Z"
    assert "the last ping is at 2026-02-28T18:00:00Z" in moved.notes[-1].replace("The", "the")
    assert "as `fit` does with --from and --until" in moved.notes[-1]  # no other command has these


def test_nothing_is_left_out_in_silence():
    strange = PingLog(["a", "x", "y"], [0, 1, 2, 1, 0], [1, 2, 3, 4, 9])
    with refused("3 of 5 pings are of 2 sources", "(x, y)", "--drop-unknown"):
        strange.aligned_with(items())
    kept = strange.aligned_with(items(), drop_unknown=True)
    assert kept.time.tolist() == [1.0, 9.0]
    assert kept.notes[0].endswith("(x, y); they are left out.")
    late = PingLog(["a"], [0, 0, 0, 0], [-1, 0, 9.5, 10]).aligned_with(items())
    assert late.time.tolist() == [0.0, 9.5]
    assert late.notes[0].startswith("2 of 4 pings are outside the time of the items")
    with refused("no ping is within", "0 hours to 10 hours", "20 hours to 30 hours", "time zones"):
        PingLog(["a"], [0, 0], [20, 30]).aligned_with(items())
    with refused("of the pings are dates", "of the items are numbers"):
        PingLog(["a"], [0], [2], origin=ORIGIN).aligned_with(items())
    with refused("of the items are dates", "of the pings are numbers"):
        PingLog(["a"], [0], [2]).aligned_with(items(origin=ORIGIN))


def test_pings_that_begin_late_are_noted_as_rarely_as_stated():
    rng, noted = np.random.default_rng(1), 0
    for n in (2, 100):
        for _ in range(500):
            noted += len(
                PingLog(["a"], np.zeros(n), 10 * rng.random(n)).aligned_with(items()).notes
            )
    assert noted <= 2  # 2,000 · 1e-4 = 0.2 are expected; more than 2 once in 870
    late = PingLog(["a"], np.zeros(9), np.linspace(8, 9.9, 9)).aligned_with(items())
    assert "--from" in late.notes[0]


def test_arrays_given_in_code_are_checked():
    for message, change in {
        "one number per ping": {"time": [1.0]},
        "ping 1: time is nan": {"time": [1.0, np.nan]},
        "ping 0: source is 2": {"source": [2, 0]},
        "'a' appears twice": {"names": ["a", "a"]},
        "ping 1: received at 2": {"end": 2.0},
        "end must be after start": {"start": 5.0, "end": 4.0},
        "the log has no pings": {"source": [], "time": []},
        "unknown unit": {"unit": "year"},
    }.items():
        with refused(message):
            PingLog(**{"names": ["a", "b"], "source": [0, 1], "time": [1.0, 2.0], **change})
    assert len(PingLog(["a"], [], [], 0, 1)) == 0
