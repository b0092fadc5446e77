"""The relaxed bound where topics are hot or cold, for a crawler that is told their regimes.

Who is told more can earn no less, so that the bound holds for every policy that does not observe
content. Given the regimes, the mean content of a source follows x ← αx + fU, where U is its mean
inflow and f the factor of the regime, and at the Lagrange multiplier λ it is a problem of its own:

    V_s(x) + β = max(W_s(x), x − λC + W_s(0)),   W_s(x) = Σ_r P(s, r) V_r(αx + f_s U).

For every convex V, β is at most what the larger side exceeds V by, at the x where it does most, on
average over the two regimes (the sum of the rewards telescopes). If V is linear between the points
of a grid, the larger side is convex between two of them, so that this x is a point of the grid. So
what is computed on a grid bounds β from above, however coarse it is: to interpolate V is to let the
crawler play a fair lottery of contents and see its outcome.

Each regime has the grid that its own flow maps to itself: the paths of content towards its ceiling,
from empty, and for the cold regime from the ceiling of the hot one, too. Hence there is a lottery
only where the regime changes, and a source whose regime does not is that of Theorem 1.
"""

from __future__ import annotations

import numpy as np

from agents.theory.price import Tangent, least_dual
from agents.theory.relaxation import Relaxation, relaxation
from agents.theory.renewal import simplified
from crawl_env import Arrivals, Regimes, Sources, Task
from crawl_env.compiled import compiled
from crawl_env.errors import check_positive
from crawl_env.numerics import BoolArray, FloatArray, IntArray

# Against grids of at least four times as many points, for μT in .03 … 3, ratios of 2 … 100 and
# charges up to the mean ceiling, net rewards are too high by up to 6e-5 of the mean inflow where
# switch ≤ .01, 3e-4 at .1, 5e-4 at .5 and .0015 at 1.
_FINE, _FINER = 16.0, 100.0  # points of a path per time constant, at least; more per switch
_CLOSEST = 2e-3  # time constants between points; slower sources have lotteries at every step
_FULL = 4.6  # time constants of a path, after which 1 % of the way to the ceiling is left
_RAREST = 1e-8  # probability of a switch, and of none, for which V is computed
_MOST_POLICIES, _MOST_SWEEPS = 60, 2000
_CLOSE, _TIE = 1e-13, 1e-11
_GAP = 1e-8  # of the bound, at which the search for λ* ends


def regimes_of(task: Task) -> Regimes | None:
    """Return the law of the arrival rates of a task, or None if topics are not hot or cold."""
    rate = task.arrivals.rate if isinstance(task.arrivals, Arrivals) else None
    return rate if isinstance(rate, Regimes) else None


def regimes_relaxation(sources: Sources, budget: float, law: Regimes) -> Relaxation:
    """Minimise λM + Σ_i β_i(λ) over λ ≥ 0, where β_i is the largest mean net reward of source i
    alone, if the current regimes are told.

    No policy exceeds the bound in the long run that does not observe content, which decays
    exponentially, and whose crawls cost M on average. Failures count as higher costs, which can
    only raise it; capacities, crawl delays and hosts are ignored. It takes a tenth of a second for
    100 sources where switches are rare.

    Arguments:
        sources: a fleet, (N,), with the mean rates.
        budget: M, budget units / step.
        law: of the regimes.

    Raises:
        ValueError: the budget is not positive.

    >>> fleet = Sources.preset("table1")
    >>> bounds = [regimes_relaxation(fleet, 2, Regimes(ratio, 0.01)) for ratio in (1, 3, 9)]
    >>> [round(solution.bound, 1) for solution in bounds]
    [338.1, 347.1, 362.3]
    """
    check_positive("budget", budget, "budget units / step")
    fleet = simplified(sources.replaced(capacity=np.inf))
    if not (fleet.ceiling > 0).any():
        return Relaxation(0.0, 0.0)
    fleet = fleet.select(fleet.ceiling > 0)
    cold, hot = law.factors
    gain, crawls = np.empty(len(fleet)), np.empty(len(fleet))

    def tangent(multiplier: float) -> Tangent:
        charge = multiplier * fleet.cost / fleet.ceiling
        _each_best(fleet.decay_per_step, charge, cold, hot, law.switch, gain, crawls)
        net, spending = float(gain @ fleet.ceiling), float(crawls @ fleet.cost)
        return Tangent(multiplier, net, spending, budget)

    def top() -> float:
        return float((hot * fleet.ceiling / fleet.cost).max())

    guess = float(relaxation(fleet, budget).multiplier)
    minimum = least_dual(tangent, budget, top, guess, _GAP)
    return Relaxation(minimum.value, minimum.multiplier)


