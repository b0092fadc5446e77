"""Task: the validated configuration shared by CrawlEnv, CrawlVectorEnv and CrawlVecEnv."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from crawl_env.content.engine import Engine, make_engine
from crawl_env.content.names import make_arrivals
from crawl_env.content.payoff import Payoff, make_payoff
from crawl_env.content.process import ArrivalProcess, require_items
from crawl_env.content.signals import Signals, make_signals
from crawl_env.content.stories import Stories
from crawl_env.content.trace import Trace
from crawl_env.content.world import NEVER
from crawl_env.errors import check_choice, check_flag, check_positive, check_whole, unknown
from crawl_env.files.table import SUFFIXES
from crawl_env.fleet.drawn import DRAWN, DrawnFleet
from crawl_env.fleet.parameters import FIXED, PARAMETERS
from crawl_env.fleet.sources import Sources
from crawl_env.log.ping_log import PingLog
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.simulation.observation import (
    COUNTED,
    SUMMED,
    check_features,
    observation_space,
    scales_of,
    unscaled,
)
from crawl_env.simulation.selection import TOLERANCE, Hosts, affordable, most_spent

Draw = Callable[[np.random.Generator], Sources]
Fleet = Sources | str | Path | Mapping[str, Any] | Draw  # what the argument `sources` may be
BudgetRule = Literal["step", "average"]
Start = Literal["fresh", "empty", "full", "random"]

BUDGET_RULES = ("step", "average")
_NOTICEABLE = 1e-3  # fraction of the budget whose loss is worth a warning
STARTS = ("fresh", "empty", "full", "random")

Function = TypeVar("Function", bound=Callable[..., Any])


class TaskOptions(TypedDict, total=False):
    """The arguments of `Task` that are given by name."""

    budget_rule: BudgetRule
    arrivals: str | Path | Mapping[str, Any] | ArrivalProcess | None
    observed: bool | ArrayLike | None
    signals: Signals | str | Path | Mapping[str, Any] | None
    engine: Engine | Mapping[str, Any] | None
    payoff: Payoff | Mapping[str, Any] | None
    features: str | Sequence[str]
    flat: bool
    scaled: bool
    horizon: int | None
    start: Start
    per_host: int
    look_cost: float | None
    unchanged_cost: float | None


class TaskArguments(TaskOptions, total=False):
    """The arguments of `Task`, for dictionaries passed as `**arguments`."""

    sources: Fleet
    budget: float


def suggest_arguments(function: Function) -> Function:
    """Add a suggestion to the TypeError that an unknown keyword argument raises.

    Where the function takes `**options` of a `Task`, its signature names these.
    """
    signature = _with_options(inspect.signature(function))
    names = [name for name in signature.parameters if name != "self"]
    valid_names = frozenset(names)

    @functools.wraps(function)
    def checked(*positional: Any, **keywords: Any) -> Any:
        for name in keywords:
            if name not in valid_names:
                raise _unexpected(function.__qualname__, name, names)
        return function(*positional, **keywords)

    checked.__signature__ = signature  # type: ignore[attr-defined]
    return cast(Function, checked)


def _with_options(signature: inspect.Signature) -> inspect.Signature:
    """Return a signature with the arguments of `Task` in the place of `**options`."""
    own = list(signature.parameters.values())
    if not any(p.kind is p.VAR_KEYWORD for p in own):
        return signature
    options = [p for p in inspect.signature(Task).parameters.values() if p.kind is p.KEYWORD_ONLY]
    first = [p for p in own if p.kind is p.POSITIONAL_OR_KEYWORD]
    others = [p for p in own if p.kind is p.KEYWORD_ONLY]
    return signature.replace(parameters=[*first, *options, *others])


def _unexpected(function: str, name: str, names: Sequence[str]) -> TypeError:
    # Python's own wording, which TorchRL and Gymnasium parse.
    fact = f"{function}() got an unexpected keyword argument {name!r}"
    if name == "period":
        return TypeError(
            f"{fact}: the period belongs to the fleet; give it to Sources, as in "
            "Sources.from_csv(path, period=2)"
        )
    # What `unknown` adds to the fact: the nearest name, and all of them.
    return TypeError(fact + str(unknown("argument", name, names)).partition(repr(name))[2])


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Task:
    """Validated configuration of an environment, with every argument resolved.

    `CrawlEnv` documents the arguments. `task_of(env)` returns the task of an environment.

    Raises:
        ValueError: an argument is out of range or unknown, or arguments are incompatible; the
            message names the argument and the remedy.

    >>> task = Task("table1", budget=2, observed=False)
    >>> task.n, task.budget, task.observed.tolist()
    (4, 2.0, [False, False, False, False])
    >>> task
    Task(sources=Sources(4 sources, period=1), budget=2, observed=False)
    """

    sources: Sources  # the fleet (N,), with its signals; an example if fleets are drawn at reset
    draw: Draw | None  # rng → fleet at each reset, or None
    budget: float  # M, budget units / step
    budget_rule: BudgetRule
    arrivals: ArrivalProcess
    observed: NDArray[np.bool_]  # (N,)
    signals: Signals | None  # as given; the columns of `sources` contain them
    engine: Engine | None  # the indexing engine
    payoff: Payoff | None  # how collected utility becomes reward
    features: tuple[str, ...]
    flat: bool  # observations (N·F,) instead of (N, F)
    scaled: bool  # whether unbounded features are mapped to (−1, 1)
    horizon: int | None  # steps
    start: Start
    per_host: int  # crawls per step of a shared host
    look_cost: float | None  # budget units of a look; None: there are none
    unchanged_cost: float | None  # of a crawl that finds nothing; None: the cost of the source

    @suggest_arguments
    def __init__(
        self,
        sources: Fleet = "table1",
        budget: float = 1.0,
        *,
        budget_rule: BudgetRule = "step",
        arrivals: str | Path | Mapping[str, Any] | ArrivalProcess | None = None,
        observed: bool | ArrayLike | None = None,
        signals: Signals | str | Path | Mapping[str, Any] | None = None,
        engine: Engine | Mapping[str, Any] | None = None,
        payoff: Payoff | Mapping[str, Any] | None = None,
        features: str | Sequence[str] = ("value",),
        flat: bool = False,
        scaled: bool = False,
        horizon: int | None = 500,
        start: Start = "fresh",
        per_host: int = 1,
        look_cost: float | None = None,
        unchanged_cost: float | None = None,
    ) -> None:
        draw = _draw_of(sources)
        # Drawn only to determine N, the costs and the limits; episodes draw their own fleets.
        example = draw.example if isinstance(draw, DrawnFleet) else draw
        fleet = make_sources(sources if example is None else example(np.random.default_rng(0)))
        signal_model = make_signals(signals)
        fleet = fleet if signal_model is None else signal_model.of(fleet)
        index_engine = make_engine(engine)
        if arrivals is None:
            items = fleet.is_signalled or index_engine is not None
            random = look_cost is not None or unchanged_cost is not None
            arrivals = "poisson-items" if items else "poisson" if random else "deterministic"
        if observed is None:
            observed = _usually_observed(fleet, look_cost)
        check_choice("budget_rule", budget_rule, BUDGET_RULES)
        check_choice("start", start, STARTS)
        channels = check_features(features)
        _check_visible(fleet, channels)
        arguments = {
            "sources": fleet,
            "draw": draw,
            "budget": check_positive("budget", budget, "budget units / step"),
            "budget_rule": budget_rule,
            "arrivals": make_arrivals(arrivals),
            "observed": _mask(observed, len(fleet)),
            "signals": signal_model,
            "engine": index_engine,
            "payoff": make_payoff(payoff),
            "features": channels,
            "flat": check_flag("flat", flat),
            "scaled": check_flag("scaled", scaled),
            "horizon": None if horizon is None else check_whole("horizon", horizon, what="steps"),
            "start": start,
            "per_host": check_whole("per_host", per_host, what="crawls per step"),
            "look_cost": None
            if look_cost is None
            else check_positive("look_cost", look_cost, "budget units"),
            "unchanged_cost": None
            if unchanged_cost is None
            else check_positive("unchanged_cost", unchanged_cost, "budget units"),
        }
        for name, value in arguments.items():
            object.__setattr__(self, name, value)
        self._check_affordable(fleet)
        self._check_spendable()
        self._check_arrivals()

    def __repr__(self) -> str:
        """Return the arguments that differ from the defaults; masks as a number of sources."""
        number = int(self.observed.sum())
        usual = np.array_equal(self.observed, _usually_observed(self.sources, self.look_cost))
        mask = number == self.n if number in (0, self.n) else f"{number} of {self.n}"
        arguments: dict[str, Any] = {
            **self.arguments,
            "observed": None if usual else mask,
            "arrivals": self.arrivals if self.arrivals.random else None,
        }
        defaults = inspect.signature(Task).parameters
        other = [
            f"{name}={value!r}"
            for name, value in arguments.items()
            if name not in ("sources", "budget") and value != defaults[name].default
        ]
        fleet = [f"sources={arguments['sources']!r}", f"budget={self.budget:g}"]
        return f"Task({', '.join(fleet + other)})"

    @cached_property
    def n(self) -> int:
        """N, the number of sources."""
        return len(self.sources)

    @property
    def draws_anew(self) -> bool:
        """Whether episodes have different fleets; not if it is one, whose parameters are hidden."""
        return self.draw is not None and getattr(self.draw, "number", None) is None

    @cached_property
    def observation_space(self) -> spaces.Box[np.float32]:
        """Box (N, F) float32, or (N·F,) if the observation is flat."""
        scaled = self.scales is not None
        box = observation_space(self.features, self.n, scaled=scaled)
        if not self.flat:
            return box
        return spaces.Box(box.low.ravel(), box.high.ravel(), dtype=np.float32)

    @cached_property
    def scales(self) -> FloatArray | None:
        """The scales of the features, (F,), NaN if the feature is not scaled; None if none is."""
        if not self.scaled:
            return None
        return scales_of(self.features, self.sources, self.budget, self.engine)

    def natural(self, observation: ArrayLike) -> NDArray[Any]:
        """Return observations as rows of features in natural units, (B, N, F).

        This inverts `flat` and `scaled`; `crawl_env.simulation.observation.unscaled` states the
        precision.

        Arguments:
            observation: one observation of the task, or a batch of B.

        Raises:
            ValueError: the observation has a different shape.

        >>> task = Task("table1", features=("value", "age"), flat=True, scaled=True)
        >>> task.natural(task.observation_space.low).shape
        (1, 4, 2)
        """
        if isinstance(observation, tuple) and any(isinstance(part, dict) for part in observation):
            raise ValueError(
                "the observation is a tuple with a dictionary, as env.reset() returns; give its "
                "first element: observation, info = env.reset()"
            )
        # A tensor, of whichever device, is copied to host memory.
        array = np.asarray(observation.cpu() if hasattr(observation, "cpu") else observation)
        shape = self.observation_space.shape
        if array.shape not in (shape, (*array.shape[:1], *shape)):
            raise ValueError(
                f"the observation has shape {array.shape}; this task has {shape}, or a batch of "
                "it. Remove wrappers that flatten, stack or change observations"
            )
        rows = array.reshape(-1, self.n, len(self.features))
        return rows if self.scales is None else unscaled(rows, self.scales)

    @cached_property
    def action_space(self) -> spaces.Box[np.float32]:
        """Box (−1, 1, (N,)) float32, or (2, N) with looks: priorities of crawls, then of looks."""
        shape = (self.n,) if self.look_cost is None else (2, self.n)
        return spaces.Box(-1.0, 1.0, shape, dtype=np.float32)

    @cached_property
    def hosts(self) -> Hosts | None:
        """The shared hosts, or None if the limit of crawls per host never binds."""
        return Hosts.of(self.sources, self.per_host)

    @cached_property
    def pings(self) -> PingLog | None:
        """The recorded pings on the clock of the recorded arrivals, or None if there are none."""
        if self.signals is None or self.signals.log is None:
            return None
        assert isinstance(self.arrivals, Trace)  # checked on construction
        return self.signals.log.aligned_with(self.arrivals.log)

    @property
    def arguments(self) -> TaskArguments:
        """The keyword arguments with which an environment poses the same task."""
        arguments: Any = {field.name: getattr(self, field.name) for field in fields(self)}
        draw = arguments.pop("draw")
        return cast(TaskArguments, {**arguments, "sources": draw or self.sources})

    def replaced(self, **changes: Unpack[TaskArguments]) -> Task:
        """Return the task with some arguments replaced.

        Where signals are replaced, and the sources without signals were the observed ones, this
        remains so. `signals=None` removes those of the fleet, too, and changes nothing else.

        >>> Task("table1").replaced(budget=3).budget
        3.0
        """
        arguments: TaskArguments = {**self.arguments, **changes}
        usual = np.array_equal(self.observed, _usually_observed(self.sources, self.look_cost))
        if usual and "observed" not in changes and changes.get("signals") is not None:
            arguments["observed"] = None
        removes_signals = "signals" in changes and changes["signals"] is None
        if removes_signals and "sources" not in changes and self.sources.is_signalled:  # as columns
            arguments["signals"] = Signals(recall=0.0)
        return Task(**arguments)

    def portable(self) -> Task:
        """Return the task without the callable that draws fleets, which may not be picklable."""
        if self.draw is None:
            return self
        task = copy.copy(self)
        object.__setattr__(task, "draw", _drawn_elsewhere)
        return task

    def drawn(self, sources: Sources, envs: IntArray, rng: np.random.Generator) -> Sources:
        """Return a batch of fleets (B, N) in which those of the environments `envs` are drawn anew;
        raise ValueError if one does not fit the task."""
        assert self.draw is not None
        columns: Any = {name: getattr(sources, name).copy() for name in PARAMETERS}
        for env in envs:
            fleet = self._check_drawn(self.draw(rng))
            for name in PARAMETERS:
                columns[name][env] = getattr(fleet, name)
        return sources.replaced(**columns)

    def _check_drawn(self, fleet: Sources) -> Sources:
        """Return a fleet drawn at reset; raise ValueError if it does not fit the task."""
        alike = isinstance(fleet, Sources) and fleet.arrival_rate.shape == (self.n,)
        if not alike or fleet.period != self.sources.period:
            raise ValueError(
                f"the callable `sources` returned {fleet!r}; it must return a fleet of {self.n} "
                f"sources and period {self.sources.period:g} every time, as in its first call"
            )
        fleet = fleet if self.signals is None else self.signals.of(fleet)
        if not _same_limits(fleet, self.sources):
            raise ValueError(
                "the callable `sources` changed crawl delays, capacities, failure rates, signals, "
                "hosts or topics; they must be the same in every fleet it returns"
            )
        self._check_affordable(fleet)
        return fleet

    def start_ages(self, num_envs: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the ages at the start of an episode, (num_envs, N) steps."""
        if self.start == "random":
            longest = math.ceil(min(self.n / self.budget, NEVER - 1))
            return rng.integers(1, longest + 1, (num_envs, self.n)).astype(np.float64)
        age = {"fresh": 1.0, "empty": 0.0, "full": NEVER}[self.start]
        return np.full((num_envs, self.n), age)

    def _check_affordable(self, fleet: Sources) -> None:
        """Raise ValueError if no source is affordable; warn if only some are, or if all fit."""
        budget, every_step = self.budget, self.budget_rule == "step"
        unaffordable = np.flatnonzero(~affordable(fleet.cost, budget))
        if every_step and unaffordable.size == len(fleet):
            raise ValueError(
                f"budget is {budget:g} and the cheapest source costs {fleet.cost.min():g}: nothing "
                "can ever be crawled. Raise the budget, or use budget_rule='average'"
            )
        if every_step and unaffordable.size:
            names = ", ".join(fleet.label(i) for i in unaffordable[:5])
            names += ", …" * (unaffordable.size > 5)
            warnings.warn(
                f"budget is {budget:g}; sources that cost more can never be crawled: {names}. "
                "Raise the budget, or use budget_rule='average'",
                stacklevel=6,
            )
        if budget > fleet.cost.sum() * (1 + TOLERANCE):
            warnings.warn(
                f"budget is {budget:g} and all sources together cost {fleet.cost.sum():g}: every "
                "source can be crawled in every step, so there is nothing to decide; lower it",
                stacklevel=6,
            )

    def _check_spendable(self) -> None:
        """Warn if the budget of a step cannot be used up by sources all of which fit it, nor by
        looks or crawls that find nothing."""
        cost, budget = self.sources.cost, self.budget
        fit = affordable(cost, budget).all() and budget < cost.sum()
        has_cheaper = self.look_cost is not None or self.unchanged_cost is not None
        if self.budget_rule == "average" or not fit or has_cheaper:
            return
        most = most_spent(cost, budget)
        if most < budget * (1 - _NOTICEABLE):
            warnings.warn(
                f"budget is {budget:g}, of which the costs of the sources allow at most {most:g} "
                "to be spent in a step; the rest is lost in every step, while agents.relaxed_bound "
                f"counts on all of it. Give budget={most:g}, or budget_rule='average', which "
                "saves the rest for later steps",
                stacklevel=5,
            )

    def _check_arrivals(self) -> None:
        arrivals, fleet, features = self.arrivals, self.sources, self.features
        if self.start == "full" and not set(COUNTED).isdisjoint(features):
            raise ValueError(
                "start='full' has sources never crawled, which hold infinitely many items; "
                "leave out the features 'items' and 'changed', or use another start"
            )
        names = [name for name in (*COUNTED, *SUMMED) if name in features]
        if not arrivals.random:  # the mean number of items is computed without counting
            names = [name for name in names if name in SUMMED]
        if names:
            require_items(arrivals, f"features {', '.join(names)}")
        if arrivals.random and fleet.is_capped:
            require_items(arrivals, "some sources have a finite capacity")
        if self.engine is not None:
            require_items(
                arrivals, f"engine is {self.engine!r}, which takes one item after the other"
            )
        if isinstance(arrivals, Stories):
            self._check_stories(arrivals)
        if self.payoff is not None:
            self._check_payoff(self.payoff)
        if self.look_cost is not None:
            self._check_looks(self.look_cost)
        if self.unchanged_cost is not None:
            self._check_unchanged(self.unchanged_cost)
        self._check_signals()
        arrivals.check(fleet if self.draw is None else Sources.stack([fleet]))

    def _check_stories(self, arrivals: Stories) -> None:
        sums = [name for name in SUMMED if name in self.features]
        if self.engine is not None or sums:
            reason = f"engine is {self.engine!r}" if self.engine else f"features have {sums[0]!r}"
            raise ValueError(
                f"arrivals are {arrivals!r}, and {reason}, which is not defined for stories that "
                "pay once; leave it out, or use arrivals='poisson-items'"
            )

    def _check_payoff(self, payoff: Payoff) -> None:
        if self.engine is not None:
            raise ValueError(
                f"payoff is {payoff!r} and engine is {self.engine!r}: with an engine, items pay "
                "when they are indexed. Give one of the two"
            )
        payoff.check(self.sources, self.arrivals)

    def _check_looks(self, cost: float) -> None:
        fleet, arrivals = self.sources, self.arrivals
        wrong = {
            f"arrivals are {arrivals!r}: there is nothing to see that is not known; use random "
            "arrivals": not arrivals.random,
            "all sources are observed; leave out `observed`, or look_cost": self.observed.all(),
            f"arrivals are {arrivals!r}: what was seen is known to decay only if it decays "
            "exponentially; use such arrivals, for example 'poisson'": not arrivals.exponential,
            "some sources have a finite capacity, whose content is not known from what was seen; "
            "leave out the capacities, or look_cost": fleet.is_capped,
            "some sources send signals; give looks or signals": fleet.is_signalled,
            "the budget of a step does not cover a look; raise the budget": self.budget_rule
            == "step"
            and not affordable(np.array([cost]), self.budget).all(),
        }
        for fact, holds in wrong.items():
            if holds:
                raise ValueError(f"look_cost is {cost:g}, and {fact}")

    def _check_unchanged(self, cost: float) -> None:
        if not self.arrivals.random:
            raise ValueError(
                f"unchanged_cost is {cost:g}, and arrivals are {self.arrivals!r}: every crawl "
                "finds something. Use random arrivals, for example 'poisson'"
            )
        least = float(self.sources.cost.min())
        if cost > least:
            raise ValueError(
                f"unchanged_cost is {cost:g}, more than a crawl that finds something costs at the "
                f"cheapest source, {least:g}; lower it"
            )

    def _check_signals(self) -> None:
        fleet, arrivals = self.sources, self.arrivals
        if fleet.is_signalled:
            require_items(arrivals, "some sources send signals, which announce items")
        if self.signals is None or self.signals.log is None:
            return
        if not isinstance(arrivals, Trace):
            raise ValueError(
                f"signals has a log of pings, and arrivals is {arrivals!r}: recorded pings "
                "announce recorded items. Give arrivals=Trace(items) or the path of the log of "
                "items; or simulate pings, with Signals(recall=…, precision=…)"
            )
        assert self.pings is not None
        _check_pings(self.pings, fleet)
        for note in self.pings.notes:
            if note not in self.signals.log.notes:
                warnings.warn(f"signals: {note}", stacklevel=6)


