"""The index under the price of a place: against brute-force optimal stopping of the arm."""

import numpy as np
import pytest

from agents import index_at_age
from agents.theory.engine.content import WaitingItems
from agents.theory.engine.relaxation import PricedArm
from crawl_env import Sources
from crawl_env.content.utility import EqualUtilities, Exponential, Gamma

FLEET = Sources([2.0, 0.5], [1.0, 2.0], [0.3, 0.1], [1.0, 2.0])
AGES = np.arange(1.0, 41.0)[:, None] * np.ones(2)


def crawled(worth, multiplier):
    """At which ages crawling is best, where a crawl at age k earns worth[k] − λ: relative value
    iteration over the ages, the largest of which lasts; None where both are equally good."""
    value, n = np.zeros(worth.size), worth.size
    older = np.minimum(np.arange(n) + 1, n - 1)
    for _ in range(20_000):
        now, later = worth - multiplier + value[0], value[older]
        new = np.maximum(now, later)
        change = new - value
        if np.ptp(change) < 1e-11:
            break
        value = 0.5 * (value + new)
        value -= value[-1]
    return now - later


@pytest.mark.parametrize("utility", [Exponential(), EqualUtilities(), Gamma(3.0)])
def test_it_is_the_multiplier_of_indifference(utility):
    """Indexable: the index divides the multipliers at which a crawl is best from the others."""
    price, items = 0.35, WaitingItems(FLEET, utility)
    index = PricedArm(items, price).index_at_age(AGES)
    worth = items.worth(AGES, price, price)
    assert np.all(np.diff(index, axis=0) >= -1e-12)
    for i in range(2):
        for k in (0, 1, 4, 9, 20):
            at = index[k, i]
            if at <= 1e-9:
                continue
            for multiplier, sign in ((0.98 * at, 1), (1.02 * at, -1)):
                gain = crawled(worth[:, i], multiplier * FLEET.cost[i])[k]
                assert sign * gain > 0


def test_no_price_is_no_engine_and_waiting_costs_most_where_interest_decays_fast():
    items, left = WaitingItems(FLEET, Exponential()), np.exp(-4 * FLEET.decay_rate)
    free, later = (PricedArm(items, 0.0, survival=kept).index_at_age(AGES) for kept in (1.0, left))
    np.testing.assert_allclose(free, index_at_age(AGES, FLEET), rtol=1e-9)
    np.testing.assert_allclose(later, left * index_at_age(AGES, FLEET), rtol=1e-9)
    at_once, later = (PricedArm(items, 0.1, survival=d).index_at_age(AGES) for d in (1.0, left))
    lost = later[2] / at_once[2]
    assert lost[0] < lost[1] < 1
