"""A fleet of sources: their parameters, what follows from them, and where fleets come from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crawl_env import fleet_csv
from crawl_env.csv_file import line_of
from crawl_env.errors import unknown
from crawl_env.numerics import FloatArray, remainder

PARAMETERS = ("arrival_rate", "mean_utility", "decay_rate", "cost")
PRESETS = ("table1", "fleet-f", "recovering-<n>", "hacker-news")
REGIMES = {"dense": (0.5, 50.0), "sparse": (0.003, 0.3)}  # range of Λ, items / time


@dataclass(frozen=True, eq=False, init=False)
class Sources:
    """N sources of ephemeral content (Avrachenkov & Borkar 2015, section 2).

    Items appear at source i as a Poisson process of rate Λ_i; an item starts with utility ξ of
    mean ξ̄_i, which then falls as exp(−μ_i · age). Scalars are spread over the fleet.

    Arguments:
        arrival_rate: Λ, items / time, ≥ 0; 0 is a silent source.
        mean_utility: ξ̄, utility, ≥ 0.
        decay_rate: μ, 1 / time, > 0.
        cost: C, budget units per crawl, > 0. Default 1.
        period: T, time between two epochs, > 0. Default 1.
        names: one name a source; default "1", "2", ….

    The arrays have shape (N,), or (B, N) for B fleets of N sources each (see `stack`).

    Raises:
        ValueError: a parameter is missing, not finite, out of range or of another length;
            the message names the source, the parameter and what is wanted.

    >>> fleet = Sources(arrival_rate=[250, 250], mean_utility=[1, 0.7], decay_rate=[0.7, 0.35])
    >>> fleet.inflow.round(3), fleet.ceiling.round(3)
    (array([179.791, 147.656]), array([357.143, 500.   ]))
    """

    arrival_rate: FloatArray  # (N,) items / time
    mean_utility: FloatArray  # (N,) utility
    decay_rate: FloatArray  # (N,) 1 / time
    cost: FloatArray  # (N,) budget units
    period: float  # time
    given_names: tuple[str, ...]  # (N,), or () when none were given

    def __init__(
        self,
        arrival_rate: ArrayLike,
        mean_utility: ArrayLike,
        decay_rate: ArrayLike,
        cost: ArrayLike = 1.0,
        period: float = 1.0,
        names: Sequence[str] = (),
    ) -> None:
        given = dict(zip(PARAMETERS, (arrival_rate, mean_utility, decay_rate, cost), strict=True))
        arrays = _broadcast({name: _as_array(name, value) for name, value in given.items()})
        n = next(iter(arrays.values())).shape[-1]
        if len(names) not in (0, n):
            raise ValueError(f"names has {len(names)} entries for {n} sources; give one a source")
        object.__setattr__(self, "given_names", _check_names(names))
        if not (isinstance(period, Real) and np.isfinite(period) and period > 0):
            raise ValueError(f"period is {period!r}; it must be a positive, finite time")
        for name, array in arrays.items():
            self._check_range(name, array)
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "period", float(period))
        self._check_derived()

    def _check_range(self, name: str, array: FloatArray) -> None:
        bad = _out_of_range(name, array)
        if bad.size:
            i = int(bad[0])
            label = self.name(i % array.shape[-1])
            raise ValueError(f"source {label!r}: {_range_message(name, array.flat[i])}")

    def _check_derived(self) -> None:
        decay = self.decay_per_epoch
        bad = np.argwhere(~(np.isfinite(self.ceiling) & np.isfinite(decay) & (decay > 0)))
        if bad.size:
            raise ValueError(
                f"source {self.name(int(bad[0][-1]))!r}: arrival_rate × mean_utility / decay_rate "
                "(the value of a source never crawled) or decay_rate × period leaves the range "
                "of floating point numbers; use other units of time or utility"
            )

    def __len__(self) -> int:
        """Return N, the number of sources in a fleet."""
        return int(self.arrival_rate.shape[-1])

    def __repr__(self) -> str:
        return f"Sources({len(self)} sources, period={self.period:g})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sources)
            and self.period == other.period
            and self.given_names == other.given_names
            and all(np.array_equal(getattr(self, p), getattr(other, p)) for p in PARAMETERS)
        )

    __hash__ = None  # type: ignore[assignment]

    def name(self, i: int) -> str:
        """Return the name of source i (from 0): the one given, else its number from 1."""
        return self.given_names[i] if self.given_names else str(i + 1)

    def __getstate__(self) -> dict[str, Any]:
        parameters: dict[str, Any] = {name: getattr(self, name) for name in PARAMETERS}
        return {**parameters, "period": self.period, "names": self.given_names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # checks, and makes the arrays read-only

    @property
    def names(self) -> tuple[str, ...]:
        """Return all N names; numbered from 1 where none were given."""
        return self.given_names or tuple(map(str, range(1, len(self) + 1)))

    @cached_property
    def decay_per_epoch(self) -> FloatArray:
        """μT, (N,), dimensionless."""
        with np.errstate(over="ignore", under="ignore"):  # refused when the fleet is made
            return _fixed(self.decay_rate * self.period)

    @cached_property
    def retention(self) -> FloatArray:
        """α = exp(−μT), (N,): the share of value kept over one epoch."""
        return _fixed(np.exp(-self.decay_per_epoch))

    @cached_property
    def loss(self) -> FloatArray:
        """1 − α, (N,): the share of value lost over one epoch, exact for the smallest μT."""
        return _fixed(-np.expm1(-self.decay_per_epoch))

    @cached_property
    def curvature(self) -> FloatArray:
        """g(μT) = μT − (1 − α), (N,); see `crawl_env.numerics.remainder`."""
        return _fixed(remainder(self.decay_per_epoch))

    @cached_property
    def ceiling(self) -> FloatArray:
        """u* = Λξ̄/μ, (N,), utility: the value waiting at a source never crawled."""
        with np.errstate(over="ignore", under="ignore"):  # refused when the fleet is made
            return _fixed(self.arrival_rate * self.mean_utility / self.decay_rate)

    @cached_property
    def inflow(self) -> FloatArray:
        """u = u*(1 − α), (N,), utility: expected value added in one epoch, eq. (1)."""
        return _fixed(self.ceiling * self.loss)

    @cached_property
    def published(self) -> float | FloatArray:
        """Σ Λξ̄T, utility: what the whole fleet is expected to publish in one epoch."""
        total = (self.arrival_rate * self.mean_utility * self.period).sum(axis=-1)
        return float(total) if total.ndim == 0 else total

    def content_at(self, age: ArrayLike) -> FloatArray:
        """Return x_k = (1 − α^k) u*, utility: the mean value `age` epochs after a crawl.

        `age` broadcasts against (N,); infinity gives the ceiling.
        """
        return self.ceiling * -np.expm1(-self.decay_per_epoch * np.asarray(age, dtype=np.float64))

    def with_period(self, period: float) -> Sources:
        """Return the same sources, crawled every `period` units of time."""
        return self._with(lambda parameter: parameter, period, self.given_names)

    def select(self, which: Any) -> Sources:
        """Return the sub-fleet (or permutation) given by indices or a mask over the sources."""
        index = np.atleast_1d(np.arange(len(self))[which])
        names = tuple(self.given_names[i] for i in index) if self.given_names else ()
        return self._with(lambda parameter: parameter[..., index], self.period, names)

    def row(self, b: int) -> Sources:
        """Return fleet b of a batch."""
        return self._with(lambda parameter: parameter[b], self.period, self.given_names)

    def _with(
        self, change: Callable[[FloatArray], FloatArray], period: float, names: tuple[str, ...]
    ) -> Sources:
        columns: Any = {p: change(getattr(self, p)) for p in PARAMETERS}
        return Sources(**columns, period=period, names=names)

    def select_rows(self, which: Any) -> Sources:
        """Return some fleets of a batch, by indices or a mask, as a batch."""
        return self._with(lambda parameter: parameter[which], self.period, self.given_names)

    @staticmethod
    def stack(fleets: Sequence[Sources]) -> Sources:
        """Return B fleets of equal size and period as one batch with arrays of shape (B, N)."""
        first = fleets[0]
        for fleet in fleets:
            if len(fleet) != len(first) or fleet.period != first.period:
                raise ValueError(
                    f"fleets of {len(first)} and {len(fleet)} sources (periods {first.period:g} and"
                    f" {fleet.period:g}) cannot share a batch; draw fleets of one size and period"
                )
        columns: Any = {p: np.stack([getattr(fleet, p) for fleet in fleets]) for p in PARAMETERS}
        return Sources(**columns, period=first.period, names=first.given_names)

    @staticmethod
    def preset(name: str) -> Sources:
        """Return a fleet by name.

        - `table1`: the paper's four sources.
        - `fleet-f`: 25 sources, five kinds five times over, on which the literal reading of the
          paper's log⁺ fails (see the documentation of `agents.index`).
        - `recovering-<n>`: the n recovering bandits of NeurWIN (NeurIPS 2021) and DeepTOP
          (NeurIPS 2022): θ0 = u*, θ1 = μT, classes A … D in turn.
        - `hacker-news`: 105 sites on the front page of Hacker News in the year from 2020-11-07,
          in hours and votes; fitted (`python -m experiments fit`) to the public git history of
          christian-fei/hn-history.

        Raises:
            ValueError: unknown name.
        """
        name = str(name)
        if name == "table1":
            return Sources(250.0, [1.0, 0.7, 0.2, 0.08], [0.7, 0.35, 0.7, 0.21])
        if name == "fleet-f":
            kinds = [(0.5, 1, 0.35), (1, 0.7, 0.1), (0.2, 2, 0.2), (0.3, 0.5, 0.7), (2, 0.3, 0.05)]
            return Sources(*np.repeat(np.array(kinds, dtype=float), 5, axis=0).T)
        if match := re.fullmatch(r"recovering-(\d+)", name):
            kind = np.arange(int(match[1])) % 4
            ceiling, decay = np.array([10, 8.5, 7, 5.5])[kind], np.array([0.2, 0.4, 0.6, 0.8])[kind]
            return Sources(ceiling * decay, 1.0, decay)
        if name == "hacker-news":
            return Sources.from_csv(Path(__file__).parent / "presets" / "hacker-news.csv")
        raise unknown("preset", name, PRESETS)

    @staticmethod
    def random(n: int, seed: int | np.random.Generator = 0, regime: str = "dense") -> Sources:
        """Return n independent sources: ξ̄ lognormal (median 1, σ = .8), μ log-uniform on [.03, .5],
        Λ log-uniform on [.5, 50] (`"dense"`) or [.003, .3] (`"sparse"`, like recorded sites).

        >>> Sources.random(3, seed=1, regime="sparse")
        Sources(3 sources, period=1)
        """
        if regime not in REGIMES:
            raise unknown("regime", regime, REGIMES)
        if n < 1:
            raise ValueError(f"n is {n}; a fleet has at least one source")
        rng = np.random.default_rng(seed)
        low, high = np.log(REGIMES[regime])
        return Sources(
            arrival_rate=np.exp(rng.uniform(low, high, n)),
            mean_utility=rng.lognormal(0.0, 0.8, n),
            decay_rate=np.exp(rng.uniform(np.log(0.03), np.log(0.5), n)),
        )

    @staticmethod
    def from_csv(path: str | PathLike[str], period: float = 1.0) -> Sources:
        """Read a fleet from a UTF-8 CSV with a header: `source`, `arrival_rate`, `mean_utility`,
        `decay_rate` and, optional, `cost` (default 1), in any order; rates are per unit of time,
        `period` is the length of an epoch in that unit.

        Raises:
            FileNotFoundError: no such file.
            ValueError: anything else that is wrong with it, naming file, row and column.
        """
        names, columns = fleet_csv.read(path)
        for name, column in columns.items():
            bad = _out_of_range(name, column)
            if bad.size:
                i = int(bad[0])
                raise ValueError(
                    f"{path}, row {line_of(path, i)} (source {names[i]!r}): "
                    f"{_range_message(name, column[i])}"
                )
        return Sources(**columns, period=period, names=names)

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the fleet so that `from_csv` reads back the same numbers (not the period).

        Raises:
            ValueError: this is a batch of fleets.
        """
        if self.arrival_rate.ndim != 1:
            raise ValueError("a batch of fleets does not fit one CSV; write `row(b)` of it")
        fleet_csv.write(path, self.names, {p: getattr(self, p) for p in PARAMETERS})


