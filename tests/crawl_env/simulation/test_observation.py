"""The observation's channels: each says what its name says, and nothing else."""

import itertools

import numpy as np
import pytest

from crawl_env import CrawlEnv, CrawlVectorEnv, Sources
from crawl_env.simulation.observation import (
    FEATURES,
    check_features,
    observation_space,
)
from tests.crawl_env.env_plain import CHANNELS, random_actions

FLEET = Sources(
    [3.0, 0.2, 8.0, 0.7, 1.1],
    [1.0, 4.0, 0.3, 2.0, 1.0],
    [0.3, 0.1, 0.6, 0.2, 0.05],
    [1, 2, 1, 1.5, 1],
)
ROWS = 3
ENVS = {
    "scalar": lambda **arguments: CrawlEnv(sources=FLEET, budget=2.5, **arguments),
    "vector": lambda **arguments: CrawlVectorEnv(ROWS, sources=FLEET, budget=2.5, **arguments),
}


def test_the_channels_are_those_of_the_page():
    found = ("number", "age", "age_squared", "log", "age_log")
    sums = (f"harvest_{name}" for name in found)
    assert list(FEATURES) == [
        *(*CHANNELS, "available", "failed", "changed"),
        *sums,
        *(
            "pings",
            "pings_aged",
            "backlog",
            "topic",
            "rate",
            "steps_left",
            "seen",
            "shown",
            "known",
            "content",
        ),
    ]


@pytest.mark.parametrize("name", CHANNELS)
def test_bounds_are_those_of_the_page_whatever_the_fleet(name):
    low = -np.inf if name == "balance" else 0.0
    high = 1.0 if name == "crawled" else np.inf
    for n in (1, 7):
        box = observation_space((name,), n)
        assert (box.shape, box.dtype) == ((n, 1), np.float32)
        assert np.all(box.low == low)
        assert np.all(box.high == high)


def test_columns_come_in_the_order_given():
    names = ["cost", "value", "balance", "age"]
    for order in itertools.permutations(names):
        env = CrawlEnv(sources=FLEET, budget=2, features=order)
        seen, _ = env.reset(seed=0)
        columns = dict(zip(order, seen.T, strict=True))
        assert columns["cost"].tolist() == FLEET.cost.tolist()
        assert columns["age"].tolist() == [1] * 5
        assert columns["balance"].tolist() == [2] * 5
        assert columns["value"] == pytest.approx(FLEET.inflow, rel=1e-6)
        box = env.observation_space
        assert np.all(box.low[:, order.index("balance")] == -np.inf)
        assert np.all(np.delete(box.low, order.index("balance"), axis=1) == 0)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "at least one"),
        (("age", "value", "age"), "only once"),
        (("aeg",), "unknown feature 'aeg'; did you mean 'age'"),
        ("harvset", "did you mean 'harvest'"),
        ((3,), "unknown feature 3"),
    ],
    ids=repr,
)
def test_bad_features_are_refused(names, message):
    with pytest.raises(ValueError, match=message):
        check_features(names)


@pytest.mark.parametrize("kind", ENVS)
@pytest.mark.parametrize("rule", ["step", "average"])
@pytest.mark.parametrize("arrivals", ["deterministic", "poisson-items"])
@pytest.mark.parametrize("observed", [True, [True, False, True, False, False]], ids=str)
def test_every_channel_says_what_happens(kind, rule, arrivals, observed):
    """Against the true state before and after each step, and a belief followed by hand."""
    env = ENVS[kind](
        features=CHANNELS,
        budget_rule=rule,
        arrivals=arrivals,
        observed=observed,
        start="random",
        horizon=None,
    )
    rows = 1 if kind == "scalar" else ROWS
    seen, _ = env.reset(seed=4)
    shown = np.broadcast_to(observed, 5)
    age = np.atleast_3d(seen.reshape(rows, 5, -1))[..., CHANNELS.index("age")].astype(float)
    belief = FLEET.ceiling * -np.expm1(-FLEET.decay_rate * age)
    balance = np.full(rows, 2.5)
    brought = items = np.zeros((rows, 5))
    crawled = np.zeros((rows, 5), dtype=bool)
    for action in random_actions(env, 12):
        columns = dict(zip(CHANNELS, np.moveaxis(seen.reshape(rows, 5, -1), 2, 0), strict=True))
        truth = env.world.value.copy()
        if arrivals == "deterministic":
            np.testing.assert_allclose(belief, truth, rtol=1e-12)
        value = np.where(shown, truth, belief)
        np.testing.assert_allclose(columns["value"], value, rtol=1e-6)
        if arrivals != "deterministic" and not shown.all():
            assert not np.allclose(columns["value"][:, ~shown], truth[:, ~shown])
        assert np.array_equal(columns["age"], age)
        assert np.array_equal(columns["crawled"], crawled)
        assert np.array_equal(columns["harvest"], brought.astype(np.float32))
        assert np.array_equal(columns["items"], items.astype(np.float32))
        for name in ("arrival_rate", "mean_utility", "decay_rate", "cost"):
            parameter = getattr(FLEET, name).astype(np.float32)
            assert np.array_equal(columns[name], np.broadcast_to(parameter, (rows, 5)))
        np.testing.assert_allclose(columns["balance"], balance[:, None] * np.ones(5), rtol=1e-6)

        counted = env.world.items.copy()
        seen, reward, *_ = env.step(action)
        crawled = seen.reshape(rows, 5, -1)[..., CHANNELS.index("crawled")] == 1
        brought, items = np.where(crawled, truth, 0), np.where(crawled, counted, 0)
        np.testing.assert_allclose(brought.sum(axis=1), reward, rtol=1e-12)
        belief = np.where(crawled, 0, belief) * FLEET.retention + FLEET.inflow
        age = np.where(crawled, 0, age) + 1
        if rule == "average":
            balance = balance + 2.5 - (crawled * FLEET.cost).sum(axis=1)
        else:
            assert np.all((crawled * FLEET.cost).sum(axis=1) <= 2.5)


def test_a_reset_forgets_what_the_last_epoch_brought():
    names = ("crawled", "harvest", "items")
    env = CrawlEnv(sources=FLEET, features=names, budget=2, horizon=2)
    env.reset(seed=0)
    assert env.step(np.ones(5, np.float32))[0].any()
    assert not env.reset()[0].any()
    vec = CrawlVectorEnv(3, sources=FLEET, features=names, budget=2)
    vec.reset(seed=0)
    before = vec.step(np.ones((3, 5), np.float32))[0]
    after, _ = vec.reset(options={"reset_mask": np.array([False, True, False])})
    assert np.array_equal(after[[0, 2]], before[[0, 2]])
    assert not after[1].any()


def test_age_of_a_source_never_crawled_is_a_billion_and_stays():
    env = CrawlEnv(sources=FLEET, features=("age",), start="full", budget=3)
    seen, _ = env.reset(seed=0)
    assert seen[:, 0].tolist() == [1e9] * 5
    for _ in range(3):
        seen = env.step(np.array([-1, 0, 1, -1, -1], np.float32))[0]
    assert seen[[1, 2], 0].tolist() == [1, 1]
    assert np.all(seen[[0, 3, 4], 0] >= 1e9)
