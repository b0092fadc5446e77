"""Fleets in columns: the same parameters as `Sources`, wherever they come from, and its errors."""

import tracemalloc
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from crawl_env.fleet import columns as module
from crawl_env.fleet.columns import FleetColumns
from crawl_env.fleet.sources import Sources
from tests.refusals import refused

NAMES = ("arrival_rate", "mean_utility", "decay_rate", "cost", "delay", "failure_rate", "host")


def full(n=50, seed=0):
    """A fleet with every optional column."""
    rng = np.random.default_rng(seed)
    plain = Sources.random(n, seed)
    hosts = [["", "a", "b", "c"][i] for i in rng.integers(0, 4, n)]
    return Sources(
        plain.arrival_rate,
        plain.mean_utility,
        plain.decay_rate,
        cost=rng.integers(1, 4, n),
        period=0.5,
        crawl_delay=rng.integers(0, 5, n) / 2,
        failure_rate=rng.integers(0, 4, n) / 8,
        hosts=hosts,
    )


def table_of(sources, **more):
    names = ("arrival_rate", "mean_utility", "decay_rate", "cost", "crawl_delay", "failure_rate")
    return pa.table(
        {"source": [f"s{i}" for i in range(len(sources))]}
        | {name: getattr(sources, name) for name in names}
        | {"host": list(sources.hosts)}
        | more
    )


def same(a, b):
    columns = ((getattr(a, name), getattr(b, name)) for name in NAMES)
    return a.period == b.period and all(
        (x is None and y is None) or (x.dtype == y.dtype and np.array_equal(x, y))
        for x, y in columns
    )


def is_mapped(column):
    return isinstance(column, np.memmap) or (column is not None and is_mapped(column.base))


def fails(message, function, *given, **named):
    with refused(message):
        function(*given, **named)


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 7)


# ------------------------------------------------------------------------- where they come from


@pytest.mark.usefixtures("small_chunks")
def test_there_and_back_only_rounds():
    sources = full()
    columns = FleetColumns.of(sources)
    back = columns.to_sources()
    for name in ("arrival_rate", "mean_utility", "decay_rate", "cost", "failure_rate"):
        given = getattr(sources, name)
        assert getattr(back, name).tolist() == given.astype(np.float32).astype(float).tolist()
    assert back.delay.tolist() == sources.delay.tolist()
    assert back.period == sources.period
    together = np.equal.outer(sources.host_of, sources.host_of)
    assert (np.equal.outer(back.host_of, back.host_of) == together).all()
    assert same(FleetColumns.of(back), columns)
    assert columns.published == pytest.approx(sources.published, rel=1e-6)


def test_a_selection_keeps_its_numbers():
    columns = FleetColumns.of(full())
    some = columns.to_sources([40, 3])
    assert some.names == ("41", "4")
    assert some.arrival_rate.tolist() == columns.arrival_rate[[40, 3]].tolist()
    assert columns.to_sources(slice(10, 12)).names == ("11", "12")


def test_a_part_shares_memory():
    columns = FleetColumns.of(full())
    part = columns[10:30]
    assert len(part) == 20
    assert all(np.shares_memory(getattr(part, n), getattr(columns, n)) for n in NAMES)
    assert same(part[5:], columns[15:30])
    fails("not a contiguous part", lambda: columns[::2])
    fails("none of the 50 sources", lambda: columns[60:])


def test_columns_without_effect_are_left_out():
    plain = FleetColumns.of(Sources.random(100))
    assert [getattr(plain, name) is None for name in NAMES] == [False] * 3 + [True] * 4
    assert plain.nbytes == 12 * 100
    assert FleetColumns(1.0, [1, 2], 0.5, cost=[1, 1], delay=1, host=[-1, -1]).nbytes == 24


def test_arrays_of_the_stored_type_are_not_copied_and_stay_writable():
    rate = np.ones(10, np.float32)
    columns = FleetColumns(rate, np.ones(20)[::2], 0.5)
    assert np.shares_memory(columns.arrival_rate, rate)
    assert rate.flags.writeable
    assert not columns.arrival_rate.flags.writeable


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
@pytest.mark.parametrize("mapped", [False, True])
def test_files(tmp_path, suffix, mapped):
    sources, path = full(), tmp_path / f"fleet{suffix}"
    write(path, table_of(sources))
    folder = tmp_path / "fleet" if mapped else None
    read = FleetColumns.from_file(path, sources.period, folder=folder)
    assert same(read, FleetColumns.of(sources))
    assert is_mapped(read.cost) == mapped
    if mapped:
        assert same(FleetColumns.open(tmp_path / "fleet"), read)


