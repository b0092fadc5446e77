"""The bound under a deadline: what batches of D steps can be worth at most, by linear programming.

An item is worth the same at the deadline whenever its batch collects it. A crawl l steps before the
last of its batch, the next one of the same source being j batches later, therefore brings two
terms, of which the second is what the next one no longer finds. They add up to α^l u*(1 − α^{jD}),
whichever step the next one has: α^l times what a source holds whose steps are batches, at age j.

So a source's crawls are described by how often it has each pair (l, j), and the relaxed problem,
whose budgets of the D steps of a batch hold on average over the batches, is a linear program:
maximise Σ y_i(l, j) α_i^l u*_i (1 − α_i^{jD}) so that Σ_{l,j} j y_i(l, j) ≤ 1 for every source, and
Σ_{i,j} C_i y_i(l, j) ≤ M for every l. With one j for each source it is an assignment of sources to
steps. Its columns are generated: at the prices λ_l of the steps, the best j is the interval of an
unobserved source of period DT at the multiplier λ_l/α^l, in closed form.
"""

from __future__ import annotations

import numpy as np

from agents.theory.relaxation import Relaxation, relaxation
from agents.theory.renewal import ClosedFormArm, simplified
from crawl_env import Sources
from crawl_env.errors import check_positive, check_whole
from crawl_env.numerics import FloatArray, IntArray

_GAP = 1e-9  # between the bound and what the linear program attains, as a fraction
_MOST_ROUNDS = 100


def deadline_bound(
    sources: Sources, budget: float, steps: int, budget_rule: str = "step"
) -> Relaxation:
    """Return what no policy exceeds per step under `crawl_env.Deadline(steps)`, if nothing is known
    of content before a crawl or arrivals are deterministic, and the marginal value of the budget.

    It is the minimum, over prices λ_l ≥ 0 of the steps of a batch, of M Σ λ_l +
    Σ_i max(0, max_{l,j} (α_i^l x_i(j) − C_i λ_l)/j) per batch, where x(j) = u*(1 − α^{jD}). It is
    attained but for fractions of crawls. Under `budget_rule="average"` all crawls are in the last
    step of a batch, for which the budget is saved. Failures count as higher costs; capacities,
    crawl delays and hosts are ignored: the bound holds, but is not the sharpest.

    Arguments:
        sources: a fleet, (N,).
        budget: M, budget units per step.
        steps: D, steps per batch.

    Raises:
        ValueError: the budget is not positive, or `steps` no positive whole number.

    >>> table1 = Sources.preset("table1")
    >>> round(deadline_bound(table1, 1, 1).bound, 5)  # no deadline
    260.38993
    >>> round(deadline_bound(table1, 1, 4).bound, 3)
    161.563
    """
    check_positive("budget", budget, "budget units / step")
    check_whole("steps", steps, what="steps per batch")
    fleet = simplified(sources.replaced(capacity=np.inf, crawl_delay=0.0))
    batch = fleet.replaced(period=fleet.period * steps)
    if steps == 1 or budget_rule == "average":
        found = relaxation(batch, budget * steps)
        return Relaxation(found.bound / steps, found.multiplier)
    kept = np.exp(-fleet.decay_per_step * np.arange(steps)[:, None])  # α^l, (D, N)
    best, columns = _Columns(batch, kept), np.ones(kept.shape)
    least, prices = np.inf, np.zeros(steps)
    for _ in range(_MOST_ROUNDS):
        attained, now = best.solved(columns, budget)
        rate, columns = best.of(now)
        value = budget * now.sum() + np.maximum(rate.max(axis=0), 0.0).sum()
        if value < least:
            least, prices = value, now
        if least - attained <= _GAP * least:
            break
    return Relaxation(float(least / steps), float(prices.sum() / steps))


class _Columns:
    """The columns of the linear program: sources × steps × intervals in batches.

    Arguments:
        batch: the fleet whose steps are batches.
        kept: α^l, (D, N).
    """

    def __init__(self, batch: Sources, kept: FloatArray) -> None:
        self._arm, self._kept, self._cost = ClosedFormArm(batch), kept, batch.cost
        self._shape = kept.shape
        self._row: list[IntArray] = []  # l·N + i of each column
        self._batches: list[FloatArray] = []  # j of each

    def of(self, prices: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the best net reward per batch of each source and step at the prices (D,), and the
        interval in batches at which it is attained, (D, N) each."""
        # Nothing is left so long before the deadline of a source that decays so fast.
        kept = np.maximum(self._kept, 1e-300)
        cost = prices[:, None] * self._cost
        high = np.broadcast_to(self._arm.longest, self._shape)
        low = np.broadcast_to(self._arm.shortest, self._shape)
        batches = self._arm.interval(prices[:, None] / kept, low, high)
        return (self._kept * self._arm.cycle_reward(batches) - cost) / batches, batches

    def solved(self, batches: FloatArray, budget: float) -> tuple[float, FloatArray]:
        """Add a column for each source and step, and return the maximum of the program, utility per
        batch, and the prices of the steps, (D,)."""
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

        depth, n = self._shape
        self._row.append(np.arange(depth * n))
        self._batches.append(batches.ravel())
        row, long = np.concatenate(self._row), np.concatenate(self._batches)
        new = np.unique(np.stack([row, long]), axis=1)
        row, long = new[0].astype(np.intp), new[1]
        self._row, self._batches = [row], [long]
        step, source = np.divmod(row, n)
        fleet = self._arm.sources
        held = fleet.ceiling[source] * -np.expm1(-fleet.decay_per_step[source] * long)
        value = self._kept[step, source] * held
        at = np.arange(row.size)
        spent = coo_array((self._cost[source], (n + step, at)), shape=(n + depth, row.size))
        share = coo_array((long, (source, at)), shape=(n + depth, row.size))
        limit = np.concatenate([np.ones(n), np.full(depth, budget)])
        found = linprog(-value, A_ub=(share + spent).tocsr(), b_ub=limit, method="highs")
        return -float(found.fun), np.maximum(-found.ineqlin.marginals[n:], 0.0)
