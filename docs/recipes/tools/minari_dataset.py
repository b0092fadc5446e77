"""Minari: a data set of the Whittle policy, from which the environment is made again."""

import json
import os
import tempfile
from importlib.metadata import version

import gymnasium as gym
import numpy as np

from agents import Whittle

ENV_ID, TASK = (
    "crawl_env:EphemeralCrawlFlat-v0",
    {
        "sources": "table1",
        "budget": 2,
        "arrivals": "poisson",
    },
)
EPISODES = 4

with tempfile.TemporaryDirectory() as folder:
    os.environ["MINARI_DATASETS_PATH"] = folder
    import minari

    env = minari.DataCollector(gym.make(ENV_ID, **TASK))
    whittle = Whittle(env.unwrapped)
    for seed in range(EPISODES):
        observation, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            action, _ = whittle.predict(observation)
            observation, _, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
    env.create_dataset("crawl/whittle-v0", algorithm_name="Whittle", author="recipe")

    data = minari.load_dataset("crawl/whittle-v0")
    again = data.recover_environment()  # from the spec in the file
    for seed, episode in enumerate(data.iterate_episodes()):
        observation, _ = again.reset(seed=seed)
        for action, following, reward in zip(
            episode.actions, episode.observations[1:], episode.rewards, strict=True
        ):
            observation, found, *_ = again.step(action)
            assert np.array_equal(observation, following)
            assert np.isclose(found, reward)
    steps = data.total_steps

result = {
    "package": "minari",
    "version": version("minari"),
    "gymnasium": version("gymnasium"),
    "id": ENV_ID,
    "steps": int(steps),
    "result": f"{EPISODES} episodes, {steps:,} steps; the environment made from the stored spec "
    "repeats all observations and rewards",
}
print(json.dumps(result))
