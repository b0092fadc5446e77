"""Logs of items: what is read, what is refused and how, parts of logs, curves."""

import gzip
import pickle
import re

import numpy as np
import pytest

from crawl_env import DecayCurves, ItemLog
from crawl_env.log.clock import far_items
from tests.refusals import refused

HEADER = "source,published,utility\n"


def write(path, text):
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def random_log(seed=0, n=200):
    """A log with curves for some items, in code."""
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 6, n)
    first = np.concatenate(([0], np.cumsum(points)))
    age, remaining = np.zeros(first[-1]), np.ones(first[-1])
    for j in range(n):
        rest = slice(first[j] + 1, first[j + 1])
        size = max(points[j] - 1, 0)
        age[rest] = np.sort(rng.integers(0, 9, size))  # with steps: two points of one age
        remaining[rest] = -np.sort(-rng.random(size))
    names = [f"s{i}" for i in range(7)]
    curves = DecayCurves(first, age, remaining)
    return ItemLog(
        names, rng.integers(0, 7, n), rng.uniform(0, 50, n), rng.random(n), 0, 60, curves
    )


# ------------------------------------------------------------------------- what is read


def test_a_table_is_read_with_its_curves_whatever_the_order(tmp_path):
    items = "item,utility,source,published\nx,5,b,7\n\ny,0,a,2.5\nz,1,b,1\n"
    curves = "age,item,remaining\n0,x,1\n3,z,.5\n2,x,.25\n4,z,.5\n"
    log = ItemLog.from_csv(
        write(tmp_path / "i.csv", items), write(tmp_path / "c.csv", curves), start=0, end=10
    )
    assert log.names == ("b", "a")  # by first appearance in the file
    assert log.source.tolist() == [0, 1, 0]  # by time
    assert log.published.tolist() == [1.0, 2.5, 7.0]
    assert log.utility.tolist() == [1.0, 0.0, 5.0]
    assert (log.start, log.end, log.span, log.origin) == (0.0, 10.0, 10.0, "")
    assert log.curves.first.tolist() == [0, 3, 3, 5]
    assert log.curves.age.tolist() == [0, 3, 4, 0, 2]  # (0, 1) put before the first of z
    assert log.curves.remaining.tolist() == [1, 0.5, 0.5, 1, 0.25]


def test_without_identifiers_curves_name_row_numbers_from_0(tmp_path):
    items = write(tmp_path / "i.csv", HEADER + "a,5,1\nb,3,1\n")
    log = ItemLog.from_csv(items, write(tmp_path / "c.csv", "item,age,remaining\n0,1,.5\n"))
    assert log.curves.recorded.tolist() == [False, True]  # row 0 is the later item


def test_utility_may_be_left_out_and_the_span_is_that_of_the_items(tmp_path):
    log = ItemLog.from_csv(write(tmp_path / "i.csv", "source,published\na,3\nb,-1\n"))
    assert log.utility.tolist() == [1.0, 1.0]
    assert log.start == -1.0
    assert 3.0 < log.end < 3.0 + 1e-12


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_what_is_written_is_read_back_to_the_last_bit(tmp_path, suffix):
    log = random_log()
    log.to_csv(tmp_path / f"i{suffix}", tmp_path / f"c{suffix}")
    again = ItemLog.from_csv(
        tmp_path / f"i{suffix}", tmp_path / f"c{suffix}", start=0, end=60, sources=log.names
    )
    assert same(again, log)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"c{suffix}", f"i{suffix}"]


def same(a, b):
    arrays = [(a.source, b.source), (a.published, b.published), (a.utility, b.utility)]
    if a.curves is not None and b.curves is not None:
        arrays += [(getattr(a.curves, f), getattr(b.curves, f)) for f in ("first", "age")]
        arrays += [(a.curves.remaining, b.curves.remaining)]
    plain = (a.names, a.start, a.end, a.unit, a.origin) == (
        b.names,
        b.start,
        b.end,
        b.unit,
        b.origin,
    )
    return (
        plain
        and (a.curves is None) == (b.curves is None)
        and all(np.array_equal(x, y) for x, y in arrays)
    )


