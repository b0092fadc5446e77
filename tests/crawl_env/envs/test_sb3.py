"""Stable-Baselines3: its agents train on the environments as they are, and the native vector
environment behaves as its own DummyVecEnv does."""

import inspect

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecMonitor,
    VecNormalize,
)

from crawl_env import CrawlEnv, CrawlVectorEnv
from crawl_env.envs.sb3 import CrawlVecEnv
from tests.crawl_env.env_plain import CHANNELS, COSTLY, random_actions, unreachable_is_fine

torch.set_num_threads(1)


# ------------------------------------------------------------------------- training


def test_evaluate_policy_reports_true_rewards_through_vec_normalize():
    vec = VecNormalize(CrawlVecEnv(2, horizon=6))
    small = {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "policy_kwargs": {"net_arch": [16]}}
    model = PPO("MlpPolicy", vec, seed=0, **small).learn(64)
    vec.training = False
    mean, deviation = evaluate_policy(model, vec, n_eval_episodes=2)
    env = CrawlEnv(horizon=6)
    seen, _ = env.reset(seed=0)
    total = 0.0
    for _ in range(6):
        seen, reward, *_ = env.step(model.predict(vec.normalize_obs(seen), deterministic=True)[0])
        total += reward
    assert mean == pytest.approx(total, rel=1e-6)
    assert deviation == pytest.approx(0, abs=1e-9)
    assert model.ep_info_buffer[-1]["r"] > 6 * 18  # of exploring; the smallest reward is 18


def test_defaults_are_those_of_the_vector_environment():
    ours, theirs = (inspect.signature(kind).parameters for kind in (CrawlVecEnv, CrawlVectorEnv))
    assert all(ours[name].default == theirs[name].default for name in ours.keys() - {"num_envs"})


def test_episodes_are_monitored_as_by_vec_monitor():
    """The same returns and lengths, but for float32 rewards; `Monitor` is found in its place."""
    vec = CrawlVecEnv(3, budget=2, arrivals="poisson", horizon=5)
    assert vec.env_is_wrapped(Monitor) == [True] * 3
    assert vec.env_is_wrapped(gym.wrappers.TimeLimit) == [False] * 3
    with pytest.warns(UserWarning, match="already wrapped with a `Monitor`"):
        outer = VecMonitor(CrawlVecEnv(3, budget=2, arrivals="poisson", horizon=5))
    vec.action_space.seed(0)
    for env in (vec, outer):
        env.seed(7)
        env.reset()
    for t in range(12):
        if t == 7:  # an abandoned episode does not count
            vec.reset()
            outer.reset()
        actions = np.stack([vec.action_space.sample() for _ in range(3)])
        ours, theirs = vec.step(actions)[3], outer.step(actions)[3]
        for one, two in zip(ours, theirs, strict=True):
            assert ("episode" in one) == ("episode" in two) == (t in (4, 11))
            if "episode" in one:
                assert one["episode"]["l"] == two["episode"]["l"] == 5
                assert one["episode"]["r"] == pytest.approx(two["episode"]["r"], rel=1e-5)
                assert 0 <= one["episode"]["t"] < 600


def test_a_return_that_is_not_known_is_not_reported():
    vec = CrawlVecEnv(2, horizon=4)
    vec.reset()
    actions = np.zeros((2, 4), dtype=np.float32)
    vec.step(actions)
    state = vec.env_method("get_state", indices=[0])[0]
    vec.step(actions)
    vec.env_method("set_state", state, indices=[0])
    found = [vec.step(actions)[3][0] for _ in range(7)]
    assert ["episode" in info for info in found] == [False] * 6 + [True]
    assert found[-1]["episode"]["l"] == 4


# ------------------------------------------------------------------------- DummyVecEnv


def pair(rows, **arguments):
    with unreachable_is_fine():
        return (
            CrawlVecEnv(rows, **arguments),
            DummyVecEnv([lambda: Monitor(CrawlEnv(**arguments))] * rows),
        )


