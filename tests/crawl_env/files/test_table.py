"""Tables in files, on the example of fleets: exact round trips, errors that name file and row."""

import builtins
import gzip
import math
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_env.files import table
from crawl_env.files.table import Column
from crawl_env.fleet.sources import PARAMETERS, Sources
from tests.references import plainly
from tests.refusals import refused

HEADER = "source,arrival_rate,mean_utility,decay_rate,cost\n"
positive = st.floats(1e-90, 1e90, allow_subnormal=False)
name = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).map(str.strip)


@st.composite
def fleets(draw):
    names = draw(st.lists(name.filter(bool), min_size=1, max_size=6, unique=True))
    columns = {
        p: draw(st.lists(positive, min_size=len(names), max_size=len(names))) for p in PARAMETERS
    }
    if draw(st.booleans()):
        columns["arrival_rate"][0] = 0.0
    return Sources(**columns, names=names)


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# ------------------------------------------------------------------------- what is read


@plainly
@given(fleet=fleets())
def test_what_is_written_is_read_back_to_the_last_bit(fleet):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.csv"
        fleet.to_csv(path)
        again = Sources.from_csv(path)
        assert os.listdir(folder) == ["fleet.csv"]
    assert again.names == fleet.names
    for p in PARAMETERS:
        assert getattr(again, p).tolist() == getattr(fleet, p).tolist()


HARMLESS = {
    "byte order mark": "\ufeff" + HEADER + "a,1,2,3,4\nb,5,6,7,8\n",
    "blank lines": HEADER + "\na,1,2,3,4\n\n\nb,5,6,7,8\n\n",
    "blank line above the header": "\n" + HEADER + "a,1,2,3,4\nb,5,6,7,8\n",
    "windows": (HEADER + "a,1,2,3,4\nb,5,6,7,8\n").replace("\n", "\r\n"),
    "no last newline": HEADER + "a,1,2,3,4\nb,5,6,7,8",
    "spaces": HEADER.replace(",", " , ") + " a , 1, 2 ,3,4\nb,5,6,7,8\n",
    "quotes": '"source",' + HEADER[7:] + '"a","1",2,3,4\nb,5,6,"7",8\n',
}


def test_harmless_differences_do_not_matter(tmp_path):
    for text in HARMLESS.values():
        for name, content in (("f.csv", text.encode()), ("f.csv.gz", gzip.compress(text.encode()))):
            fleet = Sources.from_csv(write(tmp_path / name, content))
            assert fleet == Sources([1, 5], [2, 6], [3, 7], [4, 8], names=["a", "b"])


def test_rows_across_reading_batches_keep_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "BATCH", 3)
    text = HEADER + "".join(f"s{i},{i},1,1,1\n" + "\n" * (i % 5) for i in range(20))
    fleet = Sources.from_csv(write(tmp_path / "f.csv", text))
    assert fleet.arrival_rate.tolist() == list(range(20))
    assert fleet.names == tuple(f"s{i}" for i in range(20))


@pytest.mark.parametrize("mark", [";", "\t"])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_semicolons_and_tabs_separate_like_commas(tmp_path, mark, suffix):
    text = HEADER + '"a",1,2.5,3,4\n\nb,1,2,3,4\n'
    expected = Sources.from_csv(write(tmp_path / "commas.csv", text))
    pack = gzip.compress if suffix.endswith("gz") else bytes
    path = tmp_path / f"f{suffix}"
    write(path, pack(("\ufeff\n" + text.replace(",", mark)).encode()))
    assert Sources.from_csv(path) == expected
    write(path, pack((text.replace(",", mark) + "\nc, 1\n").encode()))
    with refused("row 6", "1 value under 5 columns"):
        Sources.from_csv(path)


# ------------------------------------------------------------------------- what is refused

ROW = "a,1,2,3,4\n"
LONG_NAME = '"two\nlines",1,2,3,4\n'

