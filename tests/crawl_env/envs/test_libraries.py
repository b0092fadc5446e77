"""The stack of Gymnasium's wrappers in which CleanRL trains on continuous actions: it has to run as
it is, and to say what was earned."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from crawl_env import Sources
from tests.crawl_env.env_plain import ID


def make_env(**arguments):
    """CleanRL's `make_env` of ppo_continuous_action.py."""

    def thunk():
        env = gym.make(ID, **arguments)
        env = gym.wrappers.FlattenObservation(env)
        env = gym.wrappers.RecordEpisodeStatistics(env)
        env = gym.wrappers.ClipAction(env)
        env = gym.wrappers.NormalizeObservation(env)
        space = gym.spaces.Box(-10.0, 10.0, env.observation_space.shape, np.float32)
        env = gym.wrappers.TransformObservation(env, lambda x: np.clip(x, -10, 10), space)
        env = gym.wrappers.NormalizeReward(env, gamma=0.99)
        return gym.wrappers.TransformReward(env, lambda r: np.clip(r, -10, 10))

    return thunk


def episodes_of(info, mode):
    """Return the returns and lengths of the episodes that ended in this step."""
    record = info.get("final_info", {}) if mode is AutoresetMode.SAME_STEP else info
    if "episode" not in record:
        return [], []
    ended = record["_episode"]
    return record["episode"]["r"][ended].tolist(), record["episode"]["l"][ended].tolist()


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_observations_and_rewards_are_finite_and_episodes_are_counted(mode):
    """Actions as a normal policy draws them, beyond the box; fleets drawn anew, nothing told."""
    arguments = {
        "sources": lambda rng: Sources.random(4, rng),
        "features": ("age", "crawled", "harvest", "items", "balance"),
        "arrivals": "poisson-lognormal-items",
        "budget_rule": "average",
        "horizon": 10,
    }
    envs = SyncVectorEnv([make_env(**arguments)] * 3, autoreset_mode=mode)
    seen, _ = envs.reset(seed=1)
    rng, returns, lengths = np.random.default_rng(1), [], []
    for _ in range(31):
        action = rng.standard_normal(envs.action_space.shape).astype(np.float32)
        seen, reward, _, _, info = envs.step(action)
        assert seen.dtype == np.float32
        assert np.isfinite(seen).all()
        assert np.isfinite(reward).all()
        for found, more in zip((returns, lengths), episodes_of(info, mode), strict=True):
            found += more
    # An episode takes 10 steps, and one more to reset under NEXT_STEP.
    assert lengths == [10] * 3 * (3 if mode is AutoresetMode.SAME_STEP else 2)
    assert min(returns) > 0
