"""The bound where topics are hot or cold, against dynamic programmes over all paths of the regimes,
its limits, and policies in simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import compare, relaxed_bound, task_bound
from agents.theory.periodic import _each_best_cycle
from agents.theory.regimes import _best, regimes_relaxation
from crawl_env import Arrivals, Regimes, Sources, Task

STEPS = 7  # whose regimes are distinguished; older content counts as gone


def contents(inflow, retention, law):
    """Return the content by path and age, (2^STEPS, STEPS + 1): bit j of a path says whether the
    regime was hot j + 1 steps ago."""
    paths = np.arange(2**STEPS)[:, None] >> np.arange(STEPS) & 1
    added = law.factors[paths] * inflow * retention ** np.arange(STEPS)
    return np.concatenate((np.zeros((len(paths), 1)), np.cumsum(added, axis=1)), axis=1)


def followed(value, law):
    """Return the mean value a step later, (2, 2^STEPS, …), for a regime now and a path before it:
    `value` has those of the next step, and as many ages, whose change is up to the caller."""
    path = np.arange(2**STEPS)
    then = np.empty_like(value)
    for now in range(2):
        later = (path << 1 & (2**STEPS - 1)) | now
        stays, changes = value[now, later], value[1 - now, later]
        then[now] = (1 - law.switch) * stays + law.switch * changes
    return then


def average(best, shape):
    """Return the mean reward per step, by value iteration."""
    value = np.zeros(shape)
    for _ in range(1000):
        change = 0.5 * (best(value) - value)
        value = value + change
        if np.ptp(change) < 1e-8 * abs(change).max():
            break
        value -= value.flat[0]
    return float(2 * change.min())


@settings(max_examples=8, derandomize=True, deadline=None, database=None)
@given(
    st.floats(1.0, 3.0),
    st.floats(0.05, 1.2),
    st.floats(1.0, 20.0),
    st.sampled_from([0.05, 0.3, 0.9]),
)
def test_no_policy_of_one_source_that_is_told_the_regimes_earns_more(decay, charge, ratio, switch):
    law = Regimes(ratio, switch)
    held = contents(-np.expm1(-decay), np.exp(-decay), law)
    older = np.minimum(np.arange(STEPS + 1) + 1, STEPS)

    def best(value):
        then = followed(value, law)
        return np.maximum(then[..., older], held - charge + then[..., 1:2])

    attained = max(average(best, (2, *held.shape)), 0.0)
    cold, hot = law.factors.tolist()
    bound, _ = _best(decay, charge, cold, hot, switch)
    assert attained * (1 - 1e-7) <= bound + 1e-12
    lost = 2 * np.exp(-STEPS * decay)  # what is not counted
    assert bound <= attained + lost + 0.002 * -np.expm1(-decay)


@pytest.mark.parametrize("switch", [0.05, 0.3])
def test_the_bound_is_above_the_optimum_of_two_sources_of_one_topic(switch):
    """One of the two is crawled in each step, so that the age of the other says all. With larger
    ratios the bound is looser: it may spend the budget of cold times in hot ones."""
    law = Regimes(2.0, switch)
    fleet = Sources([4.0, 3.0], [1.0, 1.5], [1.1, 1.3], topics=["a", "a"])
    held = np.stack(
        [
            contents(u, r, law)
            for u, r in zip(fleet.inflow.tolist(), fleet.retention.tolist(), strict=True)
        ],
        axis=1,
    )  # (paths, source, age)
    older = np.minimum(np.arange(STEPS + 1) + 1, STEPS)

    def best(value):  # of [regime, path, source crawled last, age other]
        then, found = followed(value, law), np.empty_like(value)
        for last in range(2):
            again = held[None, :, last, 1:2] + then[:, :, last][..., older]
            other = held[None, :, 1 - last] + then[:, :, 1 - last, 2:3]
            found[:, :, last] = np.maximum(again, other)
        return found

    optimum = average(best, (2, *held.shape))
    task = Task(fleet, 1, arrivals=Arrivals(rate=law), observed=False)
    bound, price, name = task_bound(task)
    assert name == "regimes known"
    assert price > 0
    assert optimum < bound < 1.15 * optimum


def test_without_regimes_it_is_the_bound_at_mean_rates():
    fleet = Sources.random(20, seed=1)
    found = regimes_relaxation(fleet, 3, Regimes(ratio=1.0, switch=0.2))
    assert found.bound == pytest.approx(relaxed_bound(fleet, 3), rel=1e-7)


def test_where_regimes_last_for_ever_half_of_the_sources_are_hot():
    fleet, law = Sources.random(20, seed=1), Regimes(ratio=9.0, switch=0.0)
    rates = np.outer(law.factors, fleet.arrival_rate).ravel()
    twice = Sources(rates, np.tile(fleet.mean_utility, 2), np.tile(fleet.decay_rate, 2))
    expected = relaxed_bound(twice, 6) / 2
    assert regimes_relaxation(fleet, 3, law).bound == pytest.approx(expected, rel=1e-6)
    slow = regimes_relaxation(fleet, 3, Regimes(ratio=9.0, switch=1e-5)).bound
    assert slow == pytest.approx(expected, rel=1e-3)


def test_where_regimes_change_at_once_rates_are_the_mean_ones():
    fleet = Sources.random(4, seed=1)
    slow = Sources(fleet.arrival_rate, fleet.mean_utility, 0.05 * fleet.decay_rate)
    found = regimes_relaxation(slow, 0.05, Regimes(ratio=2.0, switch=0.5)).bound
    assert 1.0 < found / relaxed_bound(slow, 0.05) < 1.01


@pytest.mark.parametrize("charge", [0.1, 0.6])
def test_regimes_that_alternate_are_a_day_of_two_steps(charge):
    law, decay = Regimes(ratio=9.0, switch=1.0), 0.2
    inflow = -np.expm1(-decay) * law.factors[None, :]
    rate, crawls, potential = np.empty(1), np.empty((1, 2)), np.empty((1, 2))
    price, one = np.full(2, charge), np.ones(1)
    columns = one * np.exp(-decay), one * decay, price, one
    _each_best_cycle(inflow, *columns, rate, crawls, potential)
    cold, hot = law.factors.tolist()
    bound, _ = _best(decay, charge, cold, hot, 1.0)
    assert rate[0] * (1 - 1e-9) <= bound < rate[0] + 0.002 * -np.expm1(-decay)


def test_the_bound_is_above_whoever_is_told_the_rates_and_one_for_each_fleet():
    fleet = Sources.random(20, seed=3, regime="sparse")
    columns = {**fleet.__getstate__(), "topics": [str(i // 5) for i in range(20)]}
    fleet = Sources(**columns)
    posed = {"sources": fleet, "budget": 1, "observed": False}
    posed["arrivals"] = Arrivals(rate=Regimes(), sampler="items")
    bound = task_bound(Task(**posed)).bound
    names = ["whittle-current", "whittle"]
    runs = compare(names, {**posed, "features": ("age", "rate")}, steps=400, warmup=200, seeds=16)
    told, mean = (run.reward for run in runs.values())
    error = told.std() / np.sqrt(told.size)
    assert mean.mean() < told.mean() < bound + 3 * error
    assert told.mean() > 0.9 * bound
    both = task_bound(Task(**posed), Sources.stack([fleet, fleet])).bound
    assert both == pytest.approx([bound, bound])
    failing = Sources(**{**columns, "failure_rate": 0.3})
    assert task_bound(Task(**{**posed, "sources": failing})).bound < bound
    silent = Sources(**{**columns, "arrival_rate": 0.0})
    assert task_bound(Task(**{**posed, "sources": silent})).bound == 0.0
    for change in ({"observed": True}, {"signals": {"recall": 0.5}}):
        assert np.isnan(task_bound(Task(**{**posed, **change})).bound)
    with pytest.raises(ValueError, match="budget"):
        regimes_relaxation(fleet, 0.0, Regimes())
