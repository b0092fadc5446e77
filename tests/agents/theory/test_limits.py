"""The smallest decay per step, which is the Age of Information, and other units."""

import numpy as np
import pytest

from agents import index_at_age, optimal_reward, relaxation, task_bound, whittle_index
from agents.evaluation.rollout import evaluate
from agents.theory.arm import arm_of
from crawl_env import Sources, Task

SLOW = [1e-9, 1e-160, 1e-300]
RATE, COST = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 1.0])


@pytest.mark.parametrize("m", SLOW)
def test_the_index_tends_to_that_of_an_unreliable_channel(m):
    """q·u·m·k(k + 2/q − 1)/2 at age k, and what it becomes with a delay of d steps after failures:
    the smallest multiplier at which trying at k and at k + 1 earn the same."""
    k = np.array([1.0, 2, 7, 300])[:, None]
    for p in (0.0, 0.3):
        fleet = Sources(RATE, 1.0, m, COST, failure_rate=p)
        q = 1 - p
        expected = q * RATE * m / COST * k * (k + 2 / q - 1) / 2
        np.testing.assert_allclose(index_at_age(k, fleet), expected, rtol=1e-14 + 400 * m)
    delayed = Sources(RATE, 1.0, m, COST, failure_rate=0.3, crawl_delay=2.0)
    j = np.arange(200.0)
    odds, length = 0.7 * 0.3**j, k[..., None] + 2 * j
    lost = [(odds * (length + n) ** 2).sum(-1) / 2 for n in (0, 1)]  # of Λξ̄·(mean length)·m
    mean = (odds * length).sum(-1)
    expected = 0.7 * RATE * m / COST * (mean * (lost[1] - lost[0]) - lost[0])
    np.testing.assert_allclose(index_at_age(k, delayed), expected, rtol=1e-12 + 400 * m)


@pytest.mark.parametrize("m", SLOW)
def test_bounds_end_and_keep_their_digits(m):
    """The best intervals lose Λξ̄·(1 + m(k−1)/2…): the bound is all that comes but for that; λ* is
    an index of the limit."""
    fleet = Sources(RATE, min(1.0, m * 1e30), m, COST)
    found = relaxation(fleet, 1.2)
    total = RATE.sum() * fleet.mean_utility[0]
    assert found.bound == pytest.approx(total, rel=20 * m + 1e-14)
    if m * fleet.mean_utility[0] > 1e-300:  # λ* is a number
        assert found.multiplier == pytest.approx(9 * m * fleet.mean_utility[0], rel=1e-6)
    for observed in (True, [True, False, True], False):
        bound = task_bound(
            Task(fleet, 1.2, budget_rule="average", arrivals="poisson", observed=observed)
        ).bound
        assert bound == pytest.approx(total, rel=20 * m + 1e-14)
    with pytest.raises(ValueError, match="joint states"):
        optimal_reward(fleet, 1.2)


@pytest.mark.parametrize("m", [1e-7, 1e-12])
def test_observed_arms_of_the_slowest_sources(m):
    """Shorter steps change nothing in units of u*; small contents rank as by Theorem 1."""
    slow = Sources(1.0, 1e-3, m)
    arm = arm_of(Task(slow, 1, arrivals="poisson"))
    x = np.array([[1e-9], [0.1], [0.5], [0.9], [1.5]]) * slow.ceiling
    got, closed = arm.index(x), whittle_index(x, slow)
    np.testing.assert_allclose(got[1:], closed[1:], atol=0.1 * slow.ceiling[0])
    ratio = arm.index(2 * x[:1]) / arm.index(x[:1])
    np.testing.assert_allclose(ratio, whittle_index(2 * x[:1], slow) / closed[:1], rtol=1e-6)
    assert (arm.net_reward(np.zeros(1)) <= slow.inflow).all()


@pytest.mark.parametrize("scale", [1e-9, 2.0**30])
def test_units_of_time_and_utility_do_not_matter(scale):
    columns = {
        "cost": [1.0, 2.0, 1.0],
        "failure_rate": [0.0, 0.2, 0.1],
        "capacity": [4, np.inf, 9],
        "hosts": ["a", "a", ""],
    }
    one = Sources(RATE, 1.0, [0.3, 0.1, 0.7], crawl_delay=[0, 0, 2.0], **columns)
    other = Sources(
        RATE / scale,
        scale,
        np.array([0.3, 0.1, 0.7]) / scale,
        period=scale,
        crawl_delay=np.array([0, 0, 2.0]) * scale,
        **columns,
    )
    x = np.linspace(0.1, 1.2, 9)[:, None] * one.ceiling
    np.testing.assert_allclose(
        whittle_index(scale * x, other), scale * whittle_index(x, one), rtol=1e-11
    )
    for budget in (0.3, 1.1):
        found, again = relaxation(one, budget), relaxation(other, budget)
        np.testing.assert_allclose(again, np.array(found) * scale, rtol=1e-9)
    plain, other = (
        Sources(f.arrival_rate, f.mean_utility, f.decay_rate, period=f.period) for f in (one, other)
    )
    tasks = [Task(f, 1.1, budget_rule="average", arrivals="poisson") for f in (plain, other)]
    bounds = [task_bound(task) for task in tasks]
    assert bounds[1].bound == pytest.approx(bounds[0].bound * scale, rel=1e-9)
    exact = [arm_of(task).index(x * s) for task, s in zip(tasks, (1.0, scale), strict=True)]
    np.testing.assert_allclose(exact[1], exact[0] * scale, rtol=1e-9)
    best = [optimal_reward(f, 2, 1e-7) for f in (plain, other)]
    assert best[1] == pytest.approx(best[0] * scale, rel=1e-6)


def test_the_preset_of_the_age_of_information_has_the_index_of_unreliable_channels():
    weight, reliability = np.array([1, 0.75, 0.5, 0.25]), np.array([0.25, 0.5, 0.75, 1])
    h = np.arange(1.0, 30.0)[:, None]
    found = index_at_age(h, Sources.preset("age-of-information-4"))
    expected = weight * reliability * h * (h + 2 / reliability - 1) / 2  # Kadota et al. 2018
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_the_policy_of_slow_decay_has_the_least_age_of_information():
    """Against the least mean of Σ w·h over all policies by value iteration over ages, which knows
    nothing of utilities, and against its Whittle policy, w·h(h + 1)/2, simulated plainly."""
    weight, m, cap = np.array([5.0, 1.0, 2.5]), 1e-6, 12
    fleet = Sources(weight / m, 1.0, m)
    reward = evaluate("whittle", {"sources": fleet, "budget": 1}, steps=2520, seeds=1).reward[0]
    found = fleet.inflow.sum() - reward  # Σ w·h, h from 0
    age, total = np.ones(3), 0.0
    for step in range(2720):
        chosen = np.argmax(weight * age * (age + 1) / 2)
        age[chosen] = 0.0
        total += weight @ age * (step >= 200)
        age += 1
    assert found == pytest.approx(total / 2520, rel=1e-4)

    h = np.indices((cap,) * 3)  # ages from 0 at the end of a step
    value = np.zeros((cap,) * 3)
    for _ in range(2000):
        best = np.full(value.shape, np.inf)
        for i in range(3):
            after = np.minimum(h + 1, cap - 1)
            after[i] = 0
            best = np.minimum(best, np.tensordot(weight, after, 1) + value[tuple(after)])
        change = 0.5 * (best - value)
        value += change
        value -= value[0, 0, 0]
    assert np.ptp(change) < 1e-9
    assert found == pytest.approx(2 * change.mean(), rel=1e-2)
    assert found > 2 * change.mean() * (1 - 1e-3)
