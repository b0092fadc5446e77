"""The relaxation of two budgets: against an independent linear programme, and its limits."""

import numpy as np
import pytest
from scipy import optimize

from agents import relaxation, task_bound
from agents.theory.engine.content import WaitingItems
from agents.theory.engine.relaxation import PricedArm, engine_relaxation
from agents.theory.price import least_of_two
from agents.theory.task_bound import EngineBound
from crawl_env import Engine, Sources, Task
from crawl_env.content.utility import EqualUtilities, Exponential, Lognormal
from tests.refusals import refused

FLEET = Sources([2.0, 1.0, 0.5, 3.0], [1.0, 0.7, 2.0, 0.3], [0.3, 0.1, 0.2, 0.5], [1, 2, 1, 1.0])


def linear_programme(fleet, budget, rate, prices, ages=200, refuse=True):
    """The best mixture of cycles (source, length, level below which items are refused)."""
    reward, spent, passed, time = [], [], [], []
    nodes, weights = np.polynomial.legendre.leggauss(24)
    a = np.arange(ages)[:, None] + 0.5 * (nodes + 1)
    k = np.arange(1.0, ages + 1)
    for i in range(len(fleet)):
        mean, left = fleet.mean_utility[i], np.exp(-fleet.decay_rate[i] * a)
        for level in prices if refuse else [0.0]:
            c = level / mean / left
            for column, each in (
                (reward, mean * left * (1 + c) * np.exp(-c)),
                (passed, np.exp(-c)),
            ):
                column.extend(fleet.arrival_rate[i] * np.cumsum(0.5 * each @ weights) / k)
            spent.extend(fleet.cost[i] / k)
            time.extend([np.eye(len(fleet))[i]] * ages)
    n = len(fleet)
    rows = np.array([spent, passed, *np.array(time).T])
    found = optimize.linprog(
        -np.array(reward),
        rows,
        [budget, rate, *np.ones(n)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return -found.fun


@pytest.mark.parametrize(("budget", "rate"), [(1, 1.0), (2, 3.0), (0.5, 0.2), (2, 0.05)])
def test_it_is_the_best_mixture_of_cycles(budget, rate):
    bound, multiplier, price = engine_relaxation(FLEET, budget, rate)
    assert multiplier >= 0
    assert price > 0
    near = price * np.array([0.7, 1 - 1e-5, 1 + 1e-5, 1.3])
    reached = linear_programme(FLEET, budget, rate, near)
    assert bound == pytest.approx(reached, rel=1e-8)
    assert bound > linear_programme(FLEET, budget, rate, [0.7 * price, 1.3 * price]) * (1 - 1e-9)


def test_if_all_must_be_indexed():
    bound, _, price = engine_relaxation(FLEET, 1, 1.0, refuse=False)
    assert bound == pytest.approx(linear_programme(FLEET, 1, 1.0, [], refuse=False), rel=1e-8)
    assert bound < engine_relaxation(FLEET, 1, 1.0).bound
    assert price > 0


def test_a_queue_that_overflows_exceeds_that_variant():
    """One source that is crawled in every step, and an engine that takes its newest item."""
    one = Sources([10.0], [1.0], [0.5])
    all_indexed = engine_relaxation(one, 1, 1.0, refuse=False, utility=EqualUtilities()).bound
    newest = 10 / 10.5 * (1 - np.exp(-10.5))
    assert all_indexed == pytest.approx(one.content_at(1.0)[0] / 10)
    assert all_indexed < 0.9 * newest < engine_relaxation(one, 1, 1.0, EqualUtilities()).bound


def test_a_fast_engine_is_none():
    for fleet in (FLEET, Sources.random(30, 4)):
        for rate in (np.inf, 2 * fleet.arrival_rate.sum()):
            bound, multiplier, price = engine_relaxation(fleet, 2, rate)
            assert (bound, multiplier) == relaxation(fleet, 2)
            assert price == 0


def test_no_fleet_without_capacities_is_made_where_none_has_any(monkeypatch):
    arm = PricedArm(WaitingItems(FLEET, Exponential()), 0.1)
    monkeypatch.setattr(Sources, "replaced", None)
    assert (arm.index_at_age(np.full(4, 3.0)) > 0).all()


def test_it_grows_with_both_budgets_and_prices_are_their_worth():
    for utility, rates in ((None, (0.3, 1.0, 4.0)), (Lognormal(1.2), (0.3, 1.0))):
        found = [engine_relaxation(FLEET, 1.5, rate, utility) for rate in rates]
        bounds, prices = [f.bound for f in found], [f.price for f in found]
        assert np.all(np.diff(bounds) > 0)
        assert np.all(np.diff(prices) < 0)
        nearby = [engine_relaxation(FLEET, 1.5, 1.0 + h, utility).bound for h in (-1e-4, 1e-4)]
        assert prices[1] == pytest.approx((nearby[1] - nearby[0]) / 2e-4, rel=1e-3)


def test_the_search_for_a_minimum():
    """A valley with a kink, whose minimum is known."""

    def valley(x):
        u, v = x[0] + x[1] - 3, x[0] - x[1] - 1
        slope = 100 * np.sign(u) * np.array([1, 1]) + 0.02 * v * np.array([1, -1])
        return 100 * abs(u) + 0.01 * v**2 + 5, slope

    at, least = least_of_two(valley, np.array([10.0, 10.0]))
    assert least == pytest.approx(5, abs=1e-9)
    np.testing.assert_allclose(at, [2, 1], atol=1e-3)


def test_the_bound_of_a_task():
    posed = {"sources": FLEET, "budget": 2, "budget_rule": "average"}
    slow, fifo = Engine(rate=1, capacity=5, discipline="value"), Engine(rate=1)
    blind = task_bound(Task(**posed, engine=slow, observed=False))
    assert isinstance(blind, EngineBound)
    assert (*blind, blind.price) == (*engine_relaxation(FLEET, 2, 1)[:2], "not observed",
                                     engine_relaxation(FLEET, 2, 1).price)  # fmt: skip
    assert blind._replace(multiplier=1.0).price == blind.price
    seen, free = (
        task_bound(Task(**posed, engine=e, arrivals="poisson-items")) for e in (slow, None)
    )
    assert blind.bound < seen.bound < free.bound
    # What is first in, first out cannot choose items by their utilities, unless it refuses some.
    found = task_bound(Task(**posed, engine=fifo, observed=False))
    assert found.bound == engine_relaxation(FLEET, 2, 1, EqualUtilities()).bound
    assert found.bound < 0.9 * blind.bound
    assert (found.multiplier, found.price) == (blind.multiplier, blind.price)
    choosy = Engine(rate=1, threshold=0.1)
    assert task_bound(Task(**posed, engine=choosy, observed=False)).bound == blind.bound
    assert not isinstance(free, EngineBound)
    ample = task_bound(Task(**posed, engine=Engine(rate=float("inf"))))
    assert tuple(ample) == tuple(free)
    both = task_bound(Task(**posed, engine=slow, observed=False), Sources.stack([FLEET, FLEET]))
    assert both.bound.tolist() == [blind.bound] * 2
    assert both.price.tolist() == [blind.price] * 2


def test_what_is_refused():
    with refused("rate", "positive"):
        engine_relaxation(FLEET, 1, 0)