def _check_pings(pings: PingLog, fleet: Sources) -> None:
    """Raise ValueError if recorded pings come from sources that send none."""
    counts = dict(zip(pings.names, pings.counts.tolist(), strict=True))
    sends = dict(zip(fleet.names, (fleet.recall > 0).tolist(), strict=True))
    strange = [name for name, count in counts.items() if count and not sends.get(name, False)]
    if strange:
        names = ", ".join(strange[:5]) + ", …" * (len(strange) > 5)
        raise ValueError(
            f"signals has {sum(counts[name] for name in strange)} pings of {len(strange)} sources "
            f"that the fleet lacks or whose recall is 0 ({names}); give them a recall above 0, or "
            "leave their pings out with log.select([name, …])"
        )


def _usually_observed(fleet: Sources, look_cost: float | None) -> NDArray[np.bool_]:
    """Return the mask of sources that are observed if the arguments do not say which."""
    return np.asarray((fleet.recall == 0) & (look_cost is None))


def _draw_of(sources: object) -> Draw | None:
    """Return the callable that draws fleets at reset, given or named; None for one known fleet."""
    if isinstance(sources, str) and sources.startswith(DRAWN):
        return DrawnFleet.named(sources)
    return sources if callable(sources) else None


def make_sources(sources: object) -> Sources:
    """Return the fleet for the argument `sources`: a fleet, a preset, a path or a dictionary."""
    if isinstance(sources, Sources):
        if sources.arrival_rate.ndim != 1:
            raise ValueError("sources holds a batch of fleets; give one fleet of shape (N,)")
        return sources
    if isinstance(sources, Mapping):
        return make_sources(_from_columns(sources))
    if isinstance(sources, Path) or (
        isinstance(sources, str) and sources.lower().endswith(SUFFIXES)
    ):
        return Sources.from_csv(sources)
    if isinstance(sources, str):
        return Sources.preset(sources)
    raise ValueError(
        f"sources is {sources!r}; give a Sources, the name of a preset, the path of a .csv file "
        "(also .csv.gz or .parquet), a dictionary of the arguments of Sources, "
        "or a callable that draws a Sources from a random generator"
    )


