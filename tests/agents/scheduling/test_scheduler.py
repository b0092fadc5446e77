"""The event-driven scheduler selects what the dense policies select, step by step."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agents import index_at_age
from agents.scheduling import AdaptiveFleetScheduler, FleetScheduler
from agents.scheduling.age_index import NEVER, WHITTLE, parameters_of
from agents.scheduling.calendar import ENTRIES
from agents.scheduling.simulation import simulate
from crawl_env import Sources
from crawl_env.fleet.columns import FleetColumns
from crawl_env.simulation.top import top_of_large
from tests.agents.scheduling.dense import DenseScheduler
from tests.references import plainly

ROOT = Path(__file__).parents[3]
fewer = settings(plainly, max_examples=40)
# Fleets are columns in all tests but those of the indices: for `Sources`, of double precision,
# every function would be compiled a second time; see `test_sources_select_as_their_columns`.
TABLE1 = FleetColumns.of(Sources.preset("table1"))


def ages_of(scheduler):
    """The ages at the start, (N,)."""
    at = scheduler._crawls.crawled_at.astype(np.float64)
    return np.where(at == 0, NEVER, scheduler._now - at)


def assert_same(columns, budget, policy, start, steps):
    """Assert equal selections in every step."""
    scheduler = FleetScheduler(columns, budget, policy, start=start)
    dense = DenseScheduler(columns, budget, policy, ages_of(scheduler))
    dense.parameters = scheduler._parameters  # the frequencies of "static" included
    for step in range(steps):
        np.testing.assert_array_equal(scheduler.step(), dense.step(), str(step))


@pytest.mark.parametrize(("budget", "steps"), [(1, 1200), (150, 200), (300, 100)])
def test_thousands_of_steps(budget, steps):
    """With a small budget, most ages are only reached after many of them."""
    assert_same(FleetColumns.random(300, seed=3), budget, "whittle", "fresh", steps)


def test_hundreds_of_steps_of_a_hundred_thousand_sources():
    """Against the index of the theory, computed for every source in every step."""
    columns, m = FleetColumns.random(100_000, seed=1), 1000
    scheduler, sources = FleetScheduler(columns, m, start="random"), columns.to_sources()
    crawled_at, best = -ages_of(scheduler), np.empty(m, np.intp)
    for step in range(120):
        index = index_at_age(step - crawled_at, sources)
        assert top_of_large(index, crawled_at, len(sources), m, best)
        assert np.array_equal(scheduler.step(), best), step
        crawled_at[best] = step


def test_one_version_is_compiled_for_all_fleets_of_one_precision():
    single = FleetColumns([1.0, 2.0], 1.0, 0.1)
    fleets = [
        Sources([1.0, 2.0], 1.0, 0.1, **optional)
        for optional in ({}, {"cost": [1, 2]}, {"failure_rate": 0.5}, {"crawl_delay": [1, 9]})
    ]
    precise = {numba.typeof(parameters_of(fleet, WHITTLE)) for fleet in fleets}
    assert len(precise) == 1
    costly = FleetColumns([1.0, 2.0], 1.0, 0.1, [1.0, 2.0], delay=[1, 9])
    kinds = {numba.typeof(FleetScheduler(fleet, 1)._parameters) for fleet in (single, costly)}
    kinds |= {numba.typeof(parameters_of(fleet, WHITTLE)) for fleet in (single, costly)}
    assert len(kinds) == 1


SOURCES = """
from agents.scheduling import AdaptiveFleetScheduler, FleetScheduler
from agents.scheduling.simulation import simulate
from crawl_env.fleet.columns import FleetColumns
columns = FleetColumns.random(12, seed=0)
print(simulate(columns, 2, steps=3).items.tolist())
for kind in (FleetScheduler, AdaptiveFleetScheduler):
    one, other = kind(columns, 2), kind(columns.to_sources(), 2)
    for step in range(40):
        for scheduler in (one, other):
            scheduler.signal([step % 12], 0.3)
        picked = one.step()
        assert (picked == other.step()).all(), step
        for scheduler in (one, other):
            scheduler.report(failed=picked % 5 == 0)
