"""Fleets too large for `Sources`: columns of single precision, in memory or mapped from files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crawl_env.errors import (
    ElementError,
    as_array,
    brief,
    check_positive,
    check_range,
    check_whole,
    counted,
    unknown,
)
from crawl_env.files.arrays import Array, blamed, check_arrays, map_array
from crawl_env.files.atomic import write_text
from crawl_env.files.batches import Words, read_batches
from crawl_env.files.regular import regular
from crawl_env.files.table import Column
from crawl_env.fleet.parameters import DESCRIBED, Parameter
from crawl_env.fleet.sources import Sources, random_parameters
from crawl_env.numerics import FloatArray

__all__ = ["FleetColumns"]

Float32Array = NDArray[np.float32]
PathName = str | PathLike[str]
Generate = Callable[[np.random.Generator, int], Mapping[str, ArrayLike]]
Batch = Mapping[str, ArrayLike | Words]

CHUNK = 2**20  # sources checked, converted or generated at a time

_KINDS: dict[str, type[np.generic]] = {
    "arrival_rate": np.float32,
    "mean_utility": np.float32,
    "decay_rate": np.float32,
    "cost": np.float32,
    "failure_rate": np.float32,
    "delay": np.uint32,
    "host": np.int32,
}
COLUMNS = tuple(_KINDS)
_STEPS = Parameter("steps", 1.0, 2.0**32 - 1, whole=True, default=1.0)
_REQUIRED = ("arrival_rate", "mean_utility", "decay_rate")
_GIVEN = (*_REQUIRED, "cost", "crawl_delay", "failure_rate")
_IN_FILES = (
    *(Column(name, default=DESCRIBED[name].default, required=name in _REQUIRED) for name in _GIVEN),
    Column("host", "text", required=False, default=-1),
)
_UNREAD = ("source", "topic", "status")  # columns that a file may have besides
_DESCRIPTION = "fleet.json"  # written last, so that a folder without it is not whole
_NO_SIGNALS = "signals cannot be held in columns; leave recall out, or use `Sources`"
_NO_CAPACITY = "a finite capacity cannot be held in columns; leave it out, or use `Sources`"


class FleetColumns:
    """N sources as columns of single precision, 12 bytes a source where nothing is optional.

    The parameters are those of `Sources`. A column without effect is None: all costs are 1, no
    crawl is delayed or fails, no host is shared. Arrays of the type in which a column is stored are
    not copied, so that they may be memory maps. Sources have no names and no capacities.

    Arguments:
        arrival_rate: Λ, items / time, ≥ 0, (N,).
        mean_utility: ξ̄, utility, ≥ 0, (N,) or a number.
        decay_rate: μ, 1 / time, > 0, (N,) or a number.
        cost: C, budget units per crawl, > 0, (N,) or a number.
        period: T, length of a step in the unit of time of the rates, > 0.
        delay: minimum steps between two crawls, ≥ 1, (N,) or a number.
        failure_rate: probability that a crawl fails, in [0, 1), (N,) or a number.
        host: number of each source's host, below N; −1 for a host of its own, (N,).

    Raises:
        ElementError: a parameter is not finite or out of range; the message names the source, the
            value and the range. It is a ValueError.
        ValueError: a parameter is not numeric, or lengths differ.

    >>> fleet = FleetColumns([250, 250], [1, 0.7], [0.7, 0.35])
    >>> len(fleet), fleet.nbytes, fleet.cost is None
    (2, 24, True)
    """

    arrival_rate: Float32Array  # (N,) items / time
    mean_utility: Float32Array  # (N,) utility
    decay_rate: Float32Array  # (N,) 1 / time
    cost: Float32Array | None = None  # (N,) budget units
    failure_rate: Float32Array | None = None  # (N,) probability
    delay: NDArray[np.uint32] | None = None  # (N,) steps
    host: NDArray[np.int32] | None = None  # (N,)
    period: float  # time

    def __init__(
        self,
        arrival_rate: ArrayLike,
        mean_utility: ArrayLike,
        decay_rate: ArrayLike,
        cost: ArrayLike | None = None,
        period: float = 1.0,
        delay: ArrayLike | None = None,
        failure_rate: ArrayLike | None = None,
        host: ArrayLike | None = None,
    ) -> None:
        self.period = check_positive("period", period, "time")
        columns = {
            "arrival_rate": arrival_rate,
            "mean_utility": mean_utility,
            "decay_rate": decay_rate,
            "cost": cost,
            "failure_rate": failure_rate,
            "delay": delay,
            "host": host,
        }
        arrays = {name: _numbers(name, x) for name, x in columns.items() if x is not None}
        shapes = {name: array.shape for name, array in arrays.items() if array.ndim}
        if len(set(shapes.values())) > 1 or any(len(shape) > 1 for shape in shapes.values()):
            listing = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise ValueError(f"parameters have the shapes {listing}; give one number per source")
        (n,) = next(iter(shapes.values()), (1,))
        if n == 0:
            raise ValueError("the fleet is empty; give at least one source")
        for name, array in arrays.items():
            fits = array.ndim == 1 and array.dtype == _KINDS[name] and array.flags.c_contiguous
            column = array if fits else np.empty(n, _KINDS[name])
            for part in _chunks(n):
                if fits:
                    _check(name, array[part], part.start, n, self.period)
                else:
                    values = array[part] if array.ndim else array
                    _store(name, values, column[part], part.start, n, self.period)
            self._set(name, column)

    def _set(self, name: str, column: NDArray[Any]) -> None:
        """Take a column that has been checked, unless it has no effect."""
        column = column[:]  # a view, so that the caller's array stays writable
        column.flags.writeable = False
        default = _described(name, len(column)).default
        if default is None or any((column[part] != default).any() for part in _chunks(len(column))):
            setattr(self, name, column)

    # -------------------------------------------------------------------------- made from

    @staticmethod
    def of(sources: Sources) -> FleetColumns:
        """Return a fleet with its parameters rounded to single precision.

        Raises:
            ValueError: this is a batch of fleets, or some source has a finite capacity or sends
                signals.
        """
        if sources.arrival_rate.ndim != 1:
            raise ValueError("columns hold one fleet, not a batch; give `sources.fleet(b)`")
        if sources.is_capped:
            i = int(np.flatnonzero(np.isfinite(sources.capacity))[0])
            raise ElementError(_NO_CAPACITY, i, f"source {sources.label(i)}")
        if sources.is_signalled:
            i = int(np.flatnonzero(sources.recall > 0)[0])
            raise ElementError(_NO_SIGNALS, i, f"source {sources.label(i)}")
        return FleetColumns(
            sources.arrival_rate,
            sources.mean_utility,
            sources.decay_rate,
            sources.cost,
            sources.period,
            sources.delay,
            sources.failure_rate,
            _host_numbers(sources.hosts, {}) if sources.hosts else None,
        )

    @staticmethod
    def generate(
        n: int,
        function: Generate,
        seed: int = 0,
        period: float = 1.0,
        folder: PathName | None = None,
    ) -> FleetColumns:
        """Return n sources whose parameters a function returns, `CHUNK` sources at a time.

        Arguments:
            n: number of sources.
            function: takes a random generator, which depends on the seed and on the chunk, and a
                number of sources; returns their parameters by the names of `Sources`, each an array
                or one number for all.
            seed: of the random generators.
            period: length of a step.
            folder: new folder for the columns, which are then mapped from there, as by `open`;
                None keeps them in memory.

        Raises:
            ElementError, ValueError: the function returned no valid parameters.

        >>> def alike(rng: np.random.Generator, n: int) -> dict[str, ArrayLike]:
        ...     return {"arrival_rate": rng.random(n), "mean_utility": 1.0, "decay_rate": 0.1}
        >>> FleetColumns.generate(1000, alike)
        FleetColumns(1,000 sources, period=1)
        """
        check_whole("n", n, what="sources")
        check_whole("seed", seed, 0)

        def batches() -> Iterator[tuple[int, Batch]]:
            for number, part in enumerate(_chunks(n)):
                size = part.stop - part.start
                parameters = function(np.random.default_rng([seed, number]), size)
                for name, value in parameters.items():
                    if np.shape(value) not in ((), (size,)):
                        raise ValueError(
                            f"the function returned {name} of shape {np.shape(value)} for {size} "
                            "sources; it must return one number per source, or one for all"
                        )
                yield size, parameters

        return _built(n, batches(), period, folder)

    @staticmethod
    def random(
        n: int, seed: int = 0, regime: str = "dense", folder: PathName | None = None
    ) -> FleetColumns:
        """Return n independent sources of the law of `Sources.random`; see `generate`.

        >>> FleetColumns.random(3, seed=1, regime="sparse")
        FleetColumns(3 sources, period=1)
        """
        return FleetColumns.generate(
            n, lambda rng, size: random_parameters(size, rng, regime), seed, folder=folder
        )

    @staticmethod
    def from_file(
        path: PathName,
        period: float = 1.0,
        named: Mapping[str, str] | None = None,
        folder: PathName | None = None,
    ) -> FleetColumns:
        """Read a fleet from a Parquet or an Arrow file (.arrow, .feather), in batches of rows.

        The file has a row per source, and the columns of `Sources.from_csv` but for `capacity` and
        those of signals. `source` and `topic` are optional and not read; `host` holds text, or
        numbers as described above. Memory takes little more than the columns, or than a batch where
        they are written to a folder.

        Arguments:
            path: the file.
            period: T, length of a step in the unit of time of the rates.
            named: names that some columns have in the file, such as {"arrival_rate": "per_day"};
                all columns of the file that are not asked for are then ignored.
            folder: new folder for the columns, which are then mapped from there, as by `open`.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the table is invalid; the message names the file, the row and the column.
                Or pyarrow is missing, which the extra `parquet` installs.
        """
        n, batches = read_batches(path, _IN_FILES, named, _UNREAD)
        sized = ((len(batch["arrival_rate"]), batch) for batch in batches)
        try:
            return _built(n, sized, period, folder)
        except ElementError as error:
            if error.position is None:
                raise
            raise ValueError(f"{path}, row {error.position + 1}: {error.what}") from None

    # --------------------------------------------------------------------------- on disk

    def save(self, folder: PathName) -> None:
        """Write the columns to a new folder, as .npy files that `open` maps.

        Raises:
            ValueError: the folder is not empty.
        """
        with _new_columns(len(self), self.period, folder) as new:
            for name in self._present():
                column = new(name)
                for part in self.chunks():
                    column[part] = getattr(self, name)[part]

    @staticmethod
    def open(folder: PathName) -> FleetColumns:
        """Return a fleet that was written to a folder, mapped from there.

        Raises:
            FileNotFoundError: there is no fleet in the folder.
            ValueError: its files are not those of a fleet.
        """
        place = Path(folder) / _DESCRIPTION
        with blamed(place, "save the fleet again"):
            try:
                description = json.loads(Path(regular(place)).read_text(encoding="utf-8"))
                n, period = check_whole("sources", description["sources"]), description["period"]
                kinds = {name: _KINDS[name] for name in description["columns"]}
            except (KeyError, TypeError, RecursionError) as error:
                raise ValueError(f"it describes no fleet ({brief(repr(error))})") from None
            _check_names(kinds, ())
            arrays = {name: map_array(Path(folder) / f"{name}.npy") for name in kinds}
            declared = {name: Array(kind, ("N",), unread=True) for name, kind in kinds.items()}
            return FleetColumns(**check_arrays(arrays, declared, N=n), period=period)

    # ------------------------------------------------------------------------------ parts

    def __len__(self) -> int:
        """Return N, the number of sources."""
        return len(self.arrival_rate)

    def __repr__(self) -> str:
        return f"FleetColumns({counted(len(self), 'source')}, period={self.period:g})"

    def __getitem__(self, part: slice) -> FleetColumns:
        """Return a contiguous part of the fleet, which shares its memory.

        >>> FleetColumns.random(10)[2:5]
        FleetColumns(3 sources, period=1)
        """
        if not isinstance(part, slice) or part.indices(len(self))[2] != 1:
            raise ValueError(
                f"{part!r} is not a contiguous part of the fleet; give a slice such as [:100], or "
                "use `to_sources` for a selection"
            )
        if not len(range(*part.indices(len(self)))):
            raise ValueError(f"{part!r} has none of the {len(self)} sources")
        view = FleetColumns.__new__(FleetColumns)
        view.period = self.period
        for name in self._present():
            setattr(view, name, getattr(self, name)[part])
        return view

    def _present(self) -> list[str]:
        return [name for name in _KINDS if getattr(self, name) is not None]

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(getattr(self, name).nbytes for name in self._present())

    def chunks(self) -> Iterator[slice]:
        """Yield slices of at most `CHUNK` sources, which cover the fleet in order."""
        yield from _chunks(len(self))

    @property
    def published(self) -> float:
        """Σ Λξ̄T, utility / step: the mean utility that the whole fleet publishes."""
        total = 0.0
        for part in self.chunks():
            rate, utility = self.arrival_rate[part], self.mean_utility[part]
            total += float(np.dot(rate.astype(np.float64), utility.astype(np.float64)))
        return total * self.period

    def to_sources(self, which: Any = slice(None)) -> Sources:
        """Return some of the sources, by indices or a mask, in double precision.

        Their names are the numbers of the sources in this fleet, from 1.

        >>> FleetColumns.random(10).to_sources([7, 2]).names
        ('8', '3')
        """
        index = np.atleast_1d(np.arange(len(self))[which])

        def values(name: str, otherwise: float = 0.0) -> FloatArray:
            column = getattr(self, name)
            return np.asarray(otherwise if column is None else column[index], dtype=np.float64)

        delay = values("delay", 1.0)
        hosts = [] if self.host is None else self.host[index].tolist()
        return Sources(
            values("arrival_rate"),
            values("mean_utility"),
            values("decay_rate"),
            values("cost", 1.0),
            self.period,
            [str(i + 1) for i in index.tolist()],
            np.where(delay > 1, delay * self.period, 0.0),
            failure_rate=values("failure_rate"),
            hosts=[str(number) if number >= 0 else "" for number in hosts],
        )


# ------------------------------------------------------------------------------- building


def _built(
    n: int, batches: Iterable[tuple[int, Batch]], period: float, folder: PathName | None
) -> FleetColumns:
    """Return the fleet whose parameters, by the names of `Sources`, come in batches of rows."""
    check_positive("period", period, "time")
    columns: dict[str, NDArray[Any]] = {}
    start, known_hosts = 0, dict[str, int]()
    with _new_columns(n, period, folder) as new:
        for size, batch in batches:
            origins = {"delay" if name == "crawl_delay" else name: name for name in batch}
            _check_names(origins, columns)
            for name, origin in origins.items():
                cells = batch[origin]
                if isinstance(cells, Words):
                    values = np.append(_host_numbers(cells.words, known_hosts), -1)[cells.code]
                else:
                    values = _numbers(origin, cells)
                if origin == "crawl_delay":
                    values = _in_steps(values, start, period)
                if name not in columns:
                    columns[name] = new(name)
                _store(name, values, columns[name][start : start + size], start, n, period)
            start += size
    if folder is not None:
        return FleetColumns.open(folder)
    return FleetColumns(**columns, period=period)


def _check_names(names: Iterable[str], before: Iterable[str]) -> None:
    """Raise ValueError unless these are columns, the required among them, and those of before."""
    for name in names:
        if name not in _KINDS:
            raise unknown("parameter", name, (*_GIVEN, "host"))
    lacking = [name for name in (*_REQUIRED, *before) if name not in names]
    if lacking or (before and set(names) - set(before)):
        missing = lacking or sorted(set(names) - set(before))
        raise ValueError(
            f"the parameters {', '.join(missing)} are not given for all sources; give "
            f"{', '.join(_REQUIRED)} and the same optional ones for every part of the fleet"
        )


@contextmanager
def _new_columns(
    n: int, period: float, folder: PathName | None
) -> Iterator[Callable[[str], NDArray[Any]]]:
    """Give a function that makes a new column by its name, in memory or in a new folder."""
    if folder is None:
        yield lambda name: np.empty(n, _KINDS[name])
        return
    place = Path(folder)
    with suppress(FileExistsError):
        place.mkdir(parents=True)
    if not place.is_dir() or any(place.iterdir()):
        raise ValueError(f"{place} is not an empty folder; name a new one for the fleet")
    columns: dict[str, Any] = {}

    def new(name: str) -> NDArray[Any]:
        columns[name] = np.lib.format.open_memmap(place / f"{name}.npy", "w+", _KINDS[name], (n,))
        return columns[name]

    try:
        yield new
        for column in columns.values():
            column.flush()
        description = {"sources": n, "period": period, "columns": list(columns)}
        write_text(place / _DESCRIPTION, json.dumps(description, indent=1) + "\n")
    except BaseException:
        for name in columns:
            (place / f"{name}.npy").unlink(missing_ok=True)
        raise


def _chunks(n: int) -> Iterator[slice]:
    for start in range(0, n, CHUNK):
        yield slice(start, min(start + CHUNK, n))


def _numbers(name: str, value: object) -> NDArray[Any]:
    """Return numbers as an array, of the type that they have."""
    array = np.asarray(value)
    return array if array.dtype.kind in "fiu" else as_array(name, value)


def _described(name: str, n: int) -> Parameter:
    if name == "delay":
        return _STEPS
    if name == "host":
        return Parameter("number below N, or −1", -1.0, n - 1.0, whole=True, default=-1.0)
    return DESCRIBED[name]


def _store(
    name: str, values: NDArray[Any], into: NDArray[Any], start: int, n: int, period: float
) -> None:
    """Check values, convert them to the type of a column, and check that they still are in range;
    `start` is the number of the first source."""
    _check(name, values, start, n, period)
    with np.errstate(over="ignore", under="ignore"):
        into[...] = values
    try:
        _check(name, into, start, n, period)
    except ElementError as error:
        i = (error.position or 0) - start
        value = float(values[i] if values.ndim else values)
        raise _element_error(
            f"{name} is {value!r}, which in single precision becomes {into[i]:g} and is out of "
            "range; use another unit",
            start + i,
        ) from None


def _check(name: str, values: NDArray[Any], start: int, n: int, period: float) -> None:
    """Raise ElementError unless all values of a column are in range."""
    try:
        _described(name, n).check(name, values)
        if name == "decay_rate":
            with np.errstate(over="ignore", under="ignore"):
                decay = values.astype(np.float64) * period
            check_range("decay_rate × period", decay, open_low=True, low=0.0)
    except ElementError as error:
        if error.position is None:
            raise
        raise _element_error(error.what, start + error.position) from None


def _element_error(what: str, i: int) -> ElementError:
    return ElementError(what, i, f"source {i}")


def _in_steps(time: NDArray[Any], start: int, period: float) -> FloatArray:
    """Return crawl delays in steps, rounded up as in `Sources`."""
    _check("crawl_delay", time, start, 0, period)
    with np.errstate(over="ignore"):
        steps = np.ceil(time.astype(np.float64) / period * (1 - 1e-12))
    return np.maximum(1.0, steps)


def _host_numbers(hosts: Sequence[str], number_of: dict[str, int]) -> NDArray[np.int64]:
    """Return numbers of hosts in the order of their first appearance, and add them to those known;
    −1 stands for a host of its own."""
    numbers = [number_of.setdefault(host, len(number_of)) if host else -1 for host in hosts]
    return np.array(numbers, dtype=np.int64)
