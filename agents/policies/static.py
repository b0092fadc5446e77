"""Static frequencies: how often to crawl each source if every one has a rhythm of its own.

Lefortier, Ostroumova, Samosvat & Serdyukov (CIKM 2013), the paper's LOSS. The best frequencies
need no state of the sources, and a schedule that keeps them needs none either: what it loses
against the Whittle index policy is what looking at the state is worth.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agents.policies.base import Agent, Environment, ObservationView, State, needs_parameters
from agents.theory.multiplier import payable
from agents.theory.renewal import simplified
from crawl_env import Sources, Task
from crawl_env.fleet.hosts import Hosts
from crawl_env.numerics import FloatArray, remainder
from crawl_env.simulation import selection
from crawl_env.simulation.task import check_budget

# Inverse of z − ln(1+z) = s²/2 near 0: 1/s, then the coefficients of the series of Stirling's
# formula. Exact to rounding below the switch, above which Newton's steps are.
_SERIES = (1.0, 1 / 3, 1 / 36, -1 / 270, 1 / 4320, 1 / 17010, -139 / 5443200)
_SWITCH = 0.03
_NEWTON = 4  # steps to rounding, from anywhere
_BISECTIONS = 60
_TINY = np.finfo(float).tiny
_GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)


def static_frequencies(sources: Sources, budget: float) -> FloatArray:
    """Return the best constant frequencies f, (N,) or (B, N), crawls per unit of time.

    They maximise `static_reward` under Σ C_i f_i ≤ M/T and f_i ≤ 1/T. The marginal value per cost
    at the interval I = 1/f, the continuous-time Whittle index at age I, is then the same, λ, at
    all sources that are crawled less than their delay allows: u*[1 − (1 + μI)e^{−μI}]/C = λ.
    Failures and capacities count as in `agents.theory.renewal.simplified`; shared hosts do not.

    Raises:
        ValueError: budget is not positive and finite.

    >>> static_frequencies(Sources.preset("table1"), 2).round(4)
    array([1.    , 0.6302, 0.2589, 0.111 ])
    """
    check_budget(budget)
    sources = simplified(sources)
    worth, m = sources.ceiling / sources.cost, sources.decay_per_epoch
    shortest = m * sources.delay  # interval, in time constants
    live = worth > 0
    if not live.any():
        return np.zeros_like(worth)
    # Bisection on ln λ, between all live sources crawled in every epoch and none at all.
    top = np.log(worth.max(axis=-1, keepdims=True, where=live, initial=np.finfo(float).tiny))
    least = np.where(live, np.log(np.where(live, worth, 1.0)) + np.log(_marginal(shortest)), np.inf)
    low, high = np.minimum(least.min(axis=-1, keepdims=True), top), top
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        rate = _rate(np.exp(middle), worth, m, shortest)
        dear = (sources.cost * rate).sum(axis=-1, keepdims=True) > budget
        low, high = np.where(dear, middle, low), np.where(dear, high, middle)
    most = live / sources.delay
    free = (sources.cost * most).sum(axis=-1, keepdims=True) <= budget
    few, many = (_rate(np.exp(price), worth, m, shortest) for price in (high, low))
    # Equal but where λ meets a ceiling to rounding, as at all sources when decay is fast: there
    # any split is best, and this one spends the budget.
    missing = budget - (sources.cost * few).sum(axis=-1, keepdims=True)
    step = (sources.cost * (many - few)).sum(axis=-1, keepdims=True)
    part = np.divide(missing, step, out=np.sign(missing), where=step > np.abs(missing))
    between = few + (many - few) * np.clip(part, 0.0, 1.0)
    return np.where(free, most, between) / sources.period


def static_reward(sources: Sources, frequency: FloatArray) -> float | FloatArray:
    """Return T·Σ u* f (1 − e^{−μ/f}), utility / epoch: crawls at equal intervals 1/f.

    Capacities are in it as in `agents.theory.renewal.simplified`; f counts the crawls that succeed.

    An epoch's lattice cannot keep intervals that are no whole number of epochs, so a schedule
    earns less; the relaxed bound, which no schedule exceeds, may be below this.

    >>> fleet = Sources.preset("table1")
    >>> round(static_reward(fleet, static_frequencies(fleet, 2)), 2)
    340.3
    """
    sources = simplified(sources)
    with np.errstate(divide="ignore"):
        interval = 1.0 / frequency
    brought = sources.ceiling * -np.expm1(-sources.decay_rate * interval)
    total = sources.period * (frequency * brought).sum(axis=-1)
    return float(total) if np.ndim(total) == 0 else total


def _marginal(z: FloatArray) -> FloatArray:
    """Return p(z) = 1 − (1 + z)e^{−z}, to 1e-14 for every z ≥ 0."""
    # Each form cancels where the other does not.
    return np.where(z < 1, -z * np.expm1(-z) - remainder(z), -np.expm1(-z) - z * np.exp(-z))


def _rate(price: FloatArray, worth: FloatArray, m: FloatArray, shortest: FloatArray) -> FloatArray:
    """Return crawls per epoch at which the marginal value per cost is the price."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(worth > price, price / worth, 1.0)
        time_constants = _inverse(-np.log1p(-np.minimum(share, 1 - 1e-16)))
        return np.where(share < 1, m / np.maximum(time_constants, shortest), 0.0)


