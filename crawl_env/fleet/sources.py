"""Fleets of sources: their parameters, derived quantities, presets, random fleets and files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.errors import (
    ElementError,
    as_array,
    check_choice,
    check_names,
    check_positive,
    check_whole,
    counted,
    label_of,
    shown,
    unknown,
)
from crawl_env.files import table
from crawl_env.files.table import Column
from crawl_env.fleet.capacity import CappedContent
from crawl_env.fleet.parameters import DESCRIBED, FIXED, PARAMETERS, SIGNALS
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.rng import check_seed

_ARRAYS = (*PARAMETERS, *FIXED)
_COLUMNS = (
    Column("source", "text"),
    *(Column(name, "number", p.default is None, p.default) for name, p in DESCRIBED.items()),
    Column("host", "text", required=False),
    Column("topic", "text", required=False),
    Column("status", "text", required=False),
)

PRESETS = (
    "table1",
    "fleet-f",
    "recovering-<n>",
    "age-of-information-<n>",
    "hacker-news",
    "mixed-costs",
    "random-<regime>-<n>-<seed>",
)
# Range of Λ, items / time.
REGIMES = {"dense": (0.5, 50.0), "sparse": (0.003, 0.3), "wide": (0.003, 50.0)}


@dataclass(frozen=True, eq=False, init=False)
class Sources:
    """N sources of ephemeral content (Avrachenkov & Borkar 2015, section 2).

    Items appear at source i as a Poisson process of rate Λ_i. An item has the initial utility ξ of
    mean ξ̄_i, which decays as exp(−μ_i·age). Scalars are broadcast over the fleet.

    Arguments:
        arrival_rate: Λ, items / time, ≥ 0.
        mean_utility: ξ̄, utility, ≥ 0.
        decay_rate: μ, 1 / time, > 0.
        cost: C, budget units per crawl, > 0. Default 1.
        period: T, length of a step in the unit of time of the rates, > 0. Default 1.
        names: one unique name per source; default "1", "2", ….
        crawl_delay: minimum time between two crawls (robots.txt), ≥ 0. Default 0.
        capacity: K, number of latest items that the source shows, integer ≥ 1 or inf. Default inf.
        failure_rate: p in [0, 1), the probability that a crawl fails; a failed crawl costs as much,
            collects nothing and leaves the content in place. Default 0.
        hosts: one host per source; an environment crawls a shared host at most `per_host` times
            per step. "" stands for a host of its own. Default: no host is shared.
        recall: r in [0, 1], the probability that an item triggers a ping. Default 0: the source
            sends no signals, and `precision` and `signal_delay` have no effect.
        precision: p in (0, 1], the fraction of the pings that an item has triggered; the others are
            false. Default 1.
        signal_delay: d, mean of the exponential time from an item to its ping, ≥ 0. Default 0.
        topics: the topic of each source: a group whose sources may share their arrival regimes
            (`crawl_env.content.rates.Regimes`) or a payoff. "" stands for a topic of its own.
            Default: every source is a topic of its own.

    The arrays have shape (N,). A `Sources` with arrays of shape (B, N) is a batch of B fleets of N
    sources each, as used by environments that draw their fleets at random: `stack` makes a batch,
    `fleet(b)` and `select_fleets` index it, and all derived quantities have its shape. Functions
    that are defined for one fleet only (files, bounds, exact optima, logs) refuse a batch.

    Raises:
        ElementError: a parameter is not finite or out of range, or a name is missing or appears
            twice; the message names the source, the value and the range. It is a ValueError.
        ValueError: a parameter is not numeric, or lengths differ.

    >>> fleet = Sources(arrival_rate=[250, 250], mean_utility=[1, 0.7], decay_rate=[0.7, 0.35])
    >>> fleet.inflow.round(3), fleet.ceiling.round(3)
    (array([179.791, 147.656]), array([357.143, 500.   ]))
    """

    arrival_rate: FloatArray  # (N,) items / time
    mean_utility: FloatArray  # (N,) utility
    decay_rate: FloatArray  # (N,) 1 / time
    cost: FloatArray  # (N,) budget units
    period: float  # time
    given_names: tuple[str, ...]  # (N,), or () if none were given
    crawl_delay: FloatArray  # (N,) time
    capacity: FloatArray  # (N,) items
    failure_rate: FloatArray  # (N,) probability
    hosts: tuple[str, ...]  # (N,), or () if no two sources share a host
    recall: FloatArray  # (N,) probability
    precision: FloatArray  # (N,) probability
    signal_delay: FloatArray  # (N,) time
    topics: tuple[str, ...]  # (N,), or () if none were given

    def __init__(
        self,
        arrival_rate: ArrayLike,
        mean_utility: ArrayLike,
        decay_rate: ArrayLike,
        cost: ArrayLike = 1.0,
        period: float = 1.0,
        names: Sequence[str] = (),
        crawl_delay: ArrayLike = 0.0,
        capacity: ArrayLike = np.inf,
        failure_rate: ArrayLike = 0.0,
        hosts: Sequence[str] = (),
        recall: ArrayLike = 0.0,
        precision: ArrayLike = 1.0,
        signal_delay: ArrayLike = 0.0,
        topics: Sequence[str] = (),
    ) -> None:
        labels = check_names(names)
        arrays = _checked(
            {
                "arrival_rate": arrival_rate,
                "mean_utility": mean_utility,
                "decay_rate": decay_rate,
                "cost": cost,
                "crawl_delay": crawl_delay,
                "capacity": capacity,
                "failure_rate": failure_rate,
                "recall": recall,
                "precision": precision,
                "signal_delay": signal_delay,
            },
            labels,
        )
        length = check_positive("period", period, "time")
        n = arrays["cost"].shape[-1]
        values = {
            **arrays,
            "period": length,
            "given_names": labels,
            "hosts": _if_shared(_labels("hosts", "host", hosts, n)),
            "topics": _labels("topics", "topic", topics, n),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check_derived()

    def _check_derived(self) -> None:
        decay = self.decay_per_step
        with np.errstate(over="ignore", invalid="ignore"):
            # One term a line: mypy takes seconds for the sum in one expression.
            derived = self.ceiling + decay
            derived += self.ceiling * decay
            derived += self.crawl_delay / self.period
            derived += self.ping_rate * self.period
            derived += decay * self.signal_delay / self.period
        bad = np.argwhere(~(np.isfinite(derived) & (decay > 0)))
        if bad.size:
            i = int(bad[0][-1])
            raise ElementError(
                "arrival_rate × mean_utility / decay_rate (the value of a source never crawled), "
                "decay_rate × period, crawl_delay / period or recall × arrival_rate / precision "
                "exceeds the range of floating-point numbers; use other units of time or utility",
                i,
                f"source {self.label(i)}",
            )

    def __len__(self) -> int:
        """Return N, the number of sources in a fleet."""
        return int(self.arrival_rate.shape[-1])

    def __repr__(self) -> str:
        return f"Sources({counted(len(self), 'source')}, period={self.period:g})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sources)
            and self.period == other.period
            and self._words == other._words
            and all(np.array_equal(getattr(self, p), getattr(other, p)) for p in _ARRAYS)
        )

    __hash__ = None  # type: ignore[assignment]

    def name(self, i: int) -> str:
        """Return the name of source i (from 0): the given name, or else its number from 1."""
        return self.given_names[i] if self.given_names else str(i + 1)

    def label(self, i: int) -> str:
        """Return source i (from 0) for a message: its name in quotes, or else its index from 0."""
        return shown(self.given_names[i]) if self.given_names else str(i)

    def __getstate__(self) -> dict[str, Any]:
        columns: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        return {**columns, "period": self.period, **self._words}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # validates, and makes the arrays read-only

    def describe(self) -> dict[str, Any]:
        """Return the arguments of an equal fleet as lists, which JSON can hold.

        Constraints that no source has are left out, and infinite capacities are "inf".

        >>> fleet = Sources(1.0, [2.0, 3.0], 0.5)
        >>> Sources(**fleet.describe()) == fleet
        True
        """
        arguments: dict[str, Any] = {"period": self.period}
        for name in _ARRAYS:
            array = getattr(self, name)
            if not (array == DESCRIBED[name].default).all():
                arguments[name] = np.where(np.isinf(array), "inf", array.astype(object)).tolist()
        return arguments | {name: list(labels) for name, labels in self._words.items() if labels}

    @property
    def _words(self) -> dict[str, tuple[str, ...]]:
        """The arguments that give each source a word, () where none were given."""
        return {"names": self.given_names, "hosts": self.hosts, "topics": self.topics}

    @property
    def names(self) -> tuple[str, ...]:
        """Return all N names; sources without names are numbered from 1."""
        return self.given_names or tuple(map(str, range(1, len(self) + 1)))

    @cached_property
    def decay_per_step(self) -> FloatArray:
        """μT, (N,), dimensionless."""
        with np.errstate(over="ignore", under="ignore"):  # checked on construction
            return _fixed(self.decay_rate * self.period)

    @cached_property
    def retention(self) -> FloatArray:
        """α = exp(−μT), (N,): the fraction of utility that remains after one step."""
        return _fixed(np.exp(-self.decay_per_step))

    @cached_property
    def loss(self) -> FloatArray:
        """1 − α, (N,): the fraction of utility lost in one step, exact for the smallest μT."""
        return _fixed(-np.expm1(-self.decay_per_step))

    @cached_property
    def ceiling(self) -> FloatArray:
        """u* = Λξ̄/μ, (N,), utility: the mean value of a source never crawled."""
        with np.errstate(over="ignore", under="ignore"):  # checked on construction
            return _fixed(self.arrival_rate * self.mean_utility / self.decay_rate)

    @cached_property
    def inflow(self) -> FloatArray:
        """u = u*(1 − α), (N,), utility / step: the mean value added in one step, eq. (1)."""
        return _fixed(self.ceiling * self.loss)

    @cached_property
    def published(self) -> float | FloatArray:
        """Σ Λξ̄T, utility / step: the mean utility that the whole fleet publishes."""
        total = (self.arrival_rate * self.mean_utility * self.period).sum(axis=-1)
        return float(total) if total.ndim == 0 else total

    def content_at(self, age: ArrayLike) -> FloatArray:
        """Return x_k, utility: the mean value `age` steps after a crawl, (..., N).

        x_k = (1 − α^k) u*; less at a source that shows only its last K items (`CappedContent`).
        `age` broadcasts against (N,); infinity gives the mean value of a source never crawled.
        """
        k = np.asarray(age, dtype=np.float64)
        content = self.ceiling * -np.expm1(-self.decay_per_step * k)
        if self.is_capped:
            capped, mean = self.capped_content
            steps = k[..., capped] if k.ndim and k.shape[-1] > 1 else k
            content[..., capped] = mean(steps)
        return content

    def silent_content_at(self, age: ArrayLike) -> FloatArray:
        """Return the belief `age` steps after a crawl if no ping has come since, utility, (..., N).

        The content of the silent items, and with delayed signals that of the items whose ping is
        on the way, rΛξ̄ (1 − e^(−(μ + 1/d)τ))/(μ + 1/d), τ = kT; x_k where no signals are sent.
        """
        content = self.silent.content_at(age)
        lag = self.decay_rate * self.signal_delay
        if not (self.recall * lag).any():
            return content
        z = self.decay_per_step * np.asarray(age, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            fraction = np.where(lag > 0, -np.expm1(-z * (1.0 + lag) / lag), 0.0)
        return content + self.recall * self.ceiling * (lag / (1.0 + lag)) * fraction

    @cached_property
    def capped_content(self) -> tuple[IntArray, CappedContent]:
        """The numbers of the sources with a finite capacity, and their mean content by age.

        `World` uses it in every step.
        """
        some = np.isfinite(self.capacity).reshape(-1, len(self)).any(axis=0)
        capped = np.flatnonzero(some)
        return capped, CappedContent(
            self.arrival_rate[..., capped],
            self.mean_utility[..., capped],
            self.decay_rate[..., capped],
            self.capacity[..., capped],
            self.period,
        )

    @cached_property
    def is_capped(self) -> bool:
        """Whether some source has a finite capacity."""
        return bool(np.isfinite(self.capacity).any())

    @cached_property
    def fails(self) -> bool:
        """Whether a crawl of some source can fail."""
        return bool((self.failure_rate > 0).any())

    @cached_property
    def is_signalled(self) -> bool:
        """Whether some source sends signals."""
        return bool((self.recall > 0).any())

    @cached_property
    def ping_rate(self) -> FloatArray:
        """g = rΛ/p, (N,), pings / time: the rate of all pings, true and false."""
        with np.errstate(over="ignore"):  # checked on construction
            return _fixed(self.recall * self.arrival_rate / self.precision)

    @cached_property
    def false_rate(self) -> FloatArray:
        """ν = rΛ(1 − p)/p, (N,), pings / time: the rate of the pings that no item triggered."""
        return _fixed(self.ping_rate * (1.0 - self.precision))

    @cached_property
    def silent_rate(self) -> FloatArray:
        """(1 − r)Λ, (N,), items / time: the rate of the items that trigger no ping."""
        return _fixed((1.0 - self.recall) * self.arrival_rate)

    @cached_property
    def silent(self) -> Sources:
        """The fleet of the items that trigger no ping: Λ is (1 − r)Λ, and there are no signals."""
        plain = {name: DESCRIBED[name].default for name in SIGNALS}
        return self.replaced(**plain, arrival_rate=self.silent_rate)

    @cached_property
    def delay(self) -> FloatArray:
        """d ≥ 1, (N,): minimum number of steps between two crawls, from `crawl_delay`."""
        return _fixed(np.maximum(1.0, np.ceil(self.crawl_delay / self.period * (1 - 1e-12))))

    @cached_property
    def is_delayed(self) -> bool:
        """Whether some source may not be crawled in every step."""
        return bool((self.delay > 1).any())

    @cached_property
    def host_of(self) -> IntArray | None:
        """The number of each source's host, (N,), or None if no two sources share a host."""
        return _numbered(self.hosts) if self.hosts else None

    @cached_property
    def topic_of(self) -> IntArray:
        """The number of each source's topic, (N,), in the order of the topics' names.

        >>> Sources([1.0, 2.0, 3.0], 1.0, 0.5, topics=["sport", "news", "sport"]).topic_of
        array([1, 0, 1])
        """
        return _numbered(self.topics) if self.topics else np.arange(len(self))

    def replaced(self, **changes: Any) -> Sources:
        """Return the fleet with some arguments replaced.

        Raises:
            TypeError, ValueError: there is no such argument, or as for a new fleet.

        >>> Sources([1.0, 2.0], 1.0, 0.5).replaced(cost=3.0, period=0.5)
        Sources(2 sources, period=0.5)
        """
        return Sources(**{**self.__getstate__(), **changes})

    def select(self, which: Any) -> Sources:
        """Return the sub-fleet (or permutation) given by indices or a mask over the sources."""
        index = np.atleast_1d(np.arange(len(self))[which])
        words = {
            name: tuple(labels[i] for i in index) if labels else ()
            for name, labels in self._words.items()
        }
        return self._with(lambda parameter: parameter[..., index], **words)

    def fleet(self, b: int) -> Sources:
        """Return fleet b of a batch."""
        return self._with(lambda parameter: parameter[b])

    def _with(self, change: Callable[[FloatArray], FloatArray], **labels: Any) -> Sources:
        columns: Any = {name: change(getattr(self, name)) for name in _ARRAYS}
        return self.replaced(**columns, **labels)

    def select_fleets(self, which: Any) -> Sources:
        """Return fleets of a batch, selected by indices or a mask, as a batch."""
        return self._with(lambda parameter: parameter[which])

    @staticmethod
    def stack(fleets: Sequence[Sources]) -> Sources:
        """Return B fleets of equal size and period as one batch with arrays of shape (B, N)."""
        first = fleets[0]
        for fleet in fleets:
            for what in ("hosts", "topics"):
                if getattr(fleet, what) != getattr(first, what):
                    raise ValueError(
                        f"fleets with different {what} cannot form a batch; give all of them the "
                        "same"
                    )
            if len(fleet) != len(first) or fleet.period != first.period:
                raise ValueError(
                    f"fleets of {len(first)} and {len(fleet)} sources (periods {first.period:g} and"
                    f" {fleet.period:g}) cannot form a batch; use fleets of one size and period"
                )
        columns: Any = {p: np.stack([getattr(fleet, p) for fleet in fleets]) for p in _ARRAYS}
        return first.replaced(**columns)

    @staticmethod
    def preset(name: str) -> Sources:
        """Return a fleet by name.

        - `table1`: the paper's four sources.
        - `fleet-f`: 25 sources, five of each of five kinds, on which the literal reading of the
          paper's log⁺ fails (see the documentation of `agents.theory.closed_form`).
        - `recovering-<n>`: the n recovering bandits of NeurWIN (NeurIPS 2021) and DeepTOP
          (NeurIPS 2022): θ0 = u*, θ1 = μT, classes A … D in turn.
        - `age-of-information-<n>`: n sources of slow decay, μ = 10⁻⁶, which in the long run lose
          their mean weighted age of information per step. Source i = 1 … n has the weight
          Λμ = (n + 1 − i)/n, and a crawl of it succeeds with probability i/n.
        - `hacker-news`: 105 sites on the front page of Hacker News in the year from 2020-11-07,
          in hours and votes; fitted (`ephemeral-crawl fit`) to the public git history of
          christian-fei/hn-history.
        - `mixed-costs`: 20 invented sources with costs from 1 to 4.
        - `random-<regime>-<n>-<seed>`: `Sources.random(n, seed, regime)`.

        Raises:
            ValueError: the name is unknown.
        """
        name = str(name)
        if name == "table1":
            return Sources(250.0, [1.0, 0.7, 0.2, 0.08], [0.7, 0.35, 0.7, 0.21])
        if name == "fleet-f":
            kinds = [(0.5, 1, 0.35), (1, 0.7, 0.1), (0.2, 2, 0.2), (0.3, 0.5, 0.7), (2, 0.3, 0.05)]
            return Sources(*np.repeat(np.array(kinds, dtype=float), 5, axis=0).T)
        if match := re.fullmatch(r"recovering-(\d{1,8})", name):
            kind = np.arange(int(match[1])) % 4
            ceiling, decay = np.array([10, 8.5, 7, 5.5])[kind], np.array([0.2, 0.4, 0.6, 0.8])[kind]
            return Sources(ceiling * decay, 1.0, decay)
        if match := re.fullmatch(r"age-of-information-(\d{1,8})", name):
            place, slow = np.arange(1, int(match[1]) + 1) / int(match[1]), 1e-6
            return Sources(place[::-1] / slow, 1.0, slow, failure_rate=1 - place)
        if match := re.fullmatch(r"random-([a-z]+)-(\d{1,9})-(\d{1,19})", name):
            return Sources.random(int(match[2]), int(match[3]), match[1])
        if name in ("hacker-news", "mixed-costs"):
            return Sources.from_csv(Path(__file__).parent / "presets" / f"{name}.csv")
        raise unknown("preset", name, PRESETS)

    @staticmethod
    def random(n: int, seed: int | np.random.Generator = 0, regime: str = "dense") -> Sources:
        """Return n independent sources: ξ̄ lognormal (median 1, σ = .8), μ log-uniform on [.03, .5],
        Λ log-uniform on [.5, 50] (`"dense"`), [.003, .3] (`"sparse"`, like recorded sites) or
        [.003, 50] (`"wide"`).

        >>> Sources.random(3, seed=1, regime="sparse")
        Sources(3 sources, period=1)
        """
        check_whole("n", n, what="sources")
        given = seed if isinstance(seed, np.random.Generator) else check_seed(seed)
        return Sources(**random_parameters(n, np.random.default_rng(given), regime))

    @staticmethod
    def from_csv(path: str | PathLike[str], period: float = 1.0) -> Sources:
        """Read a fleet from a table, as CSV in UTF-8, gzipped CSV (.gz) or Parquet (.parquet).

        The header must name `source`, `arrival_rate`, `mean_utility` and `decay_rate`, and may name
        `cost`, `crawl_delay`, `capacity`, `failure_rate`, `recall`, `precision`, `signal_delay`,
        `host` and `topic`, in any order. Rates are per unit of time; `period` is the length of a
        step in that unit. An empty cell of an optional column stands for the default. A column
        `status`, which `ephemeral-crawl fit` writes (steady, new or dead), is for the reader and
        has no effect here.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the table is invalid; the message names the file, the row and the column.
        """
        rows = table.read(path, _COLUMNS, "source")
        names = rows.text["source"]
        with rows.located(element=lambda i: f"source {shown(names[i])}"):
            return Sources(
                **rows.number,
                period=period,
                names=names,
                hosts=rows.text.get("host", ()),
                topics=rows.text.get("topic", ()),
            )

    def to_csv(self, path: str | PathLike[str], status: Sequence[str] = ()) -> None:
        """Write the fleet so that `from_csv` reads back the same numbers (not the period).

        Arguments:
            status: a word on each source, for a column `status`; () for none.

        Raises:
            ValueError: this is a batch of fleets.
        """
        if self.arrival_rate.ndim != 1:
            raise ValueError("a batch of fleets does not fit one CSV; write `fleet(b)` of it")
        text: dict[str, Iterable[str]] = {"source": self.names}
        for name in _ARRAYS:
            array, default = getattr(self, name), DESCRIBED[name].default
            if name in PARAMETERS or (array != default).any():
                text[name] = map(repr, array.tolist())
        words = {"host": self.hosts, "topic": self.topics, "status": status}
        table.write(path, text | {name: column for name, column in words.items() if column})