@pytest.mark.parametrize(
    ("sources", "rule", "rows"),
    [("table1", "step", 1), ("table1", "average", 3), (COSTLY, "step", 3)],
    ids=["one row", "on average", "mixed costs"],
)
def test_equals_dummy_vec_env_step_by_step(sources, rule, rows):
    arguments = {
        "sources": sources,
        "budget": 3,
        "budget_rule": rule,
        "features": CHANNELS,
        "horizon": 5,
    }
    vec, loop = pair(rows, **arguments)
    assert vec.observation_space == loop.observation_space
    assert vec.action_space == loop.action_space
    assert vec.num_envs == loop.num_envs
    one, two = vec.reset(), loop.reset()
    assert one.dtype == two.dtype
    assert np.array_equal(one, two)
    assert vec.reset_infos == [{}] * rows
    vec.action_space.seed(0)
    for _ in range(16):
        actions = np.stack([vec.action_space.sample() for _ in range(rows)])
        one, two = vec.step(actions), loop.step(actions)
        for a, b in zip(one[:3], two[:3], strict=True):
            assert a.dtype == b.dtype
            assert np.array_equal(a, b)
        assert type(one[3]) is list
        for row, (a, b) in enumerate(zip(one[3], two[3], strict=True)):
            assert a.get("TimeLimit.truncated", False) == b["TimeLimit.truncated"]
            assert ("terminal_observation" in a) == ("terminal_observation" in b) == one[2][row]
            if one[2][row]:
                last = a["terminal_observation"]
                assert last.dtype == np.float32
                assert np.array_equal(last, b["terminal_observation"])
                assert not np.array_equal(last, one[0][row])  # which is already the next start
                assert a["episode"]["r"] == pytest.approx(b["episode"]["r"], rel=1e-6)
                assert a["episode"]["l"] == b["episode"]["l"] == 5
            assert set(a) <= set(b)


def test_infos_are_not_shared():
    vec = CrawlVecEnv(3, horizon=2)
    vec.reset()
    for _ in range(3):
        infos = vec.step(np.zeros((3, 4), np.float32))[3]
        infos[0]["spoilt"] = True
        assert all("spoilt" not in info for info in infos[1:])
    assert "spoilt" not in vec.step(np.zeros((3, 4), np.float32))[3][0]


# ------------------------------------------------------------------------- the rest of VecEnv


def test_seeds_are_used_once_and_reproduce():
    vec = CrawlVecEnv(3, arrivals="poisson-items", horizon=None)
    runs = []
    for seed in (5, 5, 6):
        vec.seed(seed)
        seen = [vec.reset()]
        seen += [vec.step(action)[0] for action in random_actions(vec.vector_env, 4)]
        runs.append(np.stack(seen))
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    vec.seed(5)
    first, second = vec.reset(), vec.reset()
    assert np.array_equal(first, runs[0][0])
    assert not np.array_equal(second, first)


def test_options_are_used_once():
    for vec in pair(2, features=("value", "age")):
        plain = vec.reset()
        vec.set_options({"value": [1, 2, 3, 4], "age": [5, 6, 7, 8]})
        assert vec.reset().tolist() == [[[1, 5], [2, 6], [3, 7], [4, 8]]] * 2
        assert np.array_equal(vec.reset(), plain)


def test_options_of_their_own_reach_each_environment_or_are_refused():
    """Stable-Baselines3 takes a list, one entry an environment; to use the first for all of them
    without a word would be wrong."""
    options = [{"value": [1, 2, 3, 4]}, {"value": [5, 6, 7, 8]}]
    vec, loop = pair(2)
    for env in (vec, loop):
        env.set_options(options)
    expected = loop.reset()
    assert expected[1, :, 0].tolist() == [5, 6, 7, 8]
    try:
        seen = vec.reset()
    except ValueError:
        return
    assert np.array_equal(seen, expected)


def test_attributes_and_methods():
    vec, loop = pair(3, budget=2)
    vec.reset()
    loop.reset()
    for name in ("spec", "render_mode"):
        assert vec.get_attr(name) == loop.get_attr(name)
        assert vec.get_attr(name, 1) == loop.get_attr(name, 1)
        assert vec.get_attr(name, [0, 2]) == loop.get_attr(name, [0, 2])
    assert [task.budget for task in vec.get_attr("task")] == [2.0] * 3
    assert vec.has_attr("task")
    assert not vec.has_attr("nonsense")
    with pytest.raises(AttributeError):
        vec.get_attr("nonsense")
    assert len(vec.env_method("get_state")) == 3
    assert len(vec.env_method("get_state", indices=1)) == 1
    vec.set_attr("note", 7)
    assert vec.get_attr("note", indices=range(2)) == [7, 7]
    assert vec.env_is_wrapped(Monitor) == loop.env_is_wrapped(Monitor) == [True] * 3
    assert vec.env_is_wrapped(Monitor, indices=0) == [True]
    assert vec.unwrapped is vec
    assert vec.render_mode is None
    vec.close()


def test_bad_arguments_are_refused():
    with pytest.raises(TypeError, match=r"CrawlVecEnv.__init__\(\) got .* mean 'budget'"):
        CrawlVecEnv(2, bugdet=3)
    vec = CrawlVecEnv(2)
    vec.reset()
    with pytest.raises(ValueError, match="NaN"):
        vec.step(np.full((2, 4), np.nan))


def test_pictures():
    pytest.importorskip("pygame")
    vec = CrawlVecEnv(3, render_mode="rgb_array")
    vec.reset()
    images = vec.get_images()
    assert len(images) == 3
    assert vec.render().dtype == np.uint8
    vec.close()
