"""The bound of the steps of one episode, against all schedules and against its limits."""

import itertools

import numpy as np
import pytest

from agents import relaxed_bound
from agents.theory.episode import discounted_bound, episode_relaxation, told_rates_bound
from crawl_env import Sources

STEPS = 6


def brings(schedule, inflow, content, fleet, counted):
    """Return the utility that crawls bring, (N,), where `schedule` says which, (T, N)."""
    content, sum_ = content.copy(), np.zeros(len(fleet))
    for t, crawled in enumerate(schedule):
        sum_ += counted[t] * content * crawled
        content = fleet.retention * np.where(crawled, 0.0, content) + inflow[:, t]
    return sum_ + counted[-1] * content


def drawn(seed, n):
    rng = np.random.default_rng(seed)
    fleet = Sources(rng.uniform(0.5, 2, n), 1.0, rng.uniform(0.1, 1, n), rng.uniform(0.5, 2, n))
    inflow = fleet.inflow[:, None] * rng.lognormal(0, 1, (n, STEPS))
    content, counted = rng.uniform(0, 3, n), 0.8 ** np.arange(STEPS + 1.0)
    counted[-1] *= rng.random()
    return fleet, inflow, content, counted


@pytest.mark.parametrize("seed", range(6))
def test_alone_a_source_brings_what_a_mixture_of_all_its_schedules_can(seed):
    fleet, inflow, content, counted = drawn(seed, 1)
    budget = 0.2 + 0.1 * seed
    points = []
    for schedule in itertools.product((False, True), repeat=STEPS):
        spent = fleet.cost[0] * counted[:-1] @ schedule
        brought = brings(np.array(schedule)[:, None], inflow, content, fleet, counted)[0]
        points.append((spent, brought))
    whole = budget * counted[:-1].sum()
    most = max(y for x, y in points if x <= whole)
    for (x, y), (z, v) in itertools.permutations(points, 2):  # the concave envelope
        if x <= whole < z:
            most = max(most, y + (v - y) * (whole - x) / (z - x))
    found = episode_relaxation(fleet, inflow, content, budget, counted).bound
    assert found == pytest.approx(most, rel=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_no_schedule_of_a_fleet_brings_more_even_if_all_rates_are_told(seed):
    fleet, inflow, content, counted = drawn(seed, 3)
    fleet = fleet.replaced(cost=1.0)
    bound = episode_relaxation(fleet, inflow, content, 1.0, counted).bound
    single = np.eye(3, dtype=bool)
    best = max(
        brings(single[list(order)], inflow, content, fleet, counted).sum()
        for order in itertools.product(range(3), repeat=STEPS)
    )
    assert 0.9 * bound < best <= bound * (1 + 1e-12)
    everything = brings(np.ones((STEPS, 3), bool), inflow, content, fleet, counted).sum()
    free = episode_relaxation(fleet, inflow, content, 3.0, counted).bound
    assert free == pytest.approx(everything, rel=1e-12)


def test_constant_rates_have_the_bound_of_the_long_run_and_failures_cost_more():
    fleet = Sources.random(20, seed=0).replaced(failure_rate=0.2)
    rates = np.tile(fleet.arrival_rate, (2000, 1))
    bound = relaxed_bound(fleet.replaced(failure_rate=0.0, cost=fleet.cost / 0.8), 3)
    assert bound <= told_rates_bound(fleet, rates, 3).bound <= 1.003 * bound
    silent = Sources([0.0, 1.0], 1.0, 0.5)
    assert told_rates_bound(silent, np.zeros((5, 2)), 1).bound == 0.0
    discounted = discounted_bound(fleet, np.zeros(20), 3, 2000, 0.999).bound
    assert discounted == pytest.approx(bound * (0.999 ** np.arange(2000)).sum(), rel=0.01)


def test_what_is_told_has_one_rate_for_each_step_and_source():
    fleet = Sources.preset("table1")
    with pytest.raises(ValueError, match="rates has shape"):
        told_rates_bound(fleet, np.ones((5, 3)), 2)
    with pytest.raises(ValueError, match="discount"):
        discounted_bound(fleet, np.zeros(4), 2, 5, 1.5)
    with pytest.raises(ValueError, match="content"):
        discounted_bound(fleet, -np.ones(4), 2, 5, 0.9)
