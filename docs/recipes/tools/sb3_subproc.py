"""Stable-Baselines3: SubprocVecEnv in spawned processes, check_env, evaluate_policy."""

import json
from importlib.metadata import version

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

from crawl_env.envs.sb3 import CrawlVecEnv

ENV_ID, TASK = "crawl_env:EphemeralCrawlFlat-v0", {"sources": "table1", "budget": 2}

if __name__ == "__main__":
    check_env(gym.make(ENV_ID, **TASK))
    processes = make_vec_env(
        ENV_ID,
        2,
        env_kwargs=TASK,
        vec_env_cls=SubprocVecEnv,
        vec_env_kwargs={"start_method": "spawn"},
    )
    model = PPO("MlpPolicy", processes, n_steps=512, seed=0).learn(2048)
    assert len(model.ep_info_buffer) == 4
    plain, _ = evaluate_policy(model, processes, n_eval_episodes=2)
    array = VecNormalize(CrawlVecEnv(2, flat=True, scaled=True, **TASK), training=False)
    array.norm_obs = False
    same, _ = evaluate_policy(model, array, n_eval_episodes=2)
    assert np.isclose(plain, same), (plain, same)  # of the task, not of scaled rewards
    processes.close()
    result = {
        "package": "stable_baselines3",
        "version": version("stable_baselines3"),
        "gymnasium": version("gymnasium"),
        "id": ENV_ID,
        "result": f"{len(model.ep_info_buffer)} episodes monitored in 2 processes; "
        f"evaluate_policy reports the same return, {plain:,.0f}, for VecNormalize(CrawlVecEnv)",
    }
    print(json.dumps(result))
