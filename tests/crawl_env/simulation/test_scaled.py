"""Flat and scaled observations: bounded, monotone and invertible, and nothing leaks."""

import numpy as np
import pytest

import agents
from crawl_env import NEVER, CrawlEnv, CrawlVectorEnv, Sources
from crawl_env.simulation.observation import FEATURES, scaled, scales_of, unscaled
from tests.crawl_env.env_plain import random_actions

FLEET = Sources(
    [3.0, 0.2, 8.0, 0.7, 1.1],
    [1.0, 4.0, 0.3, 2.0, 1.0],
    [0.3, 0.1, 0.6, 0.2, 0.05],
    [1, 2, 1, 1.5, 1],
    period=2,
)
EVERYTHING = tuple(FEATURES)
COLUMNS = len(EVERYTHING)
SHAPES = [{"scaled": True}, {"flat": True}, {"flat": True, "scaled": True}]


def some(**arguments):
    return {"sources": FLEET, "budget": 2.5, "arrivals": "poisson-items", **arguments}


def test_the_map_is_increasing_odd_bounded_and_keeps_the_claimed_precision():
    """The inverse is written anew here, in 80-bit numbers."""
    for scale in (1e-3, 1.0, 4.0, 1e6):
        scales = np.array([scale])
        x = (scale * np.concatenate([[0], np.logspace(-6, 9, 40000)])).astype(np.float32)
        y = scaled(x[:, None], scales)[:, 0]
        assert y.dtype == np.float32
        assert 0 == y[0] < y[-1] < 0.96
        assert np.all(np.diff(y) > 0)
        assert np.array_equal(scaled(-x[:, None], scales)[:, 0], -y)
        back = unscaled(y[:, None], scales)[:, 0]
        wide = np.longdouble(y)
        exact = scale * np.expm1(wide / (1 - wide))
        rounding = 2.0**-24 * (x + scale) * (1 + np.log1p(x / scale)) ** 2
        assert np.all(np.abs(back - x) <= 1.01 * rounding)
        assert np.all(np.abs(back - exact) <= 1.01 * rounding)  # a whole number may be preferred
        assert np.array_equal(unscaled(-y[:, None], scales)[:, 0], -back)


def test_ages_are_restored_exactly():
    ages = np.arange(100_001, dtype=np.float32)[:, None]
    for scale in (1.0, 4.0, 300.0):
        scales = np.array([scale])
        assert np.array_equal(unscaled(scaled(ages, scales), scales), ages)
        never = np.full((1, 1), NEVER, dtype=np.float32)
        assert unscaled(scaled(never, scales), scales) == NEVER


def test_scales_are_those_of_the_page():
    names = [name for name in EVERYTHING if np.isinf(FEATURES[name]).any()]
    tour = 6.5 / 2.5
    median = np.median(FLEET.arrival_rate * FLEET.mean_utility / FLEET.decay_rate)
    wanted = {
        "value": median,
        "harvest": median,
        "age": tour,
        "balance": 2.5,
        "items": 1,
        "known": 1,
        "pings": 1,
        "pings_aged": 1,
        "backlog": 1,
        "steps_left": tour,
        "seen": tour,
        "shown": median,
        "content": median,
        "topic": 1,
        "rate": 1.1,
        "harvest_number": 1,
        "harvest_log": 1,
        "harvest_age": 2 * tour,
        "harvest_age_squared": 4 * tour**2,
        "harvest_age_log": 2 * tour,
        "arrival_rate": 1.1,
        "mean_utility": 1,
        "decay_rate": 0.2,
        "cost": 1,
    }
    assert set(wanted) == set(names)
    found = dict(zip(EVERYTHING, scales_of(EVERYTHING, FLEET, 2.5), strict=True))
    for name, scale in found.items():
        assert scale == pytest.approx(wanted.get(name, np.nan), nan_ok=True), name


