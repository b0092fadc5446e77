"""The fleet at a glance: what is due and why, what fails or waits, what the budget buys."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.theory.price import first_where
from crawl_env.compiled import compiled
from crawl_env.errors import counted
from ephemeral_crawl.live import explanation, learning, life, price
from ephemeral_crawl.live import hosts as politeness
from ephemeral_crawl.live.columns import EXISTS, LOOKS, NO_HOST, Sources
from ephemeral_crawl.live.explanation import Explanation
from ephemeral_crawl.live.fitting import delays
from ephemeral_crawl.live.learning import Shared, belief
from ephemeral_crawl.live.state import FleetSample, Moment, State
from ephemeral_crawl.live.status import tags
from ephemeral_crawl.live.tags import TagStatus

_ROWS = 32_768  # that are looked at at a time, for some milliseconds
_PAUSE = 1e-4  # seconds
_LEAST_GUESSED = 0.005  # part of what is published that is worth a sentence
_LEAST_COST = 5e-4  # fraction that is worth a sentence
_OVERSPENT = 1.01  # cost of what is due ÷ budget, above which fetches are late
_CLOSE = 1e-6  # fraction to which a delay is computed
BUDGETS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)  # ÷ the present one


@dataclass(frozen=True)
class Wait:
    """A host, or a domain, that accepts no fetch at present."""

    host: str
    sources: int
    until: float  # seconds since 1970


@dataclass(frozen=True)
class Signals:
    """A kind of signal: how good its pings are, over the sources whose last ping was of it."""

    kind: str
    sources: int
    pings: float  # that a fetch has followed; those of some days ago count less
    precision: float  # fraction of them that announced an item
    recall: float  # fraction of the sources' items that pings announce
    delay: float  # mean time from an item to its ping, seconds

    @property
    def misleading(self) -> bool:
        """Whether its pings say hardly anything."""
        return self.pings >= learning.PRECISION_PINGS and self.precision < explanation.MISLEADING


@dataclass(frozen=True)
class Buys:
    """What budgets buy."""

    budgets: list[float]  # budget units per hour, ascending; the present one is among them
    collects: list[float]  # worth per hour that each collects, as far as is known
    published: float  # worth per hour that is published, as far as is known
    guessed: float  # part of it that is expected of sources whose rate is a guess
    living: float  # number of sources that publish it: of those not paused, expected to answer
    without_ceilings: float  # worth per hour of the present budget without maximum intervals
    ceilings: float  # budget units per hour that maximum intervals take on their own

    def collected(self, factor: float = 1.0) -> float:
        """Return the worth per hour that a multiple of the present budget, one of `BUDGETS`,
        collects."""
        return self.collects[BUDGETS.index(factor)]


@dataclass(frozen=True)
class Overview(Buys):
    """The fleet at a glance."""

    due: list[Explanation]  # sources that are due, best first
    soon: list[Explanation]  # of those that are not due, in order of time
    failing: list[Explanation]  # whose last fetch failed, those that failed most often first
    hosts: list[Wait]  # those that wait longest first
    hosts_waiting: int  # of which `hosts` may be a part
    tags: list[TagStatus]  # first the sources without a tag; none if there are no tags
    # By tag whose maximum is used up: number of sources that wait for it, and for nothing else.
    tags_waiting: dict[str, int]
    signals: list[Signals]  # kinds of which pings came, those of most sources first
    # Sources that announce what others have, such as sitemaps, those that bring most first.
    looks: list[Explanation]

    def publishers(self, sources: int) -> str:
        """Return whose items `published` is the worth of, in words, such as "12 sources publish".

        Arguments:
            sources: number of all sources.
        """
        living = min(round(self.living), sources)
        be, publish = ("is", "publishes") if living == 1 else ("are", "publish")
        if living == sources:
            return f"{counted(sources, 'source')} {publish}"
        return f"the {living:,} of {sources:,} sources that {be} expected to answer {publish}"

    @property
    def about_guess(self) -> str:
        """Return which part of `published` is a guess, in words; "" if hardly any is."""
        if self.guessed < _LEAST_GUESSED * self.published or not self.published:
            return ""
        part = self.guessed / self.published
        return f"{part:.0%} of what they publish is a guess about sources whose rate is not known."

    @property
    def ceilings_cost(self) -> float:
        """Return the fraction of what could be collected that maximum intervals cost."""
        here, free = self.collected(), self.without_ceilings
        return max(1.0 - here / free, 0.0) if free > 0.0 else 0.0

    @property
    def about_ceilings(self) -> str:
        """Return what maximum intervals cost, in words; "" if that is nothing."""
        budget, text = self.budgets[BUDGETS.index(1.0)], ""
        if self.ceilings_cost >= _LEAST_COST:
            text = (
                "That sources are fetched at least once in their maximum intervals costs "
                f"{self.ceilings_cost:.1%} of what the budget would collect without."
            )
        if self.ceilings > budget:
            text += (
                f" Maximum intervals alone take {self.ceilings:.3g} budget units an hour, more "
                f"than the {budget:.3g} there are, so that such sources are fetched later, and "
                "others hardly ever: raise the budget, or allow longer intervals."
            )
        return text.strip()


@compiled
def worth_rate(
    sources: Sources,
    shared: Shared,
    price_: float,
    rotation: float,
    now: float,
    late: float = 0.0,
) -> tuple[float, float, float, float, float]:
    """Return the worth per second that sources are expected to collect at a price, and to
    publish, the part of the latter that is a guess, what their fetches cost, and how many of the
    sources are expected to answer.

    A source that is fetched every τ collects Λξ̄ (1 − e^−μτ)/(μτ) if it answers. Sources of a host
    or domain that accepts fewer fetches are all fetched more rarely by the same factor.

    Arguments:
        late: seconds for which each fetch waits after it is due.
    """
    total, published, guessed, spending, living = 0.0, 0.0, 0.0, 0.0, 0.0
    intervals, fetches = np.empty(len(sources)), np.zeros(len(shared.hosts))
    for i in range(len(sources)):
        intervals[i] = max(price.interval_at(sources, shared, i, price_, rotation), 1.0) + late
        if sources.failures[i] > 0:
            intervals[i] += price.retried_after(sources, shared, i, price_, rotation, now)
        if sources.host[i] != NO_HOST:
            fetches[sources.host[i]] += 1.0 / intervals[i]
    factor = politeness.stretch(shared.hosts, fetches)
    for i in range(len(sources)):
        interval, cost = intervals[i], np.float64(sources.cost[i])
        estimate = belief(sources, shared, i)
        answering = life.answering_soon(sources, shared, i, now)
        ceiling, _ = price.planned(estimate, 0.0)
        if sources.marks[i] & LOOKS:  # what it announces, others publish
            ceiling = 0.0
        ceiling *= answering
        living += answering
        published += ceiling * estimate.decay
        if learning.is_guess(sources, i):
            guessed += ceiling * estimate.decay
        if sources.host[i] != NO_HOST:
            interval *= factor[sources.host[i]]
        if interval < np.inf:
            total -= ceiling * math.expm1(-estimate.decay * interval) / interval
            spending += answering * cost / interval
        if sources.failures[i] > 0:
            again = price.retried_after(sources, shared, i, price_, rotation, now) + late
            spending += (1.0 - answering) * cost / again
    return total, published, guessed, spending, living


Reading = Callable[[], AbstractContextManager[tuple[State, Moment]]]


def overview(reading: Reading, limit: int) -> Overview:
    """Return the fleet at a glance.

    Others can use the scheduler between the parts of a large fleet.

    Arguments:
        reading: returns a context with the present state and time.
        limit: largest length of each list of sources or hosts.
    """
    scan, start = _Scan(limit), 0
    with reading() as (state, moment):
        sample, settings, market = state.sample(), state.settings, state.shared.market
        rotation, now = state.rotation, moment.time
    buys = _buys(sample, settings.budget, rotation, market, now)
    while True:
        with reading() as (state, moment):
            scan.look(state, start, moment.time)
            start += _ROWS
            if start >= state.rows:
                return scan.overview(state, moment, buys)
        time.sleep(_PAUSE)  # other threads may use the scheduler meanwhile


class _Scan:
    """A pass over the rows of a fleet, part by part."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._due = self._soon = self._failing = _Best()
        self._of_host = np.zeros(0, np.int64)  # number of sources that can be fetched
        self._looks = _Best()
        self._of_kind = np.zeros((0, 5))  # see `learning.add_signals`
        self._of_tag = np.zeros(0, np.int64)  # number of sources that wait for its maximum

    def look(self, state: State, start: int, now: float) -> None:
        """Add some rows."""
        rows = np.arange(start, min(start + _ROWS, state.rows), dtype=np.int32)
        part, value = state.table[start : start + len(rows)], state.price_at(now)
        keys = price.keys(state.table, state.shared, rows, value, state.rotation, now)
        shut = np.zeros(len(state.host_names) + 1, np.bool_)  # the last: without a host
        shut[:-1] = politeness.openings(state.shared.hosts[: len(state.host_names)], True) > now
        waits = state.tags_open() > now
        ready = (keys <= now) & ~shut[part["host"]]
        of_tag = np.bincount(part["tag"][ready], minlength=len(waits)) * waits
        of_tag[: len(self._of_tag)] += self._of_tag
        self._of_tag = of_tag
        due = rows[ready & ~waits[part["tag"]]]
        index = price.indices(state.table, state.shared, due, now)
        self._due = self._due.with_(due, -index, self._limit)
        later = (keys > now) & (keys < math.inf)
        self._soon = self._soon.with_(rows[later], keys[later], self._limit)
        fails = ((part["marks"] & EXISTS) != 0) & (part["failures"] > 0)
        self._failing = self._failing.with_(
            rows[fails], -part["failures"][fails].astype(np.float64), self._limit
        )
        looks = rows[(part["marks"] & (EXISTS | LOOKS)) == EXISTS | LOOKS]
        brings = [explanation.flow(state, i, value)[1] for i in looks.tolist()]
        self._looks = self._looks.with_(looks, -np.array(brings), self._limit)
        of_host = np.bincount(part["host"][keys < math.inf] + 1, minlength=len(shut))
        of_host[: len(self._of_host)] += self._of_host
        self._of_host = of_host
        if state.kinds:
            more = len(state.kinds) - len(self._of_kind)
            self._of_kind = np.concatenate([self._of_kind, np.zeros((more, 5))])
            learning.add_signals(part, state.shared, self._of_kind)

    def overview(self, state: State, moment: Moment, buys: Buys) -> Overview:
        """Return the overview of all rows."""
        now, offset = moment

        def explanations(best: _Best) -> list[Explanation]:
            """Return the explanations of sources, without those that were removed meanwhile."""
            rows = [i for i in best.row.tolist() if state.names[i] is not None]
            return [explanation.explain(state, i, now, offset) for i in rows]

        hosts = state.shared.hosts[: len(state.host_names)]
        opens = politeness.openings(hosts, False)
        of_host = politeness.with_domains(hosts, self._of_host[1:])
        closed = np.flatnonzero(opens > now)
        waits = _Best().with_(closed, -opens[closed], self._limit).row.tolist()
        return Overview(
            due=explanations(self._due),
            soon=sorted(explanations(self._soon), key=lambda source: source.due_at or math.inf),
            failing=explanations(self._failing),
            hosts=[
                Wait(state.host_names[k] or "", int(of_host[k]), float(opens[k]) - offset)
                for k in waits
            ],
            hosts_waiting=len(closed),
            tags=tags(state, now),
            tags_waiting={
                state.tags.names[k] or "": int(self._of_tag[k])
                for k in np.flatnonzero(self._of_tag)
            },
            signals=_signals(state, self._of_kind),
            looks=explanations(self._looks),
            **vars(buys),
        )


