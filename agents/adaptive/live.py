"""`LiveCrawl`: adaptive agents for real crawlers, which choose the sources to fetch per period."""

from __future__ import annotations

import json
import os
import struct
import warnings
import zipfile
from collections.abc import Iterable
from math import prod
from operator import index
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.adaptive.base import Adaptive
from agents.adaptive.content import HarvestSums
from agents.adaptive.estimators import Posterior, make_estimator
from agents.adaptive.policies import SelfTuning, Thompson
from agents.policies.base import ObservationView
from crawl_env import NEVER, Sources, Task
from crawl_env.errors import check_positive, check_whole
from crawl_env.files.atomic import atomic_file
from crawl_env.numerics import FloatArray
from crawl_env.simulation.selection import select, whole_budget

LONGEST = 255  # largest number of periods for which a failing source is left out
OLDEST = 0.9 * NEVER  # periods; larger ages count as this one, since `NEVER` means not yet fetched
# What a fetch reveals: with these features an agent learns in an environment as it does here.
REVEALED = ("age", "crawled", "items", *HarvestSums.features)
_KEPT = ("arrival_rate", "mean_utility", "decay_rate", "cost")
_FORMAT = "ephemeral-crawl live crawl 3"
_TINY = 1e-100  # of what is divided by, so that no quotient is infinite
_MOST_SETTINGS = 10_000  # bytes
_MOST_HEADER = 1_000  # bytes in the header of an array


