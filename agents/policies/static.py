"""Static crawl frequencies, optimal if every source is crawled at a constant rate.

Lefortier, Ostroumova, Samosvat & Serdyukov (CIKM 2013), the paper's LOSS. Neither the frequencies
nor the schedule depends on the state of the sources: the loss relative to the Whittle index policy
is the value of observing the state.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.policies.base import Agent, Environment, ObservationView, State, needs_parameters
from agents.theory.frequencies import static_frequencies
from agents.theory.multiplier import payable
from crawl_env import Sources, Task, task_of
from crawl_env.compiled import compiled
from crawl_env.numerics import BoolArray, FloatArray, IntArray, ranks
from crawl_env.simulation import selection
from crawl_env.simulation.selection import Hosts

_TINY = np.finfo(float).tiny
_GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)


class Static(Agent):
    """Crawls every source at its optimal constant frequency, whatever its uncollected utility.

    A source earns credit at its rate r, in crawls per step, and a crawl costs 1. The sources of
    largest credit + r·(steps since the last crawl) are crawled first: the first term keeps the
    frequency, the second keeps the gaps even. Both are in units of the source's own interval, since
    a delay of one step costs least if intervals are long. Under `budget_rule="step"` credit grows
    with the budget spent, so that budget that fits no source does not accumulate as debt; under
    `"average"` a source is crawled once it has earned a crawl. Sources start at different phases.

    If hosts limit the crawls of their sources, the frequencies are optimal within these limits
    (exactly so for equal costs).

    The recurrent state has the credits, the ages, and the sources that the last action should have
    crawled, computed as in the environment; if `crawled` or `age` is observed, the actual crawls
    are used.
    """

    name = "static"

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        task = self.task
        needs_parameters(task, self.name)
        self._most = _most_crawls(task)
        self._constant = self._rates(task.sources) if task.draw is None else None

    def begin(self, view: ObservationView) -> State:
        shape = (view.batch, self.task.n)
        constant = self._constant
        rate = np.broadcast_to(self._rates(view.sources) if constant is None else constant, shape)
        place = ranks(rate)
        credit = (place + 1) * _GOLDEN % 1.0 - 1.0
        return rate, credit, np.zeros(shape), np.zeros(shape, bool), np.zeros(view.batch)

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        rate, credit, age, picks, balance = state
        crawled = picks
        if view.shows("crawled"):
            crawled = view["crawled"] > 0
        elif view.shows("age"):  # the age is 1 after a step from an empty start, too
            crawled = (view["age"] == 1) & (picks | (age > 1))
        shape, on_average = rate.shape, self.task.budget_rule == "average"
        lateness, new_credit, new_age = np.empty(shape), np.empty(shape), np.empty(shape)
        spending = np.empty(shape[0])
        rate, cost = np.ascontiguousarray(rate), np.atleast_2d(view.sources.cost)
        before = np.ascontiguousarray(credit), np.ascontiguousarray(age)
        after = new_credit, new_age, lateness, spending
        _after_the_last(rate, cost, *before, crawled, on_average, *after)
        # Priorities are distinct in float32, since ties would be broken by unobserved ages.
        order = self._in_order(lateness)
        priority = np.empty(shape)
        _prioritise(order, rate, new_credit, on_average, priority)
        balance = balance + self.task.budget - spending
        picks = np.zeros(shape, bool)
        picks.reshape(-1)[selected(self.task, priority.astype(np.float32), view, balance)] = True
        return priority, (rate, new_credit, new_age, picks, balance)

    def _in_order(self, lateness: FloatArray) -> IntArray:
        """Return the sources, (B, N), of which those that may be crawled now come first, the most
        urgent before the others."""
        return in_order(lateness, self._most)

    def _rates(self, sources: Sources) -> FloatArray:
        """Return crawls per step, (N,) or (B, N), of sources that the budget can cover."""
        plain, budget = payable(sources, self.task)
        hosts = Hosts.of(sources, self.task.per_host)
        if hosts is None:
            return static_frequencies(plain, budget) * sources.period
        if plain.cost.ndim == 1:
            return _within_hosts(plain, budget, hosts)
        fleets = (plain.fleet(b) for b in range(len(plain.cost)))
        return np.array([_within_hosts(fleet, budget, hosts) for fleet in fleets])


def _most_crawls(task: Task) -> int:
    """Return how many of the most urgent sources can be crawled in a step: all of them, unless they
    cost the same and nothing but the budget of the step forbids a crawl."""
    free = task.draw is None and task.budget_rule == "step"
    free = free and not (task.sources.is_delayed or task.hosts)
    whole = selection.whole_budget(task.sources.cost, task.budget) if free else None
    return task.n if whole is None else min(max(whole, 1), task.n)


def in_order(values: FloatArray, most: int) -> IntArray:
    """Return the positions of numbers, (B, N), such that the `most` least ones are the first, in
    ascending order; equal ones by position. The order of the others is arbitrary."""
    if 4 * most < values.shape[-1]:
        last = np.partition(values, most - 1, axis=-1)[:, most - 1 : most]
        first = values <= last
        rows = [np.flatnonzero(row) for row in first]
        sorted_rows = [
            some[np.argsort(row[some], kind="stable")]
            for row, some in zip(values, rows, strict=True)
        ]
        others = [np.flatnonzero(~row) for row in first]
        return np.array([np.concatenate(both) for both in zip(sorted_rows, others, strict=True)])
    order = np.argsort(values, axis=-1)  # where all differ, several times as fast as a stable sort
    sorted_values = np.take_along_axis(values, order, axis=-1)
    if (sorted_values[:, 1:] == sorted_values[:, :-1]).any():
        order = np.argsort(values, axis=-1, kind="stable")
    return order


@compiled
def _after_the_last(
    rate: FloatArray,
    cost: FloatArray,
    credit: FloatArray,
    age: FloatArray,
    crawled: BoolArray,
    on_average: bool,
    new_credit: FloatArray,
    new_age: FloatArray,
    lateness: FloatArray,
    spending: FloatArray,
) -> None:
    """Write credits, ages and spending after the last action's crawls, with the credit earned
    since, and −urgency; all (B, N), but cost (B or 1, N) and spending (B,)."""
    for b in range(len(rate)):
        price, speed = cost[b % len(cost)], 1.0
        total, usual = 0.0, 0.0
        for i in range(rate.shape[1]):
            total += price[i] if crawled[b, i] else 0.0
            usual += price[i] * rate[b, i]
        if not on_average:
            speed = total / max(usual, _TINY)
        spending[b] = total
        for i in range(rate.shape[1]):
            r, is_crawled = rate[b, i], crawled[b, i]
            new_credit[b, i] = credit[b, i] + r * speed - (1.0 if is_crawled else 0.0)
            new_age[b, i] = 1.0 if is_crawled else age[b, i] + 1.0
            # Those without a rate are the last, in their order.
            lateness[b, i] = -(new_credit[b, i] + r * new_age[b, i]) if r > 0.0 else 2.0 + i


@compiled
def _prioritise(
    order: IntArray, rate: FloatArray, credit: FloatArray, on_average: bool, priority: FloatArray
) -> None:
    """Write the priorities of sources in an order, (B, N); negative ones are not due."""
    n = order.shape[1]
    for b in range(len(order)):
        for rank in range(n):
            i = order[b, rank]
            excluded = on_average and (credit[b, i] < 0.0 or rate[b, i] == 0.0)
            priority[b, i] = (-1.0 - rank if excluded else n - rank) / n


class Scheduled(Static):
    """Crawls every source at a given frequency, in the way of `Static`.

    Under `budget_rule="step"` the frequencies are scaled to the budget; under `"average"` each
    source is crawled when its interval has passed, on average.

    Arguments:
        env: an environment, a vector environment, or a `Task`, of a constant fleet.
        rates: crawls per step of each source, (N,); 0 for a source that is not crawled.
        seed: unused.

    Raises:
        ValueError: fleets are drawn at reset, or the rates are negative, above 1 or not N.
    """

    name = "scheduled"

    def __init__(self, env: Environment, rates: ArrayLike, *, seed: int | None = None) -> None:
        task = task_of(env)
        rate = np.asarray(rates, dtype=np.float64)
        if task.draw is not None:
            raise ValueError("a schedule is for one fleet, and this environment draws new ones")
        if rate.shape != (task.n,) or not ((rate >= 0) & (rate <= 1 + 1e-9)).all():
            raise ValueError(
                f"rates has shape {rate.shape}; give {task.n} numbers of crawls per step, from 0 "
                "to 1"
            )
        self._rate = np.minimum(rate, 1.0)
        super().__init__(task, seed=seed)

    def _rates(self, sources: Sources) -> FloatArray:
        return self._rate


def _within_hosts(sources: Sources, budget: float, hosts: Hosts) -> FloatArray:
    """Return crawls per step, (N,), within the limits of the hosts.

    Hosts whose limit is exceeded get the optimal frequencies of their sources within the limit; the
    others divide the rest of the budget, until no further limit is exceeded.
    """
    rate, fixed = np.zeros(len(sources)), np.zeros(len(sources), dtype=bool)
    while True:
        rest = budget - float((sources.cost * rate)[fixed].sum())
        if rest > 0 and not fixed.all():
            free = sources.replaced(arrival_rate=np.where(fixed, 0.0, sources.arrival_rate))
            rate = np.where(fixed, rate, static_frequencies(free, rest) * sources.period)
        demand = np.bincount(hosts.host_of, np.where(fixed, 0.0, rate))
        over = np.flatnonzero(demand > hosts.per_host * (1 + 1e-9))
        if not over.size:
            return rate
        for host in over:
            here = np.flatnonzero(hosts.host_of == host)
            own = sources.select(here).replaced(cost=1.0)
            rate[here] = static_frequencies(own, hosts.per_host) * sources.period
            fixed[here] = True


def selected(
    task: Task, priority: NDArray[np.float32], view: ObservationView, balance: FloatArray
) -> NDArray[np.intp]:
    """Return the cells that the environment will crawl for given priorities, (K,).

    balance: (B,) as the agent computes it, for `budget_rule="average"` where it is not observed.
    """
    cost = task.sources.cost if task.draw is None else view.sources.cost
    # Only the order of the last crawls matters, to break ties.
    crawled_at = -view["age"] if view.shows("age") else np.zeros(priority.shape)
    if view.shows("balance"):
        # Observed in float32, which may round up and seem to cover one source more.
        observed = view["balance"][:, 0]
        balance = observed - np.spacing(np.abs(observed).astype(np.float32))
    whole = selection.whole_budget(cost, task.budget)
    allowed = view["available"] > 0 if view.shows("available") else None
    hosts = Hosts.of(task.sources, task.per_host)
    rest = balance if task.budget_rule == "average" else None
    return selection.select(priority, crawled_at, cost, task.budget, whole, rest, allowed, hosts)
