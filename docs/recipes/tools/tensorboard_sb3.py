"""TensorBoard: the log of a short training with Stable-Baselines3, read back."""

import json
import tempfile
from importlib.metadata import version
from pathlib import Path

from stable_baselines3 import PPO
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from crawl_env.envs.sb3 import CrawlVecEnv

with tempfile.TemporaryDirectory() as folder:
    env = CrawlVecEnv(num_envs=4, sources="table1", budget=2)
    PPO("MlpPolicy", env, n_steps=250, batch_size=250, tensorboard_log=folder, seed=0).learn(4000)
    log = EventAccumulator(str(next(Path(folder).iterdir())))
    log.Reload()
    curve = log.Scalars("rollout/ep_rew_mean")

result = {
    "package": "tensorboard",
    "version": version("tensorboard"),
    "gymnasium": version("gymnasium"),
    "id": "CrawlVecEnv",
    "result": f"rollout/ep_rew_mean has {len(curve)} points, the last {curve[-1].value:,.0f}",
}
print(json.dumps(result))
