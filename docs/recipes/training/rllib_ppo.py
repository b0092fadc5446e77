"""RLlib, new API stack: PPO on EphemeralCrawlDiscrete-v0.

`gym.make_vec` makes 64 environments in one array program ("vector_entry_point"). The prefix
`crawl_env:` of the id imports the package, so that remote env runners know the id too (see
tools/rllib_remote.py). RLlib does not scale rewards, which are about 340 per step: Gymnasium's
`TransformReward` divides them by that and subtracts 1. Unscaled, the value function would never
learn returns of 340 / (1 − γ), since squared errors above `vf_clip_param`, 10 by default, have no
gradient. A choice matters for a few steps only: γ = .9. Rollouts of 32 steps and minibatches of 512
keep the noise of a gradient below the small differences between good policies.
"""

import gymnasium as gym
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env
from scoring import options, report

ID, TASK = "crawl_env:EphemeralCrawlDiscrete-v0", {"budget": 2}
NUM_ENVS, ROLLOUT = 64, 32

arguments = options(steps=256_000)


def make(config):
    envs = gym.make_vec(ID, num_envs=config["num_envs"], **TASK)
    return gym.wrappers.vector.TransformReward(envs, lambda reward: reward / 340 - 1)


register_env("crawl", make)
config = (
    PPOConfig()
    .environment("crawl")
    .env_runners(
        num_env_runners=0,
        num_envs_per_env_runner=NUM_ENVS,
        gym_env_vectorize_mode="vector_entry_point",
        rollout_fragment_length=ROLLOUT,
    )
    .training(
        gamma=0.9,
        lambda_=0.95,
        lr=3e-3,
        train_batch_size_per_learner=NUM_ENVS * ROLLOUT,
        minibatch_size=NUM_ENVS * ROLLOUT // 4,
        num_epochs=4,
        clip_param=0.2,
        grad_clip=0.5,
        vf_loss_coeff=0.5,
        use_kl_loss=False,
    )
    .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh"))
    .debugging(seed=arguments.seed)
)
algorithm = config.build_algo()
for _ in range(arguments.steps // (NUM_ENVS * ROLLOUT)):
    algorithm.train()
module = algorithm.get_module()


def act(observation):
    batch = {"obs": torch.as_tensor(observation)[None]}
    return int(module.forward_inference(batch)["action_dist_inputs"].argmax())


report(act, ID, TASK, package="ray", arguments=arguments)
algorithm.stop()