STAMPS = {
    "RFC 822": ["Sat, 07 Nov 2020 06:00:00 GMT", "Sun, 08 Nov 2020 01:30:00 +0000"],
    "RFC 822, zones": ["7 Nov 20 01:00 EST", "Sun, 08 Nov 2020 03:30:00 +0200"],
    "RFC 822, no zone": ["Sat, 7 Nov 2020 06:00", "Sun, 8 Nov 2020 01:30"],
    "two formats": ["2020-11-07T06:00Z", "Sun, 08 Nov 2020 01:30:00 UT"],
    "words for UTC": ["2020-11-07 06:00 UTC", "2020-11-07 20:30:00 -0500"],
    "UTC": ["2020-11-07T06:00:00Z", "2020-11-08T01:30:00Z"],
    "zones": ["2020-11-07T08:00:00+02:00", "2020-11-07T20:30:00-05:00"],
    "no zone": ["2020-11-07 06:00", "2020-11-08 01:30:00"],
    "fractions": ["2020-11-07T06:00:00.000000", "2020-11-08T01:30:00.000"],
}


def test_time_stamps_become_units_since_the_midnight_before(tmp_path):
    for stamps in STAMPS.values():
        text = HEADER + f'a,"{stamps[1]}",1\na,"{stamps[0]}",1\n'
        path = write(tmp_path / "i.csv", text)
        for unit, hours in (("hour", 1), ("day", 24), ("minute", 1 / 60), ("second", 1 / 3600)):
            log = ItemLog.from_csv(path, unit=unit, end="2020-11-09")
            assert log.published.tolist() == pytest.approx([6 / hours, 25.5 / hours], rel=1e-14)
            assert log.end == pytest.approx(48 / hours, rel=1e-14)
            assert (log.origin, log.unit) == ("2020-11-07T00:00:00Z", unit)
            assumed = ("The time stamps in the column published have no time zone",)
            assert all(note.startswith(assumed) for note in log.notes)
            assert len(log.notes) == (
                "+" not in stamps[1] and not re.search("[A-Z]{2}|Z|-05", stamps[1])
            )


@pytest.mark.parametrize("ticks", [1, 1e3, 1e6, 1e9])
def test_unix_times_are_recognised_and_said(tmp_path, ticks):
    first = 1_604_707_200  # 2020-11-07
    rows = "".join(f"a,{(first + 3600 * hour) * ticks:.0f}\n" for hour in (30, 6, 7))
    path = write(tmp_path / "i.csv", "source,published\n" + rows)
    log = ItemLog.from_csv(path)
    assert log.published.tolist() == pytest.approx([6, 7, 30], abs=1e-6)
    assert log.origin == "2020-11-07T00:00:00Z"
    assert "Unix times (unix-" in log.notes[0]
    assert "from 2020-11-07T06:00:00Z to 2020-11-08T06:00:00Z" in log.notes[0]
    plain = ItemLog.from_csv(path, unit="day", time_unit="second")
    assert plain.origin == ""
    assert plain.span == pytest.approx(ticks, rel=1e-6)


def test_numbers_that_cannot_be_told_are_refused(tmp_path):
    for number, unit in (
        ("20240501", "hour"),
        ("738000", "day"),
        ("5e9", "second"),
        ("1e14", "hour"),
    ):
        path = write(tmp_path / "i.csv", f"source,published\na,{number}\nb,{number}\n")
        with refused(
            "i.csv: published is ", "for most items", "--time-unit second|", "2024-05-01T13:30:00Z"
        ):
            ItemLog.from_csv(path, unit=unit)
    assert ItemLog.from_csv(path, unit="hour", time_unit="hour").start == 1e14
    ten_days = write(tmp_path / "s.csv", "source,published\na,0\nb,864000\n")
    with refused("s.csv: published is ", "covers 98.56 years", "--time-unit second|"):
        ItemLog.from_csv(ten_days)
    assert ItemLog.from_csv(ten_days, time_unit="second").published.tolist() == [0, 240]
    with refused("i.csv, row 2: ", "published is 1e+14", "Unix seconds"):
        ItemLog.from_csv(path, time_unit="unix-s")
    sheet = write(tmp_path / "d.csv", "source,published\na,45413.25\nb,45423.5\n")
    with refused("d.csv: published is 45413.25 to 45423.5", "as spreadsheets", "--time-unit hour"):
        ItemLog.from_csv(sheet)
    assert ItemLog.from_csv(sheet, time_unit="hour").unit == "hour"
    mixed = write(
        tmp_path / "m.csv", "source,published\n" + "a,1714521600000\n" * 2 + "a,1714521600\n"
    )
    with refused("m.csv: published is 1714521600 for one item", "the unit unix-s", "unix-ms"):
        ItemLog.from_csv(mixed)
    with refused("unknown time unit 'unix'"):
        ItemLog.from_csv(path, time_unit="unix")
    stamps = write(tmp_path / "i.csv", "source,published\na,2024-05-01\n")
    with refused("i.csv", "holds time stamps", "unix-s"):
        ItemLog.from_csv(stamps, time_unit="unix-s")


