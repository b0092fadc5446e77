"""The balancer alone, of 64 shards with 10⁸ sources: no source is held, and none is fetched.

A shard is its answer to a budget B: the price λ at which its sources are fetched B times an hour.
The values v of its sources, what a source that is never fetched has to collect, are lognormal;
with time constant 1/μ of the decay, a source is fetched whenever its index reaches λ, at intervals
z(λ/v)/μ (Theorem 1 in continuous time). After two hours there is a shock: a quarter of the shards
loses half of its budget to the others, or the values of its sources triple.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from agents.theory.closed_form import continuous_ages_reaching
from agents.theory.price import first_near
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.shards.balancer import Balancer, Quote
from experiments.core.data import Column, Data, Table, mean
from experiments.core.study import Part
from experiments.live.shards import EVERY, HOURS, largest
from experiments.live.world import HOUR

NUMBER, SOURCES, PER_HOUR = 64, 1e8, 1e7
SEEDS, BUDGETS, VALUES = 4, "budgets", "values"
LOST = (0.0, 0.02)  # probability that a shard does not answer in a round
ROUNDS = round(HOUR / EVERY)  # an hour
BEFORE = 2 * ROUNDS  # of the shock
HALF_LIFE = 3.0  # hours
SPREAD = 2.0  # standard deviation of ln v
CLASSES = 1000  # of sources, with equally many in each

_VALUES = np.exp(
    SPREAD * np.array([NormalDist().inv_cdf((j + 0.5) / CLASSES) for j in range(CLASSES)])
)


class Demands:
    """Shards of many sources, (S,).

    Attributes:
        sources: of each.
        scale: of the values of their sources.
        budgets: that they have, fetches per hour.
    """

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        sizes = np.exp(self.draw.normal(0.0, 0.5, NUMBER))
        self.sources = np.round(SOURCES * sizes / sizes.sum())
        self.scale = np.exp(self.draw.normal(0.0, 0.3, NUMBER))
        self.budgets = PER_HOUR * self.sources / SOURCES

    def prices(self) -> FloatArray:
        """Return the prices at the budgets, (S,)."""
        per_source = self.budgets / self.sources
        return self.scale * [price_of(float(b)) for b in per_source]

    def round(self, balancer: Balancer, prices: FloatArray, lost: float) -> float:
        """Make a round; return the largest sum of the budgets in it."""
        silent = self.draw.random(NUMBER) < lost
        quotes = [
            None if silent[k] else Quote(float(self.budgets[k]), float(prices[k]), int(n), 0)
            for k, n in enumerate(self.sources)
        ]
        cuts = balancer.lower(quotes)
        most = self._tell(cuts)
        balancer.acknowledge(cuts)
        return max(most, self._tell(balancer.rise()))

    def disturb(self, shock: str) -> None:
        """Change the budgets, or the values, of a quarter of the shards."""
        few = NUMBER // 4
        if shock == VALUES:
            self.scale[:few] *= 3.0
            return
        amount = 0.5 * self.budgets[:few].sum()
        self.budgets[:few] *= 0.5
        self.budgets[few:] *= 1.0 + amount / self.budgets[few:].sum()

    def _tell(self, budgets: Mapping[int, float]) -> float:
        for k, budget in budgets.items():
            self.budgets[k] = budget
        return float(self.budgets.sum())


def price_of(per_source: float) -> float:
    """Return the price at which sources, whose values have median 1, are fetched so often on
    average, per hour.

    >>> round(price_of(demand(0.25)), 6)
    0.25
    """
    return first_near(lambda price: demand(price) <= per_source, 1.0, tolerance=1e-9)[1]


def demand(price: float) -> float:
    """Return how often a source is fetched at a price on average, per hour."""
    decay = math.log(2.0) / HALF_LIFE
    return float(np.mean(decay / continuous_ages_reaching(price, _VALUES)))


def jobs(study: Any = None, seeds: Sequence[int] = range(SEEDS)) -> list[Job]:
    """Return a job for each seed, shock and probability, each of which gives a row."""
    return [
        {"columns": {"seed": seed, "shock": shock, "lost": lost}}
        for seed in seeds
        for shock in (BUDGETS, VALUES)
        for lost in LOST
    ]


def work(job: Job) -> Result:
    """Return by which fraction a price differs from their mean at most, before a shock and some
    hours after it, the largest sum of the budgets as a fraction of the whole, and the processor
    time of a round, in milliseconds."""
    case = job["columns"]
    fleet, balancer = Demands(case["seed"]), Balancer(PER_HOUR, NUMBER)
    apart, most, took = list[float](), 0.0, 0.0
    rounds = BEFORE + max(HOURS) * ROUNDS + 1
    for i in range(rounds):
        if i == BEFORE:
            fleet.disturb(case["shock"])
            balancer.budgets = fleet.budgets.copy()  # nobody else changes budgets
        prices = fleet.prices()
        apart.append(float(np.abs(prices / prices.mean() - 1).max()))
        start = time.process_time()
        most = max(most, fleet.round(balancer, prices, case["lost"]))
        took += time.process_time() - start
    after = {f"hour {h}": apart[BEFORE + h * ROUNDS] for h in HOURS}
    measures = {"before": apart[BEFORE - 1], "most": most / PER_HOUR, "round": 1e3 * took / rounds}
    return {**measures, **after}


def claim(data: Data) -> str:
    """Return how soon prices agree again."""
    never, sometimes = (
        max(largest("hour 1")(data, case) for case in data.cases("shock", lost=lost))
        for lost in LOST
    )
    return (
        f"The prices of {NUMBER} shards with {SOURCES:.0e} sources differ from their mean by "
        f"{never:.1%} at most an hour after a shock, and by {sometimes:.1%} if {LOST[1]:.0%} of "
        "the answers are missing."
    )


PART = Part(
    jobs=jobs,
    work=work,
    file="balancer.csv",
    heading="The balancer of many shards",
    content=(
        Table(
            f"{NUMBER} shards with {SOURCES:.0e} sources: by which fraction a price differs from "
            "their mean at most",
            {"shock": "shock to", "lost": "no answer"},
            (
                Column("apart before", mean("before"), ".1%"),
                *(Column(f"{h} h after", largest(f"hour {h}"), ".1%") for h in HOURS),
                Column("largest sum of budgets", largest("most"), ".1%"),
                Column("a round, ms, most", largest("round"), ".2f"),
            ),
        ),
        "No source is held: a shard is its price as a function of its budget, of sources whose "
        f"values are lognormal. {SEEDS} seeds; the mean before the shock, and the largest after "
        f"it. Prices are read every {EVERY / 60:g} minutes. The shock takes half of the "
        "budget of a quarter of the shards and gives it to the others, or triples the values of "
        "their sources. No answer: the probability that a shard is silent in a round.",
    ),
    claim=claim,
)
