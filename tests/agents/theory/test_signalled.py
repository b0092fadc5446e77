"""The arm of a source that sends signals: its ends, its order, value iteration and simulation."""

from functools import cache

import numpy as np
import pytest

from agents.theory import observed as arms
from agents.theory.arm import arm_of
from agents.theory.observed import ObservedArm, solve_arm
from agents.theory.relaxation import net_reward
from agents.theory.shot_noise import Content, one_item
from agents.theory.task_bound import task_bound
from crawl_env import Arrivals, DailyCycle, Signals, Sources, Task
from crawl_env.content.utility import EqualUtilities, Exponential, LomaxDecay
from ephemeral_crawl.core.evaluation import HOLDS_FOR
from tests.references import gain_between

# A right program fails one simulated comparison in 16,000 (two-sided, 4 standard errors).
Z_LIMIT = 4.0
ONE = EqualUtilities()
ROUNDING = 1e-11  # of u: what sums of 400 states and 10⁵ lattice points may lose

# Sparse and dense, slow and fast decay: ΛT and μT.
SOURCES = [(0.003, 2.0), (0.05, 0.2), (1.0, 0.2), (1.0, 0.02), (20.0, 0.5), (300.0, 0.05)]
each_source = pytest.mark.parametrize(("items", "decay"), SOURCES)


def inflow(items, decay):
    return items * -float(np.expm1(-decay)) / decay


def net(arm, charges):
    return np.maximum(((arm.reward - charges[:, None]) / arm.steps).max(axis=1), 0.0)


def charges_of(items, decay):
    return np.linspace(0.0, 1.2, 40) * items / decay


def unobserved(items, decay, charges):
    one = Sources(items, 1.0, decay)
    return np.array([net_reward(one, np.array([charge]))[0] for charge in charges])


# ----------------------------------------------------------------------------- order in r and p


@each_source
def test_net_reward_increases_with_recall(items, decay):
    charges = charges_of(items, decay)
    recalls = [1e-9, 0.01, 0.2, 0.21, 0.8, 0.99, 1 - 1e-9]
    for precision in (0.1, 1 - 1e-9):
        found = [net(solve_arm(items, decay, ONE, r, precision), charges) for r in recalls]
        found = [unobserved(items, decay, charges), *found]
        assert np.diff(found, axis=0).min() >= -ROUNDING * inflow(items, decay)


@each_source
def test_net_reward_increases_with_precision(items, decay):
    charges = charges_of(items, decay)
    precisions = [1e-6, 1e-3, 0.005, 0.02, 0.2, 0.21, 0.4, 0.5, 0.51, 0.9, 0.99, 1.0]
    found = [net(solve_arm(items, decay, ONE, 0.6, p), charges) for p in precisions]
    observed = net(solve_arm(items, decay, ONE), charges)
    found = [unobserved(items, decay, charges), *found, observed]
    assert np.diff(found, axis=0).min() >= -ROUNDING * inflow(items, decay)
    known = net(solve_arm(items, decay, Exponential()), charges)
    assert (known - observed).min() > -7e-4 * inflow(items, decay), "utilities known as well"