def _inverse(level: FloatArray) -> FloatArray:
    """Return z > 0 with z − ln(1 + z) = level, which is p(z) = 1 − e^{−level}.

    Newton's steps from above: the function is convex, so that they fall towards z.
    """
    s = np.sqrt(2.0 * level)
    near = np.zeros_like(s)
    for coefficient in _SERIES[::-1]:
        near = (near + coefficient) * s
    z = np.maximum(level + s, _SWITCH)
    for _ in range(_NEWTON):
        z = np.maximum(z - (z - np.log1p(z) - level) * (1.0 + z) / z, _SWITCH)
    return np.where(s < _SWITCH, near, z)


class Static(Agent):
    """Crawls every source at its best constant frequency, whatever waits there.

    A source earns credit at its rate r, crawls per epoch, and pays 1 for a crawl. First come
    those of largest credit + r·(epochs since the last crawl): the one keeps the frequency, the
    other the gaps even. Both count in the source's own intervals, since an epoch's delay costs
    least where intervals are long. Under `budget_rule="step"` credit grows with what is spent,
    so that budget which fits no source does not pile up as debt; under `"average"` a source waits
    until it has earned its crawl. Sources start at different phases.

    It remembers credits, ages, and what its last choice should have crawled, worked out as the
    environment does; where `crawled` or `age` is shown, what really happened counts.
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
        place = np.argsort(np.argsort(-rate, axis=-1, kind="stable"), axis=-1)
        credit = (place + 1) * _GOLDEN % 1.0 - 1.0
        return rate, credit, np.zeros(shape), np.zeros(shape, bool), np.zeros(view.batch)

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        rate, credit, age, balance = self._after_the_last(view, *state)
        urgency = np.where(rate > 0, credit + rate * age, -2.0)
        rank = np.argsort(np.argsort(-urgency, axis=-1, kind="stable"), axis=-1)
        waits = ((credit < 0) | (rate == 0)) & (self.task.budget_rule == "average")
        # No two alike, in float32 either: ties would be settled by ages that may not be shown.
        priority = np.where(waits, -1.0 - rank, self.task.n - rank) / self.task.n
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
        """Return what is remembered, with what the last choice crawled and earned since."""
        crawled = chosen
        if view.shows("crawled"):
            crawled = view["crawled"] > 0
        elif view.shows("age"):  # which is 1 after an epoch of an empty start, too
            crawled = (view["age"] == 1) & (chosen | (age > 1))
        cost = view.sources.cost
        spent = np.where(crawled, cost, 0.0).sum(axis=-1)
        speed = np.ones_like(spent)
        if self.task.budget_rule == "step":
            speed = spent / np.maximum((cost * rate).sum(axis=-1), _TINY)
        credit = credit + rate * speed[:, None] - crawled
        return rate, credit, np.where(crawled, 1.0, age + 1.0), balance + self.task.budget - spent

    def _rates(self, sources: Sources) -> FloatArray:
        """Return crawls per epoch, (N,) or (B, N), of sources that the budget can pay for."""
        if self._constant is not None:
            return self._constant
        return static_frequencies(*payable(sources, self.task)) * sources.period


def selected(
    task: Task,
    priority: NDArray[np.float32],
    seen: ObservationView,
    balance: FloatArray | None = None,
) -> NDArray[np.intp]:
    """Return the cells that the environment will crawl under given priorities, (K,) or (k, B).

    balance: (B,), where it is known but not shown; unused where the budget holds every epoch.
    """
    cost = task.sources.cost if task.draw is None else seen.sources.cost
    # Only the order of the last crawls matters, to settle ties.
    crawled_at = -seen["age"] if seen.shows("age") else np.zeros(priority.shape)
    if task.budget_rule == "step":
        balance = None
    elif balance is None or seen.shows("balance"):
        # Shown in float32, which may round up and seem to pay for one source more.
        shown = seen["balance"][:, 0]
        balance = shown - np.spacing(np.abs(shown).astype(np.float32))
    whole = selection.whole_budget(cost, task.budget)
    allowed = seen["available"] > 0 if seen.shows("available") else None
    hosts = Hosts.of(task.sources, task.per_host)
    return selection.select(priority, crawled_at, cost, task.budget, whole, balance, allowed, hosts)
