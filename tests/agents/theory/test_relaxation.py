"""Bounds against published figures, 60 digits, exhaustive search, and policies that try."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agents.theory.optimum import optimal_reward
from agents.theory.price import LevelBracket
from agents.theory.relaxation import Relaxation, relaxation, relaxed_bound
from crawl_env.fleet.sources import Sources
from tests.references import (
    Dual,
    affordable_subsets,
    best_cycle,
    best_of_two,
    exact_dual_minimum,
    periodic_average,
    plainly,
)

fewer = settings(plainly, max_examples=15)
COSTS = [0.25, 0.5, 1.0, 1.0, 1.5, 2.0, 3.3]


def fleet_with(ceiling, decay, cost=1.0, period=1.0, mean=0.8):
    """A fleet of given u*, m = μT and C."""
    decay_rate = np.asarray(decay, dtype=float) / period
    return Sources(np.asarray(ceiling) * decay_rate / mean, mean, decay_rate, cost, period)


@st.composite
def small_fleets(draw, most=4, slow=0.05, fast=4.0, costs=COSTS):
    """Ceilings, decays per epoch and costs of a few sources."""
    n = draw(st.integers(1, most))

    def column(values):
        return draw(st.lists(values, min_size=n, max_size=n))

    return (
        column(st.floats(0.1, 100)),
        column(st.floats(slow, fast)),
        column(st.sampled_from(costs)),
    )


budgets = st.one_of(st.sampled_from([0.5, 1.0, 2.0, 2.5]), st.floats(0.05, 8))


# ------------------------------------------------------------------------- published figures


@pytest.mark.parametrize(
    ("budget", "bound"),
    [(1, 260.389930), (2, 338.053940), (3, 372.410342)],
    ids=["M=1", "M=2", "M=3"],
)
def test_relaxed_bound_of_table_1(budget, bound):
    fleet = Sources.preset("table1")
    assert relaxed_bound(fleet, budget) == pytest.approx(bound, rel=2e-9)
    assert relaxation(fleet, budget).bound == relaxed_bound(fleet, budget)


@pytest.mark.parametrize(("budget", "price"), [(2, 43.6046), (3, 18.1019)], ids=["M=2", "M=3"])
def test_price_of_table_1(budget, price):
    assert relaxation(Sources.preset("table1"), budget).multiplier == pytest.approx(
        price, abs=5.1e-5
    )


def test_price_is_the_middle_of_an_interval_of_best_charges():
    """Table 1, M = 1: any λ from 95.238 (u*_4) to 105.060 (the index of source 2 at age 2)."""
    fleet = Sources.preset("table1")
    top = 500 * (1 - math.exp(-0.7) - 2 * (1 - math.exp(-0.35)) * math.exp(-0.7))
    assert top == pytest.approx(105.060, abs=5e-4)
    expected = (250 * 0.08 / 0.21 + top) / 2
    assert relaxation(fleet, 1).multiplier == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("budget", "optimum"),
    [(1, 260.389930), (2, 337.774550), (3, 372.410342)],
    ids=["M=1", "M=2", "M=3"],
)
def test_optimum_of_table_1(budget, optimum):
    found = optimal_reward(Sources.preset("table1"), budget)
    assert found == pytest.approx(optimum, rel=1.1e-8)
    assert isinstance(found, float)


# ------------------------------------------------------------------------- the relaxed bound


@plainly
@given(fleet=small_fleets(), budget=budgets, period=st.sampled_from([0.5, 1.0, 24.0]))
def test_relaxed_bound_is_the_least_of_the_dual(fleet, budget, period):
    """Every age is tried at every charge; and the price attains the bound."""
    dual = Dual(*fleet)
    found = relaxation(fleet_with(*fleet, period=period), budget)
    assert isinstance(found, Relaxation)
    assert isinstance(found.bound, float)
    assert isinstance(found.multiplier, float)
    assert found.bound == pytest.approx(dual.minimum(budget), rel=1e-9)
    assert found.multiplier >= 0
    assert dual(found.multiplier, budget) == pytest.approx(found.bound, rel=1e-9)


@pytest.mark.parametrize("decay", [1e-12, 1e-6])
def test_relaxed_bound_of_hardly_decaying_sources_keeps_all_its_digits(decay):
    """What is lost is of relative size μT; it must not be lost in rounding, too."""
    ceiling, cost = [1 / decay, 2 / decay, 0.5 / decay], [1.0, 1.0, 2.0]
    m = [decay, decay, 3 * decay]
    for budget in (0.5, 1.0, 2.0):
        exact = exact_dual_minimum(ceiling, m, cost, budget, 40)
        found = relaxed_bound(fleet_with(ceiling, m, cost), budget)
        assert found == pytest.approx(exact, rel=1e-14)
    with mpmath.workdps(60):  # nor can it fall below a policy: every source once in six epochs
        turns = [-u * mpmath.expm1(-6 * mpmath.mpf(d)) / 6 for u, d in zip(ceiling, m, strict=True)]
        floor = float(sum(turns))
    assert relaxed_bound(fleet_with(ceiling, m, cost), 4 / 6) >= floor * (1 - 1e-15)


@pytest.mark.parametrize("decay", [40.0, 1e3])
def test_relaxed_bound_of_sources_that_forget_at_once_is_a_knapsack(decay):
    """x_k = u* at every age, so an epoch's crawls are a fractional knapsack."""
    ceiling, cost = np.array([5.0, 4.0, 3.0, 1.0]), np.array([2.0, 1.0, 1.0, 1.0])
    fleet = fleet_with(ceiling, decay, cost)  # worth per cost: 2.5, 4, 3, 1
    for budget, bound, price in [
        (0.5, 2.0, 4.0), (1.5, 5.5, 3.0), (3.0, 9.5, 2.5), (4.5, 12.5, 1.0), (5.0, 13.0, 0.5),
    ]:  # fmt: skip
        found = relaxation(fleet, budget)
        assert found.bound == pytest.approx(bound, rel=1e-12)
        assert found.multiplier == pytest.approx(price, rel=1e-9)


