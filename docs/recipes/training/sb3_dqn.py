"""Stable-Baselines3: DQN on EphemeralCrawlDiscrete-v0.

The rewards are centred and scaled to about ±1 with Gymnasium's `TransformReward`: else all Q-values
are large and differ little, and the errors of the network are larger than the differences that
matter. γ = .9 for the same reason. The learning rate falls to 0, so that the last network is not
one of many that take turns. With 8 environments, `train_freq=4` is 32 steps.
"""

import gymnasium as gym
from scoring import options, report
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

import crawl_env  # noqa: F401

ENV_ID, TASK = "EphemeralCrawlDiscrete-v0", {"sources": "table1", "budget": 2}

arguments = options(steps=60_000)
env = make_vec_env(
    ENV_ID,
    n_envs=8,
    seed=arguments.seed,
    env_kwargs=TASK,
    wrapper_class=gym.wrappers.TransformReward,
    wrapper_kwargs={"func": lambda reward: reward / 300 - 1},
)
model = DQN(
    "MlpPolicy",
    env,
    gamma=0.9,
    learning_rate=lambda left: 2e-3 * left,
    batch_size=256,
    buffer_size=50_000,
    learning_starts=1000,
    train_freq=4,
    gradient_steps=4,
    target_update_interval=1000,
    exploration_fraction=0.3,
    exploration_final_eps=0.1,
    seed=arguments.seed,
)
model.learn(arguments.steps)


def act(observation):
    return model.predict(observation, deterministic=True)[0]


report(act, ENV_ID, TASK, package="stable_baselines3", arguments=arguments)
