"""Looks, and crawls that cost less if they find nothing, against a plain program."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_env import CrawlEnv, CrawlVectorEnv, Sources, Task
from crawl_env.envs.wrappers import SubsetAction

FLEET = Sources(
    [0.3, 0.6, 0.1, 0.4], [1.0, 2.0, 3.0, 1.0], [0.1, 0.3, 0.2, 0.5], cost=[1, 1.5, 1, 2]
)
FEATURES = ("value", "age", "seen", "shown")
N = len(FLEET)


@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["step", "average"]),
    st.sampled_from([None, 0.25]),
    st.sampled_from([None, 0.25]),
)
def test_a_step_is_that_of_a_plain_program(seed, rule, look_cost, unchanged_cost):
    """Actions are taken in turn; each pays what it costs, if its full cost fits what is left."""
    env = CrawlEnv(
        FLEET,
        2.5,
        budget_rule=rule,
        arrivals="poisson",
        observed=False,
        look_cost=look_cost,
        unchanged_cost=unchanged_cost,
        features=FEATURES if look_cost else FEATURES[:2],
    )
    observation, _ = env.reset(seed=seed)
    rng, belief = np.random.default_rng(seed), observation[:, 0].astype(float)
    age, seen, balance = np.ones(N), np.ones(N), 2.5
    for _ in range(12):
        held = env.world.value[0].copy()
        action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        left, done, spent = 2.5 if rule == "step" else balance, np.zeros((2, N), dtype=bool), 0.0
        priority = np.atleast_2d(action)
        for cell in np.argsort(-priority, axis=None):
            kind, i = divmod(int(cell), N)
            full = float(FLEET.cost[i]) if kind == 0 else look_cost
            nothing = kind == 0 and unchanged_cost is not None and held[i] == 0.0
            assert full is not None
            if (full <= left + 1e-12) if rule == "step" else (left > 0 and priority[kind, i] >= 0):
                done[kind, i] = True
                paid = unchanged_cost if nothing else full
                left, spent = left - paid, spent + paid
        balance += 2.5 - spent
        observation, reward, _, _, info = env.step(action)
        crawled, looked = done
        assert reward == pytest.approx(held[crawled].sum())
        assert info["cost"] == pytest.approx(spent)
        assert np.array_equal(info["crawled"], crawled)
        now = env.world.value[0]
        belief = np.where(crawled, 0.0, belief) * FLEET.retention + FLEET.inflow
        belief = np.where(looked, now, belief)
        age, seen = np.where(crawled, 1, age + 1), np.where(crawled, 1, seen + 1)
        seen = np.where(looked, 0, seen)
        assert np.allclose(observation[:, 0], belief, rtol=1e-5)
        assert np.array_equal(observation[:, 1], age)
        if look_cost:
            assert np.array_equal(info["looked"], looked)
            assert np.array_equal(observation[:, 2], seen)
            assert np.array_equal(observation[:, 3], np.where(looked, now, 0).astype(np.float32))


def test_looks_do_not_change_what_arrives():
    """With a budget for everything, looks change neither the crawls nor what these bring."""
    rng = np.random.default_rng(0)
    asked = {"sources": FLEET, "budget": 5.4, "budget_rule": "average"}
    looking = CrawlVectorEnv(3, **asked, arrivals="poisson", look_cost=1e-9)
    plain = CrawlVectorEnv(3, **asked, arrivals="poisson", observed=False)
    ignoring = CrawlVectorEnv(3, **asked, arrivals="poisson", look_cost=1e-9)
    seen = [env.reset(seed=4)[0] for env in (looking, plain, ignoring)]
    assert np.array_equal(seen[0], seen[1])
    for _ in range(20):
        crawls, looks = rng.uniform(-1, 1, (2, 3, N))
        steps = [
            env.step(action)
            for env, action in (
                (looking, np.stack([crawls, looks], axis=1)),
                (plain, crawls),
                (ignoring, crawls),  # an action without looks
            )
        ]
        for other in steps[1:]:
            assert np.array_equal(steps[0][1], other[1])
        assert np.array_equal(looking.world.value, plain.world.value)
        assert np.array_equal(steps[1][0], steps[2][0])
    assert not np.array_equal(steps[0][0], steps[1][0])


def test_a_reset_forgets_the_looks():
    env = CrawlEnv(FLEET, look_cost=0.2, features=FEATURES, budget=2.5)
    env.reset(seed=0)
    looks_alone = np.array([[-1.0] * N, [1.0] * N], dtype=np.float32)
    assert env.step(looks_alone)[0][:, 3].any()
    assert not env.reset()[0][:, 3].any()


def test_a_subset_is_crawled_though_budget_is_left():
    env = SubsetAction(
        CrawlEnv(Sources([1e-6] * 3, 1, 1), 1, observed=False, unchanged_cost=0.1, start="empty")
    )
    env.reset(seed=0)
    _, _, _, _, info = env.step(1)
    assert info["crawled"].tolist() == [False, True, False]
    assert info["cost"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"look_cost": 0.1, "arrivals": "deterministic"}, "nothing to see"),
        ({"look_cost": 0.1, "observed": True}, "all sources are observed"),
        ({"look_cost": 0.1, "arrivals": "poisson-lomax"}, "decays exponentially"),
        ({"look_cost": 1.1}, "does not cover a look"),
        ({"look_cost": 0.1, "signals": "websub", "observed": False}, "send signals"),
        ({"look_cost": -1}, "look_cost is -1"),
        ({"unchanged_cost": 0.1, "arrivals": "deterministic"}, "every crawl finds something"),
        ({"unchanged_cost": 1.1}, "lower it"),
        ({"unchanged_cost": 0}, "unchanged_cost is 0"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        Task(**arguments)


@pytest.mark.parametrize("cheaper", [{"look_cost": 0.1}, {"unchanged_cost": 0.1}])
def test_what_crawls_leave_of_a_budget_is_not_lost_if_there_is_something_cheaper(cheaper):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Task(budget=1.5, **cheaper)
    with pytest.warns(UserWarning, match="at most 1 to be spent"):
        Task(budget=1.5)


def test_an_action_of_another_shape_is_refused():
    env = CrawlEnv(look_cost=0.1)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"must have shape \(2, 4\), a priority for each crawl"):
        env.step(np.ones((3, 4)))