@pytest.mark.parametrize("small", [1e-3, 1e-11, 1e-13, 1e-30, 1e-100, 1e-250])
def test_a_multiplier_far_below_the_largest_index_keeps_its_digits(small):
    """All content decays within a step: the third source is crawled half the time, so that λ is its
    content per unit of cost, however much the first holds."""
    fleet = fleet_with([4.0, 3.0 * small, 2.0 * small], 1e3, np.array([2.0, 1.0, 1.0]))
    found = relaxation(fleet, 3.5)
    assert found.multiplier == pytest.approx(2.0 * small, rel=1e-14)
    assert found.bound == pytest.approx(4.0 + 4.0 * small, rel=1e-14)


def test_a_silent_fleet_is_worth_nothing():
    assert relaxation(fleet_with([0.0, 0.0], [1.0, 2.0]), 1) == (0.0, 0.0)
    assert optimal_reward(fleet_with([0.0, 0.0], [1.0, 2.0]), 1) == 0.0


@pytest.mark.parametrize("fleet", [Sources.preset("table1"), Sources.random(30, seed=1)])
def test_the_search_ends_where_the_last_source_changes(fleet, monkeypatch):
    """Next to that jump, halving the bounds takes fifty steps."""
    steps, learn = [], LevelBracket.learn
    monkeypatch.setattr(LevelBracket, "learn", lambda *known: steps.append(learn(*known)))
    relaxation(fleet, 2)
    assert len(steps) < 20


@fewer
@given(fleet=small_fleets(), budget=budgets, scale=st.sampled_from([1e-6, 3.0, 1e9]))
def test_units_do_not_matter(fleet, budget, scale):
    ceiling, decay, cost = fleet
    plain = relaxation(fleet_with(*fleet), budget)
    richer = relaxation(fleet_with([u * scale for u in ceiling], decay, cost), budget)
    assert richer.bound == pytest.approx(plain.bound * scale, rel=1e-12)
    assert richer.multiplier == pytest.approx(plain.multiplier * scale, rel=1e-9)
    dearer = relaxation(fleet_with(ceiling, decay, [c * scale for c in cost]), budget * scale)
    assert dearer.bound == pytest.approx(plain.bound, rel=1e-12)


def test_a_batch_of_fleets_is_the_loop_over_them():
    rng = np.random.default_rng(3)
    fleets = [
        fleet_with(rng.uniform(0, 9, 6) * (rng.random(6) > 0.2), rng.uniform(0.02, 3, 6),
                   rng.choice(COSTS, 6))
        for _ in range(12)
    ]  # fmt: skip
    fleets.append(fleet_with(np.zeros(6), np.ones(6)))
    for budget in (0.3, 2.0, 9.0, 100.0):
        found = relaxation(Sources.stack(fleets), budget)
        assert found.bound.shape == found.multiplier.shape == (13,)
        for b, fleet in enumerate(fleets):
            alone = relaxation(fleet, budget)
            assert found.bound[b] == pytest.approx(alone.bound, rel=1e-13)
            assert found.multiplier[b] == pytest.approx(alone.multiplier, rel=1e-9)
        with pytest.raises(ValueError, match="batch"):
            relaxed_bound(Sources.stack(fleets), budget)


