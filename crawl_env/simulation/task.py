"""The arguments of the environment, checked once and made into what the stations need."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from crawl_env.content.arrivals import make_arrivals
from crawl_env.content.process import ArrivalProcess, require_items
from crawl_env.content.world import NEVER
from crawl_env.errors import unknown
from crawl_env.fleet.parameters import CONSTRAINTS
from crawl_env.fleet.sources import Sources
from crawl_env.simulation.observation import COUNTED, SUMMED, check_features, observation_space
from crawl_env.simulation.selection import TOLERANCE, affordable

Draw = Callable[[np.random.Generator], Sources]

BUDGET_RULES = ("step", "average")
STARTS = ("fresh", "empty", "full", "random")


@dataclass(frozen=True, eq=False)
class Task:
    """What an environment poses: every argument resolved. `env.unwrapped.task` holds it.

    Raises:
        ValueError: an argument is out of range, unknown, or does not go with another; the
            message names it and the remedy.
    """

    sources: Sources  # the fleet; where fleets are drawn anew, one of them
    draw: Draw | None  # rng → fleet at each reset, or None
    budget: float  # M, budget units / epoch
    budget_rule: str
    arrivals: ArrivalProcess
    observed: NDArray[np.bool_]  # (N,)
    features: tuple[str, ...]
    horizon: int | None  # epochs
    start: str
    per_host: int  # crawls per epoch of a shared host
    observation_space: Any  # Box (N, F)
    action_space: Any  # Box (N,)

    @property
    def n(self) -> int:
        """N, the number of sources."""
        return len(self.sources)

    def portable(self) -> Task:
        """Return the task without the callable that draws fleets, which may not be picklable."""
        return self if self.draw is None else replace(self, draw=_drawn_elsewhere)

    @staticmethod
    def from_arguments(arguments: dict[str, Any]) -> Task:
        """Resolve keyword arguments of an environment, suggesting a name for a misspelt one."""
        known = list(inspect.signature(Task.of).parameters)
        for name in arguments:
            if name == "period":
                raise ValueError(
                    "period belongs to the fleet, not to the environment; give it to Sources, as "
                    "in Sources.from_csv(path, period=2)"
                )
            if name not in known:
                raise unknown("environment argument", name, known)
        return Task.of(**arguments)

    @staticmethod
    def of(
        sources: Sources | str | Path | Draw = "table1",
        budget: float = 1.0,
        budget_rule: str = "step",
        arrivals: str | Path | ArrivalProcess = "deterministic",
        observed: bool | ArrayLike = True,
        features: Sequence[str] = ("value",),
        horizon: int | None = 500,
        start: str = "fresh",
        per_host: int = 1,
    ) -> Task:
        """Check the arguments of the environment; see `CrawlEnv` for what they mean."""
        draw = sources if callable(sources) else None
        # A fleet drawn only to learn N, costs and spaces; episodes draw their own.
        fleet = make_sources(sources if draw is None else draw(np.random.default_rng(0)))
        for name, choice, choices in (
            ("budget_rule", budget_rule, BUDGET_RULES),
            ("start", start, STARTS),
        ):
            if choice not in choices:
                raise unknown(name, choice, choices)
        channels = check_features(features)
        _check_visible(fleet, channels)
        _check_combination(channels, start, horizon)
        check_affordable(fleet, budget, budget_rule)
        _check_whole("per_host", per_host, "crawls an epoch")
        content = make_arrivals(arrivals)
        _check_items(content, fleet, channels)
        content.check(fleet if draw is None else Sources.stack([fleet]))
        return Task(
            sources=fleet,
            draw=draw,
            budget=float(budget),
            budget_rule=budget_rule,
            arrivals=content,
            observed=_mask(observed, len(fleet)),
            features=channels,
            horizon=None if horizon is None else int(horizon),
            start=start,
            per_host=int(per_host),
            observation_space=observation_space(channels, len(fleet)),
            action_space=spaces.Box(-1.0, 1.0, (len(fleet),), dtype=np.float32),
        )

    def check_drawn(self, fleet: Sources) -> Sources:
        """Return a fleet drawn at reset; raise ValueError if it does not fit the task."""
        alike = isinstance(fleet, Sources) and fleet.arrival_rate.shape == (self.n,)
        if not alike or fleet.period != self.sources.period:
            raise ValueError(
                f"the callable `sources` returned {fleet!r}; it must return a fleet of {self.n} "
                f"sources and period {self.sources.period:g} every time, as at its first call"
            )
        if not _same_limits(fleet, self.sources):
            raise ValueError(
                "the callable `sources` changed crawl delays, capacities, failure rates or hosts; "
                "they must be the same in every fleet it returns"
            )
        check_affordable(fleet, self.budget, self.budget_rule)
        return fleet


def _same_limits(fleet: Sources, other: Sources) -> bool:
    return fleet.hosts == other.hosts and all(
        np.array_equal(getattr(fleet, name), getattr(other, name)) for name in CONSTRAINTS
    )


def make_sources(sources: object) -> Sources:
    """Return a fleet from what the argument `sources` may be: a fleet, a preset, a CSV's path."""
    if isinstance(sources, Sources):
        if sources.arrival_rate.ndim != 1:
            raise ValueError("sources holds a batch of fleets; give one fleet of shape (N,)")
        return sources
    if isinstance(sources, Path) or (isinstance(sources, str) and sources.lower().endswith(".csv")):
        return Sources.from_csv(sources)
    if isinstance(sources, str):
        return Sources.preset(sources)
    raise ValueError(
        f"sources is {sources!r}; give a Sources, the name of a preset, the path of a .csv file, "
        "or a callable that draws a Sources from a random generator"
    )