_UNITS = {
    "arrival_rate": "items/time",
    "mean_utility": "utility",
    "decay_rate": "1/time",
    "cost": "budget units",
}
_MAY_BE_ZERO = ("arrival_rate", "mean_utility")


def _as_array(name: str, value: ArrayLike) -> FloatArray:
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a number or an array of numbers: {error}") from None


def _broadcast(arrays: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Spread scalars over the fleet; refuse arrays of different lengths."""
    shapes = {name: array.shape for name, array in arrays.items() if array.ndim}
    if len(set(shapes.values())) > 1:
        listing = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"parameters differ in shape: {listing}; give one number a source")
    shape = next(iter(shapes.values()), (1,))
    if 0 in shape:
        raise ValueError("the fleet is empty; give at least one source")
    if len(shape) > 2:
        raise ValueError(f"parameters have shape {shape}; give (N,), or (B, N) for B fleets")
    return {name: np.broadcast_to(array, shape).copy() for name, array in arrays.items()}


def _out_of_range(name: str, array: FloatArray) -> Any:
    fine = np.isfinite(array) & ((array >= 0) if name in _MAY_BE_ZERO else (array > 0))
    return np.flatnonzero(~fine)


def _range_message(name: str, value: float) -> str:
    wanted = "zero or positive" if name in _MAY_BE_ZERO else "positive"
    return f"{name} is {value:g}; it must be {wanted} and finite ({_UNITS[name]})"


def _fixed(array: FloatArray) -> FloatArray:
    array.flags.writeable = False
    return array


def _check_names(names: Sequence[str]) -> tuple[str, ...]:
    labels = tuple(str(name).strip() for name in names)
    if len(set(labels)) < len(labels) or not all(labels):
        wrong = next(x for x, times in Counter(labels).items() if times > 1 or not x)
        raise ValueError(
            f"names has {wrong!r} twice, or empty; give every source a name of its own"
        )
    return labels