@compiled
def _each_best(
    decay: FloatArray,
    charge: FloatArray,
    cold: float,
    hot: float,
    switch: float,
    gain: FloatArray,
    crawls: FloatArray,
) -> None:
    """Write a bound of the net reward per step, and the crawls per step at which it is all but
    attained, of each source in units of its mean ceiling, (N,) each."""
    for i in range(decay.size):
        gain[i], crawls[i] = _best(decay[i], charge[i], cold, hot, switch)


@compiled
def _best(
    decay: float, charge: float, cold: float, hot: float, switch: float
) -> tuple[float, float]:
    """Return the two of one source, by policy iteration.

    Arguments:
        decay: μT.
        charge: what a crawl costs, in units of the mean ceiling, like all contents here.
        cold, hot: the factors of the regimes, which are the ceilings in them.
        switch: the probability that the regime changes in a step.
    """
    if charge >= hot:
        return 0.0, 0.0
    spacing = max(decay / np.ceil((_FINE + _FINER * switch) * decay), _CLOSEST)
    survival = np.exp(-spacing * np.arange(np.ceil(_FULL / spacing) + 1.0))
    path, one = 1.0 - survival, np.ones(1)
    falling = cold + (hot - cold) * survival[::-1]
    content = np.concatenate((cold * path, cold * one, falling, hot * path, hot * one))
    # The states of the cold regime come first; the source is empty in states 0 and `first`.
    n, first, ceiling = content.size, 2 * path.size + 1, path.size
    # Content moves towards the ceiling of its regime: the states nearer to it are solved first.
    order = np.concatenate((np.arange(ceiling, -1, -1), np.arange(ceiling + 1, first)))
    order = np.concatenate((order, np.arange(n - 1, first - 1, -1)))
    low, part = _moves(content, first, decay, cold, hot)
    usual = min(max(switch, _RAREST), 1.0 - _RAREST)
    odds = np.array([1.0 - usual, usual])
    crawled = content > charge
    next_crawl, value, waits = np.zeros((n, 3)), np.empty(n), np.empty(n)
    crawls = 0.0
    for _ in range(_MOST_POLICIES):
        for k in range(n):
            if crawled[k]:
                next_crawl[k, 0], next_crawl[k, 1] = content[k], 0.0
                next_crawl[k, 2] = 1.0 if k >= first else 0.0
        _evaluate(low, part, odds, crawled, order, next_crawl)
        # In which regime the source is crawled is a Markov chain.
        to_hot, still_hot = next_crawl[0, 2], next_crawl[first, 2]
        chance = to_hot / (to_hot + 1.0 - still_hot)
        utility, steps, _ = (1.0 - chance) * next_crawl[0] + chance * next_crawl[first]
        rate, crawls = (utility - charge) / steps, 1.0 / steps
        more, longer, _ = next_crawl[first] - next_crawl[0]
        lead = (more - rate * longer) / (1.0 - still_hot + to_hot)
        value[:] = next_crawl @ np.array([1.0, -rate, lead]) - charge
        _wait(low, part, odds, value, waits)
        changed = False
        for k in range(n - 1):  # a full source is crawled
            now = content[k] - charge + (lead if k >= first else 0.0)
            excess = now - (waits[k] - rate)
            if abs(excess) > _TIE and (excess > 0.0) != crawled[k]:
                crawled[k] = not crawled[k]
                changed = True
        if not changed:
            break
    for start, stop in ((0, first), (first, n)):
        _make_convex(content[start:stop], value[start:stop])
    odds[:] = 1.0 - switch, switch
    _wait(low, part, odds, value, waits)
    bound = 0.0
    for start, stop in ((0, first), (first, n)):
        crawl = content[start:stop] - charge + waits[start]
        bound += 0.5 * (np.maximum(crawl, waits[start:stop]) - value[start:stop]).max()
    inflow = -np.expm1(-decay)
    return min(max(bound, 0.0), inflow), crawls


