"""λ*: the level at which spending meets the budget."""

import numpy as np
import pytest

from agents import relaxation
from agents.theory.arm import arm_of
from agents.theory.index import myopic_index, whittle_index
from agents.theory.multiplier import BudgetMultiplier
from agents.theory.task_bound import task_bound
from crawl_env import Arrivals, Deterministic, ItemLog, Sources, Task, Trace, World


def spending(fleet: Sources, level: float, index, epochs: int = 4000) -> float:
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


@pytest.mark.parametrize("index", [whittle_index, myopic_index])
@pytest.mark.parametrize("budget", [2.0, 5.0, 10.0])
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
    assert spending(fleet, price.item(), whittle_index, 20_000) == pytest.approx(0.25, rel=0.1)


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
    fleet = Sources(**{**fleet.__getstate__(), "cost": np.tile([1.0, 0.5, 2.0, 1.0, 1.0], 5)})
    observed = np.arange(25) % 3 > 0
    task = Task(fleet, budget, budget_rule="average", arrivals="poisson", observed=observed)
    arm = arm_of(task)
    simulated = BudgetMultiplier(task, lambda value, sources: arm.index(value))(fleet)
    assert simulated.item() == pytest.approx(task_bound(task).multiplier, rel=0.03)


def test_failures_delays_and_hosts_are_simulated():
    """With the found multiplier, the simulated spending meets the budget under all limits."""
    fleet = Sources(
        np.full(12, 0.4), np.linspace(0.5, 2, 12), 0.1, failure_rate=0.3,
        crawl_delay=[0.0, 3.0] * 6, hosts=[f"h{i % 6}" for i in range(12)],
    )  # fmt: skip
    task = Task(fleet, 1.5, budget_rule="average", arrivals="poisson")
    level = BudgetMultiplier(task, whittle_index)(fleet).item()
    plain = Sources(
        **{**fleet.__getstate__(), "failure_rate": 0.0, "crawl_delay": 0.0, "hosts": ()}
    )
    free = BudgetMultiplier(
        Task(plain, 1.5, budget_rule="average", arrivals="poisson"), whittle_index
    )
    # Retries cost as much as first attempts: what is left buys less, so that it is scarcer.
    assert free(plain).item() != level
    blind = relaxation(fleet, 1.5).multiplier
    assert 0.5 * blind < level < 2 * blind
