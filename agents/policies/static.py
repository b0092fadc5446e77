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
from crawl_env.numerics import FloatArray, ranks
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
        self._constant: FloatArray | None = None
        if task.draw is None:
            self._constant = self._rates(task.sources)

    def begin(self, view: ObservationView) -> State:
        shape = (view.batch, self.task.n)
        rate = np.broadcast_to(self._rates(view.sources), shape)
        place = ranks(rate)
        credit = (place + 1) * _GOLDEN % 1.0 - 1.0
        return rate, credit, np.zeros(shape), np.zeros(shape, bool), np.zeros(view.batch)

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        rate, credit, age, balance = self._after_the_last(view, *state)
        urgency = np.where(rate > 0, credit + rate * age, -2.0)
        rank = ranks(urgency)
        excluded = ((credit < 0) | (rate == 0)) & (self.task.budget_rule == "average")
        # Priorities are distinct in float32, since ties would be broken by unobserved ages.
        priority = np.where(excluded, -1.0 - rank, self.task.n - rank) / self.task.n
        chosen = np.zeros(rate.shape, bool)
        chosen.reshape(-1)[selected(self.task, priority.astype(np.float32), view, balance)] = True
        return priority, (rate, credit, age, chosen, balance)

    def _after_the_last(
        self,
        view: ObservationView,
        rate: FloatArray,
        credit: FloatArray,
        age: FloatArray,
        chosen: NDArray[np.bool_],
        balance: FloatArray,
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return the recurrent state after the last action's crawls, with the credit earned."""
        crawled = chosen
        if view.shows("crawled"):
            crawled = view["crawled"] > 0
        elif view.shows("age"):  # the age is 1 after a step from an empty start, too
            crawled = (view["age"] == 1) & (chosen | (age > 1))
        cost = view.sources.cost
        spent = np.where(crawled, cost, 0.0).sum(axis=-1)
        speed = np.ones_like(spent)
        if self.task.budget_rule == "step":
            speed = spent / np.maximum((cost * rate).sum(axis=-1), _TINY)
        credit = credit + rate * speed[:, None] - crawled
        return rate, credit, np.where(crawled, 1.0, age + 1.0), balance + self.task.budget - spent

    def _rates(self, sources: Sources) -> FloatArray:
        """Return crawls per step, (N,) or (B, N), of sources that the budget can cover."""
        if self._constant is not None:
            return self._constant
        plain, budget = payable(sources, self.task)
        hosts = Hosts.of(sources, self.task.per_host)
        if hosts is None:
            return static_frequencies(plain, budget) * sources.period
        if plain.cost.ndim == 1:
            return _within_hosts(plain, budget, hosts)
        fleets = (plain.fleet(b) for b in range(len(plain.cost)))
        return np.array([_within_hosts(fleet, budget, hosts) for fleet in fleets])


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
        given = np.asarray(rates, dtype=np.float64)
        if task.draw is not None:
            raise ValueError("a schedule is for one fleet, and this environment draws new ones")
        if given.shape != (task.n,) or not ((given >= 0) & (given <= 1 + 1e-9)).all():
            raise ValueError(
                f"rates has shape {given.shape}; give {task.n} numbers of crawls per step, from 0 "
                "to 1"
            )
        self._given = np.minimum(given, 1.0)
        super().__init__(task, seed=seed)

    def _rates(self, sources: Sources) -> FloatArray:
        return self._given


def _within_hosts(sources: Sources, budget: float, hosts: Hosts) -> FloatArray:
    """Return crawls per step, (N,), within the limits of the hosts.

    Hosts whose limit is exceeded get the optimal frequencies of their sources within the limit; the
    others divide the rest of the budget, until no further limit is exceeded.
    """
    rate, fixed = np.zeros(len(sources)), np.zeros(len(sources), dtype=bool)
    while True:
        left = budget - float((sources.cost * rate)[fixed].sum())
        if left > 0 and not fixed.all():
            silent = {"arrival_rate": np.where(fixed, 0.0, sources.arrival_rate)}
            free = Sources(**{**sources.__getstate__(), **silent})
            rate = np.where(fixed, rate, static_frequencies(free, left) * sources.period)
        asked = np.bincount(hosts.host_of, np.where(fixed, 0.0, rate))
        over = np.flatnonzero(asked > hosts.per_host * (1 + 1e-9))
        if not over.size:
            return rate
        for host in over:
            here = np.flatnonzero(hosts.host_of == host)
            own = sources.select(here)
            own = Sources(**{**own.__getstate__(), "cost": np.ones(here.size)})
            rate[here] = static_frequencies(own, hosts.per_host) * sources.period
            fixed[here] = True


def selected(
    task: Task,
    priority: NDArray[np.float32],
    view: ObservationView,
    balance: FloatArray | None = None,
) -> NDArray[np.intp]:
    """Return the cells that the environment will crawl for given priorities, (K,).

    balance: (B,), if it is known but not observed; unused if the budget is per step.
    """
    cost = task.sources.cost if task.draw is None else view.sources.cost
    # Only the order of the last crawls matters, to break ties.
    crawled_at = -view["age"] if view.shows("age") else np.zeros(priority.shape)
    if task.budget_rule == "step":
        balance = None
    elif balance is None or view.shows("balance"):
        # Observed in float32, which may round up and seem to cover one source more.
        shown = view["balance"][:, 0]
        balance = shown - np.spacing(np.abs(shown).astype(np.float32))
    whole = selection.whole_budget(cost, task.budget)
    allowed = view["available"] > 0 if view.shows("available") else None
    hosts = Hosts.of(task.sources, task.per_host)
    return selection.select(priority, crawled_at, cost, task.budget, whole, balance, allowed, hosts)