@settings(plainly, max_examples=12)
@given(
    fleet=small_fleets(most=3, slow=0.3),
    budget=st.sampled_from([0.5, 1.0, 2.0, 2.5]),
    data=st.data(),
)
def test_bound_above_optimum_above_every_periodic_schedule(fleet, budget, data):
    ceiling, decay, cost = fleet
    sources = fleet_with(*fleet)
    optimum = optimal_reward(sources, budget, tolerance=1e-6)
    assert optimum <= relaxed_bound(sources, budget) * (1 + 1e-6)
    choice = st.sampled_from(affordable_subsets(cost, budget))
    for _ in range(5):
        schedule = data.draw(st.lists(choice, min_size=1, max_size=7))
        assert periodic_average(ceiling, decay, schedule) <= optimum * (1 + 1.1e-6)


# ------------------------------------------------------------------------- the optimum


@settings(plainly, max_examples=25)
@given(
    fleet=small_fleets(most=2, slow=1.0, fast=4.0),
    budget=st.sampled_from([0.5, 1.0, 2.0, 2.5]),
)
def test_optimum_of_two_sources_is_the_best_cycle_of_ages(fleet, budget):
    """By Karp's theorem on all ages up to e^−22 from the ceiling."""
    expected = best_cycle(*fleet, budget, math.ceil(22 / min(fleet[1])))
    assume(expected > 0)
    assert optimal_reward(fleet_with(*fleet), budget) == pytest.approx(expected, rel=2e-8)


@pytest.mark.parametrize(
    ("ceiling", "decay", "cost", "budget"),
    [
        pytest.param([3, 2, 1], [2.5, 2.0, 3.0], [1, 1, 1], 1, id="one of three"),
        pytest.param([1, 1, 1], [2.0, 2.2, 2.4], [1, 1, 1], 2, id="two of three"),
        pytest.param([5, 2, 3], [2.0, 2.5, 2.2], [2, 1, 1], 2, id="costs differ"),
        pytest.param([5, 2, 3], [2.0, 2.5, 2.2], [1.5, 1, 0.5], 1.5, id="costs differ more"),
    ],
)
def test_optimum_of_three_sources_is_the_best_cycle_of_ages(ceiling, decay, cost, budget):
    expected = best_cycle(ceiling, decay, cost, budget, 11)
    assert optimal_reward(fleet_with(ceiling, decay, np.array(cost, float)), budget) == (
        pytest.approx(expected, rel=2e-8)
    )


@pytest.mark.parametrize(
    ("ceiling", "decay", "runs"),
    [
        pytest.param([10.0, 20.0], [1.0, 0.05], (15, 1), id="every 16 epochs"),
        pytest.param([30.0, 10.0], [0.02, 1.5], (1, 40), id="every 41 epochs"),
    ],
)
def test_optimum_of_rare_visits(ceiling, decay, runs):
    """One of two sources is visited long before it is full: its ages must be followed far."""
    expected, found = best_of_two(ceiling, decay, 200)
    assert found == runs
    assert optimal_reward(fleet_with(ceiling, decay), 1) == pytest.approx(expected, rel=1.1e-8)


def test_optimum_leaves_out_what_cannot_be_crawled():
    alone = optimal_reward(fleet_with([10.0, 7.0], [0.5, 0.3]), 1)
    dear = fleet_with([10.0, 1e6, 7.0, 0.0], [0.5, 0.1, 0.3, 0.4], [1.0, 1.5, 1.0, 1.0])
    assert optimal_reward(dear, 1) == pytest.approx(alone, rel=3e-8)
    assert optimal_reward(fleet_with([5.0], [1.0], 2.0), 1) == 0.0


def test_optimum_with_budget_for_everything_is_all_that_comes():
    fleet = fleet_with([10.0, 5.0, 7.0], [0.5, 0.1, 0.3], [1.0, 2.0, 0.5])
    for budget in (3.5, 100.0):
        assert optimal_reward(fleet, budget) == pytest.approx(fleet.inflow.sum(), rel=1.1e-8)


def test_optimum_meets_its_tolerance():
    fleet = Sources.preset("table1")
    assert optimal_reward(fleet, 2, tolerance=1e-3) == pytest.approx(337.774550, rel=1.1e-3)
    assert optimal_reward(fleet, 2, tolerance=1e-11) == pytest.approx(337.77455, abs=5.1e-6)


# ------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("n", [13, 5000])
def test_the_optimum_of_a_large_fleet_is_refused_with_a_remedy(n):
    with pytest.raises(ValueError, match=rf"{n} sources.*max_states=.*relaxed_bound"):
        optimal_reward(Sources.random(n, seed=0), 2)


