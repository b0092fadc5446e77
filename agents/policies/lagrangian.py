"""The Lagrangian index policy: ranks sources by the gain of crawling at the optimal multiplier.

Avrachenkov, Borkar & Shah (arXiv 2412.12641). Whittle's index compares the multipliers at which
crawling a source now or later are equally good; this policy fixes the multiplier λ* and compares
gains. At λ* both crawl the same sources, and both are asymptotically optimal; they rank the other
sources differently.
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

# A gain below 0 by at most this fraction of λ* counts as zero, since the gain of a value observed
# in float32 may be rounded below.
_SLACK = 1e-6
_TINY = np.finfo(float).tiny


def lagrangian_index(value: ArrayLike, sources: Sources, multiplier: ArrayLike) -> FloatArray:
    """Return the gain W(x) of crawling now over crawling later, (..., N), utility of any sign.

    In the relaxed problem each crawl of a source costs λC. Its best average reward is
    β = max_k (x_k − λC)/k. From x it is optimal to wait until the growth of one step,
    (1 − α)(u* − x), is at most β. If the source is not crawled now, let n ≥ 1 be the number of
    steps until then and x⁽ⁿ⁾ = u* − αⁿ(u* − x) its value then. The gain is

        W(x) = Q(x, 1) − Q(x, 0) = x − x⁽ⁿ⁾ + nβ,

    and if no crawl pays (β = 0), W(x) = min(x − λC, x − x⁽¹⁾), which is x − λC up to u*.
    Failures and capacities enter as in `agents.theory.renewal.simplified`.

    Arguments:
        value: x ≥ 0, (..., N), the uncollected utility, or the belief.
        sources: the fleet, (N,), or a batch that broadcasts against `value`.
        multiplier: λ ≥ 0, utility / budget unit; a number, or (B, 1) for a batch.

    Raises:
        ValueError: a value is negative or NaN, or the shapes do not match.

    >>> table1 = Sources.preset("table1")
    >>> lagrangian_index(table1.inflow, table1, 43.6046).round(2)
    array([ 46.9 ,  -0.  , -14.01, -29.81])
    """
    plain = simplified(sources)
    return _gain(checked_value(value, plain), plain, multiplier, best_rate(plain, multiplier))


def best_rate(sources: Sources, multiplier: ArrayLike) -> FloatArray:
    """Return β = max(0, max_k (x_k − λC)/k), utility / step, of each source alone, (..., N)."""
    return net_reward(simplified(sources), np.atleast_1d(np.asarray(multiplier, dtype=np.float64)))


def _gain(x: FloatArray, sources: Sources, multiplier: ArrayLike, rate: FloatArray) -> FloatArray:
    missing, decay = sources.ceiling - x, sources.decay_per_step
    pays = rate > 0
    with np.errstate(invalid="ignore"):
        growth = missing * sources.loss / np.where(pays, rate, np.inf)  # of one step, in units of β
        steps = np.maximum(np.ceil(np.log(np.maximum(growth, 1.0)) / decay), 1.0)
    grown = missing * -np.expm1(-decay * steps)
    never = np.minimum(x - np.asarray(multiplier) * sources.cost, -missing * sources.loss)
    return np.where(pays, steps * rate - grown, never)


class Lagrangian(Agent):
    """Crawls the sources with the largest gain per unit of cost at the optimal multiplier λ*.

    The gain W of `lagrangian_index` is net of the cost λ*C. Filling a budget by gross gain per unit
    of cost ranks by (W + λ*C)/C, which has the order of W/C. Under `budget_rule="average"` sources
    with W < 0 are not crawled.

    If random content is observed, the gain is that of deterministic arrivals, like the Whittle
    index.
    """

    name = "lagrangian"

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        task = self.task
        needs(task, self.name, "value", "age")
        needs_parameters(task, self.name)
        self._find_multiplier = BudgetMultiplier(task, whittle_index)
        self._constant = None if task.draw else self._multiplier_and_rate(task.sources)

    def begin(self, view: ObservationView) -> State:
        multiplier, rate = self._constant or self._multiplier_and_rate(view.sources)
        b, n = view.batch, self.task.n
        return np.broadcast_to(multiplier, (b, 1)), np.broadcast_to(rate, (b, n))

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        multiplier, rate = state
        sources = simplified(view.sources)
        gain = _gain(view.value, sources, multiplier, rate) / sources.cost + _SLACK * multiplier
        # The scale of gains is λ*, or if that is 0 the largest value per cost.
        scale = np.where(multiplier > 0, multiplier, (sources.ceiling / sources.cost).max())
        return gain / (np.abs(gain) + np.maximum(scale, _TINY)), state

    def _multiplier_and_rate(self, sources: Sources) -> tuple[FloatArray, FloatArray]:
        if self.task.budget_rule == "average":
            multiplier = self._find_multiplier(sources)
        else:
            payable_now = payable(sources, self.task)
            multiplier = np.reshape(
                relaxation(*payable_now, self.task.per_host).multiplier, (-1, 1)
            )
        return multiplier, best_rate(
            simplified(sources), multiplier if sources.ceiling.ndim > 1 else multiplier[0]
        )
