"""Stable-Baselines3: MaskablePPO of sb3-contrib, which picks one source after the other.

`SequentialSelection` splits a step into two picks, of which the second may not repeat the first:
`action_masks` says so, and MaskablePPO asks for it. A step of the task is two steps here, so
that γ = .9^(1/2). The other settings are those of PPO: `VecNormalize` scales the rewards, and
rollouts are short and many.
"""

import gymnasium as gym
from sb3_contrib import MaskablePPO
from scoring import options, report
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import crawl_env  # noqa: F401
from crawl_env.envs.wrappers import SequentialSelection

ENV_ID, TASK = "EphemeralCrawlFlat-v0", {"sources": "table1", "budget": 2}
GAMMA = 0.9**0.5

arguments = options(steps=150_000)
env = make_vec_env(
    ENV_ID, 16, seed=arguments.seed, env_kwargs=TASK, wrapper_class=SequentialSelection
)
model = MaskablePPO(
    "MlpPolicy",
    VecNormalize(env, norm_obs=False, gamma=GAMMA),
    gamma=GAMMA,
    n_steps=128,
    batch_size=512,
    n_epochs=4,
    learning_rate=3e-3,
    seed=arguments.seed,
)
model.learn(arguments.steps)

played = SequentialSelection(gym.make(ENV_ID, **TASK))


def act(observation):
    return model.predict(observation, deterministic=True, action_masks=played.action_masks())[0]


report(act, ENV_ID, TASK, package="sb3_contrib", arguments=arguments, env=played)