def test_perfect_signals_are_the_observed_source():
    for one, other in zip(
        solve_arm(0.4, 0.3, ONE, recall=1.0, precision=1.0), solve_arm(0.4, 0.3, ONE), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@each_source
def test_signals_that_say_little_leave_the_closed_form(items, decay):
    """However many pings: the states contain the mean path, so that the grid adds no noise."""
    charges = charges_of(items, decay)
    blind, unit = unobserved(items, decay, charges), inflow(items, decay)
    most = 1e-7 if decay > 0.04 else 7e-4  # 128 steps do not reach the ceiling of slow sources
    assert np.abs(net(solve_arm(items, decay, ONE, 1e-8, 0.9), charges) - blind).max() < most * unit
    assert (
        np.abs(net(solve_arm(items, decay, ONE, 0.5, 1e-9), charges) - blind).max() < 1.2e-3 * unit
    )


def test_the_lattice_of_pings_keeps_mean_and_variance():
    item = one_item(ONE)
    for items, decay, r, p in ((0.01, 0.2, 0.5, 0.8), (1.0, 2.0, 0.9, 0.02), (300, 0.1, 0.5, 0.3)):
        pings = Content.of_pings(items, decay, item, r, p)
        value = np.arange(pings.mass.size) * pings.step
        mean = pings.mass @ value
        assert pings.mass.sum() == pytest.approx(1, abs=1e-12)
        assert mean == pytest.approx(r * inflow(items, decay), rel=1e-10)
        exact = r * items * p * -np.expm1(-2 * decay) / (2 * decay)
        assert pings.mass @ (value - mean) ** 2 == pytest.approx(exact, rel=2e-3)


# ---------------------------------------------------------------------------------- the numbers


@pytest.mark.parametrize(
    ("items", "decay", "r", "p"),
    [
        (0.01, 0.2, 0.5, 0.02), (0.2, 1.5, 0.5, 0.8), (2.0, 0.05, 0.9, 0.95),
        (2.0, 0.05, 0.5, 0.02), (40.0, 0.3, 0.5, 0.8), (0.2, 1.5, 0.9, 0.95),
    ],
)  # fmt: skip
def test_stated_error(items, decay, r, p):
    arm = solve_arm(items, decay, ONE, r, p)
    fine = arms._solve(items, decay, ONE, r, p, states=1024)
    unit, charges = inflow(items, decay), charges_of(items, decay)
    excess = net(arm, charges) - net(fine, charges)
    assert -ROUNDING * unit < excess.min()
    assert excess.max() < 1e-3 * unit
    reached = fine.steps < 1e5
    found = np.interp(fine.state[reached], arm.state, arm.break_even)
    assert np.abs(found - fine.break_even[reached]).max() < 0.0125 * items / decay


@cache
def draws(items, decay, r, p):
    """Return increments of the belief in a step, drawn ping by ping."""
    rng, n = np.random.default_rng(1), 300_000
    counts = rng.poisson(r * items / p, n)
    owner = np.repeat(np.arange(n), counts)
    told = np.bincount(owner, p * np.exp(-decay * rng.random(owner.size)), n)
    told *= r * inflow(items, decay) / told.mean()
    return np.asarray(told + (1 - r) * inflow(items, decay))


def value_iteration(items, decay, r, p, charge, step, size):
    """Return numbers between which g lies: an even grid, and increments drawn ping by ping."""
    place = np.minimum(draws(items, decay, r, p) / step, size - 2)
    left = place.astype(int)
    mass = np.bincount(left, 1 - place + left, size) + np.bincount(left + 1, place - left, size)
    mass /= place.size
    return gain_between(mass, decay, charge, step)


@pytest.mark.parametrize(
    ("items", "decay", "r", "p", "charge", "step"),
    [(0.5, 0.35, 0.5, 0.8, 0.9, 2e-3), (0.5, 0.35, 0.5, 0.02, 0.9, 1e-3)],
)
def test_net_reward_as_in_value_iteration(items, decay, r, p, charge, step):
    low, high = value_iteration(items, decay, r, p, charge, step, int(3.0 / step))
    got = net(solve_arm(items, decay, ONE, r, p), np.array([charge]))[0]
    assert high - low < 1e-4
    assert got == pytest.approx(0.5 * (low + high), abs=1.5e-3 * inflow(items, decay))


@pytest.mark.parametrize(("r", "p"), [(0.5, 0.8), (0.6, 0.1)])
def test_the_best_simulated_threshold_earns_the_net_reward(r, p):
    """Single items and pings, of which the policy knows the pings; utilities are exponential."""
    items, decay, charge, rows, steps = 0.4, 0.3, 0.8, 3000, 250
    arm = solve_arm(items, decay, ONE, r, p)
    levels = np.interp(charge, arm.break_even, arm.state) * np.array([0.85, 1.0, 1.15])
    rng, unit = np.random.default_rng(3), inflow(items, decay)
    value = belief = np.zeros((3, rows))
    earned = np.zeros((3, rows))

    def fresh(rate, worth):
        owner = np.repeat(np.arange(rows), rng.poisson(rate, rows))
        left = np.exp(-decay * rng.random(owner.size))
        if worth == "pings":
            return np.array([np.bincount(owner, left, rows)] * 2)
        utility = rng.standard_exponential(owner.size) * left
        return np.array([np.bincount(owner, utility, rows), np.bincount(owner, left, rows)])

    for step in range(steps):
        crawled = belief >= levels[:, None]
        if step >= 50:
            earned += np.where(crawled, value - charge, 0.0) / (steps - 50)
        told, told_of = fresh(r * items, "items")  # announced items, and their pings
        silent = fresh((1 - r) * items, "items")[0]
        false = fresh(r * items * (1 - p) / p, "pings")[0]
        value = np.where(crawled, 0.0, value) * np.exp(-decay) + told + silent
        belief = np.where(crawled, 0.0, belief) * np.exp(-decay)
        belief = belief + (1 - r) * unit + p * (told_of + false)
    mean, error = earned.mean(axis=1), earned.std(axis=1, ddof=1) / np.sqrt(rows)
    best = net(arm, np.array([charge]))[0]
    assert (mean < best + Z_LIMIT * error).all(), "no threshold earns more"
    assert abs(mean[1] - best) < Z_LIMIT * error[1] + 1e-3 * unit


# --------------------------------------------------------------------------------------- fleets

SEEN = np.array([True, False, False, False, True, False])


def fleet(recall=0.5, precision=0.8, **limits):
    columns = [0.5, 3.0, 0.0, 2.0, 0.4, 0.05], [1.0, 0.4, 1.0, 0.0, 2.0, 6.0], 0.3
    given = {"cost": [1.0, 1.5, 1, 1, 0.5, 1.2], **limits}
    return Sources(*columns, recall=recall, precision=precision, **given)


def bound(**arguments):
    given = {"sources": fleet(), "budget": 1.5, **arguments}
    return task_bound(Task(**given))


def test_bounds_lie_in_the_order_of_what_is_known():
    def at(r, p):
        return float(bound(sources=fleet(r, p), observed=False).bound)

    blind = task_bound(Task(fleet(0.0), budget=1.5, arrivals="poisson", observed=False))
    ends = bound(arrivals="poisson-items", observed=True)
    assert (blind.name, ends.name) == ("not observed", "observed")
    exact = [float(blind.bound)]
    for grid in (
        [at(r, 0.7) for r in (1e-9, 0.1, 0.3, 0.999)],
        [at(0.6, p) for p in (1e-3, 0.2, 0.5, 0.999)],
    ):
        rising = np.array([*exact, *grid, at(1.0, 1.0), float(ends.bound)])
        assert np.diff(rising).min() >= -1e-12
    assert at(1e-9, 0.7) == pytest.approx(exact[0], rel=1e-8)


def test_no_signals_have_a_larger_bound_than_perfect_ones():
    """Items that decay within a step: the lattice of pings is not that of observed content."""
    fleet = Sources([0.7, 3.0], [1.3, 1.0], [1.75, 0.5], cost=[0.5, 0.6], period=4.0)
    bounds = [
        task_bound(Task(fleet, 0.6, arrivals="poisson-items", signals=Signals(recall, precision)))
        for recall, precision in ((0.9, 0.9), (1.0, 0.99), (1.0, 0.999), (1.0, 1.0))
    ]
    found = [float(each.bound) for each in bounds]
    assert np.diff(found).min() >= -ROUNDING * float(fleet.inflow.sum())


def test_perfect_signals_have_the_bound_of_constant_utilities_observed():
    signalled = bound(sources=fleet(1.0, 1.0))
    observed = bound(sources=fleet(0.0), arrivals=Arrivals(utility="constant"), observed=True)
    assert signalled[:2] == observed[:2]
    assert (signalled.name, observed.name) == ("signals", "observed")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({}, "signals"),
        ({"observed": SEEN}, "partly observed, signals"),
        ({"sources": fleet([0, 0.5, 0, 0, 0, 0])}, "partly observed, signals"),
        ({"sources": fleet([0, 0.5, 0, 0, 0, 0]), "observed": False}, "signals"),
        ({"sources": fleet([0.5, 0, 0, 0, 0, 0]), "observed": SEEN}, "partly observed"),
        ({"observed": True}, "observed"),
        ({"arrivals": Arrivals(sampler="items", rate=DailyCycle())}, "unknown"),
        ({"arrivals": Arrivals(sampler="items", decay=LomaxDecay(2.0))}, "unknown"),
    ],
)
def test_names_of_information_sets(arguments, name):
    found = bound(**arguments)
    assert found.name == name
    assert np.isnan(found.bound) == (name == "unknown")
    assert found.name == "unknown" or found.name in HOLDS_FOR


