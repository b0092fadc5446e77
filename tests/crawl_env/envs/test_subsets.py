"""The tables of SubsetAction against trying every set, and the wrapper against plain Python."""

import itertools
from math import comb

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st
from stable_baselines3.common.env_checker import check_env as check_env_sb3

from crawl_env import CrawlEnv, CrawlVectorEnv, Sources, task_of
from crawl_env.envs import subsets
from crawl_env.envs.subsets import MOST_SUBSETS, all_subsets, maximal_subsets
from crawl_env.envs.wrappers import SubsetAction, VectorSubsetAction
from tests.crawl_env.env_plain import (
    CHANNELS,
    ID,
    PlainCrawl,
    PlainSource,
    fleet_of,
)
from tests.references import affordable_subsets, maximal, plainly

COSTS = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.0, 2.0, 3.7, 50.0]


@plainly
@given(
    cost=st.lists(st.sampled_from(COSTS), min_size=1, max_size=8),
    budget=st.sampled_from([0.05, 0.1, 0.3, 0.6, 0.7, 1.0, 1.2, 2.5, 3.0, 7.7, 150.0]),
)
def test_maximal_subsets_of_round_costs(cost, budget):
    """Decimal fractions whose sums round: 0.1 + 0.2 fits into 0.3."""
    assert list(maximal_subsets(np.array(cost), budget)) == maximal(cost, budget)


@plainly
@given(
    cost=st.lists(st.floats(1e-3, 10), min_size=1, max_size=8),
    share=st.floats(0.01, 1.2),
)
def test_maximal_subsets_of_any_costs(cost, share):
    budget = share * sum(cost)
    assert list(maximal_subsets(np.array(cost), budget)) == maximal(cost, budget)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_all_subsets_are_all_in_lexicographic_order(n):
    expected = sorted(
        itertools.chain.from_iterable(itertools.combinations(range(n), k) for k in range(n + 1))
    )
    assert list(all_subsets(n)) == expected
    assert expected[0] == ()


def test_the_largest_tables_are_allowed():
    assert len(all_subsets(16)) == MOST_SUBSETS == 2**16
    assert len(maximal_subsets(np.ones(18), 9.0)) == comb(18, 9) == 48620
    assert len(all_subsets(3, most=8)) == 8
    assert len(maximal_subsets(np.array([1.0, 1.0, 1.5]), 1.5, most=3)) == 3


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: all_subsets(17), id="all of 17"),
        pytest.param(lambda: all_subsets(10**6), id="all of a million"),
        pytest.param(lambda: all_subsets(3, most=7), id="all of 3 in 7"),
        pytest.param(lambda: maximal_subsets(np.ones(30), 15.0), id="15 of 30"),
        pytest.param(lambda: maximal_subsets(np.ones(5), 2.0, most=9), id="2 of 5 in 9"),
        pytest.param(lambda: maximal_subsets(np.ones(10**5), 3.0), id="3 of 100,000"),
        pytest.param(lambda: maximal_subsets(np.linspace(1, 2, 40), 30.0, 999), id="costs differ"),
        pytest.param(lambda: maximal_subsets(np.array([1.0, 1.0, 1.5]), 1.5, most=2), id="3 in 2"),
    ],
)
def test_larger_tables_are_refused_with_a_remedy(make):
    with pytest.raises(ValueError, match=r"sources have .* subsets.*priorit.*SequentialSelection"):
        make()


def test_a_search_that_would_not_end_is_refused(monkeypatch):
    monkeypatch.setattr(subsets, "_MOST_VISITS", 20_000)
    cost = np.r_[np.full(24, 0.001), np.ones(14)]
    with pytest.raises(ValueError, match="SequentialSelection"):
        maximal_subsets(cost, 7.5)


def costs(*cost, **more):
    return Sources(
        [4.0, 20, 1, 9][: len(cost)], 1.0, [0.2, 0.7, 0.05, 1.2][: len(cost)], cost, **more
    )


@pytest.mark.parametrize("rule", ["step", "average"])
@pytest.mark.parametrize(("cost", "budget"), [(["1"] * 4, "2"), (["1", "2", "0.5", "0.7"], "2.2")])
def test_a_step_is_the_plain_one(cost, budget, rule):
    plain_fleet = [PlainSource(3.0 + i, 1.0, 0.3, c) for i, c in enumerate(cost)]
    arguments = {"sources": fleet_of(plain_fleet), "budget": float(budget), "budget_rule": rule}
    env = SubsetAction(gym.make(ID, **arguments, features=CHANNELS))
    vec = VectorSubsetAction(CrawlVectorEnv(2, **arguments, features=CHANNELS))
    prices = list(map(float, cost))
    every = sorted(affordable_subsets(prices, sum(prices)))
    table = maximal(prices, float(budget)) if rule == "step" else every
    assert list(env.subsets) == list(vec.subsets) == table
    assert env.action_space == vec.single_action_space == gym.spaces.Discrete(len(table))
    assert vec.action_space == gym.vector.utils.batch_space(vec.single_action_space, 2)
    plain = PlainCrawl(plain_fleet, budget, rule, 1.0)
    env.reset(seed=0)
    vec.reset(seed=0)
    rng = np.random.default_rng(0)
    for kind in [int, np.int64, np.uint8, np.array, lambda x: np.array([x])] * 12:
        number = int(rng.integers(len(table)))
        seen, reward, *_ = env.step(kind(number))
        assert reward == pytest.approx(plain.step(plain.select_subset(table[number])), rel=1e-12)
        np.testing.assert_allclose(seen, plain.observation(CHANNELS), rtol=3e-7, atol=1e-7)
        both = vec.step(np.array([number, number]))
        assert np.array_equal(both[0], [seen, seen])


