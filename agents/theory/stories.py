"""The bound where sources of a topic report the same stories, each of which pays once.

The stories of a topic are of as many kinds as there are sets S of sources that may report them: a
kind has the rate Λ_S = (Λ_max/p) Π_{i∈S} q_i Π_{i∉S} (1 − q_i). A crawl of any source of S collects
what was published of this kind since the last crawl of any of them, whatever else was observed: no
crawl so far has told anything of it. So a kind is a source of its own, which can be crawled in |S|
ways, and a crawl of source i serves all kinds that contain i. If the price λC_i of the crawl is
divided among them in any way, π_{S,i} ≥ 0 with Σ_S π_{S,i} ≤ λC_i, no policy exceeds

    λM + Σ_S max(0, max_{i∈S, k ≥ 1} (x_{S,i}(k) − π_{S,i})/k),

where x_{S,i}(k) = Λ_S ξ̄_i (1 − e^{−μ_i kT})/μ_i is what source i finds of the kind after k steps.
Divided in proportion to the rates of the kinds, and with each way of crawling a kind taken for a
source of its own, this would be the relaxed bound of sources that share nothing, so that the best
division is never worse. It is found by cutting planes: the gaps k that matter.

A lag between the reports of a story lowers nothing but what is collected: measured from its report
at the source whose crawl pays, the age of an item is at least what it would be if each source's
crawls were earlier by its lag, and these are crawls of the kind at the same rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents.theory.price import least_of_sum
from agents.theory.relaxation import Relaxation
from agents.theory.renewal import ClosedFormArm, simplified
from crawl_env import Sources, Stories
from crawl_env.errors import check_positive
from crawl_env.extras import missing
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.simulation.selection import affordable

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_MOST_TOGETHER = 8  # sources whose kinds of stories are told apart
_GAP = 1e-6  # of the bound, at which the search for the prices ends


def stories_bound(
    sources: Sources, budget: float, stories: Stories, budget_rule: str = "step"
) -> Relaxation:
    """Return what no policy exceeds per step, if sources share stories and nothing is known of
    content before a crawl, and the marginal value of the budget.

    It is the least of the bounds of all divisions of prices among the kinds of stories, to a
    millionth. Topics of more than eight sources are divided into parts of at most eight, whose
    stories count as different: the bound holds, but is not the sharpest. So it is with failures,
    which count as higher costs, crawl delays and hosts. It needs SciPy.

    Arguments:
        sources: a fleet, (N,).
        budget: M, budget units per step.
        stories: the overlap; the lag is ignored.
        budget_rule: under "step" sources that cost more than the budget are never crawled.

    Raises:
        ValueError: the budget is not positive.

    >>> for topics in ["news", "news"], ["news", "sport"]:
    ...     fleet = Sources([1.0, 1.0], 1.0, 0.1, topics=topics)
    ...     round(stories_bound(fleet, 1, Stories(overlap=1.0)).bound, 3)
    0.952
    1.813
    """
    try:
        from scipy.sparse import csr_array
    except ImportError as error:
        raise ImportError(missing("scipy", "the bound of shared stories")) from error

    check_positive("budget", budget, "budget units / step")
    most = np.zeros(int(sources.topic_of.max()) + 1)
    np.maximum.at(most, sources.topic_of, sources.arrival_rate)
    reports = stories.overlap * sources.arrival_rate / np.maximum(most[sources.topic_of], 1e-300)
    live = sources.inflow > 0
    if budget_rule == "step":
        live &= affordable(sources.cost, budget)
    if not live.any():
        return Relaxation(0.0, 0.0)
    fleet, reports = simplified(sources).select(live), reports[live]
    kind, source, share = _kinds(fleet.topic_of, reports)
    pairs, n, first = kind.size, len(fleet), np.flatnonzero(np.diff(kind, prepend=-1))
    reporters = fleet.select(source)
    arm = ClosedFormArm(reporters.replaced(arrival_rate=reporters.arrival_rate * share, cost=1.0))

    def best(prices: FloatArray) -> tuple[FloatArray, csr_array]:
        """Return the reward of each kind per step net of π, and its subgradients by λ and π."""
        gap = np.minimum(arm.interval(prices[1:]), arm.longest)
        rate = (arm.mean_content(gap) - prices[1:]) / gap
        net = np.maximum.reduceat(rate, first)
        winners = np.flatnonzero((rate == net[kind]) & (rate > 0.0))
        winners = winners[np.diff(kind[winners], prepend=-1) > 0]  # one of those that are equal
        slopes = (-1.0 / gap[winners], (kind[winners], 1 + winners))
        return np.maximum(net, 0.0), csr_array(slopes, shape=(first.size, 1 + pairs))

    slope = np.append(float(budget), np.zeros(pairs))
    # Σ_S π_{S,i} ≤ λC_i
    rows, columns = np.append(np.arange(n), source), np.append(np.zeros(n), 1 + np.arange(pairs))
    entries = np.append(-fleet.cost, np.ones(pairs))
    constraints = csr_array((entries, (rows, columns)), shape=(n, 1 + pairs))
    prices, bound = least_of_sum(best, slope, np.zeros(1 + pairs), _GAP, constraints)
    # The inequality must hold to the last digit for the bound to be one.
    charge = np.bincount(source, prices[1:], n)
    multiplier = max(float(prices[0]), float((charge / fleet.cost).max()))
    return Relaxation(bound + budget * (multiplier - float(prices[0])), multiplier)


def _kinds(topic_of: IntArray, reports: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the pairs of a kind of stories and a source that reports it: the numbers of kind and
    source, (P,) each, and the rate of the kind in units of the source's, (P,).

    Arguments:
        topic_of: (N,).
        reports: q > 0, (N,), the probability with which a source reports a story of its topic.
    """
    kind, source, share = [], [], []
    number = 0
    for topic in np.unique(topic_of):
        members = np.flatnonzero(topic_of == topic)
        members = members[np.argsort(-reports[members], kind="stable")]
        for first in range(0, len(members), _MOST_TOGETHER):
            part = members[first : first + _MOST_TOGETHER]
            sets = np.arange(1, 2 ** len(part))[:, None] >> np.arange(len(part)) & 1
            chance = np.where(sets, reports[part], 1.0 - reports[part]).prod(axis=1)
            sets, chance = sets[chance > 0], chance[chance > 0]
            of_set, place = np.nonzero(sets)
            kind.append(number + of_set)
            source.append(part[place])
            share.append(chance[of_set] / reports[part][place])
            number += len(sets)
    return np.concatenate(kind), np.concatenate(source), np.concatenate(share)
