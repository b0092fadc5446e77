"""Index and bound under any law of decay: the closed form, brute force, a dynamic programme."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from agents import relaxation
from agents.theory.renewal import renewal_arm
from crawl_env import Sources
from crawl_env.content.utility import ExponentialDecay, LomaxDecay, StretchedDecay

FLEET = Sources([3.0, 0.4, 20.0], [1.0, 2.0, 0.3], [0.3, 0.05, 1.2], cost=[1.0, 2.0, 0.7])
OTHERS = [StretchedDecay(0.4), StretchedDecay(0.8), LomaxDecay(1.5), LomaxDecay(4.0)]


class Plain:
    """The exponential by another name, so that no closed form is recognised."""

    end = 45.0

    def survival(self, z):
        return np.exp(-z)

    def integrated_survival(self, z):
        return -np.expm1(-np.asarray(z))


def brute_force_charge(content, cost, age):
    """The charge λ at which waiting and crawling are equally good at `age`, by bisection on the
    arm's average-reward equation V_k + β = max(x_k − λC, V_{k+1}), V after a crawl 0.

    `content` is x_1, x_2, … up to an age at which it no longer grows.
    """
    low, high = 0.0, content[-1] / cost
    k = np.arange(1, len(content) + 1)
    for _ in range(60):
        price = 0.5 * (low + high)
        gain = max(0.0, ((content - price * cost) / k).max())  # β of the best interval
        now = content[age - 1] - price * cost
        after = content[age:] - price * cost - gain * np.arange(1, len(content) - age + 1)
        waits = max(after.max(), 0.0 if gain == 0 else -np.inf)
        low, high = (price, high) if now >= waits else (low, price)
    return low


@pytest.mark.parametrize("decay", OTHERS[::2], ids=repr)
def test_the_charge_leaves_crawling_and_waiting_equally_good(decay):
    cycle = renewal_arm(FLEET, decay)
    ages = np.arange(1.0, 3000.0)[:, None]
    content, charge = cycle.mean_content(ages), cycle.index_at_age(ages)
    assert np.all(np.diff(charge, axis=0) >= -1e-9 * FLEET.ceiling)
    for i in range(len(FLEET)):
        for age in (1, 2, 5, 20):
            expected = brute_force_charge(content[:, i], FLEET.cost[i], age)
            assert charge[age - 1, i] == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("price", [0.3, 2.0])
def test_value_iteration_crawls_where_the_charge_exceeds_the_price(price):
    """Discounted so weakly that the average-reward policy is the best; no index in it."""
    for decay in (StretchedDecay(0.5), LomaxDecay(2.0)):
        cycle = renewal_arm(FLEET, decay)
        ages = np.arange(1.0, 600.0)[:, None]
        net, charge = cycle.mean_content(ages) - price * FLEET.cost, cycle.index_at_age(ages)
        older = np.minimum(np.arange(1, len(net) + 1), len(net) - 1)
        value = np.zeros_like(net)
        for _ in range(6000):
            value = 0.999 * np.maximum(net + value[0], value[older])
        crawls = net + value[0] >= value[older]
        clear = np.abs(charge / price - 1) > 0.02
        assert clear.mean() > 0.9
        assert np.array_equal((charge >= price)[clear], crawls[clear])
        assert 0 < crawls[:300].mean() < 1


def test_the_exponential_has_its_closed_form():
    ages = np.array([1.0, 2.0, 7.0, 100.0])[:, None]
    failing = FLEET.replaced(failure_rate=[0.2, 0.0, 0.5])
    for fleet in (FLEET, failing):
        closed, summed = renewal_arm(fleet), renewal_arm(fleet, Plain())
        np.testing.assert_allclose(summed.cycle_reward(ages), closed.cycle_reward(ages), rtol=1e-12)
        np.testing.assert_allclose(summed.index_at_age(ages), closed.index_at_age(ages), rtol=1e-9)
        assert relaxation(fleet, 1.1, decay=Plain()) == pytest.approx(relaxation(fleet, 1.1))


@pytest.mark.parametrize(("decay", "budget"), list(zip(OTHERS, [0.2, 1.5, 1.5, 0.2], strict=True)))
def test_the_relaxed_bound_tries_every_interval(decay, budget):
    k = np.arange(1.0, 20_000.0)[:, None]
    content = renewal_arm(FLEET, decay).mean_content(k)

    def dual(price):
        net = ((content - price * FLEET.cost) / k).max(axis=0)
        return float(price * budget + np.maximum(net, 0.0).sum())

    top = float((FLEET.ceiling / FLEET.cost).max())
    least = minimize_scalar(dual, bounds=(0, top), method="bounded", options={"xatol": 1e-10})
    bound, price = relaxation(FLEET, budget, decay=decay)
    assert bound == pytest.approx(least.fun, rel=1e-6)
    assert dual(float(price)) == pytest.approx(bound, rel=1e-9)
    batch = relaxation(Sources.stack([FLEET, FLEET]), budget, decay=decay)
    np.testing.assert_allclose(batch.bound, bound)


def test_capacities_are_refused_where_decay_is_not_exponential():
    capped = Sources(1.0, 1.0, 0.2, capacity=3)
    renewal_arm(capped, ExponentialDecay())
    with pytest.raises(ValueError, match="has capacities and its interest decays as Lomax"):
        relaxation(capped, 1, decay=LomaxDecay(2.0))
