"""How content arrives: random items, their mean, and all arrivals by name."""

from __future__ import annotations

import difflib
import itertools
from dataclasses import dataclass
from os import PathLike
from typing import Literal

import numpy as np

from crawl_env.content.cells import Cells
from crawl_env.content.decay import DECAYS, Decay, ExponentialDecay, make_decay
from crawl_env.content.hawkes import Hawkes
from crawl_env.content.poisson import ItemSampler, PastTotals, TotalSampler, past_items
from crawl_env.content.process import ArrivalProcess, Block
from crawl_env.content.rates import Constant, DailyCycle, Drift, Jumps, RateModel
from crawl_env.content.trace import Trace
from crawl_env.content.utility import UTILITIES, Distribution, make_distribution
from crawl_env.errors import unknown
from crawl_env.files.table import SUFFIXES
from crawl_env.log.item_log import ItemLog
from crawl_env.numerics import FloatArray

__all__ = ["ARRIVALS", "RATES", "ArrivalProcess", "Arrivals", "Deterministic", "make_arrivals"]

RATES: dict[str, type[RateModel]] = {
    "constant": Constant,
    "drift": Drift,
    "jumps": Jumps,
    "cycle": DailyCycle,
    "hawkes": Hawkes,
}
SAMPLERS = ("total", "items")


@dataclass(frozen=True, init=False)
class Arrivals(ArrivalProcess):
    """Items arrive as a Poisson process whose rate may change, or as a Hawkes process.

    A step adds U = Σ ξ_n R(μ·age_n) over its items. At a constant rate and under exponential decay,
    E[U] = u and Var[U] = Λ E[ξ²](1 − α²)/(2μ).

    Arguments:
        rate: how Λ changes with time: constant, drift, jumps, cycle or hawkes, or a
            `crawl_env.content.rates.RateModel` such as `Drift(0.1)`.
        utility: distribution of ξ: constant, exponential, lognormal or gamma, or a
            `crawl_env.content.utility.Distribution`.
        decay: of an item's utility: exponential, stretched or lomax, or a
            `crawl_env.content.decay.Decay`. Beliefs and agents assume exponential decay.
        sampler: "total" draws one number per source and step, in constant time where this is
            possible (exponential ξ, many items); "items" draws every item, which features that
            count items, and finite capacities, need. The two differ in the sample path, not in
            distribution. Hawkes rates and decay that is not exponential always draw items.

    Raises:
        ValueError: an unknown name, or an object that is none of these.

    >>> Arrivals(rate=Drift(0.2), utility="lognormal", decay="lomax").sampler
    'items'
    """

    rate: RateModel
    utility: Distribution
    decay: Decay
    sampler: Literal["total", "items"]

    def __init__(
        self,
        *,
        rate: str | RateModel = "constant",
        utility: str | Distribution = "exponential",
        decay: str | Decay = "exponential",
        sampler: Literal["total", "items"] = "total",
    ) -> None:
        if sampler not in SAMPLERS:
            raise unknown("sampler", sampler, SAMPLERS)
        model, function = _make_rate(rate), make_decay(decay)
        if model.draws_items or not isinstance(function, ExponentialDecay):
            sampler = "items"
        for name, value in (
            ("rate", model),
            ("utility", make_distribution(utility)),
            ("decay", function),
            ("sampler", sampler),
        ):
            object.__setattr__(self, name, value)

    @property
    def items(self) -> bool:  # type: ignore[override]
        return self.sampler == "items"

    @property
    def exponential(self) -> bool:  # type: ignore[override]
        return isinstance(self.decay, ExponentialDecay)

    @property
    def stateful(self) -> bool:  # type: ignore[override]
        return not self.rate.constant

    def model(self, items: bool) -> Arrivals:
        return Arrivals(
            rate=self.rate,
            utility=self.utility,
            decay=self.decay,
            sampler="items" if items else "total",
        )

    def block(self, cells: Cells, state: FloatArray) -> Block:
        if self.items:
            return ItemSampler(cells, self.utility, self.rate.times(cells, state))
        if self.rate.constant:
            return TotalSampler(cells, self.utility, np.ones_like(cells.items))
        return _VaryingTotals(cells, self, state)

    def past(self, cells: Cells, steps: FloatArray) -> Block:
        if self.items:
            return past_items(cells, self.utility, steps, self.decay.end)
        return PastTotals(cells, self.utility, steps)

    def start(self, shape: tuple[int, int], period: float, rng: np.random.Generator) -> FloatArray:
        return self.rate.start(shape, period, rng)

    def factor(self, state: FloatArray, period: float) -> FloatArray:
        return self.rate.factor(state, period)


class _VaryingTotals(Block):
    """Totals of a step at rates that change from step to step."""

    def __init__(self, cells: Cells, arrivals: Arrivals, state: FloatArray) -> None:
        super().__init__(cells)
        self._arrivals, self._state = arrivals, state

    def add(self, value: FloatArray, count: FloatArray | None, rng: np.random.Generator) -> None:
        rate, cells = self._arrivals.rate, self.cells
        now = rate.now(cells, self._state)
        TotalSampler(now, self._arrivals.utility, np.ones_like(now.items)).add(value, count, rng)
        rate.step(self._state, cells.period, rng)


