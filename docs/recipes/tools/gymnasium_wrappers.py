"""Gymnasium's wrappers: eight of them on the plain environment and on the flat one."""

import json
import tempfile
from importlib.metadata import version
from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium import wrappers

import crawl_env  # noqa: F401

IDS = ("EphemeralCrawl-v0", "EphemeralCrawlFlat-v0")
TASK = {"sources": "table1", "budget": 2, "features": ("value", "age"), "start": "full"}


def play(env, steps=500):
    """Return the observations of an episode of random actions, and the last info."""
    env.action_space.seed(0)
    observations, info = [env.reset(seed=0)[0]], {}
    for _ in range(steps):
        observation, _, terminated, truncated, info = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)
        observations.append(observation)
        if terminated or truncated:
            break
    env.close()
    assert len(observations) == env.spec.max_episode_steps + 1
    return np.array(observations), info


with tempfile.TemporaryDirectory() as folder:
    for env_id in IDS:
        make = {"id": env_id, **TASK}
        observations, info = play(wrappers.RecordEpisodeStatistics(gym.make(**make)))
        assert info["episode"]["l"] == 500

        timed, _ = play(
            wrappers.TimeAwareObservation(wrappers.FlattenObservation(gym.make(**make)))
        )
        assert timed[-1, -1] == 500

        normalized, _ = play(wrappers.NormalizeObservation(gym.make(**make)))
        assert np.isfinite(normalized).all()

        play(wrappers.FrameStackObservation(gym.make(**make), 2))
        play(wrappers.NormalizeReward(wrappers.ClipAction(gym.make(**make)), gamma=0.9))

        video = gym.make(**make, horizon=50, render_mode="rgb_array")
        play(wrappers.RecordVideo(video, folder, name_prefix=env_id, disable_logger=True))
        assert (Path(folder) / f"{env_id}-episode-0.mp4").stat().st_size > 5_000

    # Of the plain environment the bounds are infinite, and nothing can be rescaled.
    flat = gym.make(IDS[1], **TASK)
    rescaled, _ = play(wrappers.RescaleObservation(flat, np.float32(-1), np.float32(1)))
    assert -1 <= rescaled.min() < 0 < rescaled.max() <= 1

result = {
    "package": "gymnasium",
    "version": version("gymnasium"),
    "gymnasium": version("gymnasium"),
    "id": ", ".join(IDS),
    "result": "RecordEpisodeStatistics, TimeAware-, Flatten-, Normalize-, FrameStack- and "
    "RescaleObservation (flat id), NormalizeReward, ClipAction, RecordVideo",
}
print(json.dumps(result))