class LiveCrawl:
    """Chooses the sources to fetch in each period, and learns from the results of the fetches.

    Call `choose` once per period, fetch the chosen sources, and `report` each. A report may arrive
    in a later period, or be about a source that was not chosen; it counts as of the time of the
    call. A source that is chosen and not reported may be chosen again in the next period. Report a
    failed fetch with `report_failure`: the source is then left out for 1, 3, 7 … periods (at most
    `LONGEST`), growing with each consecutive failure. Pings are not used: there is no call that
    takes them. `ephemeral_crawl.live.Scheduler`, which decides fetch by fetch, does.

    The time over which the items of a source's first fetch arrived is unknown and is estimated from
    their ages. Only the newer half is used, so that pinned entries and older archived items have no
    effect. If these are k items, the oldest of which has age T, k − 1 items are counted in time T:
    (k − 1)/T is an unbiased estimate of the rate of a Poisson process, unlike k/T. If k = 1, all
    that is learnt is that nothing was published since. Ages above `OLDEST` periods count as
    `OLDEST`.

    Arguments:
        sources: the number of sources N, for `SelfTuning` without any known parameters; or a fleet
            with known mean utilities and decay rates (as found by `ephemeral-crawl fit`), for
            `Thompson`.
        budget: M, the cost of all fetches per period; if `sources` is a number, each costs 1.
        period: T, in your unit of time, if `sources` is a number; a fleet has its own.
        estimator: name of the estimator of arrival rates (`agents.adaptive.ESTIMATORS`). The
            default "forgetting" tracks rates that change.
        use_rates: whether the arrival rates of a fleet are used as prior means, with the weight of
            half an item. Set it to False if they are placeholders; the prior mean of every source
            is then 50 items per period.
        seed: seed of the random draws.

    Raises:
        ValueError: an argument is out of range, or the fleet has crawl delays, hosts, capacities or
            failure rates, which are not modelled here.

    >>> crawl = LiveCrawl(sources=3, budget=1, period=0.5, seed=0)
    >>> source = int(crawl.choose()[0])
    >>> crawl.report(source, age=[0.1, 0.4], utility=[2.0, 5.0])
    >>> crawl.rates().shape
    (3,)
    """

    def __init__(
        self,
        sources: int | Sources,
        budget: float,
        *,
        period: float = 1.0,
        estimator: str = "forgetting",
        use_rates: bool = True,
        seed: int | None = None,
    ) -> None:
        if not isinstance(estimator, str):
            raise ValueError(
                f"estimator is {estimator!r}; give the name of an estimator, which can be saved"
            )
        known = isinstance(sources, Sources)
        fleet = sources if isinstance(sources, Sources) else _unknown(sources, period)
        _check_plain(fleet)
        if not check_positive("budget", budget) >= fleet.cost.min():
            raise ValueError(
                f"budget is {budget}, which is below the cost of every source; raise it to cover "
                "at least one fetch"
            )
        self.sources = fleet
        self._settings = {"known": known, "estimator": estimator, "use_rates": use_rates}
        # Times are converted to periods.
        task = Task(
            Sources(
                np.ones(len(fleet)),
                fleet.mean_utility,
                fleet.decay_per_step,
                fleet.cost,
            ),
            budget=budget,
            arrivals="poisson-items",
            observed=False,
            features=REVEALED,
        )
        self._agent = live_agent(
            task, fleet if known else None, estimator=estimator, use_rates=use_rates, seed=seed
        )
        self._report = np.zeros((len(fleet), len(REVEALED)), dtype=np.float32)
        self._report[:, 0] = NEVER
        state = self._agent.begin(ObservationView(self._report, task))
        self._state = self._agent.with_age(state, slice(None), NEVER)
        self._failures = np.zeros(len(fleet), dtype=np.int64)  # consecutive failures
        self._pause = np.zeros(len(fleet), dtype=np.int64)  # periods for which it is left out
        # Ages and utilities, (K, 2), of the items of this period's first fetches, by source.
        self._first: dict[int, FloatArray] = {}

    def choose(self, periods: int = 1, exclude: Iterable[int] = ()) -> NDArray[np.intp]:
        """Begin a period; return the sources to fetch, (K,), in decreasing order of urgency.

        Arguments:
            periods: number of periods since the last call; more than 1 after an outage.
            exclude: sources that must not be chosen now, for example because a fetch is in progress
                or the host's limit of requests is reached.

        Raises:
            ValueError: `periods` is not a positive integer, `exclude` is not a list, or a source
                does not exist.
        """
        task = self._agent.task
        allowed = np.ones(task.n, dtype=bool)
        try:
            excluded = list(exclude)
        except TypeError:
            raise ValueError(
                f"exclude is {exclude!r}; give a list of sources, such as [3]"
            ) from None
        allowed[[self._number(source) for source in excluded]] = False
        self._report[self._report[:, 1] > 0, 0] = 1.0  # fetched in the period that ends
        self._first = {}
        for _ in range(check_whole("periods", periods)):
            age = self._report[:, 0].astype(np.float64)
            action, state = self._agent.predict(self._report, self._state)
            self._state = state or ()
            self._report[:, 0] += 1.0
            self._report[:, 1:] = 0.0
        self._pause = np.maximum(self._pause - periods, 0)
        allowed &= self._pause == 0
        priority, cost = np.asarray(action), task.sources.cost
        whole = whole_budget(cost, task.budget)
        cells = select(priority[None], -age[None], cost, task.budget, whole, None, allowed[None])
        chosen = np.ravel(cells).astype(np.intp)
        return chosen[np.argsort(-priority[chosen], kind="stable")]

    def report(self, source: int, age: ArrayLike, utility: ArrayLike | None = None) -> None:
        """Record the result of a fetch: the new items of a source, possibly none.

        Arguments:
            source: the number of the source, whether it was chosen or not. A second report before
                the next `choose`, such as the next page of a feed, is added to the first.
            age: (K,) time since publication of each new item, in the unit of the period. Negative
                ages (clocks differ) count as 0. Ages above the time since the previous fetch plus
                one period are reduced to that, since the items are new and the dates wrong.
            utility: (K,) current utility of each item, in your unit; default 1 each.

        Raises:
            ValueError: the source does not exist; ages or utilities are not finite, a utility is
                negative, or their numbers differ.
        """
        i = self._number(source)
        s = _numbers(i, "age", age) / self.sources.period
        w = np.ones_like(s) if utility is None else _numbers(i, "utility", utility)
        if s.shape != w.shape:
            raise ValueError(
                f"source {i}: age has {s.size} entries and utility has {w.size}; give one of each "
                "per new item"
            )
        if (w < 0).any():
            raise ValueError(f"source {i}: utility has entries below 0; give 0 for no utility")
        s = np.clip(s, 0.0, None)
        # The age of the source stays what it was until the next `choose`.
        elapsed, before = float(self._report[i, 0]), self._report[i, 2:]
        if elapsed >= NEVER:
            s, w = self._newer_half(i, np.minimum(s, OLDEST), w)
            number, before = max(s.size - 1, 0), np.zeros_like(before)
            if s.size:
                self._state = self._agent.with_age(self._state, i, float(s[-1]))
        else:
            s, number = np.minimum(s, elapsed), s.size
        useful = w > 0
        old, log = s[useful], np.log(w[useful])
        sums = useful.sum(), old.sum(), (old**2).sum(), log.sum(), (old * log).sum()
        self._report[i] = elapsed, 1.0, *np.add(before, (number, *sums))
        self._failures[i] = self._pause[i] = 0

    def _newer_half(
        self, i: int, age: FloatArray, utility: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the newer half of all items of a first fetch, of which these are reported now."""
        items = np.stack([age, utility], axis=1)
        self._first[i] = items = np.concatenate([self._first.get(i, items[:0]), items])
        age, utility = items.T
        newer = np.argsort(age, kind="stable")[: (age.size + 1) // 2]
        return age[newer], utility[newer]

    def report_failure(self, source: int) -> None:
        """Record that a fetch of a source failed, so that its content was not collected.

        Several failures of a source in one period, such as those of a fetch that is tried again,
        count as one.

        Raises:
            ValueError: the source does not exist.
        """
        i = self._number(source)
        if self._failures[i] and self._pause[i] == _pause_after(int(self._failures[i])):
            return  # since the pause has not begun, it failed in this period
        self._failures[i] = min(self._failures[i] + 1, 30)
        self._pause[i] = _pause_after(int(self._failures[i]))

    def _number(self, source: int) -> int:
        """Return the number of a source as an int, after checking it."""
        try:
            i = index(source)
        except TypeError:
            raise ValueError(
                f"source is {source!r}; give its number, as `choose` returned it"
            ) from None
        if not 0 <= i < len(self.sources):
            raise ValueError(f"source is {i}; the sources are 0 to {len(self.sources) - 1}")
        return i

    def rates(self) -> FloatArray:
        """Return the estimated arrival rates, (N,) items / time, without this period's reports."""
        return self._agent.posterior(self._state).mean[0] / self.sources.period

    def save(self, path: str | PathLike[str]) -> None:
        """Write the whole state to a file of arrays, atomically.

        Raises:
            FileNotFoundError: the directory does not exist.
        """
        settings = {
            **self._settings,
            "format": _FORMAT,
            "budget": self._agent.task.budget,
            "period": self.sources.period,
            "chance": self._agent.rng.bit_generator.state,
        }
        text = np.frombuffer(json.dumps(settings).encode(), dtype=np.uint8)
        arrays = {name: getattr(self.sources, name) for name in _KEPT}
        arrays |= {f"state_{i}": array for i, array in enumerate(self._state)}
        arrays |= {"report": self._report, "failures": self._failures, "pause": self._pause}
        arrays["first"] = np.concatenate(
            [np.zeros((0, 3)), *(np.insert(x, 0, i, axis=1) for i, x in self._first.items())]
        )
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        with atomic_file(path) as new, new.open("wb") as file:
            np.savez(file, allow_pickle=False, settings=text, **contiguous)

    @staticmethod
    def load(path: str | PathLike[str]) -> LiveCrawl:
        """Return a saved crawl, which continues as the original would have.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file was not written by `save`, or is damaged.
        """
        with open(path, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the budget's warning was shown on construction
            size = os.fstat(file.fileno()).st_size
            try:
                with zipfile.ZipFile(file) as archive:
                    return _restored(_Arrays(archive, size))
            except _DAMAGED as error:
                raise ValueError(
                    f"{os.fspath(path)} is not a file written by LiveCrawl.save: {error}"
                ) from error


_DAMAGED = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    EOFError,
    OSError,
    struct.error,
    RecursionError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
)


def live_agent(
    task: Task,
    fleet: Sources | None,
    *,
    estimator: str = "forgetting",
    use_rates: bool = True,
    seed: int | None = None,
) -> Adaptive:
    """Return the agent of a `LiveCrawl`, for a task that shows the features `REVEALED`.

    Arguments:
        task: an environment's task; its arrival rates are not used.
        fleet: the fleet with known mean utilities and decay rates that `LiveCrawl` was given, or
            None if nothing is known.
        estimator, use_rates, seed: as of `LiveCrawl`.
    """
    period, prior = task.sources.period, None
    if fleet is not None and use_rates:
        shape, rate = _first_guess(fleet, estimator)  # per period
        prior = Posterior(shape, rate * period)
    kind: type[Adaptive] = SelfTuning if fleet is None else Thompson
    return kind(task, seed=seed, estimator=make_estimator(estimator, period, prior))


def _unknown(n: int, period: float) -> Sources:
    """Return a fleet of which only the number and the costs are used."""
    try:
        number = index(n)
    except TypeError:
        raise ValueError(
            f"sources is {n!r}; give the number of sources, or a fleet (Sources)"
        ) from None
    if number < 1:
        raise ValueError(f"sources is {n}; give a number of at least 1, or a fleet (Sources)")
    return Sources(np.ones(number), 1.0, 1.0 / check_positive("period", period), period=period)


def _pause_after(failures: int) -> int:
    """Return the number of periods until a source may be chosen again, this one included."""
    return min(2**failures - 1, LONGEST) + 1


def _first_guess(fleet: Sources, estimator: str) -> Posterior:
    """Return a prior of the fleet's arrival rates, per period, with the weight of half an item."""
    if estimator == "fleet-prior":
        raise ValueError(
            "estimator 'fleet-prior' starts from one prior for all sources, and the fleet has one "
            "arrival rate for each; use another estimator, or use_rates=False"
        )
    rate = fleet.arrival_rate * fleet.period
    silent = rate <= 0
    return Posterior(
        np.full(len(fleet), 0.5), np.where(silent, 0.01, 0.5 / np.where(silent, 1.0, rate))
    )


def _check_plain(fleet: Sources) -> None:
    limits = {
        "crawl_delay": fleet.is_delayed, "capacity": fleet.is_capped,
        "failure_rate": fleet.fails, "hosts": bool(fleet.hosts),
    }  # fmt: skip
    given = [name for name, there in limits.items() if there]
    if given:
        raise ValueError(
            f"the fleet has {', '.join(given)}, which LiveCrawl does not model; leave out these "
            "columns, and name the sources that may not be fetched in choose(exclude=…)"
        )
    for name in ("mean_utility", "cost"):
        array = getattr(fleet, name)
        tiny = np.flatnonzero((array < _TINY) & ((array > 0) | (name != "mean_utility")))
        if tiny.size:
            raise ValueError(
                f"source {tiny[0]}: {name} is {array[tiny[0]]}; give at least {_TINY:g}, or choose "
                "another unit"
            )


def _numbers(source: int, name: str, given: ArrayLike) -> FloatArray:
    array = np.asarray(given)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iufb"):
        raise ValueError(
            f"source {source}: {name} is {given!r}; give a list of numbers, one per new item"
        )
    numbers = array.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise ValueError(
            f"source {source}: {name} of item {bad[0]} is {numbers[bad[0]]}; it must be finite"
        )
    return numbers


# ------------------------------------------------------------------------------------ saved files


class _Arrays:
    """The arrays of an .npz file, each validated before it is read."""

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self._archive = archive
        members = archive.infolist()
        self.names = {member.filename.removesuffix(".npy") for member in members}
        if len(self.names) != len(members):
            raise ValueError("some names occur twice")
        # Members must be stored uncompressed, so that none can be larger than the file.
        for member in members:
            if member.compress_type != zipfile.ZIP_STORED or member.file_size > size:
                raise ValueError(f"{member.filename} is compressed, or larger than the file")

    def length(self, name: str, axes: int = 1) -> int:
        """Return the length of an array of so many axes, without reading it."""
        with self._archive.open(f"{name}.npy") as file:
            shape, _ = _header(name, file)
        if len(shape) != axes:
            raise ValueError(f"{name} has shape {shape}; the number of axes must be {axes}")
        return shape[0]

    def read(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an array that must have this shape and type; its checksum is verified."""
        with self._archive.open(f"{name}.npy") as file:
            found, kind = _header(name, file)
            if found != shape or kind != np.dtype(dtype):
                raise ValueError(
                    f"{name} has shape {found} and type {kind}; they must be {shape} and "
                    f"{np.dtype(dtype)}"
                )
            content = file.read()
        if len(content) != prod(shape) * kind.itemsize:
            raise ValueError(f"{name} has {len(content)} bytes, which is not its size")
        return np.frombuffer(content, dtype=kind).reshape(shape).copy()


def _header(name: str, file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and type of a stored array."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{name} is of another version of numpy's format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file, _MOST_HEADER)
    if fortran or dtype.hasobject:
        raise ValueError(f"{name} is not stored as numbers in C order")
    return shape, dtype


def _restored(saved: _Arrays) -> LiveCrawl:
    size = saved.length("settings")
    if size > _MOST_SETTINGS:
        raise ValueError(f"its settings have {size} bytes")
    settings = json.loads(saved.read("settings", (size,), np.uint8).tobytes())
    if settings["format"] != _FORMAT:
        raise ValueError(
            f"its format is {settings['format']!r}, and this version reads {_FORMAT!r}"
        )
    n = saved.length("cost")
    columns: dict[str, Any] = {name: saved.read(name, (n,), np.float64) for name in _KEPT}
    known, use_rates = (_boolean(settings, name) for name in ("known", "use_rates"))
    fleet = Sources(**columns, period=settings["period"])
    crawl = LiveCrawl(
        fleet if known else n,
        settings["budget"],
        period=settings["period"],
        estimator=settings["estimator"],
        use_rates=use_rates,
    )
    state = tuple(
        saved.read(f"state_{i}", array.shape, array.dtype) for i, array in enumerate(crawl._state)
    )
    crawl._agent.check_state(state)
    report = saved.read("report", crawl._report.shape, np.float32)
    failures, pause = (saved.read(name, (n,), np.int64) for name in ("failures", "pause"))
    signed = np.isin(REVEALED, ("harvest_log", "harvest_age_log"))
    if not (np.isfinite(report).all() and (report[:, ~signed] >= 0).all()):
        raise ValueError("report has entries that are impossible")
    if not ((failures >= 0) & (failures <= 30) & (pause >= 0) & (pause <= LONGEST + 1)).all():
        raise ValueError("failures or pause has entries out of range")
    first = saved.read("first", (saved.length("first", 2), 3), np.float64)
    if not (
        np.isin(first[:, 0], np.arange(n)).all()
        and np.isfinite(first).all()
        and (first >= 0).all()
        and (first[:, 1] <= OLDEST).all()
    ):
        raise ValueError("first has entries that are impossible")
    extra = saved.names - {
        *("settings", "report", "failures", "pause", "first", *_KEPT),
        *(f"state_{i}" for i in range(len(state))),
    }
    if extra:
        raise ValueError(f"it has further arrays: {', '.join(sorted(extra)[:3])}")
    crawl._state, crawl._report = state, report
    crawl._failures, crawl._pause = failures, pause
    crawl._first = {int(i): first[first[:, 0] == i, 1:] for i in np.unique(first[:, 0])}
    crawl._agent.rng.bit_generator.state = settings["chance"]
    return crawl


def _boolean(settings: dict[str, Any], name: str) -> bool:
    value = settings[name]
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; it must be true or false")
    return value
