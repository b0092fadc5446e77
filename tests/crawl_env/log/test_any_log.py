"""Any file is read right, or refused with a sentence that names the file."""

import csv
import io
import tempfile
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_env import ItemLog

names = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1, max_size=8)
moments = st.datetimes(datetime(1990, 1, 2), datetime(2099, 1, 1)).map(
    lambda x: x.replace(microsecond=0, tzinfo=UTC)
)
FORMATS = {
    "unix-s": lambda x: f"{x.timestamp():.0f}",
    "unix-ms": lambda x: f"{x.timestamp() * 1000:.0f}",
    "iso": lambda x: x.isoformat(),
    "zulu": lambda x: x.strftime("%Y-%m-%d %H:%M:%SZ"),
    "rfc": lambda x: format_datetime(x),
    "gmt": lambda x: format_datetime(x, usegmt=True),
}


@settings(max_examples=30)
@given(
    rows=st.lists(st.tuples(names.filter(str.strip), moments), min_size=1, max_size=6),
    form=st.sampled_from(sorted(FORMATS)),
    newline=st.sampled_from(["\n", "\r\n"]),
    mark=st.sampled_from(["", "\ufeff"]),
)
def test_a_good_log_is_read_right(rows, form, newline, mark):
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=newline)
    writer.writerow(["source", "published"])
    writer.writerows((name, FORMATS[form](moment)) for name, moment in rows)
    log = read((mark + text.getvalue()).encode())
    moments_ = sorted(moment for _, moment in rows)
    assert log.names == tuple(dict.fromkeys(name.strip() for name, _ in rows))
    assert [log.date(time) for time in log.published] == [
        moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in moments_
    ]


ODD_CELLS = ["", "a", "1", "1e400", "-1", "nan", "inf", "0", "1714521600", "20240501", "1e18"]
ODD_CELLS += ["2024-05-01", "0001-01-01T00:00+14:00", "Tue, 15 Nov 1994 12:45:26 GMT", "24:00"]
ODD_CELLS += ["9999-12-31T23:59-12:00", "31 Feb 2024 00:00 EST", "2024-W01", "\0", '"', "'", ";"]
HEADERS = (
    "source,published,utility",
    "source,published",
    "item,source,published",
    "source;published",
    "published,source,source",
    "Source,published",
    "",
    "\ufeffsource,published,item,utility",
)
cells = st.one_of(
    st.sampled_from(ODD_CELLS), st.floats().map(repr), st.integers().map(str), st.text(max_size=5)
)


@settings(max_examples=100)
@given(
    header=st.sampled_from(HEADERS),
    rows=st.lists(st.lists(cells, min_size=1, max_size=4), max_size=5),
    cut=st.integers(0, 40),
    unit=st.sampled_from(["second", "hour", "day"]),
    time_unit=st.sampled_from(["auto", "auto", "hour", "unix-s", "unix-ns"]),
    drop=st.booleans(),
)
def test_a_bad_log_is_refused_with_a_sentence(header, rows, cut, unit, time_unit, drop):
    content = "\n".join([header, *map(",".join, rows)]).encode("utf-8", "surrogatepass")
    assert_read_or_refused(content[: len(content) - cut], unit, time_unit, drop)


@settings(max_examples=50)
@given(content=st.binary(max_size=60), head=st.sampled_from([b"", b"source,published\na,1\n"]))
def test_any_bytes_are_refused_with_a_sentence(content, head):
    assert_read_or_refused(head + content)


def assert_read_or_refused(content, unit="hour", time_unit="auto", drop=False):
    for name in ("log.csv", "log.csv.gz", "log.parquet")[: 1 if content else 3]:
        try:
            log = read(content, name, unit=unit, time_unit=time_unit, drop_duplicates=drop)
        except ValueError as error:
            said = str(error)
            assert_that(name in said and len(said) < 2000, said)
        else:
            assert_that(len(log) > 0 and np.isfinite(log.published).all(), log)
            assert_that(log.date(log.published[0]) != "", log)


def assert_that(holds, shown):
    assert holds, shown


def read(content, name="log.csv", **options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        return ItemLog.from_csv(path, **options)


def test_the_largest_numbers_are_refused():
    for rows in ("a,-1.7e308\nb,1.7e308\nc,1.6e308\nd,1\n", "a,1.7e308\nb,1.7e308\n"):
        assert_read_or_refused(b"source,published\n" + rows.encode())