print("alike")
"""


def test_sources_select_as_their_columns():
    """Without compilation, which would take far longer than these steps, and with which content is
    the same."""
    items = simulate(FleetColumns.random(12, seed=0), 2, steps=3).items.tolist()
    done = subprocess.run(
        [sys.executable, "-c", SOURCES],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{items}\nalike\n", done.stderr


def test_given_ages_count_from_the_start():
    ages = np.arange(50) * 7.0
    ages[3] = np.inf
    assert_same(FleetColumns.random(50, seed=0), 3, "whittle", ages, 100)


def test_offers_of_parts_select_as_one_scheduler():
    sources = FleetColumns.random(300, seed=2)
    whole = FleetScheduler(sources, 20)
    parts = [np.arange(0, 100), np.arange(100, 300)]
    shards = [FleetScheduler(sources[part[0] : part[-1] + 1], 20) for part in parts]
    for _ in range(200):
        keys = []
        for shard, scheduler in enumerate(shards):
            offers = scheduler.offers(20)
            keys += [
                (-index, at, shard, number)
                for index, at, number in zip(
                    offers.index, offers.crawled_at, offers.source, strict=True
                )
            ]
        best = sorted(keys)[:20]
        taken = [
            part[scheduler.take(sum(key[2] == shard for key in best))]
            for shard, (part, scheduler) in enumerate(zip(parts, shards, strict=True))
        ]
        np.testing.assert_array_equal(np.concatenate(taken), whole.step())


def test_ages_and_price_of_the_last_step():
    scheduler = FleetScheduler(TABLE1, 2, start=[3, 4, NEVER, 1])
    assert np.isnan(scheduler.price)
    picked = scheduler.step()
    age = np.array([3, 4, NEVER, 1])[picked]
    assert np.minimum(scheduler.ages, NEVER).tolist() == age.tolist()
    assert scheduler.steps == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": 0}, "budget is 0; it must be positive"),
        ({"policy": "witle"}, "did you mean 'whittle'"),
        ({"start": "fulll"}, "did you mean 'full'"),
        ({"start": [1, 2]}, "give one of fresh, empty, full, random, or the ages of the 4"),
        ({"start": [1, 2, -1, 0]}, "age is -1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_arguments_are_explained(arguments, message):
    given = {"columns": TABLE1, "budget": 2} | arguments
    with pytest.raises(ValueError, match=message):
        FleetScheduler(**given)


def test_bad_reports_are_explained():
    scheduler = FleetScheduler(TABLE1, 2)
    scheduler.step()
    with pytest.raises(ValueError, match="failed has shape"):
        scheduler.report(failed=[True])
    with pytest.raises(ValueError, match="failed has dtype float64; give True for each"):
        scheduler.report(failed=[0.0, np.nan])
    with pytest.raises(ValueError, match="0 sources were offered"):
        scheduler.take(1)


def columns_with(n, seed, *, costs, delays, hosts):
    """A fleet with these constraints."""
    rng = np.random.default_rng(seed)
    cost = {
        "equal": np.ones(n),
        "classes": rng.choice([0.5, 1.0, 2.5], n),
        "distinct": np.exp(rng.normal(0, 1, n)),
    }[costs]
    kind = rng.integers(max(1, n // 2), size=n)  # sources of one kind are equal but for their costs
    decay = 10 ** rng.uniform(-rng.choice([3, 12]), 1, n)
    ceiling = np.exp(rng.normal(0, 2, n)) * (rng.random(n) > rng.choice([0.0, 0.5]))  # some silent
    return FleetColumns(
        (ceiling * decay)[kind],
        1.0,
        decay[kind],
        cost,
        delay=rng.integers(1, 9, n) if delays else None,
        host=rng.integers(0, n // 3 + 1, n) - 1 if hosts else None,  # −1: one of its own
    )


def cost_of(columns):
    """What it costs to crawl all sources."""
    return float(len(columns) if columns.cost is None else columns.cost.sum(dtype=np.float64))


@example(6, 1.0, "oldest-first", "empty", "equal", True, False, False, False, 0)
@example(6, 1.2, "whittle", "fresh", "classes", True, False, True, False, 0)
@fewer
@given(
    n=st.integers(1, 60),
    share=st.floats(0.01, 1.2),
    policy=st.sampled_from(["whittle", "myopic", "oldest-first"]),
    start=st.sampled_from(["fresh", "empty", "full", "random"]),
    costs=st.sampled_from(["equal", "classes", "distinct"]),
    delays=st.booleans(),
    hosts=st.booleans(),
    average=st.booleans(),
    fails=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_constraints_are_those_of_the_environment(
    n, share, policy, start, costs, delays, hosts, average, fails, seed
):
    sources = columns_with(n, seed, costs=costs, delays=delays, hosts=hosts)
    budget = share * cost_of(sources)
    rule = {"budget_rule": "average"} if average else {}
    scheduler = FleetScheduler(
        sources, budget, policy, start=start, per_host=2 if hosts else None, **rule
    )
    multiplier = scheduler._floor if average else None
    dearest = np.sum(
        (1.0 if sources.cost is None else sources.cost)
        / np.float64(1 if sources.delay is None else sources.delay)
        * np.ones(n)
    )
    if average and abs(budget - dearest) > 1e-6 * budget:  # it binds, or it does not
        assert (multiplier == 0.0) == (budget > dearest)
    per_host = 2 if hosts else None
    dense = DenseScheduler(sources, budget, policy, ages_of(scheduler), multiplier, per_host)
    rng = np.random.default_rng(seed)
    for step in range(60):
        failed = (rng.random(n) < 0.3) & fails
        picked = scheduler.step()
        np.testing.assert_array_equal(picked, dense.step(failed), str(step))
        scheduler.report(failed=failed[picked])


@pytest.mark.parametrize("costs", ["classes", "distinct"])
def test_unequal_costs_of_a_large_fleet(costs):
    sources = columns_with(5000, 1, costs=costs, delays=False, hosts=False)
    scheduler = FleetScheduler(sources, 100.0, start="random")
    dense = DenseScheduler(sources, 100.0, "whittle", ages_of(scheduler))
    for step in range(100):
        np.testing.assert_array_equal(scheduler.step(), dense.step(), str(step))


def test_the_floor_on_average_counts_attempts_that_fail():
    """An attempt fails with probability f and is repeated after the delay d: a cycle that crawls at
    age a has 1/(1 − f) attempts, and lasts a + d f/(1 − f) steps."""
    rng, n = np.random.default_rng(4), 50
    delay, fail, cost = rng.integers(1, 4, n), rng.uniform(0.0, 0.8, n), rng.uniform(0.5, 2.0, n)
    columns = FleetColumns(
        *rng.uniform(0.1, 2.0, (2, n)), 0.05, cost, delay=delay, failure_rate=fail
    )
    floor = FleetScheduler(columns, 4.0, budget_rule="average")._floor
    sources = columns.to_sources()
    index = np.stack([index_at_age(np.full(n, age), sources) for age in range(1, 400)])

    def spent(level):
        age = np.where(index[-1] >= level, 1.0 + (index >= level).argmax(0), np.inf)
        return np.sum(cost / (1.0 - fail) / (np.maximum(age, delay) + delay * fail / (1.0 - fail)))

    assert spent(1.001 * floor) <= 4.0 <= spent(0.999 * floor)


def test_on_average_the_budget_is_spent():
    scheduler = FleetScheduler(FleetColumns.random(2000, seed=0), 20, budget_rule="average")
    crawls = [len(scheduler.step()) for _ in range(3000)]
    assert abs(np.mean(crawls[1000:]) - 20) < 0.4


@pytest.mark.parametrize("policy", ["whittle", "myopic", "static", "oldest-first"])
def test_a_scheduler_goes_on_from_a_state(policy):
    rng = np.random.default_rng(2)
    sources = FleetColumns.random(400, seed=5)
    delay = rng.integers(1, 30, 400)
    sources = FleetColumns(
        sources.arrival_rate, sources.mean_utility, sources.decay_rate, delay=delay
    )
    first, second = (FleetScheduler(sources, 13, policy) for _ in range(2))
    for step in range(120):
        picks = first.step()
        failed = rng.random(picks.size) < 0.3
        if step % 5:
            first.report(failed=failed)
        if step == 50:
            second.set_state(first.get_state())
        if step > 50:
            np.testing.assert_array_equal(second.step(), picks)
            assert (second.steps, second.price) == (first.steps, first.price)
            np.testing.assert_array_equal(second.ages, first.ages)
            if step % 5:
                second.report(failed=failed)
    with pytest.raises(ValueError, match=r"crawled_at has shape \(400,\); it must have .*\(4,\)"):
        FleetScheduler(TABLE1, 1).set_state(first.get_state())


def test_fillers_have_few_entries_in_the_calendar():
    """What is left of the budget goes to cheap sources long before they are due."""
    sources = columns_with(500, 1, costs="distinct", delays=False, hosts=False)
    scheduler = FleetScheduler(sources, 30.0, start="full")
    dense = DenseScheduler(sources, 30.0, "whittle", ages_of(scheduler))
    entries = []
    for _ in range(400):
        np.testing.assert_array_equal(scheduler.step(), dense.step())
        entries.append(int(scheduler._calendar.counters[ENTRIES]))
    assert max(entries) < 600  # those that do not count are dropped in time


def test_many_crawls_of_one_host():
    n = 2**16 + 10
    one = FleetColumns(np.ones(n), 1.0, 0.1, host=np.zeros(n, np.int32))
    scheduler = FleetScheduler(one, float(n), per_host=2**16 + 1)
    assert len(scheduler.step()) == 2**16 + 1


def test_a_refused_state_changes_nothing():
    """Faults of each array: `tests.crawl_env.files.test_arrays`."""
    scheduler = AdaptiveFleetScheduler(TABLE1, 3, seed=1)
    scheduler.step()
    before, other = scheduler.get_state(), AdaptiveFleetScheduler(TABLE1, 3, seed=2).get_state()
    for wrong in ({"steps": -3}, {"picked": [3, 1, 2]}, {"previous": [1, 1]}):
        with pytest.raises(ValueError, match=f"the state: {next(iter(wrong))}"):
            scheduler.set_state(other | wrong)
    after = scheduler.get_state()
    assert all(np.array_equal(after[name], before[name]) for name in before)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "scheduler.npz"
    FleetScheduler(TABLE1, 3).save(path)
    with pytest.raises(
        ValueError, match=r"scheduler\.npz: arguments are not those of an? Adaptive"
    ):
        AdaptiveFleetScheduler.load(path, TABLE1)
    with pytest.raises(FileNotFoundError):
        FleetScheduler.load(tmp_path / "nowhere.npz", TABLE1)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("table1", "columns is 'table1'; give a FleetColumns, or Sources"),
        (Sources(np.ones((2, 3)), 1.0, 1.0), "columns are a batch of fleets"),
        (Sources(1.0, 1.0, 1.0, capacity=2.0), "some sources have a finite capacity"),
    ],
)
def test_other_columns_are_refused(columns, message, tmp_path):
    for kind in (FleetScheduler, AdaptiveFleetScheduler):
        kind(TABLE1, 1).save(tmp_path / "scheduler.npz")
        for make in (partial(kind, budget=1), partial(kind.load, tmp_path / "scheduler.npz")):
            with pytest.raises(ValueError, match=f"^{message}"):
                make(columns)