def write(path, table):
    """Write a table in several groups of rows."""
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=11)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=11)


def test_types_of_columns_in_files(tmp_path):
    """Whole numbers, decimals, single precision, dictionaries, numbered hosts, and empty cells."""
    path = tmp_path / "fleet.parquet"
    table = pa.table(
        {
            "rate": pa.array([1, 2, 3], pa.int16()),
            "mean_utility": pa.array([1.5, 2.5, 3.5], pa.float32()),
            "decay_rate": pa.array([Decimal(1), Decimal(2), Decimal(3)]),
            "cost": pa.array([2.0, None, 3.0]),
            "host": pa.array([0, None, 0], pa.int32()),
            "url": ["a", "b", "c"],
        }
    )
    write(path, table)
    read = FleetColumns.from_file(path, named={"arrival_rate": "rate"})
    assert read.arrival_rate.tolist() == [1, 2, 3] == read.decay_rate.tolist()
    assert read.cost.tolist() == [2, 1, 3]
    assert read.host.tolist() == [0, -1, 0]
    encoded = pa.array(["x", None, " x"]).dictionary_encode()
    write(path, table.set_column(4, "host", encoded))
    read = FleetColumns.from_file(path, named={"arrival_rate": "rate"})
    assert read.host.tolist() == [0, -1, 0]


@pytest.mark.usefixtures("small_chunks")
def test_saved_fleets_are_mapped(tmp_path):
    columns = FleetColumns.of(full())
    columns.save(tmp_path / "new" / "fleet")
    opened = FleetColumns.open(tmp_path / "new" / "fleet")
    assert same(opened, columns)
    assert all(is_mapped(getattr(opened, name)) for name in NAMES)
    fails("not an empty folder", columns.save, tmp_path / "new" / "fleet")


@pytest.mark.usefixtures("small_chunks")
def test_generated_fleets(tmp_path):
    def drawn(rng, n):
        return {"arrival_rate": rng.random(n), "mean_utility": 1, "decay_rate": 0.5, "cost": 2.0}

    one = FleetColumns.generate(100, drawn, seed=3)
    assert same(FleetColumns.generate(100, drawn, 3, folder=tmp_path / "fleet"), one)
    assert same(FleetColumns.generate(16, drawn, 3)[:14], one[:14])  # two whole chunks
    assert len(set(one.arrival_rate.tolist())) == 100
    assert not same(FleetColumns.generate(100, drawn, seed=4), one)


def test_random_fleets_are_those_of_sources():
    columns = FleetColumns.random(1000, 5, "sparse")
    sources = Sources.random(1000, np.random.default_rng([5, 0]), "sparse")
    assert same(columns, FleetColumns.of(sources))


def test_reading_takes_little_more_memory_than_the_columns(tmp_path):
    n = 4 * module.CHUNK
    path = tmp_path / "fleet.parquet"
    column = np.full(n, 0.5, np.float32)
    parquet.write_table(pa.table(dict.fromkeys(NAMES[:3], column)), path)
    tracemalloc.start()
    try:
        held = FleetColumns.from_file(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        FleetColumns.from_file(path, folder=tmp_path / "fleet")
        mapped = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    batch = 30 * module.CHUNK  # numpy's; what pyarrow holds is not traced
    assert peak < held.nbytes + batch
    assert mapped < batch


# --------------------------------------------------------------------------------- what is refused


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"decay_rate": 0.0}, "source 20: decay_rate is 0; it must be positive and finite"),
        ({"arrival_rate": -1.0}, "source 20: arrival_rate is -1; it must be zero or positive"),
        ({"mean_utility": np.nan}, "source 20: mean_utility is nan"),
        ({"cost": np.inf}, "source 20: cost is inf; it must be positive and finite"),
        ({"failure_rate": 1.0}, "source 20: failure_rate is 1; it must be at least 0 and below 1"),
        ({"failure_rate": 1 - 1e-9}, "source 20: failure_rate is 0.999999999, which in single"),
        ({"decay_rate": 1e-60}, "source 20: decay_rate is 1e-60, which in single precision"),
        ({"arrival_rate": 1e60}, "source 20: arrival_rate is 1e+60, which in single precision"),
        ({"delay": 0.0}, "source 20: delay is 0; it must be a whole number, between 1 and"),
        ({"delay": 1.5}, "source 20: delay is 1.5; it must be a whole number"),
        ({"host": 50}, "source 20: host is 50; it must be a whole number, between -1 and 49"),
    ],
)
def test_values_out_of_range(changed, message):
    sources = FleetColumns.of(full())
    (name, value), *_ = changed.items()
    columns = {n: np.array(getattr(sources, n), dtype=np.float64) for n in NAMES}
    columns[name][20] = value
    fails(message, lambda: FleetColumns(**columns))
    stored = getattr(sources, name).dtype
    if value in (0.0, -1.0, 1.0, 50.0):
        columns[name] = columns[name].astype(stored)  # checked in place, too
        fails(message, lambda: FleetColumns(**columns))