def _from_columns(columns: Mapping[str, Any]) -> Sources:
    parameters = inspect.signature(Sources).parameters
    for name in columns:
        check_choice("argument of Sources", name, parameters)
    missing = [
        name for name, p in parameters.items() if p.default is p.empty and name not in columns
    ]
    if missing:
        raise ValueError(f"sources, a dictionary, lacks {', '.join(missing)}; add one list each")
    return Sources(**columns)


def _same_limits(fleet: Sources, other: Sources) -> bool:
    same_labels = fleet.hosts == other.hosts and fleet.topics == other.topics
    return same_labels and all(
        np.array_equal(getattr(fleet, name), getattr(other, name)) for name in FIXED
    )


def _drawn_elsewhere(rng: np.random.Generator) -> Sources:
    raise RuntimeError(
        "this task does not include the callable that draws fleets; use the task of the environment"
    )


def _check_visible(fleet: Sources, features: tuple[str, ...]) -> None:
    """Raise ValueError if values would be infinite or zero in the float32 of observations."""
    largest = float(fleet.ceiling.max())
    least, most = (float(x) for x in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))
    utilities = {"value", "content", "harvest", "shown"} & set(features)
    if utilities and not (largest == 0 or 1e3 * least < largest < 1e-3 * most):
        raise ValueError(
            f"sources reach a value of {largest:.3g}, outside the range of float32, in which "
            f"{', '.join(sorted(utilities))} is observed; use another unit of utility"
        )


def _mask(observed: bool | ArrayLike, n: int) -> NDArray[np.bool_]:
    mask = np.asarray(observed)
    if mask.dtype != bool or mask.shape not in ((), (n,)):
        raise ValueError(
            f"observed is {observed!r}; give True, False, or one bool for each of {n} sources"
        )
    return np.broadcast_to(mask, (n,)).copy()