def check_affordable(sources: Sources, budget: float, budget_rule: str) -> None:
    """Raise ValueError where no source can be crawled; warn where some cannot, or all always."""
    check_budget(budget)
    dear = np.flatnonzero(~affordable(sources.cost, budget))
    if budget_rule == "step" and dear.size == len(sources):
        raise ValueError(
            f"budget is {budget:g} and the cheapest source costs {sources.cost.min():g}: nothing "
            "can ever be crawled. Raise the budget, or use budget_rule='average'"
        )
    if budget_rule == "step" and dear.size:
        names = ", ".join(sources.name(i) for i in dear[:5]) + ", …" * (dear.size > 5)
        warnings.warn(
            f"budget is {budget:g}; sources that cost more can never be crawled: {names}. "
            "Raise the budget, or use budget_rule='average'",
            stacklevel=4,
        )
    if budget > sources.cost.sum() * (1 + TOLERANCE):
        warnings.warn(
            f"budget is {budget:g} and all sources together cost {sources.cost.sum():g}: every "
            "source can be crawled every epoch, so there is nothing to decide",
            stacklevel=4,
        )


def check_budget(budget: float) -> None:
    """Raise ValueError unless the budget is a positive, finite number."""
    if not (isinstance(budget, Real) and np.isfinite(budget) and budget > 0):
        raise ValueError(f"budget is {budget!r}; it must be a positive, finite number")


def _drawn_elsewhere(rng: np.random.Generator) -> Sources:
    raise RuntimeError("this task is a description; fleets are drawn by the environment it is of")


def _check_combination(features: tuple[str, ...], start: str, horizon: int | None) -> None:
    if horizon is not None:
        _check_whole("horizon", horizon, "epochs, or None")
    if start == "full" and not set(COUNTED).isdisjoint(features):
        raise ValueError(
            "start='full' has sources never crawled, at which infinitely many items wait; "
            "leave out the features 'items' and 'changed', or use another start"
        )


def _check_items(arrivals: ArrivalProcess, fleet: Sources, features: tuple[str, ...]) -> None:
    counted = [name for name in (*COUNTED, *SUMMED) if name in features]
    if not arrivals.random:  # the mean number of items is known, and so is that of capped sources
        counted = [name for name in counted if name in SUMMED]
    if counted:
        require_items(arrivals, f"features {', '.join(counted)}")
    if arrivals.random and fleet.is_capped:
        require_items(arrivals, "some sources have a finite capacity")


def _check_whole(name: str, number: object, what: str) -> None:
    whole = isinstance(number, (int, np.integer)) and not isinstance(number, bool)
    if not (whole and number > 0):  # type: ignore[operator]
        raise ValueError(f"{name} is {number!r}; it must be a positive number of {what}")


def _check_visible(fleet: Sources, features: tuple[str, ...]) -> None:
    """Observations are float32: refuse units in which they would all be infinite or zero."""
    largest = float(fleet.ceiling.max())
    least, most = (float(x) for x in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))
    shown = {"value", "harvest"} & set(features)
    if shown and not (largest == 0 or 1e3 * least < largest < 1e-3 * most):
        raise ValueError(
            f"sources reach a value of {largest:.3g}, beyond what the float32 of the observation "
            f"({', '.join(shown)}) can show; use another unit of utility"
        )


def _mask(observed: bool | ArrayLike, n: int) -> NDArray[np.bool_]:
    mask = np.asarray(observed)
    if mask.dtype != bool or mask.shape not in ((), (n,)):
        raise ValueError(
            f"observed is {observed!r}; give True, False, or one bool for each of {n} sources"
        )
    return np.broadcast_to(mask, (n,)).copy()


def start_ages(task: Task, rows: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the ages, (rows, N) epochs, of the task's start."""
    if task.start == "random":
        longest = math.ceil(min(task.n / task.budget, NEVER - 1))
        return rng.integers(1, longest + 1, (rows, task.n)).astype(np.float64)
    age = {"fresh": 1.0, "empty": 0.0, "full": NEVER}[task.start]
    return np.full((rows, task.n), age)