def test_nothing_else_is_crawled_than_the_subset_while_all_are_available():
    fleet = costs(1, 2, 0.5, 0.7, hosts=["a", "a", "b", "b"])
    env = SubsetAction(CrawlEnv(sources=fleet, budget=2.2, features=("crawled",)))
    assert env.subsets == ((0, 2), (0, 3), (1,))
    env.reset(seed=0)
    for number, subset in enumerate(env.subsets):
        assert tuple(np.flatnonzero(env.step(number)[0])) == subset


@pytest.mark.parametrize("rule", ["step", "average"])
def test_what_an_unavailable_member_leaves_of_the_budget_is_not_spent(rule):
    fleet = costs(1, 1, 1, 1, crawl_delay=[3, 0, 0, 0])
    arguments = {"sources": fleet, "budget": 2, "budget_rule": rule, "features": ("crawled",)}
    env = SubsetAction(CrawlEnv(**arguments))
    vec = VectorSubsetAction(CrawlVectorEnv(2, **arguments))
    number = env.subsets.index((0, 1))
    for one in (env, vec):
        one.reset(options={"age": [5.0, 1, 2, 3]})
    for crawled in ([1, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]):
        seen, _, _, _, info = env.step(number)
        assert seen[:, 0].tolist() == crawled
        assert info["cost"] == sum(crawled)
        assert vec.step(np.array([number] * 2))[0][..., 0].tolist() == [crawled] * 2


@pytest.mark.parametrize(
    "action", [4, -1, 1.0, np.nan, True, np.zeros(2, int), np.zeros(4, np.float32)], ids=repr
)
def test_bad_numbers_are_refused(action):
    env = SubsetAction(CrawlEnv())
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"action is .*(an integer from 0 to 3$|0 … 3)"):
        env.step(action)
    vec = VectorSubsetAction(CrawlVectorEnv(3))
    vec.reset(seed=0)
    with pytest.raises(ValueError, match=r"action is .*(for each of the 3 environments|0 … 3)"):
        vec.step(np.array([action] * 3) if np.ndim(action) == 0 else action)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=str)
def test_the_autoreset_mode_can_be_read(mode):
    """TorchRL's `GymWrapper` reads this attribute, which Gymnasium's wrappers do not forward."""
    assert VectorSubsetAction(CrawlVectorEnv(2, autoreset_mode=mode)).autoreset_mode is mode


def test_the_vector_wrapper_has_a_plain_base_class():
    """Gymnasium 1.1 and 1.2 (RLlib pins 1.2.2) cannot subscript their vector wrappers."""
    assert "__orig_bases__" not in vars(VectorSubsetAction)


def test_fleets_drawn_anew_must_keep_their_costs():
    calls = []

    def draw(rng):
        calls.append(1)
        return costs(1, 1, 1 if len(calls) < 4 else 0.5)

    env = SubsetAction(CrawlEnv(sources=draw))
    env.reset(seed=0)
    vec = VectorSubsetAction(CrawlVectorEnv(1, sources=draw))
    for one in (env, vec):
        with pytest.raises(ValueError, match="changed the costs"):
            one.reset(seed=0)


def test_what_cannot_be_wrapped_is_refused():
    other = gym.make("CartPole-v1")
    with pytest.raises(ValueError, match="SubsetAction wraps EphemeralCrawl"):
        SubsetAction(other)
    with pytest.raises(ValueError, match="changed to Box"):
        SubsetAction(gym.wrappers.RescaleAction(CrawlEnv(), 0, 1))
    with pytest.raises(ValueError, match=r"SequentialSelection"):
        SubsetAction(CrawlEnv(sources="recovering-100", budget=50))
    with pytest.raises(ValueError, match="agents"):
        task_of(SubsetAction(CrawlEnv()))


@pytest.mark.filterwarnings("ignore:.*(infinity|unconventional shape|unwrapped version).*")
def test_conformance():
    env = SubsetAction(gym.make(ID, budget=2, arrivals="poisson-items", horizon=4))
    check_env_sb3(env)
    check_env(env, skip_render_check=True)
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert isinstance(again, SubsetAction)
    for one in (env, again):
        one.reset(seed=3)
    for number in (0, 5, 2):
        assert np.array_equal(env.step(number)[0], again.step(number)[0])
