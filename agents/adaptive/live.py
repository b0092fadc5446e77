"""Adaptive agents in a crawler of your own: whom to fetch next, from what fetches brought."""

from __future__ import annotations

import json
import zipfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.adaptive.item_sums import HarvestSums
from agents.adaptive.policies import Adaptive, SelfTuning, Thompson
from crawl_env import NEVER, Sources, Task
from crawl_env.numerics import FloatArray
from crawl_env.selection import select, whole_budget

_SHOWN = ("age", "crawled", "items", *HarvestSums.features)
_KEPT = ("arrival_rate", "mean_utility", "decay_rate", "cost")
_FORMAT = "ephemeral-crawl live crawl 1"


class LiveCrawl:
    """Chooses the sources to fetch in each period, and learns from what is reported of them.

    In every period call `choose`, fetch these sources, and `report` each. One that was chosen and
    not reported by the next `choose` has failed: it told nothing, and its content still waits. Of
    the first fetch of a source only the time is noted, since nobody knows for how long its items
    had come.

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
        ValueError: an argument is out of range.

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
        known = isinstance(sources, Sources)
        fleet = sources if isinstance(sources, Sources) else _unknown(sources, period)
        self.task = Task.of(
            fleet, budget=budget, arrivals="poisson", observed=False, features=_SHOWN
        )
        kind: type[Adaptive] = Thompson if known else SelfTuning
        self._agent = kind(self.task, seed, estimator)
        self._settings = {"known": known, "estimator": estimator}
        self._state: Any = None
        self._report = np.zeros((len(fleet), len(_SHOWN)), dtype=np.float32)
        self._report[:, 0] = NEVER  # what waits at first came in a time that nobody knows
        self._chosen = np.zeros(len(fleet), dtype=bool)

    def choose(self) -> NDArray[np.intp]:
        """Begin a period; return the sources to fetch in it, the most urgent first."""
        fleet, age = self.task.sources, self._report[:, 0].astype(np.float64)
        priority, self._state = self._agent.predict(self._report, self._state)
        whole = whole_budget(fleet.cost, self.task.budget)
        cells = select(
            np.asarray(priority)[None], -age[None], fleet.cost, self.task.budget, whole, None
        )
        chosen = np.ravel(cells).astype(np.intp)
        self._report[:, 0] += 1.0
        self._report[:, 1:] = 0.0
        self._chosen[:] = False
        self._chosen[chosen] = True
        return chosen[np.argsort(-np.asarray(priority)[chosen], kind="stable")]

    def report(self, source: int, age: ArrayLike, worth: ArrayLike) -> None:
        """Tell what the fetch of a chosen source brought: its new items, or none.

        Arguments:
            age: (K,) time since each item was published.
            worth: (K,) what each is worth now, in your unit (readers or votes still to come).

        Raises:
            ValueError: the source was not chosen in this period, or has been reported; ages or
                worths are negative, not finite, or not as many.
        """
        s, w = (np.atleast_1d(np.asarray(x, dtype=np.float64)) for x in (age, worth))
        if not 0 <= source < self.task.n or not self._chosen[source]:
            raise ValueError(
                f"source {source} was not chosen in this period, or was reported already; report "
                "each of those that `choose` returned once"
            )
        if s.ndim != 1 or s.shape != w.shape:
            raise ValueError(
                f"source {source}: age has shape {s.shape} and worth {w.shape}; give one number an "
                "item in each"
            )
        for name, array in (("age", s), ("worth", w)):
            if not (np.isfinite(array) & (array >= 0)).all():
                raise ValueError(f"source {source}: {name} has entries below 0 or not finite")
        told = w > 0
        old, log = s[told], np.log(w[told])
        sums = told.sum(), old.sum(), (old**2).sum(), log.sum(), (old * log).sum()
        self._report[source] = 1.0, 1.0, s.size, *sums
        self._chosen[source] = False

    def rates(self) -> FloatArray:
        """Return what is believed of the arrival rates, (N,) items / time, before this period."""
        shape = (1, self.task.n)
        if self._state is None:
            estimator = self._agent.estimator
            mean = estimator.posterior(estimator.begin(shape)).mean
        else:
            mean = self._agent.believed(self._state).mean
        return np.broadcast_to(mean, shape)[0].copy()

    def save(self, path: str | PathLike[str]) -> None:
        """Write all that is known to a file of arrays, which appears whole or not at all."""
        fleet, target = self.task.sources, Path(path)
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
                    chosen=self._chosen, **arrays,
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
    if n < 1:
        raise ValueError(f"sources is {n}; it must be at least 1, or a fleet")
    return Sources(np.ones(n), 1.0, 1.0, period=period)


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
    crawl._agent.rng.bit_generator.state = settings["chance"]
    return crawl
