"""The Lagrangian index policy: what a crawl gains under the charge at which the budget is spent.

Avrachenkov, Borkar & Shah (arXiv 2412.12641): where Whittle's index compares the charges at which
sources become worth a crawl, this one fixes the charge λ* and compares gains. Both crawl the same
sources at λ*, and both are asymptotically optimal; they rank the others differently.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from agents.policies.base import Agent, Environment, ObservationView, State, needs, needs_parameters
from agents.theory.index import checked_value, whittle_index
from agents.theory.multiplier import BudgetMultiplier, payable
from agents.theory.relaxation import net_reward, relaxation
from agents.theory.renewal import simplified
from crawl_env import Sources
from crawl_env.numerics import FloatArray

# A gain this share of λ* below 0 still counts as worth it: view in float32, it may round below.
_SLACK = 1e-6
_TINY = np.finfo(float).tiny


def lagrangian_index(value: ArrayLike, sources: Sources, price: ArrayLike) -> FloatArray:
    """Return the gain W(x) of crawling now over crawling later, (..., N), utility of any sign.

    Each source alone pays λC a crawl. Its best average reward is β = max_k (x_k − λC)/k. From x it
    is best to wait until an epoch's growth (1 − α)(u* − x) is at most β; with n ≥ 1 the epochs
    until then if it is not crawled now, and x⁽ⁿ⁾ = u* − αⁿ(u* − x) what it then holds,

        W(x) = Q(x, 1) − Q(x, 0) = x − x⁽ⁿ⁾ + nβ,

    and where no crawl pays (β = 0), W(x) = min(x − λC, x − x⁽¹⁾), which is x − λC up to u*.
    Failures and capacities are in it as in `agents.theory.renewal.simplified`.

    Arguments:
        value: x ≥ 0, (..., N), what waits, or the belief.
        sources: the fleet, (N,), or a batch that broadcasts against `value`.
        price: λ ≥ 0, utility / budget unit; a number, or (B, 1) for a batch.

    Raises:
        ValueError: a value is negative or NaN, or the shapes do not match.

    >>> table1 = Sources.preset("table1")
    >>> lagrangian_index(table1.inflow, table1, 43.6046).round(2)
    array([ 46.9 ,  -0.  , -14.01, -29.81])
    """
    plain = simplified(sources)
    return _gain(checked_value(value, plain), plain, price, best_rate(plain, price))


def best_rate(sources: Sources, price: ArrayLike) -> FloatArray:
    """Return β = max(0, max_k (x_k − λC)/k), utility / epoch, of every source alone, (..., N)."""
    return net_reward(simplified(sources), np.atleast_1d(np.asarray(price, dtype=np.float64)))


def _gain(x: FloatArray, sources: Sources, price: ArrayLike, rate: FloatArray) -> FloatArray:
    missing, decay = sources.ceiling - x, sources.decay_per_step
    pays = rate > 0
    with np.errstate(invalid="ignore"):
        growth = missing * sources.loss / np.where(pays, rate, np.inf)  # in one epoch, of β
        epochs = np.maximum(np.ceil(np.log(np.maximum(growth, 1.0)) / decay), 1.0)
    grown = missing * -np.expm1(-decay * epochs)
    never = np.minimum(x - np.asarray(price) * sources.cost, -missing * sources.loss)
    return np.where(pays, epochs * rate - grown, never)


class Lagrangian(Agent):
    """Crawls what gains most, for each unit of cost, under the charge λ* of the budget.

    The gain W of `lagrangian_index` counts the charge λ*C. Filling a budget by what a crawl brings
    for its cost ranks by (W + λ*C)/C, which is the order of W/C. Under `budget_rule="average"`
    what gains nothing, W < 0, is not crawled.

    Where random content is view, the gain is that of the mean, as the Whittle index is.
    """

    name = "lagrangian"

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        task = self.task
        needs(task, self.name, "value", "age")
        needs_parameters(task, self.name)
        self._find_price = BudgetMultiplier(task, whittle_index)
        self._constant = None if task.draw else self._price_and_rate(task.sources)

    def begin(self, view: ObservationView) -> State:
        price, rate = self._constant or self._price_and_rate(view.sources)
        rows = view.batch
        return np.broadcast_to(price, (rows, 1)), np.broadcast_to(rate, (rows, self.task.n))

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        price, rate = state
        sources = simplified(view.sources)
        gain = _gain(view.value, sources, price, rate) / sources.cost + _SLACK * price
        # λ* is the scale of gains; without a charge, what a crawl brings when best timed.
        scale = np.where(price > 0, price, (sources.ceiling / sources.cost).max())
        return gain / (np.abs(gain) + np.maximum(scale, _TINY)), state

    def _price_and_rate(self, sources: Sources) -> tuple[FloatArray, FloatArray]:
        if self.task.budget_rule == "average":
            price = self._find_price(sources)
        else:
            payable_now = payable(sources, self.task)
            price = np.reshape(relaxation(*payable_now, self.task.per_host).multiplier, (-1, 1))
        return price, best_rate(
            simplified(sources), price if sources.ceiling.ndim > 1 else price[0]
        )