def random_parameters(n: int, rng: np.random.Generator, regime: str) -> dict[str, Any]:
    """Return the parameters that `Sources.random` draws, each (n,)."""
    low, high = np.log(REGIMES[check_choice("regime", regime, REGIMES)])
    return {
        "arrival_rate": np.exp(rng.uniform(low, high, n)),
        "mean_utility": rng.lognormal(0.0, 0.8, n),
        "decay_rate": np.exp(rng.uniform(np.log(0.03), np.log(0.5), n)),
    }


def _checked(parameters: Mapping[str, ArrayLike], names: Sequence[str]) -> dict[str, FloatArray]:
    """Return the parameters as read-only arrays of one shape, with scalars broadcast.

    Arguments:
        names: names of the sources, or () if they are numbered.

    Raises:
        ElementError: a number is out of range, or a name is missing or appears twice.
        ValueError: a parameter is not numeric, shapes differ, or there are not N names.
    """
    arrays = {name: as_array(name, value) for name, value in parameters.items()}
    shapes = {name: array.shape for name, array in arrays.items() if array.ndim}
    if len(set(shapes.values())) > 1:
        listing = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"parameters differ in shape: {listing}; give one number per source")
    shape = next(iter(shapes.values()), (1,))
    if 0 in shape:
        raise ValueError("the fleet is empty; give at least one source")
    if len(shape) > 2:
        raise ValueError(f"parameters have shape {shape}; give (N,), or (B, N) for B fleets")
    if names and len(names) != shape[-1]:
        raise ValueError(
            f"names has {len(names)} entries for {shape[-1]} sources; give one per source"
        )
    for name, array in arrays.items():
        DESCRIBED[name].check(name, array, names)
        full = np.broadcast_to(array, shape)
        # These are usually the same for all sources: a broadcast view needs no memory.
        arrays[name] = array = full if name in FIXED and not array.ndim else full.copy()
        array.flags.writeable = False
    return arrays


def _labels(what: str, one: str, values: Iterable[str], n: int) -> tuple[str, ...]:
    """Return one label per source, or () if none has one; `what` is the name of the argument."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"{what} is {values!r}; give a sequence, one {one} per source")
    labels = tuple(map(label_of, values))
    if len(labels) not in (0, n):
        raise ValueError(f"{what} has {len(labels)} entries for {n} sources; give one per source")
    return labels if any(labels) else ()


def _if_shared(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the labels, or () if no two sources have the same."""
    names = [label for label in labels if label]
    return labels if len(set(names)) < len(names) else ()


def _numbered(labels: Sequence[str]) -> IntArray:
    """Return the number of each source's group, (N,), in the order of the labels; "" is a group of
    its own."""
    own = (f"\0{i}" for i in range(len(labels)))  # differs from every label
    names = [label or alone for label, alone in zip(labels, own, strict=True)]
    return np.unique(names, return_inverse=True)[1]


def _fixed(array: FloatArray) -> FloatArray:
    array.flags.writeable = False
    return array