def test_numbers_may_be_in_another_unit_than_the_log(tmp_path):
    path = write(tmp_path / "i.csv", "source,published\na,90\nb,-30\n")
    assert ItemLog.from_csv(path, time_unit="minute").published.tolist() == [-0.5, 1.5]


def test_duplicates_are_counted_and_dropped_on_request(tmp_path):
    rows = "x,a,5,1\ny,a,2,1\nx,a,3,7\nx,b,4,1\n"
    path = write(tmp_path / "i.csv", "item,source,published,utility\n" + rows)
    with refused("row 4", "'x' appears twice", "row 2", "2 of 4 rows repeat", "--drop-duplicates"):
        ItemLog.from_csv(path)
    log = ItemLog.from_csv(path, drop_duplicates=True)
    assert (log.published.tolist(), log.utility.tolist()) == ([2.0, 3.0], [1.0, 7.0])
    assert log.notes == ("2 of 4 rows repeat an item; they were dropped.",)
    curves = write(tmp_path / "c.csv", "item,age,remaining\nx,1,.5\n")
    told = ItemLog.from_csv(path, curves, drop_duplicates=True).curves
    assert told.recorded.tolist() == [False, True]
    alike = write(tmp_path / "i.csv", HEADER + "a,1,1\na,1,2\nb,1,1\na,1,1\n")
    assert ItemLog.from_csv(alike).notes[0].startswith("1 of 4 rows repeats another one")
    assert len(ItemLog.from_csv(alike)) == 4
    curves = write(tmp_path / "c.csv", "item,age,remaining\n2,1,.5\n")
    distinct = ItemLog.from_csv(alike, curves, drop_duplicates=True)
    assert (distinct.source.tolist(), distinct.utility.tolist()) == ([0, 0, 1], [1.0, 2.0, 1.0])
    assert distinct.notes[-1].endswith(
        "1 of 4 rows repeats another one (same source, time and utility); they were dropped."
    )
    assert distinct.curves.recorded.tolist() == [False, False, True]
    unnamed = write(tmp_path / "i.csv", "item,source,published\nx,a,1\n,a,2\n,a,2\n")
    with refused("i.csv, row 3", "no identifier"):
        ItemLog.from_csv(unnamed, drop_duplicates=True)


def test_wrong_dates_do_not_move_time_0(tmp_path):
    rows = "".join(f"a,2024-05-{day:02},1\n" for day in range(1, 31))
    path = write(tmp_path / "i.csv", HEADER + "a,1970-01-01,1\n" + rows + "a,2199-01-01,1\n")
    log = ItemLog.from_csv(path, unit="day")
    assert log.origin == "2024-05-01T00:00:00Z"
    assert np.flatnonzero(log.far).tolist() == [0, 31]
    assert [log.date(t) for t in log.published[[0, 31]]] == [
        "1970-01-01T00:00:00Z",
        "2199-01-01T00:00:00Z",
    ]


@pytest.mark.parametrize("n", [10, 300])
def test_items_of_poisson_logs_are_far_as_rarely_as_stated(n):
    rng = np.random.default_rng(n)
    found = sum(far_items(rng.random(n)).any() for _ in range(5000))
    assert found <= 5  # 5000 · 2 · 1e-4 = 1 is expected at most; more than 5 once in 1,700


def test_up_to_one_item_in_a_hundred_is_far():
    times = np.concatenate((np.linspace(0, 10, 296), [-30, -40, 25, 26]))
    for change, far in (([], [296, 297, 298, 299]), ([27.0], [296, 297])):
        assert (
            np.flatnonzero(far_items(np.concatenate((times, change))))[: len(far)].tolist() == far
        )
    assert not far_items(np.concatenate((np.linspace(0, 10, 296), [14, 18, 19, -9]))).any()
    assert not far_items(np.zeros(50)).any()


