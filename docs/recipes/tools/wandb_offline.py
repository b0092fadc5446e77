"""Weights & Biases: an offline run that takes the curves and the settings of SB3's PPO."""

import json
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

import wandb
from stable_baselines3 import PPO
from wandb.integration.sb3 import WandbCallback

from crawl_env.envs.sb3 import CrawlVecEnv

TASK = {"sources": "table1", "budget": 2}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run = wandb.init(mode="offline", project="crawl", config=TASK, sync_tensorboard=True)
        env = CrawlVecEnv(num_envs=4, **TASK)
        model = PPO("MlpPolicy", env, n_steps=250, batch_size=250, tensorboard_log="runs", seed=0)
        model.learn(4000, callback=WandbCallback())
        run.finish()
        size = sum(file.stat().st_size for file in Path(folder).glob("wandb/offline-run-*/*.wandb"))
        assert size > 1000
        os.chdir("/")
    result = {
        "package": "wandb",
        "version": version("wandb"),
        "gymnasium": version("gymnasium"),
        "id": "CrawlVecEnv",
        "result": f"an offline run of {size // 1000} kB, with the callback for SB3",
    }
    print(json.dumps(result))
