"""The bound under a deadline: what batches of D steps can be worth at most.

An item is worth the same at the deadline whenever its batch collects it. A crawl l steps before the
last of its batch, the next one of the same source being j batches later, therefore brings two
terms, of which the second is what the next one no longer finds. They add up to α^l u*(1 − α^{jD}),
whichever step the next one has: α^l times what a source holds whose steps are batches, at age j.

So a source's crawls are described by how often it has each pair (l, j), and the relaxed problem,
whose budgets of the D steps of a batch hold on average over the batches, is a linear program:
maximise Σ y_i(l, j) α_i^l u*_i (1 − α_i^{jD}) so that Σ_{l,j} j y_i(l, j) ≤ 1 for every source, and
Σ_{i,j} C_i y_i(l, j) ≤ M for every l. With one j for each source it is an assignment of sources to
steps. The bound is the minimum of its dual over the prices λ_l of the steps. At given prices, the
best j is the interval of an unobserved source of period DT at the multiplier λ_l/α^l, in closed
form.
"""

from __future__ import annotations

import numpy as np

from agents.theory.price import least_of_sum
from agents.theory.relaxation import Relaxation, relaxation
from agents.theory.renewal import ClosedFormArm, simplified
from crawl_env import Sources
from crawl_env.errors import check_positive, check_whole
from crawl_env.numerics import FloatArray

_GAP = 1e-8  # of the bound, at which the search for the prices ends


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
        solution = relaxation(batch, budget * steps)
        return Relaxation(solution.bound / steps, solution.multiplier)
    survival = np.exp(-fleet.decay_per_step * np.arange(steps)[:, None])  # α^l, (D, N)
    # Nothing is left so long before the deadline of a source that decays so fast.
    share, arm, source = np.maximum(survival, 1e-300), ClosedFormArm(batch), np.arange(len(batch))
    low, high = (np.broadcast_to(age, survival.shape) for age in (arm.shortest, arm.longest))

    def best(prices: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the net reward of each source per batch, and its subgradients."""
        cost = prices[:, None] * batch.cost
        batches = arm.interval(prices[:, None] / share, low, high)
        rate = (survival * arm.cycle_reward(batches) - cost) / batches
        step, slopes = rate.argmax(axis=0), np.zeros((len(batch), steps))
        net = rate[step, source]
        slopes[source, step] = np.where(net > 0, -batch.cost / batches[step, source], 0.0)
        return np.maximum(net, 0.0), slopes

    prices, bound = least_of_sum(best, np.full(steps, float(budget)), np.zeros(steps), _GAP)
    return Relaxation(bound / steps, float(prices.sum() / steps))