WRONG = {
    # text of the file, what the message must hold beside the file's name
    "empty file": ("", ["is empty", "source,arrival_rate,mean_utility,decay_rate"]),
    "blank file": ("\n\n", ["is empty"]),
    "header only": (HEADER, ["no sources", "one row per source"]),
    "header and blank lines": (HEADER + "\n\n", ["no sources"]),
    "missing column": ("source,arrival_rate,decay_rate\na,1,1\n", ["missing", "mean_utility"]),
    "missing columns": ("source,cost\na,1\n", ["arrival_rate, mean_utility, decay_rate"]),
    "no names": ("arrival_rate,mean_utility,decay_rate\n1,1,1\n", ["missing column source"]),
    "extra column": (HEADER[:-1] + ",colour\na,1,2,3,4,red\n", ["unknown column 'colour'"]),
    "misspelt column": (
        HEADER.replace("decay_rate", "decay rate") + ROW,
        ["'decay rate'", "did you mean 'decay_rate'"],
    ),
    "other case": (HEADER.replace("cost", "Cost") + ROW, ["did you mean 'cost'"]),
    "duplicate column": (
        "source,arrival_rate,mean_utility,decay_rate,cost,cost\na,1,2,3,4,4\n",
        ["'cost'", "twice"],
    ),
    "duplicate source": (HEADER + ROW + "b,1,1,1,1\n\n" + ROW, ["row 5", "'a'", "row 2"]),
    "duplicate after stripping": (HEADER + ROW + " a ,1,1,1,1\n", ["row 3", "'a'", "row 2"]),
    "source without a name": (HEADER + ROW + " ,1,2,3,4\n", ["row 3", "no name"]),
    "too few cells": (HEADER + ROW + "b,1,2\n", ["row 3", "3 values", "5 columns"]),
    "too many cells": (HEADER + ROW + "\nb,1,2,3,4,5\n", ["row 4", "6 values", "5 columns"]),
    "not a number": (HEADER + ROW + "b,1,2,fast,4\n", ["row 3", "decay_rate", "'fast'"]),
    "empty cell": (HEADER + ROW + "b,,2,3,4\n", ["row 3", "arrival_rate", "is empty"]),
    "comma as decimal": (HEADER + '"a","1,5",2,3,4\n', ["row 2", "arrival_rate", "'1,5'"]),
    "NaN": (HEADER + "a,nan,2,3,4\n", ["row 2", "'a'", "arrival_rate", "finite"]),
    "infinite": (HEADER + ROW + "b,1,inf,3,4\n", ["row 3", "'b'", "mean_utility", "finite"]),
    "negative": (HEADER + ROW + "b,-1,2,3,4\n", ["row 3", "'b'", "arrival_rate is -1"]),
    "zero decay": (HEADER + ROW + "b,1,2,0,4\n", ["row 3", "'b'", "decay_rate", "positive"]),
    "zero cost": (HEADER + "b,1,2,3,0\n", ["row 2", "'b'", "cost", "positive"]),
    "negative below a long name": (HEADER + LONG_NAME + "b,1,2,3,-4\n", ["row 4", "'b'", "cost"]),
    "no number below a long name": (HEADER + LONG_NAME + "\nb,1,2,3,x\n", ["row 5", "cost"]),
    "too few cells below a long name": (HEADER + LONG_NAME + "b,1\n", ["row 4", "2 values"]),
    "quote never closed": (HEADER + ROW + '"b,1,2,3,4\n', ["row 3", "quotes"]),
    "text after a quote": (HEADER + ROW + '"b"c,1,2,3,4\n', ["row 3", "quotes"]),
    "semicolons and decimal commas": (
        HEADER.replace(",", ";") + "a;1,5;2;3;4\n",
        ["row 2", "arrival_rate is '1,5'", "decimals with a point"],
    ),
    "other separators below": (HEADER + ROW.replace(",", ";"), ["row 2", "1 value ", "as in the"]),
    "several other columns": (
        "feed,arrival_rate,mean_utility,decay,cost\n" + ROW,
        ["unknown column 'feed'", "Rename 'feed', 'decay', or", "missing columns source, decay"],
    ),
    "several rows": (HEADER + "a,x,1,1,1\n" + ROW + "b,,1,1,1\n", ["row 2", "2 rows", ": 2, 4"]),
    "several widths": (
        HEADER + "a\n\n" * 9 + ROW, ["row 2", "9 rows are like this: 2, 4, 6,", "16, …"],
    ),
    "latin-1": ((HEADER + ROW + "café,1,2,3,4\n").encode("latin-1"), ["UTF-8"]),
    "utf-16": ((HEADER + ROW).encode("utf-16"), ["UTF-8"]),
    "null bytes": (HEADER + "a,1,2,3,\0\n", ["row 2", "cost is '\\x00'"]),
    "huge whole number": (HEADER + ROW + "b," + "9" * 5000 + ",2,3,4\n", ["row 3", "is inf"]),
    "huge cell": (HEADER + ROW + "b," + "x" * 9000 + ",2,3,4\n", ["row 3", "xxx..."]),
    "huge field": (HEADER + ROW + "b," + "1" * 200_000 + ",2,3,4\n", ["row 3", "field limit"]),
    "huge line": (HEADER + ROW + "," * (1 << 21), ["not valid CSV", "characters"]),
    "values out of range together": (HEADER + ROW + "b,1e300,1e300,1,1\n", ["row 3", "units"]),
    "python's number": (HEADER + "a,1_0,2,3,4\n", ["row 2", "'1_0', not a number"]),
    "digits of another script": (HEADER + "a,١,2,3,4\n", ["row 2", "not a number"]),
}  # fmt: skip


