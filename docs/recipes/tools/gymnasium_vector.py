"""Gymnasium's vector environments: AsyncVectorEnv in spawned processes, SyncVectorEnv, make_vec.

A spawned process has not imported `crawl_env`. The prefix `crawl_env:` of an id imports it there.
"""

import json
from functools import partial
from importlib.metadata import version

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env

IDS = ("EphemeralCrawl-v0", "EphemeralCrawlFlat-v0", "EphemeralCrawlDiscrete-v0")
TASK = {"sources": "table1", "budget": 2}


def rewards(envs, steps=20):
    """Return the rewards of random actions, (steps, num_envs)."""
    envs.action_space.seed(0)
    envs.reset(seed=0)
    found = np.array([envs.step(envs.action_space.sample())[1] for _ in range(steps)])
    envs.close()
    return found


if __name__ == "__main__":
    for name in IDS:
        makers = [partial(gym.make, f"crawl_env:{name}", **TASK)] * 2
        spawned = rewards(gym.vector.AsyncVectorEnv(makers, context="spawn"))
        one_by_one = rewards(gym.vector.SyncVectorEnv(makers))
        array = rewards(gym.make_vec(f"crawl_env:{name}", num_envs=2, **TASK))
        assert (spawned == one_by_one).all()
        assert np.allclose(array, one_by_one)
        check_env(gym.make(name, **TASK).unwrapped, skip_render_check=True)
    result = {
        "package": "gymnasium",
        "version": version("gymnasium"),
        "gymnasium": version("gymnasium"),
        "id": ", ".join(IDS),
        "result": "equal rewards in spawned processes, one by one, and in one array program; "
        "check_env passes",
    }
    print(json.dumps(result))
