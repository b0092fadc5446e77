"""Signals: the same selections as with the index of the belief of every source in every step."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import myopic_index, whittle_index
from agents.scheduling import AdaptiveFleetScheduler, FleetScheduler
from agents.scheduling.age_index import NEVER, decay_of, parameters_of, scale_of
from agents.scheduling.calendar import ENTRIES
from agents.scheduling.scheduler import POLICIES
from agents.scheduling.signals import index_with
from crawl_env import Sources
from crawl_env.fleet.columns import FleetColumns
from tests.agents.scheduling.dense import DenseScheduler
from tests.agents.scheduling.test_scheduler import TABLE1, ages_of, columns_with, cost_of, fewer


def signals(rng, n, mean):
    """Random signals, most of them for a few sources."""
    number = rng.poisson(mean)
    few = rng.integers(n, size=1 + n // 20)
    source = np.where(rng.random(number) < 0.5, rng.integers(n, size=number), few[0])
    return source, rng.choice([0.0, 0.01, 0.3, 5.0, 500.0], number)


@fewer
@given(
    n=st.integers(1, 60),
    share=st.floats(0.01, 0.6),
    mean=st.sampled_from([0.3, 3.0, 30.0]),
    policy=st.sampled_from(["whittle", "myopic", "static", "oldest-first"]),
    start=st.sampled_from(["fresh", "full", "random"]),
    costs=st.sampled_from(["equal", "classes", "distinct"]),
    delays=st.booleans(),
    hosts=st.booleans(),
    average=st.booleans(),
    fails=st.booleans(),
    restored=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_selections_are_those_of_the_dense_policy(
    n, share, mean, policy, start, costs, delays, hosts, average, fails, restored, seed
):
    sources = columns_with(n, seed, costs=costs, delays=delays, hosts=hosts)
    budget = share * cost_of(sources)
    rule = {"budget_rule": "average"} if average else {}
    per_host = 2 if hosts else None
    scheduler = FleetScheduler(sources, budget, policy, start=start, per_host=per_host, **rule)
    multiplier = scheduler._floor if average else None
    dense = DenseScheduler(sources, budget, policy, ages_of(scheduler), multiplier, per_host)
    dense.parameters = scheduler._parameters  # the frequencies of "static" included
    rng = np.random.default_rng(seed)
    for step in range(48):
        failed = (rng.random(n) < 0.3) & fails
        which, utility = signals(rng, n, mean)
        half = len(which) // 2
        scheduler.signal(which[:half], utility[:half])
        if restored and step == 24:
            state = scheduler.get_state()
            scheduler = FleetScheduler(sources, budget, policy, per_host=per_host, **rule)
            scheduler.set_state(state)
        scheduler.signal(which[half:], utility[half:])
        dense.signal(which, utility)
        picked = scheduler.step()
        np.testing.assert_array_equal(picked, dense.step(failed), str(step))
        if restored and step == 36:
            scheduler.set_state(scheduler.get_state())
        scheduler.report(failed=failed[picked])


def test_hundreds_of_steps_and_a_file(tmp_path):
    sources = FleetColumns.random(400, seed=1)
    scheduler = FleetScheduler(sources, 6, "whittle", start="random")
    dense = DenseScheduler(sources, 6, "whittle", ages_of(scheduler))
    rng = np.random.default_rng(0)
    for step in range(800):
        if step < 500:  # then those that are left decay
            which, utility = signals(rng, 400, 4.0)
            scheduler.signal(which, utility)
            dense.signal(which, utility)
        if step == 300:
            scheduler.save(tmp_path / "scheduler.npz")
            scheduler = FleetScheduler.load(tmp_path / "scheduler.npz", sources)
        np.testing.assert_array_equal(scheduler.step(), dense.step(), str(step))


@pytest.mark.parametrize("failure_rate", [0.0, 0.3])
def test_the_index_is_that_of_the_belief(failure_rate):
    rng = np.random.default_rng(2)
    n = 200
    sources = Sources(
        np.exp(rng.normal(0, 1, n)),
        2.0,
        10 ** rng.uniform(-3, 1, n),
        cost=rng.uniform(0.5, 2.0, n),
        crawl_delay=rng.integers(1, 5, n),
        failure_rate=failure_rate,
    )
    age, utility = rng.integers(1, 50, n), np.exp(rng.normal(0, 3, n))
    age[:9] = NEVER
    content = sources.content_at(np.where(age == NEVER, np.inf, age)) + utility
    for policy, expected in (
        ("whittle", whittle_index(content, sources)),
        ("myopic", myopic_index(content, sources)),
    ):
        p = parameters_of(sources, POLICIES[policy])
        extra = utility / sources.cost
        index = [
            index_with(p, i, scale_of(p, i), decay_of(p, i), float(age[i]), extra[i])
            for i in range(n)
        ]
        np.testing.assert_allclose(index, expected, rtol=1e-9)


def test_a_state_takes_memory_for_the_signalled_sources_alone():
    """The expected utilities of all sources were copied to find those that have signals."""
    n = 50_000
    scheduler = FleetScheduler(FleetColumns.random(n, seed=0), 20)
    scheduler.signal([3, 9], 1.0)
    scheduler.step()
    tracemalloc.start()
    try:
        assert len(scheduler._signals()["signalled"]) == 2
        assert tracemalloc.get_traced_memory()[1] < n
    finally:
        tracemalloc.stop()


def test_signals_leave_few_entries_in_the_calendar():
    scheduler = FleetScheduler(FleetColumns.random(5000, seed=0), 20, start="random")
    rng = np.random.default_rng(0)
    for _ in range(2000):
        scheduler.signal(rng.integers(300, size=30), 1e-3)
        scheduler.step()
        assert scheduler._calendar.counters[ENTRIES] < 6000


@pytest.mark.parametrize("policy", ["adaptive-certainty", "adaptive-thompson"])
def test_learners_take_signals_into_account(policy):
    sources = FleetColumns.random(300, seed=0)
    rng = np.random.default_rng(1)
    scheduler = AdaptiveFleetScheduler(sources, 5, policy, seed=4)
    crawls = np.zeros(300, int)
    for _ in range(400):
        scheduler.signal([7, 8], 0.3 * sources.to_sources().ceiling.max())
        picked = scheduler.step()
        assert len(np.unique(picked)) == 5
        crawls[picked] += 1
        failed = rng.random(5) < 0.1
        scheduler.report(counts=rng.poisson(sources.arrival_rate[picked]), failed=failed)
    assert crawls[7:9].min() > np.delete(crawls, [7, 8]).max()


@pytest.mark.parametrize(
    ("sources", "utility", "message"),
    [
        ([4], 1.0, "signal 0: sources is 4"),
        ([-1], 1.0, "signal 0: sources is -1"),
        ([0.5], 1.0, "signal 0: sources is 0.5"),
        ([0, 1], [1.0, np.nan], "signal 1: utility is nan"),
        ([0, 1], -1.0, "utility is -1"),
        ([0, 1], [1.0], "give one number, or one for each of the 2 signals"),
        ("feed", 1.0, "sources must be a number"),
    ],
)
def test_bad_signals_are_explained(sources, utility, message):
    scheduler = FleetScheduler(TABLE1, 2)
    with pytest.raises(ValueError, match=message):
        scheduler.signal(sources, utility)


def test_signals_after_offers_count_from_the_next_step():
    scheduler = FleetScheduler(TABLE1, 1)
    best = scheduler.offers(1).source[0]
    scheduler.signal([3], 1e6)
    assert scheduler.take(1) == best != 3
    assert scheduler.step() == 3
