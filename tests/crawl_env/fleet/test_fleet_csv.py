"""Fleets as CSV: exact round trips, errors that name file and row, files that appear whole."""

from __future__ import annotations

import math
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_env.files import csv_table as csv_file
from crawl_env.fleet import fleet_csv
from crawl_env.fleet.sources import PARAMETERS, Sources
from tests.references import plainly

HEADER = "source,arrival_rate,mean_utility,decay_rate,cost\n"
positive = st.floats(1e-90, 1e90, allow_subnormal=False)
name = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).map(str.strip)


@st.composite
def fleets(draw: st.DrawFn) -> Sources:
    names = draw(st.lists(name.filter(bool), min_size=1, max_size=6, unique=True))
    columns = {
        p: draw(st.lists(positive, min_size=len(names), max_size=len(names))) for p in PARAMETERS
    }
    if draw(st.booleans()):
        columns["arrival_rate"][0] = 0.0
    return Sources(**columns, names=names)


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# ------------------------------------------------------------------------- what is read


@plainly
@given(fleet=fleets())
def test_what_is_written_is_read_back_to_the_last_bit(fleet: Sources) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.csv"
        fleet.to_csv(path)
        again = Sources.from_csv(path)
        assert os.listdir(folder) == ["fleet.csv"]
    assert again.names == fleet.names
    for p in PARAMETERS:
        assert getattr(again, p).tolist() == getattr(fleet, p).tolist()


def test_the_period_is_the_readers_and_numbers_name_unnamed_sources(tmp_path: Path) -> None:
    Sources([1.0, 2.0], 0.1, 0.3, period=5.0).to_csv(tmp_path / "f.csv")
    fleet = Sources.from_csv(tmp_path / "f.csv", period=2.0)
    assert fleet.period == 2.0
    assert fleet.names == ("1", "2")
    assert fleet.arrival_rate.tolist() == [1.0, 2.0]


def test_a_path_may_be_text(tmp_path: Path) -> None:
    path = str(tmp_path / "f.csv")
    Sources(1.0, 2.0, 3.0, 4.0).to_csv(path)
    assert Sources.from_csv(path).cost.tolist() == [4.0]


def test_columns_may_stand_in_any_order_and_cost_may_be_left_out(tmp_path: Path) -> None:
    text = "decay_rate,source,mean_utility,arrival_rate\n.5,a,2,3\n.25,b,1e-3,0\n"
    fleet = Sources.from_csv(write(tmp_path / "f.csv", text))
    assert fleet.names == ("a", "b")
    assert fleet.arrival_rate.tolist() == [3.0, 0.0]
    assert fleet.mean_utility.tolist() == [2.0, 0.001]
    assert fleet.decay_rate.tolist() == [0.5, 0.25]
    assert fleet.cost.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\ufeff" + HEADER + "a,1,2,3,4\nb,5,6,7,8\n", id="byte order mark"),
        pytest.param(HEADER + "\na,1,2,3,4\n\n\nb,5,6,7,8\n\n", id="blank lines"),
        pytest.param("\n" + HEADER + "a,1,2,3,4\nb,5,6,7,8\n", id="blank line above the header"),
        pytest.param((HEADER + "a,1,2,3,4\nb,5,6,7,8\n").replace("\n", "\r\n"), id="windows"),
        pytest.param(HEADER + "a,1,2,3,4\nb,5,6,7,8", id="no last newline"),
        pytest.param(HEADER.replace(",", " , ") + " a , 1, 2 ,3,4\nb,5,6,7,8\n", id="spaces"),
        pytest.param('"source",' + HEADER[7:] + '"a","1",2,3,4\nb,5,6,"7",8\n', id="quotes"),
    ],
)
def test_harmless_differences_do_not_matter(tmp_path: Path, text: str) -> None:
    fleet = Sources.from_csv(write(tmp_path / "f.csv", text))
    assert fleet == Sources([1, 5], [2, 6], [3, 7], [4, 8], names=["a", "b"])


def test_names_may_hold_commas_quotes_and_newlines(tmp_path: Path) -> None:
    text = HEADER + '"a, b\nc",1,2,3,4\n"say ""hi""",5,6,7,8\nélan,1,1,1,1\n'
    fleet = Sources.from_csv(write(tmp_path / "f.csv", text))
    assert fleet.names == ("a, b\nc", 'say "hi"', "élan")


def test_rows_across_reading_batches_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_file, "BATCH", 3)
    text = HEADER + "".join(f"s{i},{i},1,1,1\n" + "\n" * (i % 5) for i in range(20))
    fleet = Sources.from_csv(write(tmp_path / "f.csv", text))
    assert fleet.arrival_rate.tolist() == list(range(20))
    assert fleet.names == tuple(f"s{i}" for i in range(20))


def test_a_large_fleet_is_read_and_written_in_seconds(tmp_path: Path) -> None:
    """A million rows should take less than 15 s; this is a fifth of them on a busy machine."""
    n = 200_000
    fleet = Sources.random(n, seed=1)
    start = time.perf_counter()
    fleet.to_csv(tmp_path / "f.csv")
    again = Sources.from_csv(tmp_path / "f.csv")
    assert time.perf_counter() - start < 12
    assert len(again) == n
    assert np.array_equal(again.mean_utility, fleet.mean_utility)


# ------------------------------------------------------------------------- what is refused

