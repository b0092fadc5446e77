"""Adaptive agents in a crawler of your own: whom to fetch next, from what fetches brought."""

from __future__ import annotations

import json
import zipfile
from operator import index
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.adaptive.item_sums import HarvestSums
from agents.adaptive.policies import Adaptive, SelfTuning, Thompson
from crawl_env import NEVER, Sources, Task
from crawl_env.numerics import FloatArray
from crawl_env.simulation.selection import select, whole_budget

_SHOWN = ("age", "crawled", "items", *HarvestSums.features)
_KEPT = ("arrival_rate", "mean_utility", "decay_rate", "cost")
LONGEST = 255  # periods
_FORMAT = "ephemeral-crawl live crawl 1"


class LiveCrawl:
    """Chooses the sources to fetch in each period, and learns from what is reported of them.

    In every period call `choose`, fetch these sources, and `report` each; after an outage, once for
    every period that was missed. A source that was chosen and not reported by the next `choose` has
    failed: it told nothing, its content still waits, and it is left alone for 1, 3, 7 … periods (at
    most `LONGEST`) the more often it fails in a row. Of the first fetch of a source only the time
    is noted, since nobody knows for how long its items had come.

    Arguments:
        sources: N, of which nothing is known, for `SelfTuning`; or a fleet whose mean utilities
            and decay rates are known (as `experiments fit` finds them), for `Thompson`, which
            learns the arrival rates and does not read the fleet's.
        budget: M, what may be spent in a period; sources given by number cost 1 each.
        period: T, in your unit of time, of sources given by number; a fleet has its own.
        estimator: of the rates, by name (`agents.adaptive.ESTIMATORS`). "forgetting", the default,
            also follows rates that change.
        seed: of the draws.

    Raises:
        ValueError: an argument is out of range, or the fleet has crawl delays, hosts, capacities or
            failure rates, which are not kept to here.

    >>> crawl = LiveCrawl(sources=3, budget=1, period=0.5, seed=0)
    >>> source = int(crawl.choose()[0])
    >>> crawl.report(source, age=[0.1, 0.4], worth=[2.0, 5.0])
    >>> crawl.rates().shape
    (3,)
    """

    def __init__(
        self,
        sources: int | Sources,
        budget: float,
        period: float = 1.0,
        estimator: str = "forgetting",
        seed: int | None = None,
    ) -> None:
        if not isinstance(estimator, str):
            raise ValueError(
                f"estimator is {estimator!r}; give the name of one, which can be saved"
            )
        known = isinstance(sources, Sources)
        fleet = sources if isinstance(sources, Sources) else _unknown(sources, period)
        _check_plain(fleet)
        if not budget >= fleet.cost.min():
            raise ValueError(f"budget is {budget}, which pays for no source; give at least a fetch")
        self.task = Task.of(
            fleet, budget=budget, arrivals="poisson-items", observed=False, features=_SHOWN
        )
        kind: type[Adaptive] = Thompson if known else SelfTuning
        self._agent = kind(self.task, seed=seed, estimator=estimator)
        self._settings = {"known": known, "estimator": estimator}
        self._state: Any = None
        self._report = np.zeros((len(fleet), len(_SHOWN)), dtype=np.float32)
        self._report[:, 0] = NEVER  # what waits at first came in a time that nobody knows
        self._chosen = np.zeros(len(fleet), dtype=bool)
        self._failures = np.zeros(len(fleet), dtype=np.int64)  # in a row
        self._pause = np.zeros(len(fleet), dtype=np.int64)  # periods for which it is left alone

    def choose(self) -> NDArray[np.intp]:
        """Begin a period; return the sources to fetch in it, the most urgent first."""
        fleet, age = self.task.sources, self._report[:, 0].astype(np.float64)
        self._leave_alone()
        priority, self._state = self._agent.predict(self._report, self._state)
        cells = select(
            np.asarray(priority)[None], -age[None], fleet.cost, self.task.budget,
            whole_budget(fleet.cost, self.task.budget), None, (self._pause == 0)[None],
        )  # fmt: skip
        chosen = np.ravel(cells).astype(np.intp)
        self._report[:, 0] += 1.0
        self._report[:, 1:] = 0.0
        self._chosen[:] = False
        self._chosen[chosen] = True
        return chosen[np.argsort(-np.asarray(priority)[chosen], kind="stable")]

    def report(self, source: int, age: ArrayLike, worth: ArrayLike | None = None) -> None:
        """Tell what the fetch of a chosen source brought: its new items, or none.

        Arguments:
            age: (K,) time since each item was published, in the unit of the period. Ages below 0
                (clocks differ) count as 0, and those above the time since the fetch before and a
                period (dates that cannot be, of items that are new) as that.
            worth: (K,) what each is worth now, in your unit; 1 each if it is not given.

        Raises:
            ValueError: the source was not chosen in this period, or has been reported; ages or
                worths are no finite numbers, worths are negative, or not as many as ages.
        """
        i = self._open(source)
        s = _numbers(i, "age", age)
        w = np.ones_like(s) if worth is None else _numbers(i, "worth", worth)
        if s.shape != w.shape:
            raise ValueError(f"source {i}: there are {s.size} ages and {w.size} worths of items")
        if (w < 0).any():
            raise ValueError(f"source {i}: worth has entries below 0")
        s = np.clip(s, 0.0, float(self._report[i, 0]) * self.task.sources.period)
        told = w > 0
        old, log = s[told], np.log(w[told])
        sums = told.sum(), old.sum(), (old**2).sum(), log.sum(), (old * log).sum()
        self._report[i] = 1.0, 1.0, s.size, *sums
        self._chosen[i], self._failures[i] = False, 0

    def _open(self, source: int) -> int:
        """Return the number of a source of which a report is awaited."""
        try:
            i = index(source)
        except TypeError:
            raise ValueError(
                f"source is {source!r}; give its number, as `choose` returned it"
            ) from None
        if not 0 <= i < self.task.n or not self._chosen[i]:
            raise ValueError(
                f"source {i} was not chosen in this period, or was reported already; report each "
                "of those that `choose` returned once, before the next `choose`; a fetch that "
                "takes longer is lost"
            )
        return i

    def _leave_alone(self) -> None:
        """Count what failed in the last period, and shorten the pauses of the others."""
        self._pause = np.maximum(self._pause - 1, 0)
        self._failures[self._chosen] += 1
        doubled = 2 ** np.minimum(self._failures, 30) - 1
        self._pause[self._chosen] = np.minimum(doubled, LONGEST)[self._chosen]

    def rates(self) -> FloatArray:
        """Return what is believed of the arrival rates, (N,) items / time, before this period."""
        mean = self._agent.believed(self._state).mean
        return np.broadcast_to(mean, (1, self.task.n))[0].copy()

    def save(self, path: str | PathLike[str]) -> None:
        """Write all that is known to a file of arrays, which appears whole or not at all."""
        fleet, target = self.task.sources, Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        settings = {
            **self._settings,
            "format": _FORMAT,
            "budget": self.task.budget,
            "period": fleet.period,
            "chance": self._agent.rng.bit_generator.state,
            "states": 0 if self._state is None else len(self._state),
        }
        arrays = {name: getattr(fleet, name) for name in _KEPT}
        arrays |= {f"state_{i}": array for i, array in enumerate(self._state or ())}
        partial = target.with_name(f".{target.name}.partial")
        try:
            with partial.open("wb") as file:
                np.savez(
                    file, settings=np.array(json.dumps(settings)), report=self._report,
                    chosen=self._chosen, failures=self._failures, pause=self._pause, **arrays,
                )  # fmt: skip
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    @staticmethod
    def load(path: str | PathLike[str]) -> LiveCrawl:
        """Return a crawl as it was saved; it goes on as it would have.

        Raises:
            FileNotFoundError: no such file.
            ValueError: the file is none of these.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                return _restored(dict(file))
        except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is no file that LiveCrawl.save wrote") from error


def _unknown(n: int, period: float) -> Sources:
    """Return a fleet of which only the number and the costs are read."""
    try:
        number = index(n)
    except TypeError:
        raise ValueError(f"sources is {n!r}; give their number, or a fleet (Sources)") from None
    if number < 1:
        raise ValueError(f"sources is {n}; it must be at least 1, or a fleet")
    return Sources(np.ones(number), 1.0, 1.0, period=period)


def _check_plain(fleet: Sources) -> None:
    limits = {
        "crawl_delay": fleet.is_delayed, "capacity": fleet.is_capped,
        "failure_rate": fleet.fails, "host": bool(fleet.hosts),
    }  # fmt: skip
    given = [name for name, there in limits.items() if there]
    if given:
        raise ValueError(
            f"the fleet has {', '.join(given)}, which LiveCrawl does not keep to; leave out these "
            "columns, and pass over what may not be fetched without reporting it"
        )


def _numbers(source: int, name: str, given: ArrayLike) -> FloatArray:
    array = np.asarray(given)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iufb"):
        raise ValueError(
            f"source {source}: {name} is {given!r}; give a list of numbers, one for each new item"
        )
    numbers = array.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise ValueError(f"source {source}: {name} of item {bad[0]} is {numbers[bad[0]]}")
    return numbers


def _restored(saved: dict[str, Any]) -> LiveCrawl:
    settings = json.loads(str(saved["settings"]))
    if settings["format"] != _FORMAT:
        raise KeyError("format")
    fleet = Sources(**{name: saved[name] for name in _KEPT}, period=settings["period"])
    sources = fleet if settings["known"] else len(fleet)
    crawl = LiveCrawl(sources, settings["budget"], settings["period"], settings["estimator"])
    states = [saved[f"state_{i}"] for i in range(settings["states"])]
    crawl._state = tuple(states) or None
    crawl._report[:], crawl._chosen[:] = saved["report"], saved["chosen"]
    crawl._failures[:], crawl._pause[:] = saved["failures"], saved["pause"]
    crawl._agent.rng.bit_generator.state = settings["chance"]
    return crawl