@dataclass(frozen=True)
class Deterministic(ArrivalProcess):
    """Every step adds exactly its mean: u utility and ΛT items (equation 2 of the paper)."""

    random = False

    def block(self, cells: Cells, state: FloatArray) -> Block:
        return _Mean(cells, cells.mean_content(1.0), cells.items)

    def past(self, cells: Cells, steps: FloatArray) -> Block:
        finite = np.where(np.isfinite(steps), steps, 0.0)
        return _Mean(cells, cells.mean_content(steps), cells.items * finite)


class _Mean(Block):
    def __init__(self, cells: Cells, inflow: FloatArray, items: FloatArray) -> None:
        super().__init__(cells)
        self._inflow, self._items = inflow, items

    def add(self, value: FloatArray, count: FloatArray | None, rng: np.random.Generator) -> None:
        np.add(value, self._inflow, value)
        if count is not None:
            count += self._items


def _names() -> dict[str, dict[str, str]]:
    """Return the arguments of `Arrivals` that each name stands for."""
    names: dict[str, dict[str, str]] = {}
    choices = (
        ("rate", [None, *(name for name in RATES if name != "constant")]),
        ("utility", [None, *UTILITIES]),
        ("decay", [None, *(name for name in DECAYS if name not in UTILITIES)]),
        ("sampler", [None, "items"]),
    )
    for words in itertools.product(*(known for _, known in choices)):
        given = {choices[i][0]: word for i, word in enumerate(words) if word is not None}
        names["-".join(("poisson", *given.values()))] = given
    return names


_NAMES = _names()
# All names, without those that ask for items where they are drawn anyway.
ARRIVALS = (
    "deterministic",
    *(
        name
        for name, given in _NAMES.items()
        if "sampler" not in given or not ("decay" in given or given.get("rate") == "hawkes")
    ),
)
_GRAMMAR = "deterministic, poisson" + "".join(
    f"[-{'|-'.join(name for name in known if name)}]"
    for known in (
        [name for name in RATES if name != "constant"],
        UTILITIES,
        [name for name in DECAYS if name not in UTILITIES],
        ["items"],
    )
)


def make_arrivals(arrivals: str | PathLike[str] | ArrivalProcess) -> ArrivalProcess:
    """Return arrivals by name, or the object given.

    `"deterministic"` is the mean of all that is random. `"poisson"` has a constant rate and
    exponential ξ and decay; it may be followed by another rate (`drift`, `jumps`, `cycle`,
    `hawkes`), distribution of ξ (`constant`, `exponential`, `lognormal`, `gamma`) and decay
    (`stretched`, `lomax`), and by `items` if items are to be drawn one by one, in this order:
    `"poisson-drift-lognormal-lomax"`, `"poisson-items"`. Parameters have their defaults;
    `Arrivals(rate=Drift(0.1), utility=Lognormal(0.5))` sets them.

    Recorded arrivals are a `Trace`. The path of a log (.csv, .csv.gz or .parquet) stands for
    `Trace(ItemLog.from_csv(path))`: numbers in the unit of time of the fleet's rates, or time
    stamps, which become hours; no curves; a span from the first item to the last.

    Raises:
        FileNotFoundError: no such log.
        ValueError: unknown name, or a log that cannot be read.

    >>> make_arrivals("poisson-jumps-gamma-items").rate
    Jumps(rate=0.01, distribution=Gamma(shape=2.0))
    """
    if isinstance(arrivals, ArrivalProcess):
        return arrivals
    if isinstance(arrivals, PathLike) or (
        isinstance(arrivals, str) and arrivals.lower().endswith(SUFFIXES)
    ):
        return Trace(ItemLog.from_csv(arrivals))
    if arrivals == "deterministic":
        return Deterministic()
    if arrivals == "trace":
        raise ValueError(
            "arrivals='trace' needs a log to play back; give its path (.csv, .csv.gz or .parquet), "
            "or crawl_env.Trace(crawl_env.ItemLog.from_csv(path))"
        )
    if not isinstance(arrivals, str):
        raise ValueError(
            f"arrivals is {arrivals!r}; give a name ({_GRAMMAR}), the path of a log, "
            "crawl_env.Trace(items) of a log in memory, or an object such as crawl_env.Arrivals()"
        )
    if arrivals not in _NAMES:
        near = difflib.get_close_matches(arrivals.lower(), ARRIVALS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(
            f"unknown arrivals {arrivals!r}{hint} Known: {_GRAMMAR}, or the path of a log"
        )
    return Arrivals(**_NAMES[arrivals])  # type: ignore[arg-type]


def _make_rate(rate: str | RateModel) -> RateModel:
    if isinstance(rate, RateModel):
        return rate
    if isinstance(rate, str):
        if rate not in RATES:
            raise unknown("rate", rate, RATES)
        return RATES[rate]()
    raise ValueError(
        f"rate is {rate!r}; give one of {', '.join(RATES)}, or a rate model such as "
        "crawl_env.Drift(0.1)"
    )