def test_what_is_wrong_is_named_with_file_and_row(tmp_path):
    for text, expected in WRONG.values():
        path = write(tmp_path / "fleet of mine.csv", text)
        with refused("fleet of mine", *expected):
            Sources.from_csv(path)


def test_too_many_rows_are_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "f.csv", HEADER + "".join(f"s{i},1,2,3,4\n" for i in range(20)))
    monkeypatch.setattr(table, "MOST_ROWS", 19)
    with refused("f.csv has more than 19 rows"):
        Sources.from_csv(path)


def test_a_damaged_gzip_file_is_refused(tmp_path):
    rng = np.random.default_rng(0)
    rows = "".join(f"s{i},{x},1,1,1\n" for i, x in enumerate(rng.random(5000)))
    whole = gzip.compress((HEADER + rows).encode())
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 0xFF
    unpackable = whole[:10] + b"\xff" * 4 + whole[14:]
    for data in (whole[: len(whole) // 2], whole[:-4], bytes(broken), unpackable, rows.encode()):
        path = write(tmp_path / "f.csv.gz", data)
        with pytest.raises(ValueError, match=r"f\.csv\.gz.*(gzip|UTF-8|not a number|values)"):
            Sources.from_csv(path)


def test_the_row_is_right_beyond_the_first_reading_batch(tmp_path):
    good = HEADER + "".join(f"s{i},1,2,3,4\n" for i in range(9000))
    latin = "é,1,2,3,4\n".encode("latin-1")
    bad_rows = ("b,1,2,3\n", "b,x,2,3,4\n", "b,-1,2,3,4\n", "s7,1,2,3,4\n", '"b"c,1,2,3,4\n')
    for bad in (*map(str.encode, bad_rows), latin):
        path = write(tmp_path / "f.csv", good.encode() + bad + b"c,1,2,3,4\n")
        with pytest.raises(ValueError, match=r"f\.csv, row 9002\b"):
            Sources.from_csv(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        Sources.from_csv(tmp_path / "nowhere.csv")


# ------------------------------------------------------------------------- writing


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = write(tmp_path / "f.csv", "x" * 10_000)
    names = iter(["a", "b"])
    with pytest.raises(ValueError, match="longer"):
        table.write(path, {"source": names, "cost": ["1", "2", "3"]})
    assert path.read_text() == "x" * 10_000
    assert os.listdir(tmp_path) == ["f.csv"]
    Sources(1.0, 2.0, 3.0).to_csv(path)
    assert Sources.from_csv(path) == Sources(1.0, 2.0, 3.0, names=["1"])
    with pytest.raises(FileNotFoundError, match="create it first"):
        Sources(1.0, 2.0, 3.0).to_csv(tmp_path / "nowhere" / "f.csv")
    with refused("f.parquet: Parquet files can only be read"):
        Sources(1.0, 2.0, 3.0).to_csv(tmp_path / "f.parquet")


def test_the_same_table_makes_the_same_compressed_file(tmp_path):
    contents = set()
    for name in ("a.csv.gz", "b.csv.gz"):
        Sources.random(20, seed=1).to_csv(tmp_path / name)
        contents.add((tmp_path / name).read_bytes())
    assert len(contents) == 1
    assert Sources.from_csv((tmp_path / "a.csv.gz").rename(tmp_path / "A.CSV.GZ")) == Sources(
        **{**Sources.random(20, seed=1).__getstate__(), "names": tuple(map(str, range(1, 21)))}
    )


def test_numbers_are_written_as_plain_text(tmp_path):
    Sources(0.1, 1 / 3, math.pi, 1e-7, names=["a"]).to_csv(tmp_path / "f.csv")
    lines = (tmp_path / "f.csv").read_text().splitlines()
    assert lines == [HEADER.strip(), "a,0.1,0.3333333333333333,3.141592653589793,1e-07"]


def test_a_file_that_could_not_be_read_back_is_not_written(tmp_path):
    path = tmp_path / "f.csv"
    for rows in (2, 3):
        batch = Sources.stack([Sources([1.0, 2.0], 1.0, 1.0)] * rows)
        with refused("batch"):
            batch.to_csv(path)
    assert not path.exists()


# ------------------------------------------------------------------------- Parquet

KINDS = (
    Column("source", "text"),
    Column("cost", "number", required=False, default=1.0),
    Column("published", "time", required=False),
)


def parquet_file(path, **columns):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table(columns), path)
    return path


def test_parquet_is_read_like_csv(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    stamps = np.array(["2020-11-07T06:00", "2020-11-08"], dtype="datetime64[us]")
    words = arrow.array(["a", "b"])
    zoned = arrow.array(stamps.astype("datetime64[ns]")).cast(arrow.timestamp("ns", "Asia/Tokyo"))
    for source in (words, words.dictionary_encode(), words.cast(arrow.large_string())):
        for cost in (arrow.array([2, None], arrow.int8()), arrow.array([2.0, None]).cast("float")):
            for published in (stamps.astype("datetime64[s]"), zoned, list(map(str, stamps))):
                path = parquet_file(
                    tmp_path / "f.parquet", source=source, cost=cost, published=published
                )
                rows = table.read(path, KINDS, "item")
                assert rows.text["source"] == ["a", "b"]
                assert rows.number["cost"].tolist() == [2.0, 1.0]
                assert rows.time["published"].tolist() == stamps.tolist()
                assert len(rows.notes) == (published is not zoned)  # read as UTC
    numbered = parquet_file(tmp_path / "f.parquet", source=[7, None], published=[1, 2])
    rows = table.read(numbered, KINDS, "item")
    assert rows.text["source"] == ["7", ""]
    assert rows.time["published"].tolist() == [1.0, 2.0]
    dates = parquet_file(
        tmp_path / "f.parquet", source=["a"], published=arrow.array([0], arrow.date32())
    )
    assert table.read(dates, KINDS, "item").time["published"] == np.datetime64("1970-01-01")


def test_what_is_wrong_in_parquet_is_named(tmp_path, monkeypatch):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "f.parquet"
    far = np.array([2**62], dtype="datetime64[ms]")
    early = np.array([-(2**62)], dtype="datetime64[us]")
    for columns, parts in (
        ({"source": [[1]]}, ["column source holds list", "it must hold text"]),
        ({"source": [b"a"]}, ["column source holds binary"]),
        ({"source": ["a"], "cost": [[1.0]]}, ["column cost holds list", "must hold numbers"]),
        ({"source": ["a"], "cost": ["x"]}, ["f.parquet, row 1: cost is 'x', not a number"]),
        ({"source": ["a", "b"], "published": [1.0, None]}, ["row 2: published is empty"]),
        ({"source": ["a"], "published": [[1.0]]}, ["must hold numbers or time stamps"]),
        ({"source": ["a"], "published": far}, ["column published cannot be read"]),
        ({"source": ["a"], "published": early}, ["row 1: published is -", "years 1 to 9999"]),
        ({"source": ["a"], "colour": [1]}, ["unknown column 'colour'"]),
        ({"cost": [1]}, ["missing column source"]),
        ({"source": arrow.array([], arrow.string())}, ["no items below the header"]),
    ):
        parquet_file(path, **columns)
        with refused("f.parquet", *parts):
            table.read(path, KINDS, "item")
    twice = arrow.table([["a"], ["b"]], names=["source", "source"])
    parquet.write_table(twice, path)
    with refused("column 'source' appears twice"):
        table.read(path, KINDS, "item")
    parquet_file(path, source=["a"] * 1000)  # one run: some hundred bytes, however many rows
    whole = path.read_bytes()
    rows = table.read(path, KINDS, "item").text["source"]
    assert rows == ["a"] * 1000
    assert len(set(map(id, rows))) == 1  # repeated text is held once
    for part in (b"", b"source\na\n", whole[:-20], whole[: len(whole) // 2], whole[10:]):
        write(path, part)
        with refused("f.parquet: not a whole Parquet file"):
            table.read(path, KINDS, "item")
    write(path, whole)
    monkeypatch.setattr(table, "MOST_ROWS", 999)
    with refused("more than 999 rows"):
        table.read(path, KINDS, "item")


def test_damaged_parquet_is_read_as_text_or_refused(tmp_path):
    """Every third byte in turn is another: nothing but a ValueError may come of it."""
    path = parquet_file(tmp_path / "f.parquet", source=["a", "b"], cost=[1.0, 2.0])
    whole = path.read_bytes()
    for i in range(0, len(whole), 3):
        write(path, whole[:i] + bytes([whole[i] ^ 0x55]) + whole[i + 1 :])
        outcome = "read"
        try:
            table.read(path, KINDS, "item")
        except ValueError as error:
            outcome = str(error)
        assert outcome == "read" or "f.parquet" in outcome


def test_parquet_without_its_library_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with refused("part of the extra 'parquet'"):
        table.read(tmp_path / "f.parquet", KINDS, "item")
