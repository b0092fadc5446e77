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
division is never worse. It is found by a linear program, whose columns, the gaps k that matter, are
generated.

A lag between the reports of a story lowers nothing but what is collected: measured from its report
at the source whose crawl pays, the age of an item is at least what it would be if each source's
crawls were earlier by its lag, and these are crawls of the kind at the same rate.
"""

from __future__ import annotations

import numpy as np

from agents.theory.relaxation import Relaxation
from agents.theory.renewal import ClosedFormArm, simplified
from crawl_env import Sources, Stories
from crawl_env.errors import check_positive
from crawl_env.extras import missing
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.simulation.selection import affordable

_MOST_TOGETHER = 8  # sources whose kinds of stories are told apart
_GAP = 1e-6  # between the bound and what the linear program attains, as a fraction
_MOST_ROUNDS = 60


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
    program = _Program(fleet, *_kinds(fleet.topic_of, reports))
    gap = np.maximum(program.arm.shortest, 1.0)
    least, best = np.inf, 0.0
    for _ in range(_MOST_ROUNDS):
        attained, price, divided = program.solved(gap, budget)
        rate, gap = program.best(divided)
        value = price * budget + float(np.maximum(rate, 0.0).sum())
        if value < least:
            least, best = value, price
        if least - attained <= _GAP * least:
            break
    return Relaxation(least, best)


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


class _Program:
    """The linear program: how often each kind is crawled by each of its sources after each gap.

    Arguments:
        sources: a fleet, (N,).
        kind, source, share: of the pairs of a kind and a source, as in `_kinds`.
    """

    def __init__(
        self, sources: Sources, kind: IntArray, source: IntArray, share: FloatArray
    ) -> None:
        self._kind, self._source, self._cost = kind, source, sources.cost
        fleet = sources.select(source)
        rate = fleet.arrival_rate * share
        self.arm = ClosedFormArm(fleet.replaced(arrival_rate=rate, cost=1.0))
        self._pair: IntArray = np.zeros(0, dtype=np.intp)  # of each column
        self._gap: FloatArray = np.zeros(0)

    def best(self, divided: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the net reward per step of each kind, (K,), if its sources' crawls have the prices
        π, (P,), and the gap that is best for each of them alone, (P,)."""
        gap = np.minimum(self.arm.interval(divided), self.arm.longest)
        net = (self.arm.mean_content(gap) - divided) / gap
        rate = np.zeros(int(self._kind.max()) + 1)
        np.maximum.at(rate, self._kind, net)
        return rate, gap

    def solved(self, gap: FloatArray, budget: float) -> tuple[float, float, FloatArray]:
        """Add a column for each pair, and return the maximum of the program, λ and π, (P,)."""
        try:
            from scipy.optimize import linprog
            from scipy.sparse import coo_array
        except ImportError as error:
            raise ImportError(missing("scipy", "the bound of shared stories")) from error
        pairs = self._kind.size
        columns = np.stack([np.append(self._pair, np.arange(pairs)), np.append(self._gap, gap)])
        columns = np.unique(columns, axis=1)
        self._pair, self._gap = pair, gap = columns[0].astype(np.intp), columns[1]
        # Rows: the time of each kind; each pair's crawls, which are at most its source's; the
        # budget. The frequencies of the sources' crawls are the last columns.
        kinds, n, at = int(self._kind.max()) + 1, self._cost.size, np.arange(pair.size)
        worth = self.arm.sources.ceiling[pair] * -np.expm1(
            -self.arm.sources.decay_per_step[pair] * gap
        )
        rows = np.concatenate(
            [self._kind[pair], kinds + pair, kinds + np.arange(pairs), [kinds + pairs] * n]
        )
        crawls = pair.size + np.arange(n)
        places = np.concatenate([at, at, pair.size + self._source, crawls])
        entries = np.concatenate([gap, np.ones(pair.size), -np.ones(pairs), self._cost])
        shape = (kinds + pairs + 1, pair.size + n)
        limit = np.concatenate([np.ones(kinds), np.zeros(pairs), [budget]])
        found = linprog(
            -np.append(worth, np.zeros(n)),
            A_ub=coo_array((entries, (rows, places)), shape=shape).tocsr(),
            b_ub=limit,
            method="highs",
        )
        price = np.maximum(-found.ineqlin.marginals, 0.0)
        divided, multiplier = price[kinds:-1], float(price[-1])
        # Σ_S π_{S,i} ≤ λC_i must hold to the last digit for the bound to be one.
        spent = np.bincount(self._source, divided, n)
        multiplier = max(multiplier, float((spent / self._cost).max()))
        return -float(found.fun), multiplier, divided
