"""The Lagrangian index policy: ranks sources by the gain of crawling at the optimal multiplier.

Avrachenkov, Borkar & Shah (arXiv 2412.12641). Whittle's index compares the multipliers at which
crawling a source now or later are equally good; this policy fixes the multiplier λ* and compares
gains. At λ* both crawl the same sources, and both are asymptotically optimal; they rank the other
sources differently.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.policies.base import (
    SLACK,
    Agent,
    Environment,
    ObservationView,
    State,
    needs,
    needs_parameters,
)
from agents.theory.arm import PerFleet
from agents.theory.closed_form import decayed, time_constants, whole_steps
from agents.theory.hosts import HostMultipliers
from agents.theory.index import whittle_index
from agents.theory.multiplier import BudgetMultiplier, payable
from agents.theory.relaxation import net_reward, relaxation
from agents.theory.renewal import renewal_arm, simplified
from crawl_env import Sources
from crawl_env.compiled import compiled, inlined
from crawl_env.numerics import BoolArray, FloatArray
from crawl_env.simulation.selection import Hosts


def best_rate(sources: Sources, multiplier: ArrayLike) -> FloatArray:
    """Return β = max(0, max_k (x_k − λC)/k), utility / step, of each source alone, (..., N)."""
    return net_reward(simplified(sources), np.atleast_1d(np.asarray(multiplier, dtype=np.float64)))


@inlined
def gain(
    x: float, ceiling: float, cost: float, decay: float, loss: float, multiplier: float, rate: float
) -> float:
    """Return the gain W(x) of crawling a source now over crawling it later, utility of any sign.

    In the relaxed problem each crawl costs λC. The best average reward of the source is
    β = max_k (x_k − λC)/k. From x it is optimal to wait until the growth of one step,
    (1 − α)(u* − x), is at most β. If the source is not crawled now, let n ≥ 1 be the number of
    steps until then and x⁽ⁿ⁾ = u* − αⁿ(u* − x) its value then. The gain is

        W(x) = Q(x, 1) − Q(x, 0) = x − x⁽ⁿ⁾ + nβ,

    and if no crawl pays (β = 0), W(x) = min(x − λC, x − x⁽¹⁾), which is x − λC up to u*.
    Failures and capacities enter as in `agents.theory.renewal.simplified`.

    Arguments:
        x: the uncollected utility, or the belief.
        loss: 1 − α.
        multiplier: λ ≥ 0, utility / budget unit.
        rate: β, `best_rate`.
    """
    missing = ceiling - x
    growth = missing * loss  # of one step
    still = growth / rate
    waits = still if still > 1.0 else 1.0
    steps = whole_steps(time_constants(1.0 - 1.0 / waits) / decay)
    aged = steps * decay
    survival, bend = decayed(aged)
    fall, early_fall = 1.0 - survival, aged - aged * bend
    fall = early_fall if aged < 0.5 else fall
    later = steps * rate - missing * fall
    now = x - multiplier * cost
    never = now if now < -growth else -growth
    return later if rate > 0.0 else never


@compiled
def _each_gain(
    x: FloatArray, table: FloatArray, multiplier: FloatArray, rate: FloatArray, out: FloatArray
) -> None:
    """x, rate, out: (R, N); multiplier: (R, 1) or (R, N); table: (4, P, N), whose row r % P is that
    of r."""
    per_source = multiplier.shape[1] > 1
    for r in range(len(x)):
        p = r % table.shape[1]
        ceiling, cost, decay, loss = table[0, p], table[1, p], table[2, p], table[3, p]
        value, best, result = x[r], rate[r], out[r]
        for i in range(value.size):
            charge = multiplier[r, i if per_source else 0]
            result[i] = gain(value[i], ceiling[i], cost[i], decay[i], loss[i], charge, best[i])


@compiled
def _grade(
    gains: FloatArray, table: FloatArray, multiplier: FloatArray, out: NDArray[np.float32]
) -> None:
    """Write e/(|e| + λ*), e the gain per unit of cost; if λ* is 0, with the largest u*/C for it,
    and where it differs between sources, with the largest."""
    per_source = multiplier.shape[1] > 1
    for r in range(len(gains)):
        p = r % table.shape[1]
        ceiling, cost, row, result = table[0, p], table[1, p], gains[r], out[r]
        scale = multiplier[r].max()
        if not scale > 0.0:
            for i in range(row.size):
                scale = max(scale, ceiling[i] / cost[i])
        scale = scale if scale > 0.0 else 1.0
        for i in range(row.size):
            excess = row[i] / cost[i] + SLACK * multiplier[r, i if per_source else 0]
            result[i] = excess / (abs(excess) + scale)


def table_of(sources: Sources) -> FloatArray:
    """Return the table of a fleet or batch that `gains` needs."""
    plain = simplified(sources)
    columns = plain.ceiling, plain.cost, plain.decay_per_step, plain.loss
    return np.array([np.atleast_2d(column) for column in columns])


def gains(
    value: FloatArray, table: FloatArray, multiplier: FloatArray, rate: FloatArray
) -> FloatArray:
    """Return `gain` of states, (..., N) utility of any sign; all arguments but the `table_of` the
    fleet broadcast to that shape, `multiplier` (..., 1) or (..., N) and `rate` (..., N) among
    them."""
    shape = np.broadcast_shapes(value.shape, rate.shape)
    x, rate = (np.broadcast_to(v, shape).reshape(-1, shape[-1]).copy() for v in (value, rate))
    columns = (np.shape(multiplier) or (1,))[-1]
    charge = np.broadcast_to(multiplier, (*shape[:-1], columns)).reshape(-1, columns)
    charge = charge.astype(np.float64)
    out = np.empty(x.shape)
    _each_gain(x, table, charge, rate, out)
    return out.reshape(shape)


class Lagrangian(Agent):
    """Crawls the sources with the largest gain per unit of cost at the optimal multiplier λ*.

    The gain W is net of the cost λ*C. Filling a budget by gross gain per unit
    of cost ranks by (W + λ*C)/C, which has the order of W/C. Under `budget_rule="average"` sources
    with W < 0 are not crawled.

    If random content is observed or announced by signals, the gain is that of deterministic
    arrivals at the value or the belief, like the Whittle index.

    Where hosts limit the crawls of their sources, a crawl costs λ*C + ν, with ν the multiplier of
    its host (`agents.theory.hosts`). Without ν, the gain would be that of crawls which the host
    does not allow: with 100 sources on 10 hosts and 10 crawls per step, the policy would lose 5.6 %
    of the bound instead of .2 %. Under `budget_rule="average"`, sources of a host that is used up
    (ν > 0) are crawled when it is free, even if W < 0.
    """

    name = "lagrangian"

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        task = self.task
        needs(task, self.name, "value", "age")
        needs_parameters(task, self.name)
        self._find_multiplier = BudgetMultiplier(task, whittle_index)
        self._tables = PerFleet(table_of)
        self._constant = None if task.draw else self._prices_and_rate(task.sources)

    def begin(self, view: ObservationView) -> State:
        multiplier, used_up, rate = self._constant or self._prices_and_rate(view.sources)
        b, n, columns = view.batch, self.task.n, multiplier.shape[-1]
        return (
            np.broadcast_to(multiplier, (b, columns)).copy(),
            np.broadcast_to(used_up, (b, columns)).copy(),
            np.broadcast_to(rate, (b, n)).copy(),
        )

    def decide(self, view: ObservationView, state: State) -> tuple[NDArray[Any], State]:
        multiplier, used_up, rate = state
        table = self._tables(view.sources)
        values = gains(view.value, table, multiplier, rate)
        action = np.empty(values.shape, dtype=np.float32)
        _grade(values, table, multiplier, action)
        if self.task.budget_rule == "average" and used_up.any():
            # What a host that is used up does not crawl now is lost to it.
            action = np.where(used_up | (action >= 0), 0.5 + 0.5 * action, action)
        return action, state

    def _prices_and_rate(self, sources: Sources) -> tuple[FloatArray, BoolArray, FloatArray]:
        """Return λ*, whether the host is used up, and `best_rate`, (1 or B, N); the first two are
        (1 or B, 1) without shared hosts, and with them (1 or B, N), and the first is λ* + ν/C."""
        per_host = self.task.per_host
        if self.task.budget_rule == "average":
            fleet, multiplier = simplified(sources), self._find_multiplier(sources)
        else:
            fleet, budget = payable(sources, self.task)
            multiplier = np.reshape(relaxation(fleet, budget, per_host).multiplier, (-1, 1))
        if sources.ceiling.ndim == 1:
            multiplier = multiplier[0]
        used_up = np.zeros(multiplier.shape, dtype=bool)
        hosts = Hosts.of(fleet, per_host)
        if hosts is not None:
            price = HostMultipliers(renewal_arm(fleet), hosts).at(multiplier)[0]
            multiplier, used_up = multiplier + price / fleet.cost, price > 0
        rate = best_rate(sources, multiplier)
        return np.atleast_2d(multiplier), np.atleast_2d(used_up), np.atleast_2d(rate)
