"""Daily cycles of known phases: best cycles, bound, and policies, against dynamic programmes."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agents
from agents import compare, relaxed_bound, task_bound
from agents.policies.lagrangian import best_rate, gains, table_of
from agents.theory.periodic import (
    PeriodicRelaxation,
    _each_best_cycle,
    daily_inflow,
    periodic_bound,
    periodic_gains,
    periodic_relaxation,
)
from crawl_env import Arrivals, ItemLog, Sources, Task, Trace
from crawl_env.content.rates import DailyCycle


def posed(n, phases, day=6, budget=1, **more):
    cycle = DailyCycle(amplitude=0.9, day=day, phase=list(phases))
    fleet = Sources.random(n, seed=4)
    hidden = {"arrivals": Arrivals(rate=cycle), "observed": False, "features": ("value", "age")}
    return {"sources": fleet, "budget": budget, **hidden, **more}


def value_iteration(contents, inflow, ages, sets):
    """Return the largest reward per step over joint ages and times of day, by value iteration."""
    n, days = inflow.shape
    value = np.zeros((days, *(ages,) * n))
    for _ in range(3000):
        new = np.empty_like(value)
        for d in range(days):
            after, best = value[(d + 1) % days], np.full(value.shape[1:], -np.inf)
            for chosen in sets:
                reward, rest = np.zeros(value.shape[1:]), after
                for i in range(n):
                    k = np.arange(ages)
                    shape = [-1 if j == i else 1 for j in range(n)]
                    if i in chosen:
                        reward = reward + contents[i, d][k].reshape(shape)
                    to = np.zeros_like(k) if i in chosen else np.minimum(k + 1, ages - 1)
                    rest = rest.take(to, axis=i)
                best = np.maximum(best, reward + rest)
            new[d] = best
        change = 0.5 * (new - value)
        value = value + change
        if np.ptp(change) < 1e-7 * np.abs(change).max():
            break
        value -= value.flat[0]
    return float(2 * change.mean())


def contents_of(fleet, inflow, ages):
    """Return the content at each time of day and age from 1, (N, D, ages)."""
    n, days = inflow.shape
    found = np.zeros((n, days, ages))
    for i, d, k in itertools.product(range(n), range(days), range(ages)):
        steps = np.arange(1, k + 2)
        found[i, d, k] = (fleet.retention[i] ** (steps - 1) * inflow[i, (d - steps) % days]).sum()
    return found


def test_the_bound_and_the_policies_at_the_exact_optimum():
    task = posed(2, [0.0, 2.5])
    fleet, inflow = task["sources"], daily_inflow(Task(**task), task["sources"])
    best = value_iteration(contents_of(fleet, inflow, 16), inflow, 16, [(0,), (1,)])
    bound = periodic_bound(Task(**task))
    assert best <= bound * (1 + 1e-6)
    assert bound < 1.03 * best
    assert task_bound(Task(**task))[::2] == (bound, "cycle known")
    assert np.isnan(task_bound(Task(**{**task, "budget_rule": "average"})).bound)
    assert np.isnan(task_bound(Task(**{**task, "observed": True})).bound)
    both = task_bound(Task(**task), Sources.stack([fleet, fleet]))
    assert both.bound == pytest.approx([bound, bound])
    # Items are many, so that 12 runs of 600 steps have little noise.
    names = ["whittle", "whittle-periodic", "lagrangian-periodic"]
    runs = compare(names, task, steps=600, warmup=60, seeds=12, seed=1)
    plain, index, gain = (run.reward.mean() / best for run in runs.values())
    assert 0.98 < gain < 1.005
    assert plain + 0.01 < index < 1.005


@settings(max_examples=6, derandomize=True, deadline=None, database=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_the_best_cycle_is_that_of_value_iteration(seed, days):
    rng = np.random.default_rng(seed)
    inflow = rng.exponential(1.0, (1, days)) * (rng.random((1, days)) < 0.8)
    fleet = Sources(1.0, 1.0, rng.uniform(0.4, 1.5))
    price, ages = rng.uniform(0, 2, days), 120
    rate, crawls, potential = np.empty(1), np.empty((1, days)), np.empty((1, days))
    columns = fleet.retention, fleet.decay_per_step, price, fleet.cost
    _each_best_cycle(inflow, *columns, rate, crawls, potential)
    contents = contents_of(fleet, inflow, ages) - price[None, :, None]
    expected = value_iteration(contents, inflow, ages, [(), (0,)])
    assert rate[0] == pytest.approx(max(expected, 0.0), rel=1e-5, abs=1e-7)
    if rate[0] > 0:  # V satisfies the equation of optimality
        reward = contents[0][
            (np.arange(1, ages) + np.arange(days)[:, None]) % days, np.arange(ages - 1)
        ]
        after = potential[0][(np.arange(1, ages) + np.arange(days)[:, None]) % days]
        best = (reward - np.arange(1, ages) * rate[0] + after).max(axis=-1)
        np.testing.assert_allclose(potential[0], best, atol=1e-9)


def test_what_stays_at_a_source_is_no_more_than_without_a_capacity():
    cycle = DailyCycle(amplitude=0.9, day=6, phase=[0.0, 2.5])
    plain = posed(2, [], arrivals=Arrivals(rate=cycle, sampler="items"))
    capped = {**plain, "sources": plain["sources"].replaced(capacity=20)}
    assert periodic_bound(Task(**capped)) == periodic_bound(Task(**plain))
    assert task_bound(Task(**capped)) == task_bound(Task(**plain))


def test_a_day_of_one_step_is_the_stationary_problem():
    fleet = Sources.random(30, seed=0)
    fleet = fleet.replaced(cost=np.tile([1.0, 2.0, 0.5], 10))
    found = periodic_relaxation(fleet, fleet.inflow[:, None], 4.0)
    assert found.bound == pytest.approx(relaxed_bound(fleet, 4.0), rel=1e-9)
    price = found.multiplier
    np.testing.assert_allclose(found.rate, best_rate(fleet, price), rtol=1e-9, atol=1e-12)
    value = np.random.default_rng(1).uniform(0, 1.2, (5, 30)) * fleet.ceiling
    out = np.empty(value.shape)
    rates = fleet.inflow[:, None], fleet.retention, fleet.decay_per_step
    columns = price, fleet.cost, found.rate, found.potential
    periodic_gains(value, np.arange(5), *rates, *columns, out)
    expected = gains(value, table_of(fleet), price, found.rate)
    pays = found.rate > 0
    np.testing.assert_allclose(out[:, pays], expected[:, pays], atol=1e-9 * fleet.ceiling.max())


@pytest.mark.parametrize("decay", [1e-6, 1e-8, 1e-30])
def test_sources_that_hardly_decay(decay):
    fleet = Sources.random(8, seed=0).replaced(decay_rate=np.full(8, decay))
    bound = relaxed_bound(fleet, 2.0)
    assert bound == pytest.approx(fleet.inflow.sum(), rel=10 * decay + 1e-12)
    constant = fleet.inflow[:, None]
    assert periodic_relaxation(fleet, constant, 2.0).bound == pytest.approx(bound, rel=1e-9)
    alike = periodic_relaxation(fleet, np.tile(constant, 3), 2.0)
    assert alike.bound == pytest.approx(bound, rel=1e-9)
    task = Task(**{**posed(8, range(8)), "sources": fleet})
    assert periodic_bound(task) == pytest.approx(fleet.inflow.sum(), rel=30 * decay + 1e-12)


def test_gains_and_cycles_of_many_steps_are_those_of_the_closed_form():
    fleet = Sources.random(8, seed=0).replaced(decay_rate=np.full(8, 1e-6))
    price = np.array([0.1 * fleet.ceiling.min()])
    rate, crawls, potential = np.empty(8), np.empty((8, 1)), np.empty((8, 1))
    rates = fleet.inflow[:, None], fleet.retention, fleet.decay_per_step
    _each_best_cycle(*rates, price, fleet.cost, rate, crawls, potential)
    assert crawls.max() < 1e-3
    np.testing.assert_allclose(rate, best_rate(fleet, price), rtol=1e-9)
    value = np.linspace(0, 0.5, 5)[:, None] * fleet.ceiling
    out = np.empty(value.shape)
    periodic_gains(value, np.arange(5), *rates, price, fleet.cost, rate, potential, out)
    expected = gains(value, table_of(fleet), price, rate)
    np.testing.assert_allclose(out, expected, atol=1e-9 * fleet.ceiling.max())


def test_a_cycle_of_no_amplitude_is_whittle():
    rate = DailyCycle(amplitude=0.0, day=6)
    task = {"sources": "table1", "budget": 2, "arrivals": Arrivals(rate=rate), "observed": False}
    runs = compare(["whittle", "whittle-periodic"], task, steps=60, warmup=0, seeds=2)
    np.testing.assert_allclose(*(run.reward for run in runs.values()), rtol=1e-12)


def test_episodes_of_one_batch_may_be_at_different_times():
    """An observation alone, with its own state, gets the action of the batch."""
    from crawl_env import CrawlVectorEnv

    for name in ("whittle-periodic", "lagrangian-periodic"):
        env = CrawlVectorEnv(3, **posed(5, range(5)), horizon=7)
        agent = agents.make(name, env)
        seen, _ = env.reset(seed=0)
        state, start = None, np.ones(3, dtype=bool)
        for step in range(12):
            action, state = agent.predict(seen, state, start)
            seen, *_ = env.step(action)
            start = np.array([step == 3, False, step == 6])
        assert state[0].tolist() == [7, 11, 4]
        alone, _ = agent.predict(seen[2], tuple(part[2:] for part in state))
        np.testing.assert_array_equal(agent.predict(seen, state)[0][2], alone)


def test_what_is_not_known_is_refused():
    with pytest.raises(ValueError, match="no whole number of periods"):
        agents.make("lagrangian-periodic", Task(**posed(2, [0, 1], day=6.5)))
    log = ItemLog(["1", "2"], [0, 1], [0.5, 1.5], [3, 4], 0, 3)
    changes = [{"arrivals": arrivals} for arrivals in ("poisson-drift", Trace(log))]
    for change in (*changes, {"observed": True}, {"budget_rule": "average"}):
        with pytest.raises(ValueError, match="bound of a daily cycle"):
            periodic_bound(Task(**posed(2, [0, 1], **change)))
    assert isinstance(
        periodic_relaxation(Sources.preset("table1"), np.ones((4, 1)), 1), PeriodicRelaxation
    )