def test_delays_change_the_index_but_not_the_bound():
    late = fleet(signal_delay=2.0)  # 1 + μd = 1.6
    assert bound(sources=late) == bound()
    x = np.random.default_rng(0).exponential(2.0, (3, 6))
    early = fleet(0.5 / 1.6, 0.8 / 1.6)
    one, other, ignored = (arm_of(Task(s, budget=1.5)).index(x) for s in (late, early, fleet()))
    np.testing.assert_allclose(one, other, rtol=1e-9)
    assert (one != ignored).any(axis=0).tolist() == [True, True, False, False, True, True]


def test_every_source_of_a_mixed_fleet_has_its_own_arm():
    recall = [0.7, 0.5, 0.5, 0.5, 0.9, 0.0]
    mixed = ObservedArm(fleet(recall), SEEN, Exponential())
    x = np.random.default_rng(0).exponential(2.0, (5, 6)) * [1, 1, 1, 1, 1, 0.2]
    price, index = np.array([0.4]), mixed.index(x)
    gain = mixed.net_reward(price)
    blind = ObservedArm(fleet(0.0), np.zeros(6, dtype=bool), Exponential())
    seen = ObservedArm(fleet(0.0), np.ones(6, dtype=bool), Exponential())
    told = ObservedArm(fleet(0.5), np.zeros(6, dtype=bool), Exponential())
    for some, other in (([2, 3, 5], blind), ([0, 4], seen), ([1], told)):
        np.testing.assert_array_equal(index[:, some], other.index(x)[:, some])
        np.testing.assert_array_equal(gain[some], other.net_reward(price)[some])
    assert (index[:, [0, 1, 4]] != blind.index(x)[:, [0, 1, 4]]).all()