class _Best(NamedTuple):
    """The rows with the smallest keys, in order; of equal ones the first rows."""

    row: NDArray[Any] = np.empty(0, np.int64)
    key: NDArray[np.float64] = np.empty(0)

    def with_(self, row: NDArray[Any], key: NDArray[np.float64], limit: int) -> _Best:
        """Return the first ones of these and others."""
        row, key = np.concatenate([self.row, row]), np.concatenate([self.key, key])
        if len(key) > limit:
            near = key <= np.partition(key, limit - 1)[limit - 1]
            row, key = row[near], key[near]
        first = np.lexsort((row, key))[:limit]
        return _Best(row[first], key[first])


def _signals(state: State, of_kind: NDArray[np.float64]) -> list[Signals]:
    """Return how good the kinds of signals are."""
    late = delays(state.kind_pings).tolist()
    kinds = [
        Signals(
            kind=state.kinds[k],
            sources=int(sources),
            pings=pings,
            precision=true / max(pings, 1e-30),
            recall=announced / max(announced + silent, 1e-30),
            delay=late[k],
        )
        for k, (sources, pings, true, announced, silent) in enumerate(of_kind.tolist())
        if sources
    ]
    return sorted(kinds, key=lambda signals: -signals.sources)


def _buys(sample: FleetSample, budget: float, rotation: float, market: float, now: float) -> Buys:
    """Return what budgets buy.

    Arguments:
        budget: the present one, units per second.
        rotation: largest time between two fetches of a source, seconds.
        market: the present price.
    """
    sources, shared, part = sample
    budgets = [round(3600.0 * budget * factor, 12) for factor in BUDGETS]
    if not len(sources):
        return Buys(budgets, [0.0] * len(budgets), *[0.0] * 5)
    guess = market

    def forecast(factor: float) -> tuple[float, float, float, float]:
        """Return the worth per second that a multiple of the budget collects, what is published,
        the part of this that is guessed, and how many sources answer."""
        nonlocal guess
        units, again = budget * factor * part, rotation / factor
        guess = price.market_price(demand, units, again, shared.hosts, guess)
        surplus = price.mean_surplus(demand, guess) if rotation < math.inf else 0.0
        at_price = shared._replace(surplus=surplus)

        def late_by(late: float) -> tuple[float, float, float, float, float]:
            return worth_rate(sources, at_price, guess, again, now, late)

        worth, published, guessed, spending, living = late_by(0.0)
        if spending > _OVERSPENT * units:
            # Maximum intervals alone cost more. They come in the order in which they have passed,
            # so that all wait for the same time.
            low, high = 0.0, 1.0
            while late_by(high)[3] > units:
                low, high = high, 2.0 * high
            _, late = first_where(
                lambda x: np.asarray(late_by(float(x))[3] <= units), np.array(high), low, _CLOSE
            )
            worth, *_ = late_by(float(late))
        return worth, published, guessed, living

    demand = price.demand(sources, shared, rotation, now)
    forecasts = [forecast(factor) for factor in BUDGETS]
    here, published, guessed, living = forecasts[BUDGETS.index(1.0)]
    limits = np.maximum(demand["longest"], demand["shortest"])
    if np.isfinite(limits).any():
        sources["longest"] = np.inf  # of the sample, which is a copy
        demand = price.demand(sources, shared, rotation, now)
        here, *_ = forecast(1.0)
    return Buys(
        budgets,
        [3600.0 * worth / part for worth, *_ in forecasts],
        3600.0 * published / part,
        3600.0 * guessed / part,
        living / part,
        3600.0 * here / part,
        3600.0 * float((demand["cost"] / limits).sum()) / part,
    )