ROW = "a,1,2,3,4\n"
LONG_NAME = '"two\nlines",1,2,3,4\n'

WRONG = {
    # text of the file, what the message must hold beside the file's name
    "empty file": ("", ["is empty", "source,arrival_rate,mean_utility,decay_rate"]),
    "blank file": ("\n\n", ["is empty"]),
    "header only": (HEADER, ["no sources"]),
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
    "semicolons": (HEADER.replace(",", ";") + ROW.replace(",", ";"), ["semicolons", "commas"]),
    "latin-1": ((HEADER + ROW + "café,1,2,3,4\n").encode("latin-1"), ["UTF-8"]),
    "utf-16": ((HEADER + ROW).encode("utf-16"), ["UTF-8"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_with_file_and_row(tmp_path: Path, case: str) -> None:
    text, expected = WRONG[case]
    path = write(tmp_path / "fleet of mine.csv", text)
    with pytest.raises(ValueError, match="fleet of mine") as error:
        Sources.from_csv(path)
    for part in expected:
        assert part in str(error.value)


@pytest.mark.parametrize("far", [10, 10_000], ids=["near the top", "far down"])
def test_an_undecodable_byte_is_found_where_it_stands(tmp_path: Path, far: int) -> None:
    good = (HEADER + "".join(f"s{i},1,2,3,4\n" for i in range(far))).encode()
    path = write(tmp_path / "f.csv", good + "é,1,2,3,4\n".encode("latin-1"))
    with pytest.raises(ValueError, match=re.escape(str(path))) as error:
        Sources.from_csv(path)
    # The row would do as well as the byte; a wrong number does not.
    assert re.search(rf"\b(byte {len(good)}|row {far + 2})\b", str(error.value)), error.value


def test_the_row_is_right_beyond_the_first_reading_batch(tmp_path: Path) -> None:
    good = HEADER + "".join(f"s{i},1,2,3,4\n" for i in range(9000))
    for bad in ("b,1,2,3\n", "b,x,2,3,4\n", "b,-1,2,3,4\n", "s7,1,2,3,4\n", '"b"c,1,2,3,4\n'):
        path = write(tmp_path / "f.csv", good + bad + "c,1,2,3,4\n")
        with pytest.raises(ValueError, match=r"f\.csv, row 9002\b"):
            Sources.from_csv(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        Sources.from_csv(tmp_path / "nowhere.csv")


# ------------------------------------------------------------------------- writing


class Interrupted(BaseException):
    """As Ctrl-C: not an Exception."""


@pytest.mark.parametrize("failure", [OSError("disk full"), Interrupted()], ids=["disk", "Ctrl-C"])
@pytest.mark.parametrize("moment", ["rows", "move"])
@pytest.mark.parametrize("before", ["old content\n", None], ids=["old file", "no file"])
def test_writing_is_all_or_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str | None,
    moment: str,
    failure: BaseException,
) -> None:
    path = tmp_path / "fleet.csv"
    if before is not None:
        path.write_text(before)

    def names() -> Iterator[str]:
        yield "a"
        yield "b"
        raise failure

    def move(*_: object) -> None:
        raise failure

    given_names: object = ["a", "b", "c"]
    if moment == "rows":
        given_names = names()
    else:
        monkeypatch.setattr(Path, "replace", move)
        monkeypatch.setattr(os, "replace", move)
        monkeypatch.setattr(os, "rename", move)
    with pytest.raises(type(failure)):
        fleet_csv.write(path, given_names, {p: np.ones(3) for p in PARAMETERS})
    assert os.listdir(tmp_path) == ([] if before is None else ["fleet.csv"])
    if before is not None:
        assert path.read_text() == before


def test_writing_replaces_an_old_file_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", "x" * 10_000)
    Sources(1.0, 2.0, 3.0).to_csv(path)
    assert Sources.from_csv(path) == Sources(1.0, 2.0, 3.0, names=["1"])


def test_writing_into_a_missing_folder_fails_plainly(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Sources(1.0, 2.0, 3.0).to_csv(tmp_path / "nowhere" / "f.csv")


def test_numbers_are_written_as_plain_text(tmp_path: Path) -> None:
    Sources(0.1, 1 / 3, math.pi, 1e-7, names=["a"]).to_csv(tmp_path / "f.csv")
    lines = (tmp_path / "f.csv").read_text().splitlines()
    assert lines == [HEADER.strip(), "a,0.1,0.3333333333333333,3.141592653589793,1e-07"]


@pytest.mark.parametrize(
    "names", [["a", "a"], ["a", ""], ["a", " "]], ids=["same", "none", "blank"]
)
def test_a_file_that_could_not_be_read_back_is_not_written(
    tmp_path: Path, names: list[str]
) -> None:
    path = tmp_path / "f.csv"
    with pytest.raises(ValueError, match="name"):
        Sources([1.0, 2.0], 1.0, 1.0, names=names).to_csv(path)
    assert not path.exists()


@pytest.mark.parametrize("rows", [2, 3], ids=["as many as sources", "more than sources"])
def test_a_batch_of_fleets_is_not_written_as_one(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "f.csv"
    batch = Sources.stack([Sources([1.0, 2.0], 1.0, 1.0)] * rows)
    with pytest.raises(ValueError, match="batch"):
        batch.to_csv(path)
    assert not path.exists()