def test_other_refusals():
    fails("shapes arrival_rate (2,), decay_rate (3,)", FleetColumns, [1, 2], 1, [1, 2, 3])
    fails("the fleet is empty", FleetColumns, [], [], [])
    fails("period is 0", FleetColumns, 1, 1, 1, period=0.0)
    fails("decay_rate must be a number", FleetColumns, 1, 1, "fast")
    fails("decay_rate × period is inf", FleetColumns, 1, 1, 1e30, period=1e300)
    capped = Sources(1.0, 1.0, 0.5, capacity=[3, np.inf], names=["a", "b"])
    fails("source 'a': a finite capacity", FleetColumns.of, capped)
    fails("one fleet, not a batch", FleetColumns.of, Sources.stack([Sources.random(3)] * 2))


@pytest.mark.usefixtures("small_chunks")
def test_functions_that_return_no_fleet():
    fine = {"arrival_rate": 1.0, "mean_utility": 1.0, "decay_rate": 0.5}
    for message, drawn in (
        ("decay_rate are not given", lambda n: {"arrival_rate": 1.0, "mean_utility": 1.0}),
        ("shape (3,) for 7 sources", lambda n: fine | {"decay_rate": np.ones(3)}),
        ("cost are not given for all", lambda n: fine | ({"cost": np.ones(n)} if n < 7 else {})),
        ("unknown parameter 'decay'", lambda n: fine | {"decay": np.ones(n)}),
        ("source 14: decay_rate is -1", lambda n: fine | {"decay_rate": np.full(n, n - 5)}),
    ):
        fails(message, FleetColumns.generate, 18, lambda rng, n, drawn=drawn: drawn(n))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_invalid_files(tmp_path, suffix):
    path, folder = tmp_path / f"fleet{suffix}", tmp_path / "columns"
    plain = table_of(full())

    def read(table, **arguments):
        write(path, table)
        return FleetColumns.from_file(path, folder=folder, **arguments)

    cells = np.array(full().decay_rate)
    cells[30] = -0.5
    changed = plain.drop_columns("decay_rate")
    wrong = changed.append_column("decay_rate", pa.array(cells))
    fails(f"fleet{suffix}, row 31: decay_rate is -0.5; it must be positive", read, wrong)
    empty = pa.array([None if x < 0 else x for x in cells])
    wrong = changed.append_column("decay_rate", empty)
    fails(f"fleet{suffix}, row 31: decay_rate is empty; give a value", read, wrong)
    fails("missing column decay_rate", read, changed)
    wrong = changed.append_column("decay_rate", pa.array(["fast"] * 50))
    fails("column decay_rate holds string; it must hold numbers", read, wrong)
    fails("unknown column 'capacity'", read, plain.append_column("capacity", pa.array(cells)))
    fails("unknown column 'decay'", read, plain, named={"decay": "cost"})
    fails("missing column no", read, plain, named={"cost": "no"})
    assert not any(folder.iterdir())  # nothing half written stays
    path.write_bytes(path.read_bytes()[:-20])
    fails("not a whole", FleetColumns.from_file, path)
    fails("give a file in .parquet, .arrow or .feather", FleetColumns.from_file, "fleet.csv")
    with pytest.raises(FileNotFoundError):
        FleetColumns.from_file(tmp_path / f"none{suffix}")


def test_invalid_folders(tmp_path):
    """Other faults of its files: `tests.crawl_env.files.test_arrays`."""
    with pytest.raises(FileNotFoundError):
        FleetColumns.open(tmp_path)
    FleetColumns.of(full()).save(tmp_path / "fleet")
    description = tmp_path / "fleet" / "fleet.json"
    description.write_text(description.read_text().replace('"host"', '"../host"'))
    fails("fleet.json: it describes no fleet", FleetColumns.open, tmp_path / "fleet")
