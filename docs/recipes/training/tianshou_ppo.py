"""Tianshou 2: PPO on EphemeralCrawlDiscrete-v0.

Tianshou makes its own vector environment, and normalizes observations there but not rewards:
Gymnasium's `TransformReward` divides them by 340, about the mean, and subtracts 1, so that the
critic starts near its targets. A choice matters for a few steps only: γ = .9. Rollouts of 32 steps
in 64 environments, and minibatches of 512, keep the noise of a gradient below the small differences
between good policies. Spaces are read from one more environment: `DummyVectorEnv.action_space` is
that of `env.unwrapped`, below the wrappers.
"""

import gymnasium as gym
import numpy as np
import torch
from scoring import options, report
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

import crawl_env  # noqa: F401 - registers the ids

ID, TASK = "EphemeralCrawlDiscrete-v0", {"budget": 2}
NUM_ENVS, ROLLOUT = 64, 32

arguments = options(steps=256_000)
np.random.seed(arguments.seed)  # noqa: NPY002 - Tianshou shuffles with it
torch.manual_seed(arguments.seed)


def make():
    return gym.wrappers.TransformReward(gym.make(ID, **TASK), lambda reward: reward / 340 - 1)


envs = DummyVectorEnv([make] * NUM_ENVS)
envs.seed(arguments.seed)
env = make()
observation_space, action_space = env.observation_space, env.action_space


def features():
    return Net(state_shape=observation_space.shape, hidden_sizes=[64, 64], activation=torch.nn.Tanh)


actor = DiscreteActor(
    preprocess_net=features(), action_shape=int(action_space.n), softmax_output=False
)
policy = DiscreteActorPolicy(actor=actor, action_space=action_space, deterministic_eval=True)
algorithm = PPO(
    policy=policy,
    critic=DiscreteCritic(preprocess_net=features()),
    optim=AdamOptimizerFactory(lr=3e-3),
    gamma=0.9,
    ent_coef=0.0,
    max_grad_norm=0.5,
)
algorithm.run_training(
    OnPolicyTrainerParams(
        training_collector=Collector(
            algorithm, envs, VectorReplayBuffer(NUM_ENVS * ROLLOUT, NUM_ENVS)
        ),
        max_epochs=1,
        epoch_num_steps=arguments.steps,
        collection_step_num_env_steps=NUM_ENVS * ROLLOUT,
        update_step_num_repetitions=4,
        batch_size=NUM_ENVS * ROLLOUT // 4,
        verbose=False,
        show_progress=False,
    )
)

report(policy.compute_action, ID, TASK, package="tianshou", arguments=arguments)