def test_costs_failures_units_and_batches():
    x = np.random.default_rng(1).exponential(1.0, (4, 6))
    nothing, price = np.zeros(6, dtype=bool), np.array([0.3])
    one = ObservedArm(fleet(cost=1.0), nothing, Exponential())
    dear = ObservedArm(fleet(cost=3.0), nothing, Exponential())
    failing = ObservedArm(fleet(cost=1.5, failure_rate=0.5), nothing, Exponential())
    informed = np.array([0, 1, 4, 5])
    for other in (dear, failing):  # a crawl that fails half of the time costs twice as much
        np.testing.assert_allclose(other.index(x)[:, informed], one.index(x)[:, informed] / 3)
        found = other.net_reward(price / 3)[informed]
        np.testing.assert_allclose(found, one.net_reward(price)[informed])
    rows = [fleet(0.5), fleet(0.2, 0.3)]
    batch = ObservedArm(Sources.stack(rows), nothing, Exponential())
    for b, row in enumerate(rows):
        alone = ObservedArm(row, nothing, Exponential())
        np.testing.assert_array_equal(batch.index(x[:2])[b], alone.index(x[b]))
        np.testing.assert_array_equal(batch.net_reward(price)[b], alone.net_reward(price))


def test_between_two_states_the_index_is_linear_and_above_all_it_grows_as_the_belief():
    source, arm = (
        Sources(0.5, 1.0, 0.3, recall=0.5, precision=0.4),
        solve_arm(0.5, 0.3, ONE, 0.5, 0.4),
    )
    found = ObservedArm(source, np.array([False]), Exponential())
    x = np.append(np.linspace(0.0, arm.state[-1], 977), arm.state[-1] + np.array([1.0, 1e6]))
    expected = np.interp(x, arm.state, arm.break_even) + np.maximum(x - arm.state[-1], 0.0)
    np.testing.assert_allclose(found.index(x[:, None])[:, 0], np.minimum(expected, x), rtol=1e-12)
    assert found.max_multiplier() == pytest.approx(arm.break_even[-1])