@compiled
def _make_convex(content: FloatArray, value: FloatArray) -> None:
    """Raise values where they are not convex, by rounding or since they are not exact yet."""
    steepest, last = -np.inf, value[0]
    for k in range(1, value.size):
        width, before = content[k] - content[k - 1], last
        last = value[k]
        if width > 0.0:
            steepest = max(steepest, (last - before) / width)
            value[k] = value[k - 1] + steepest * width
        else:
            value[k] = value[k - 1]


@compiled
def _moves(
    content: FloatArray, first: int, decay: float, cold: float, hot: float
) -> tuple[IntArray, FloatArray]:
    """Return between which states the content after a step of waiting lies, (n, 2) each: the lower
    one in the same regime and in the other, and the part of the way from it to the next."""
    low, part = np.empty((content.size, 2), np.intp), np.empty((content.size, 2))
    for k in range(content.size):
        ceiling = hot if k >= first else cold
        then = ceiling + (content[k] - ceiling) * np.exp(-decay)
        for other in range(2):
            start = first if (k >= first) != (other == 1) else 0
            grid = content[first:] if start == first else content[:first]
            j = min(max(np.searchsorted(grid, then, "right") - 1, 0), grid.size - 2)
            width = grid[j + 1] - grid[j]
            low[k, other] = start + j
            part[k, other] = min(max((then - grid[j]) / width, 0.0), 1.0) if width > 0.0 else 0.0
    return low, part


@compiled
def _wait(
    low: IntArray, part: FloatArray, odds: FloatArray, value: FloatArray, out: FloatArray
) -> None:
    """Write the mean value, (n,), after a step of waiting in each state."""
    for k in range(value.size):
        out[k] = 0.0
        for r in range(2):
            j, share = low[k, r], part[k, r]
            out[k] += odds[r] * ((1.0 - share) * value[j] + share * value[j + 1])


@compiled
def _evaluate(
    low: IntArray,
    part: FloatArray,
    odds: FloatArray,
    crawled: BoolArray,
    order: IntArray,
    next_crawl: FloatArray,
) -> None:
    """Write, for each state that is not crawled, what the next crawl collects, the steps until
    then, and the probability that it is in the hot regime, (n, 3): by sweeps over the states in an
    order, until the switches between the regimes change nothing more."""
    for _ in range(_MOST_SWEEPS):
        change = 0.0
        for k in order:
            if crawled[k]:
                continue
            stays, utility, steps, in_hot = 0.0, 0.0, 1.0, 0.0
            for r in range(2):
                for upper in range(2):
                    j = low[k, r] + upper
                    p = odds[r] * (part[k, r] if upper == 1 else 1.0 - part[k, r])
                    if j == k:
                        stays += p
                    else:
                        utility += p * next_crawl[j, 0]
                        steps += p * next_crawl[j, 1]
                        in_hot += p * next_crawl[j, 2]
            leaves = 1.0 - stays
            change = max(change, abs(steps / leaves - next_crawl[k, 1]) * leaves / steps)
            next_crawl[k, 0] = utility / leaves
            next_crawl[k, 1] = steps / leaves
            next_crawl[k, 2] = in_hot / leaves
        if change <= _CLOSE:
            break
