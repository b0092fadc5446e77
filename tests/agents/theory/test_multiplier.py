"""λ*: the level at which spending meets the budget."""

import math

import numpy as np
import pytest

from agents import relaxation
from agents.theory.arm import arm_of
from agents.theory.index import myopic_index, whittle_index
from agents.theory.multiplier import BudgetMultiplier, payable
from agents.theory.task_bound import task_bound
from crawl_env import Arrivals, Deterministic, ItemLog, Sources, Task, Trace, World


def spending(fleet, level, index, epochs=4000):
    """Simulate, with content of its own, what crawling all at or above the level costs."""
    rng = np.random.default_rng(99)
    world = World(fleet, Arrivals())
    world.start(np.ones(world.shape), rng)
    spent = 0.0
    for _ in range(epochs):
        crawled = np.flatnonzero(index(world.value, fleet) >= level)
        spent += fleet.cost[crawled].sum()
        world.crawl(crawled)
        world.advance(rng)
    return spent / epochs


@pytest.mark.parametrize(("index", "budget"), [(whittle_index, 2.0), (myopic_index, 10.0)])
def test_seen_random_content_is_priced_where_spending_meets_the_budget(index, budget):
    fleet = Sources.preset("fleet-f")
    price = BudgetMultiplier(Task(fleet, budget, budget_rule="average", arrivals="poisson"), index)(
        fleet
    )
    assert price.shape == (1, 1)
    assert spending(fleet, price.item(), index) == pytest.approx(budget, rel=0.05)


@pytest.mark.parametrize("arrivals", [Deterministic(), Arrivals()])
def test_unseen_content_is_priced_by_the_relaxation(arrivals):
    fleet = Sources.random(12, seed=1)
    task = Task(fleet, 3, budget_rule="average", arrivals=arrivals, observed=False)
    assert BudgetMultiplier(task, whittle_index)(fleet).item() == relaxation(fleet, 3).multiplier


def test_a_cheap_fleet_leaves_the_price_of_the_others_alone():
    dear, cheap = Sources.random(6, seed=1), Sources(1.0, 1.0, 0.2, np.full(6, 0.1))
    task = Task(dear, 1.5, budget_rule="average", arrivals="poisson")
    together = BudgetMultiplier(task, whittle_index)(Sources.stack([dear, cheap, dear]))[:, 0]
    assert together[1] == 0
    alone = BudgetMultiplier(task, whittle_index)(dear).item()
    np.testing.assert_allclose(together[[0, 2]], alone, rtol=0.1)


def test_only_fleets_that_changed_are_priced_again(monkeypatch):
    found = []
    price = BudgetMultiplier(
        Task(Sources.random(4), 1, budget_rule="average", arrivals="poisson"), whittle_index
    )
    find = price._find
    monkeypatch.setattr(price, "_find", lambda s: found.append(len(s.cost)) or find(s))
    fleets = [Sources.random(4, seed) for seed in range(5)]
    first = price(Sources.stack(fleets)).copy()
    price(Sources.stack(fleets))
    fleets[3] = Sources.random(4, seed=77)
    second = price(Sources.stack(fleets))
    assert found == [5, 1]
    same = [0, 1, 2, 4]
    np.testing.assert_array_equal(first[same], second[same])
    assert first[3] != second[3]


def test_a_budget_below_one_crawl_is_priced_as_well():
    """An epoch spends nothing or several budgets at once: neither may be cut off."""
    fleet = Sources(0.05, np.linspace(0.5, 2.0, 30), 0.1)
    price = BudgetMultiplier(
        Task(fleet, 0.25, budget_rule="average", arrivals="poisson"), whittle_index
    )(fleet)
    assert spending(fleet, price.item(), whittle_index, 8000) == pytest.approx(0.25, rel=0.1)


def test_a_recording_is_not_looked_into():
    fleet = Sources.preset("fleet-f")
    silent = ItemLog(fleet.names, source=[0], published=[1.0], utility=[1.0], start=0, end=100)
    priced = [
        BudgetMultiplier(Task(fleet, 5, budget_rule="average", arrivals=arrivals), whittle_index)(
            fleet
        ).item()
        for arrivals in (Trace(silent), "poisson")
    ]
    assert priced[0] == priced[1]


@pytest.mark.parametrize("budget", [1.0, 4.0])
def test_the_simulated_multiplier_is_that_of_the_exact_relaxation(budget):
    """For the exact index spending meets the budget at the minimum of the dual, which is computed
    without simulation; costs differ, and a third of the sources is not observed."""
    fleet = Sources.preset("fleet-f")
    fleet = fleet.replaced(cost=np.tile([1.0, 0.5, 2.0, 1.0, 1.0], 5))
    observed = np.arange(25) % 3 > 0
    task = Task(fleet, budget, budget_rule="average", arrivals="poisson", observed=observed)
    arm = arm_of(task)
    simulated = BudgetMultiplier(task, lambda value, sources: arm.index(value))(fleet)
    assert simulated.item() == pytest.approx(task_bound(task).multiplier, rel=0.03)