def test_all_sources_may_be_named_also_silent_ones(tmp_path):
    path = write(tmp_path / "i.csv", HEADER + "b,1,1\na,2,1\n")
    log = ItemLog.from_csv(path, sources=["a", "silent", "b"])
    assert log.names == ("a", "silent", "b")
    assert log.source.tolist() == [2, 0]
    with pytest.raises(ValueError, match=r"i\.csv, row 3: unknown source 'a'"):
        ItemLog.from_csv(path, sources=["b"])


# ------------------------------------------------------------------------- what is refused

WRONG = {
    # text of the table of items, what the message must hold beside the file's name
    "header only": (HEADER, ["no items"]),
    "negative utility": (HEADER + "a,1,1\n\na,2,-3\n", ["row 4", "utility is -3"]),
    "NaN utility": (HEADER + "a,1,nan\n", ["row 2", "utility is nan", "finite"]),
    "time infinite": (HEADER + "a,1,1\na,-inf,1\n", ["row 3", "published is -inf"]),
    "time empty": (HEADER + "a,,1\n", ["row 2", "published is empty"]),
    "time is a word": (HEADER + "a,soon,1\n", ["row 2", "'soon'", "ISO 8601"]),
    "number, then stamp": (HEADER + "a,1,1\na,2020-11-07,1\n", ["row 3", "'2020-11-07'"]),
    "stamp, then number": (
        HEADER + "a,2020-11-07,1\na,1.5,1\n",
        ["row 3", "'1.5'", "time stamp (2020-11-07) in row 2"],
    ),
    "bad stamp": (HEADER + "a,2020-11-07,1\na,2020-13-07,1\n", ["row 3", "'2020-13-07'"]),
    "mixed zones": (
        HEADER + "a,2020-11-07,1\na,2020-11-08,1\na,2020-11-08T00:00Z,1\n",
        ["row 4", "has a time zone", "row 3", "none"],
    ),
    "no source": (HEADER + "a,1,1\n ,1,1\n", ["row 3", "no source"]),
    "no sources": (HEADER + "a,1,1\n ,1,1\n,2,1\n", ["row 3", "2 rows are like this: 3, 4"]),
    "several stamps": (
        HEADER + "a,2020-11-07,1\na,n/a,1\na,2020-11-08,1\na,,1\n",
        ["row 3", ": 3, 5"],
    ),
    "stamp beyond the calendar": (
        HEADER + "a,2020-01-01T00:00+00:00,1\na,0001-01-01T00:00+05:00,1\n",
        ["row 3", "the years 1 to 9999"],
    ),
}


def test_what_is_wrong_is_named_with_file_and_row(tmp_path):
    for text, expected in WRONG.values():
        path = write(tmp_path / "my log.csv", text)
        with refused("my log", *expected):
            ItemLog.from_csv(path)


BAD_CURVES = {
    "unknown item": ("x,0,1\nq,0,1\n", ["row 3", "no item 'q'"]),
    "ages fall": ("x,0,1\nx,2,.5\nx,1,.4\n", ["row 4", "'x'", "age falls to 1"]),
    "rises": ("y,1,.5\ny,2,.6\n", ["row 3", "'y'", "rises to 0.6"]),
    "above one": ("x,1,1.5\n", ["row 2", "remaining is 1.5", "between 0 and 1"]),
    "below zero": ("x,0,1\nx,1,-.1\n", ["row 3", "remaining is -0.1"]),
    "not from one": ("x,0,.9\n", ["row 2", "remaining is 0.9 at age 0"]),
    "negative age": ("x,-1,1\n", ["row 2", "age is -1"]),
    "NaN": ("x,0,1\nx,1,nan\n", ["row 3", "remaining is nan"]),
    "infinite age": ("x,0,1\nx,inf,.5\n", ["row 3", "age is inf"]),
    "no number": ("x,0,1\nx,old,.5\n", ["row 3", "age is 'old'"]),
    "interleaved": ("x,0,1\ny,0,1\nx,2,.5\ny,2,.5\nx,1,.4\n", ["row 6", "'x'", "age falls"]),
}


def test_a_wrong_curve_is_named_with_file_and_row(tmp_path):
    items = write(tmp_path / "i.csv", "item,source,published\nx,a,1\ny,b,0\n")
    for text, expected in BAD_CURVES.values():
        path = write(tmp_path / "my curves.csv", "item,age,remaining\n" + text)
        with refused("my curves", *expected):
            ItemLog.from_csv(items, path)