@pytest.mark.parametrize(
    ("shape", "rule"), list(zip(SHAPES, ("step", "average", "average"), strict=True)), ids=str
)
def test_observations_are_those_of_the_plain_environment(shape, rule):
    arguments = some(features=EVERYTHING, budget_rule=rule, start="random", observed=False)
    plain, other = CrawlEnv(**arguments), CrawlEnv(**arguments, **shape)
    assert other.observation_space.shape == ((5 * COLUMNS,) if "flat" in shape else (5, COLUMNS))
    if "scaled" in shape:
        assert np.all(np.abs([other.observation_space.low, other.observation_space.high]) <= 1)
    seen = [env.reset(seed=3)[0] for env in (plain, other)]
    for action in random_actions(plain, 20):
        assert seen[1] in other.observation_space
        natural = other.task.natural(seen[1])[0]
        np.testing.assert_allclose(natural, seen[0], rtol=2e-6, atol=1e-30)
        whole = seen[0] == np.rint(seen[0])
        assert np.array_equal(natural[whole], seen[0][whole])
        seen = [env.step(action)[0] for env in (plain, other)]
    vec = CrawlVectorEnv(2, **arguments, **shape)
    start, _ = vec.reset(seed=3)
    assert start.shape == (2, *other.observation_space.shape)
    assert start in vec.observation_space


def test_nothing_hidden_leaks_through_the_scales():
    """Fleets that differ in all that is hidden have the same spaces and first observations."""
    told = ("value", "content", "rate", "arrival_rate", "mean_utility", "decay_rate")
    hidden = tuple(name for name in EVERYTHING if name not in told)
    other = Sources([30.0] * 5, [7.0] * 5, [0.9] * 5, FLEET.cost, period=2)
    envs = [CrawlEnv(**some(sources=s, features=hidden, scaled=True)) for s in (FLEET, other)]
    assert envs[0].observation_space == envs[1].observation_space
    assert np.array_equal(envs[0].reset(seed=0)[0], envs[1].reset(seed=0)[0])
    assert np.array_equal(envs[0].task.scales, envs[1].task.scales, equal_nan=True)


@pytest.mark.parametrize(
    ("fleet", "budget", "rule"), [("table1", 2, "average"), (Sources.random(30, 1), 4, "step")]
)
def test_agents_earn_the_same(fleet, budget, rule):
    arguments = {
        "sources": fleet,
        "budget": budget,
        "budget_rule": rule,
        "arrivals": "poisson-items",
        "features": ("value", "age", "crawled", "harvest", "items"),
    }
    names = ["whittle", "nutch", "adaptive-certainty"]
    runs = {"steps": 30, "warmup": 0, "seeds": 2}
    plain, other = (agents.compare(names, {**arguments, **s}, **runs) for s in ({}, SHAPES[2]))
    for name in names:
        assert np.array_equal(plain[name].reward, other[name].reward), name


@pytest.mark.parametrize("name", ["adaptive-certainty", "adaptive-self-tuning"])
def test_agents_know_a_first_crawl_by_its_scaled_age(name):
    arguments = {"sources": "fleet-f", "budget": 5, "start": "full", "observed": False}
    arguments["arrivals"] = "poisson-items"
    plain, other = (
        agents.evaluate(name, {**arguments, **shape}, steps=60, warmup=0, seeds=2).reward
        for shape in ({}, SHAPES[2])
    )
    assert np.array_equal(plain, other)


def test_agents_plan_with_parameters_drawn_and_scaled():
    def draw(rng):
        return Sources.random(6, rng)

    features = ("value", "arrival_rate", "mean_utility", "decay_rate", "cost")
    arguments = {"sources": draw, "budget": 2, "features": features}
    rewards = [
        agents.evaluate("whittle", {**arguments, **s}, steps=60, seeds=3).reward
        for s in ({}, {"flat": True, "scaled": True})
    ]
    assert np.array_equal(*rewards)


@pytest.mark.parametrize("name", ["flat", "scaled"])
def test_a_flag_must_be_a_bool(name):
    with pytest.raises(ValueError, match=f"{name} is 'no'; it must be true or false"):
        CrawlEnv(**{name: "no"})