def test_a_smaller_limit_is_kept():
    with pytest.raises(ValueError, match=r"max_states=80\b.*relaxed_bound"):
        optimal_reward(Sources.preset("table1"), 1, max_states=80)


@pytest.mark.parametrize(
    ("ceiling", "decay", "cost", "failure", "budget"),
    [
        pytest.param([10.0, 7.0, 4.0], [0.4, 0.3, 0.9], [1.0, 1.0, 1.0], 0.0, 1.0, id="one"),
        pytest.param([10.0, 7.0, 4.0], [0.4, 0.3, 0.9], [1.0, 2.0, 0.5], 0.0, 2.0, id="costs"),
        pytest.param([10.0, 7.0], [0.4, 0.05], [1.0, 1.5], [0.2, 0.5], 1.5, id="failures"),
        pytest.param([10.0, 10.0], [3.0, 2.5], [1.0, 1.0], 0.0, 1.9, id="fast"),
    ],
)
def test_the_first_caps_are_where_the_ceiling_no_longer_pays(ceiling, decay, cost, failure, budget):
    """At the relaxed multiplier λ a cycle earns at most the rate g; waiting k steps for a ceiling
    u* pays while k g < u* − λC/q. The product of these k, plus one, is the number of states."""
    fleet = fleet_with(ceiling, decay, np.array(cost))
    fleet = fleet.replaced(failure_rate=failure)
    multiplier = relaxation(fleet, budget).multiplier
    states = 1
    for i in range(len(fleet)):
        p = float(fleet.failure_rate[i])
        charge = multiplier * cost[i] / (1 - p)
        odds = [(1 - p) * p**j for j in range(60)]
        rates = []
        for k in range(1, 400):
            reward = sum(
                o * -ceiling[i] * math.expm1(-decay[i] * (k + j)) for j, o in enumerate(odds)
            )
            rates.append((reward - charge) / (k + p / (1 - p)))
        pays_until = (ceiling[i] - charge) / max(rates) if max(rates) > 0 else 0.0
        states *= max(3, math.ceil(pays_until) + 1)
    with pytest.raises(ValueError, match=rf"needs {states:.3g} joint states".replace("+", r"\+")):
        optimal_reward(fleet, budget, max_states=states - 1)
    assert optimal_reward(fleet, budget, tolerance=0.5, max_states=states) > 0


def test_a_bad_budget_is_refused():
    for function in (relaxation, relaxed_bound, optimal_reward):
        for bad in (0, -1.0, math.nan, math.inf, None, [1.0], np.array([1.0, 2.0]), "2"):
            with pytest.raises(ValueError, match=r"budget is .*; it must be"):
                function(Sources.preset("table1"), bad)


def test_the_optimum_of_a_batch_is_refused():
    batch = Sources.stack([Sources.preset("table1")] * 2)
    with pytest.raises(ValueError, match="batch"):
        optimal_reward(batch, 1)


@pytest.mark.parametrize("budget", [1, 3])
def test_the_optimum_is_never_above_the_bound_not_even_by_rounding(budget):
    table1 = Sources.preset("table1")
    assert optimal_reward(table1, budget) <= relaxed_bound(table1, budget)


def test_a_name_of_a_fleet_is_not_a_fleet():
    with pytest.raises(ValueError, match=r"Sources\.preset"):
        relaxed_bound("table1", 1)


@pytest.mark.parametrize("per_host", [0, 1.5, True])
def test_crawls_of_a_host_are_a_positive_number(per_host):
    with pytest.raises(ValueError, match="per_host is"):
        relaxation(Sources.preset("table1"), 1, per_host)


def test_a_bound_with_all_limits_at_once_is_found():
    rng = np.random.default_rng(3)
    fleet = Sources(
        rng.uniform(0.1, 5, 30),
        1.0,
        rng.uniform(0.05, 0.5, 30),
        crawl_delay=rng.integers(0, 5, 30),
        capacity=rng.integers(2, 40, 30),
        failure_rate=rng.uniform(0, 0.4, 30),
        hosts=[f"host-{i % 3}" for i in range(30)],
    )
    bound = relaxation(fleet, 6, 2).bound
    assert 0 < bound <= relaxation(fleet, 6, 30).bound


def test_silent_sources_need_no_states():
    """Twelve sources would need 3^12 joint states or more, and be refused."""
    live = fleet_with([10.0, 7.0], [0.9, 0.8])
    many = fleet_with([10.0, 7.0] + [0.0] * 10, [0.9, 0.8] + [0.5] * 10)
    assert optimal_reward(many, 1, 1e-6) == optimal_reward(live, 1, 1e-6)