def limited_spending(fleet, multiplier, steps):
    """Simulate one step after the other, in plain Python, what crawling costs under all limits."""
    rng, n = np.random.default_rng(5), len(fleet)
    value, waited, spent = np.zeros(n), np.full(n, 99.0), 0.0
    for t in range(steps):
        index = whittle_index(value, fleet)
        used = set()
        for i in sorted(range(n), key=lambda i: -index[i]):
            free = waited[i] >= fleet.delay[i] and fleet.hosts[i] not in used
            if index[i] < multiplier or not free:
                continue
            used.add(fleet.hosts[i])
            waited[i] = 0.0
            spent += fleet.cost[i] * (t >= 200)
            if rng.random() >= fleet.failure_rate[i]:
                value[i] = 0.0
        value *= np.exp(-fleet.decay_rate)
        for i in range(n):
            age = rng.random(rng.poisson(fleet.arrival_rate[i]))
            utility = rng.exponential(fleet.mean_utility[i], age.size)
            value[i] += utility @ np.exp(-fleet.decay_rate[i] * age)
        waited += 1.0
    return spent / (steps - 200)


def test_spending_meets_the_budget_under_failures_delays_and_hosts():
    fleet = Sources(
        np.full(12, 0.4), np.linspace(0.5, 2, 12), 0.1, cost=[1.0, 0.7, 1.5] * 4,
        failure_rate=0.3, crawl_delay=[0.0, 3.0] * 6, hosts=[f"h{i % 6}" for i in range(12)],
    )  # fmt: skip
    task = Task(fleet, 1.5, budget_rule="average", arrivals="poisson")
    multiplier = BudgetMultiplier(task, whittle_index)(fleet).item()
    assert limited_spending(fleet, multiplier, 3000) == pytest.approx(1.5, rel=0.05)


class FixedIndex:
    """An index that does not depend on the value: spending is then a function of λ alone."""

    def __init__(self, index):
        self.index, self.calls = index, 0

    def __call__(self, value, sources):
        self.calls += 1
        return np.broadcast_to(self.index, value.shape)


def iterated(start, index, cost, budget, steps):
    """Average the second half of the Robbins–Monro iteration of log λ, in plain Python."""
    level, later = math.log(start), []
    for t in range(steps):
        spent = sum(c for c, i in zip(cost, index, strict=True) if i >= math.exp(level))
        error = (spent - budget) / (budget + max(cost))
        level += 0.5 * (1 + t / 10) ** -0.6 * min(error, 1.0)
        if t >= steps // 2:
            later.append(level)
    return math.exp(sum(later) / len(later))


@pytest.mark.parametrize(
    ("n", "rate", "steps"),
    [(40, 1.0, 3000), (100, 900.0, 221), (120, 999.0, 200), (20, 1000.0, 999)],
    ids=["the most", "by the work", "the fewest", "at the limit of random content"],
)
def test_the_search_averages_the_iteration_of_the_logarithm(n, rate, steps):
    """Twenty million sources and items are simulated, between 200 and 3,000 steps of them."""
    cost = np.tile([1.0, 0.5, 2.0, 0.25], n // 4)
    fleet = Sources(rate / 2, 1.0, 0.2, cost, period=2.0)
    start = relaxation(fleet, 3.3).multiplier
    for factor in (1e-3, 1e3):
        index = FixedIndex(factor * start * np.linspace(0.5, 2.0, n))
        task = Task(fleet, 3.3, budget_rule="average", arrivals="poisson")
        found = BudgetMultiplier(task, index)(fleet).item()
        assert index.calls == steps
        assert found == pytest.approx(iterated(start, index.index, cost, 3.3, steps), rel=1e-9)


def test_content_that_is_all_but_deterministic_is_not_simulated():
    fleet = Sources([1.0, 500.5], 1.0, 0.2, period=2.0)
    index = FixedIndex(np.ones(2))
    task = Task(fleet, 1, budget_rule="average", arrivals="poisson")
    assert BudgetMultiplier(task, index)(fleet).item() == relaxation(fleet, 1).multiplier
    assert index.calls == 0


def test_the_multiplier_is_zero_from_the_budget_for_all_sources_on(monkeypatch):
    fleet = Sources([1.0, 2.0], 1.0, 0.2, [0.5, 1.0])
    some, enough = (
        Task(fleet, budget, budget_rule="average", arrivals="poisson") for budget in (1.49, 1.5)
    )
    assert BudgetMultiplier(some, whittle_index)(fleet).item() > 0
    monkeypatch.setattr(BudgetMultiplier, "_simulate", None)  # which takes the time
    assert BudgetMultiplier(enough, whittle_index)(fleet).item() == 0


@pytest.mark.filterwarnings("ignore:budget is .* at most")
def test_payable_is_what_whole_crawls_cost_of_what_can_be_crawled():
    same = Sources([1.0, 2.0, 3.0], 1.0, 0.2, 0.4)
    fleet, budget = payable(same, Task(same, 1.0))
    assert budget == pytest.approx(0.8, rel=1e-12)
    assert fleet == same
    dear = Sources([1.0, 2.0, 3.0], 1.0, 0.2, [1.0, 0.4, 1.5], failure_rate=[0.5, 0.0, 0.0])
    with pytest.warns(UserWarning, match="never be crawled: 2"):
        task = Task(dear, 1.0)
    fleet, budget = payable(dear, task)
    assert budget == 1.0
    assert fleet.arrival_rate.tolist() == [1.0, 2.0, 0.0]
    assert fleet.cost.tolist() == [2.0, 0.4, 1.5]
    fleet, budget = payable(dear, Task(dear, 1.0, budget_rule="average"))
    assert (budget, fleet.arrival_rate.tolist()) == (1.0, [1.0, 2.0, 3.0])