def test_items_outside_the_span_are_refused_not_dropped(tmp_path):
    path = write(tmp_path / "i.csv", HEADER + "a,1,1\na,5,1\n")
    with pytest.raises(ValueError, match=r"i\.csv, row 3: published at 5.*covers 0 to 5"):
        ItemLog.from_csv(path, start=0, end=5)
    with pytest.raises(ValueError, match=r"row 2: published at 1"):
        ItemLog.from_csv(path, start=2)
    with pytest.raises(ValueError, match="end must be after start"):
        ItemLog.from_csv(path, start=9, end=0)
    with pytest.raises(ValueError, match="times are numbers"):
        ItemLog.from_csv(path, end="2020-11-07")


def test_a_missing_file_and_an_unknown_unit_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        ItemLog.from_csv(tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match="unknown unit 'hours'; did you mean 'hour'"):
        ItemLog.from_csv(tmp_path / "nowhere.csv", unit="hours")


GOOD = {"names": ["a", "b"], "source": [0, 1], "published": [1.0, 2.0], "utility": [1.0, 1.0]}


def test_arrays_given_in_code_are_checked():
    ItemLog(**GOOD)
    for message, change in {
        "one number per item": {"published": [1.0]},
        "item 1: published is nan": {"published": [1.0, np.nan]},
        "item 0: utility is -1": {"utility": [-1.0, 1.0]},
        "item 1: source is 2; it must be a whole number": {"source": [0, 2]},
        "item 1: source is 0.5": {"source": [0, 0.5]},
        "'a' appears twice": {"names": ["a", "a"]},
        "source 1: the source has no name": {"names": ["a", " "]},
        "item 1: published at 2": {"end": 2.0},
        "item 0: published at 1": {"start": 1.5},
        "end must be after start": {"start": 5.0, "end": 4.0},
        "both finite": {"end": np.inf},
        "start is -1e+308 and end is 1.5e+308": {"published": [-1e308, 1e308], "end": 1.5e308},
        "curves has 1 items and the log has 2": {"curves": DecayCurves([0, 0], [], [])},
        "give its start and end": {"source": [], "published": [], "utility": []},
        "unknown unit": {"unit": "year"},
    }.items():
        with refused(message):
            ItemLog(**{**GOOD, **change})


def test_curves_given_in_code_are_checked():
    for first, age, remaining, message in (
        ([0, 1], [0.5], [1.0], "curve of item 0: the curve starts at age 0.5"),
        ([0, 1, 2], [0.0, 0.0], [1.0, 0.5], "curve of item 1: remaining is 0.5 at age 0"),
        ([0, 2], [0.0], [1.0], "run from 0"),
        ([1, 1], [0.0], [1.0], "run from 0"),
        ([0, 1], [0.0], [1.0, 1.0], "run from 0"),
        ([0, 2, 1, 3], [0.0, 1, 2], [1.0, 1, 1], "run from 0"),
        ([0, 0.5, 1], [0.0], [1.0], "first must contain integers"),
        ([0, 0, 3], [0.0, 2, 1], [1.0, 1, 1], "curve of item 1: age falls"),
    ):
        with refused(message):
            DecayCurves(first, age, remaining)


# ------------------------------------------------------------------------- parts of a log


def test_a_stretch_of_time_keeps_sources_items_and_curves():
    log = random_log()
    part = log.between(10, 30)
    inside = (log.published >= 10) & (log.published < 30)
    assert part.names == log.names
    assert (part.start, part.end, len(part)) == (10, 30, inside.sum())
    assert part.utility.tolist() == log.utility[inside].tolist()
    assert_same_curves(part, log, np.flatnonzero(inside))
    assert len(log.between(55, 60)) == 0
    assert same(log.between(0, 60), log)
    for start, end in ((-1, 10), (10, 61), (20, 10), (5, 5)):
        with pytest.raises(ValueError, match="the log covers 0 to 60 hours"):
            log.between(start, end)


