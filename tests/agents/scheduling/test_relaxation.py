"""The relaxed bound of fleets in columns is that of `relaxation`, which computes it in arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.scheduling import relaxation as module
from agents.scheduling.relaxation import (
    NEVER,
    best_ages,
    columns_relaxation,
    sample_multiplier,
    stationary_ages,
)
from agents.theory.relaxation import relaxation
from agents.theory.renewal import renewal_arm
from crawl_env.fleet.columns import FleetColumns
from crawl_env.fleet.sources import Sources
from tests.references import plainly, z_of_mean
from tests.refusals import refused


def fleet_of(n, seed, *optional):
    rng = np.random.default_rng(seed)
    columns = {
        "arrival_rate": np.exp(rng.uniform(-5, 4, n)) * (rng.random(n) > 0.1),
        "mean_utility": rng.lognormal(0, 1, n),
        "decay_rate": np.exp(rng.uniform(-6, 2, n)),
        "cost": rng.uniform(0.5, 3, n),
        "failure_rate": rng.uniform(0, 0.8, n) * (rng.random(n) < 0.5),
        "delay": rng.integers(1, 9, n),
    }
    unwanted = {"cost", "failure_rate", "delay"} - set(optional)
    return FleetColumns(**{k: v for k, v in columns.items() if k not in unwanted}, period=0.5)


def spent_at(columns, multiplier):
    """What the best intervals at a multiplier cost per step, by the arms of `relaxation`."""
    arm = renewal_arm(columns.to_sources())
    interval = arm.interval(np.array([multiplier]))
    crawls = np.where(multiplier < arm.break_even, arm.crawl_rate(interval), 0.0)
    return float((crawls * arm.sources.cost).sum())


OPTIONS = [(), ("cost",), ("delay",), ("failure_rate",), ("cost", "delay", "failure_rate")]


@plainly
@given(
    n=st.integers(1, 60),
    seed=st.integers(0, 1000),
    share=st.floats(0.002, 1.5),
    optional=st.sampled_from(OPTIONS),
)
def test_bound_of_small_fleets(n, seed, share, optional):
    columns = fleet_of(n, seed, *optional)
    reference = relaxation(columns.to_sources(), share * n)
    found = columns_relaxation(columns, share * n)
    assert found.bound == pytest.approx(reference.bound, rel=1e-9)
    assert found.bound >= reference.bound * (1 - 1e-13)  # it is a bound, too


@pytest.mark.parametrize("optional", OPTIONS, ids=lambda names: ",".join(names) or "plain")
def test_bound_of_large_fleets(optional, monkeypatch):
    """Here the search begins with a sample, and the chunks are several."""
    monkeypatch.setattr(module, "CHUNK", 5000)
    columns, budget = fleet_of(12_000, 3, *optional), 300.0
    reference = relaxation(columns.to_sources(), budget)
    found = columns_relaxation(columns, budget, sample=500)
    assert found.bound == pytest.approx(reference.bound, rel=1e-9)
    assert found.multiplier == pytest.approx(reference.multiplier, rel=3e-3)
    assert found.spent == pytest.approx(spent_at(columns, found.multiplier), rel=1e-12)
    assert found.spent == pytest.approx(budget, rel=1e-3)
    guess = sample_multiplier(columns, budget, 500)
    assert guess == pytest.approx(reference.multiplier, rel=0.3)


@pytest.mark.parametrize("guess", [1e-9, 1e-3, 0.9, 30.0, 1e9])
def test_any_first_multiplier_will_do(guess, monkeypatch):
    columns = fleet_of(2000, 5, "cost")
    reference = relaxation(columns.to_sources(), 50.0)
    start = guess * reference.multiplier
    monkeypatch.setattr(module, "sample_multiplier", lambda *_: start)
    assert columns_relaxation(columns, 50.0).bound == pytest.approx(reference.bound, rel=1e-9)


@pytest.mark.parametrize("budget", [0.5, 1, 2, 3, 4, 5])
def test_table_1(budget):
    sources = Sources.preset("table1")
    found = columns_relaxation(FleetColumns.of(sources), budget)
    assert found.bound == pytest.approx(relaxation(sources, budget).bound, rel=1e-6)  # float32
    if budget > 4:
        assert found.multiplier == 0
        assert found.spent == 4


def test_a_large_fleet_is_passed_a_few_times(monkeypatch):
    columns, seen = fleet_of(200_000, 8), []
    summed = module._summed

    def counted(parameters, multiplier, start, stop):
        seen.append(stop - start)
        return summed(parameters, multiplier, start, stop)

    monkeypatch.setattr(module, "_summed", counted)
    columns_relaxation(columns, 5000.0)
    assert sum(seen) / len(columns) < 12


@pytest.mark.parametrize("optional", OPTIONS, ids=lambda names: ",".join(names) or "plain")
def test_best_ages(optional):
    columns = fleet_of(3000, 2, *optional)
    arm = renewal_arm(columns.to_sources())
    multiplier = float(np.median(arm.break_even)) / 3
    expected = np.where(multiplier < arm.break_even, arm.interval(np.array([multiplier])), np.inf)
    for part in (slice(0, 3000), slice(700, 1900)):
        assert best_ages(columns, multiplier, part).tolist() == expected[part].tolist()
    ages = stationary_ages(columns, multiplier, seed=1)
    crawled = np.isfinite(expected)
    assert (ages[~crawled] == NEVER).all()
    assert (ages[crawled] >= 1).all()
    assert (ages[crawled] <= expected[crawled]).all()
    long = crawled & (expected > 100)
    assert abs(z_of_mean(ages[long] / expected[long], 0.5)) < 5  # half a step at most beside it


def test_silent_fleets_and_refusals():
    found = columns_relaxation(FleetColumns([0.0, 0.0], 1.0, 0.5), 1.0)
    assert found.bound == 0 == found.multiplier
    with refused("budget is 0"):
        columns_relaxation(FleetColumns(1.0, 1.0, 0.5), 0.0)
    with refused("sample is 0"):
        columns_relaxation(FleetColumns(1.0, 1.0, 0.5), 1.0, sample=0)
    with refused("gap is nan"):
        columns_relaxation(FleetColumns(1.0, 1.0, 0.5), 1.0, gap=np.nan)
    with refused("multiplier is nan"):
        stationary_ages(FleetColumns(1.0, 1.0, 0.5), np.nan)