def test_a_log_may_be_said_to_cover_more_time_than_its_items(tmp_path):
    log = random_log()
    wide = log.covering(-5, 20)
    assert (wide.start, wide.end) == (-5, 20)
    assert wide.published.tolist() == log.published[log.published < 20].tolist()
    assert same(log.covering(None, None), log)
    text = HEADER + "a,2024-05-01T06:00Z,1\na,2024-05-03T06:00Z,1\n"
    stamped = ItemLog.from_csv(write(tmp_path / "i.csv", text), unit="day")
    assert stamped.covering("2024-05-02", "2024-05-05").published.tolist() == [2.25]
    assert stamped.covering("2024-05-02", "2024-05-05").span == 3.0
    with pytest.raises(ValueError, match="end must be after start"):
        log.covering(9, 3)
    with refused("times are numbers; give a number"):
        log.covering("2024-05-02", None)
    with refused("start is '2024-05-32'; give an ISO 8601 time stamp"):
        stamped.covering("2024-05-32", None)
    assert repr(stamped) == "ItemLog(2 items of 1 source, 0.25 to 2.25 days)"
    assert repr(log) == "ItemLog(200 items of 7 sources, 0 to 60 hours, with curves)"
    with refused("the log has no curves to write"):
        stamped.to_csv(tmp_path / "i.csv", tmp_path / "c.csv")


def test_sources_are_selected_in_the_order_asked_for():
    log = random_log()
    part = log.select(["s5", "s2"])
    assert part.names == ("s5", "s2")
    kept = np.flatnonzero(np.isin(log.source, (5, 2)))
    assert part.published.tolist() == log.published[kept].tolist()
    assert [part.names[i] for i in part.source] == [log.names[i] for i in log.source[kept]]
    assert_same_curves(part, log, kept)
    assert (part.start, part.end) == (log.start, log.end)
    with pytest.raises(ValueError, match="unknown source 's9'"):
        log.select(["s9"])


def assert_same_curves(part, log, kept):
    assert part.curves is not None
    assert log.curves is not None
    for new, old in enumerate(kept):
        a = slice(*part.curves.first[new : new + 2])
        b = slice(*log.curves.first[old : old + 2])
        assert part.curves.age[a].tolist() == log.curves.age[b].tolist()
        assert part.curves.remaining[a].tolist() == log.curves.remaining[b].tolist()


def test_items_given_out_of_order_are_sorted_with_their_curves():
    log = random_log()
    assert log.curves is not None
    shuffled = np.random.default_rng(1).permutation(len(log))
    again = ItemLog(
        log.names,
        log.source[shuffled],
        log.published[shuffled],
        log.utility[shuffled],
        0,
        60,
        log.curves.select(shuffled),
    )
    assert same(again, log)


def test_arrays_cannot_be_changed_also_in_copies():
    given = np.array([1.0, 2.0])
    log = ItemLog(["a"], [0, 0], given, [1, 1], curves=DecayCurves([0, 1, 1], [0], [1]))
    given[0] = 9.0
    assert log.published[0] == 1.0
    for copy in (log, pickle.loads(pickle.dumps(log))):
        assert same(copy, log)
        for array in (copy.source, copy.published, copy.utility, copy.curves.age):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0


# ------------------------------------------------------------------------- curves


def test_the_remaining_fraction_is_linear_between_points_and_then_stays():
    curves = random_log(seed=3, n=400).curves
    assert curves is not None
    rng = np.random.default_rng(0)
    recorded = np.flatnonzero(curves.recorded)
    item, age = rng.choice(recorded, 3000), rng.uniform(0, 12, 3000)
    got = curves.remaining_at(item, age)
    for j, t, fraction in zip(item, age, got, strict=True):
        points = slice(*curves.first[j : j + 2])
        wanted = np.interp(t, curves.age[points], curves.remaining[points])
        assert fraction == pytest.approx(wanted, abs=1e-12)
    assert curves.remaining_at(recorded[:, None], [0.5, 1.5]).shape == (recorded.size, 2)


def test_two_points_of_one_age_are_a_drop():
    curves = DecayCurves([0, 4], [0, 2, 2, 4], [1, 0.8, 0.2, 0.0])
    assert curves.remaining_at(0, [1.0, 2.0, 3.0, 50.0]).tolist() == [0.9, 0.2, 0.1, 0.0]
    assert curves.remaining_at(0, np.nextafter(2.0, 0.0)) == pytest.approx(0.8)
    assert DecayCurves([0, 2], [0, 0], [1, 0.5]).remaining_at(0, 0.0) == 0.5


def test_an_item_without_a_curve_has_no_fraction():
    curves = DecayCurves([0, 1, 1], [0.0], [1.0])
    with pytest.raises(ValueError, match=re.escape("item 1 has no curve")):
        curves.remaining_at([0, 1], 2.0)
