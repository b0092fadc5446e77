"""skrl: PPO on EphemeralCrawlDiscrete-v0.

`gym.make_vec` makes 64 environments in one array program, and `wrap_env` takes them as they are.
Rewards are about 340 per step; `rewards_shaper` divides them by that and subtracts 1, so that the
value network starts near its targets. A choice matters for a few steps only: γ = .9. Rollouts of 32
steps and minibatches of 512 keep the noise of a gradient below the small differences between good
policies. skrl's bounds on the value loss (`value_clip`) and its weight (2.5) are not needed then.
Episodes are truncated, not terminated, hence `time_limit_bootstrap`.
"""

import gymnasium as gym
import torch
from scoring import options, report
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed
from torch import nn

import crawl_env  # noqa: F401 - registers the ids

ID, TASK = "EphemeralCrawlDiscrete-v0", {"budget": 2}
NUM_ENVS, ROLLOUT = 64, 32

arguments = options(steps=256_000)
set_seed(arguments.seed)


class Policy(CategoricalMixin, Model):
    def __init__(self, env):
        Model.__init__(self, observation_space=env.observation_space, action_space=env.action_space)
        CategoricalMixin.__init__(self)
        self.net = network(self.num_observations, self.num_actions)

    def compute(self, inputs, role):
        return self.net(inputs["observations"]), {}


class Value(DeterministicMixin, Model):
    def __init__(self, env):
        Model.__init__(self, observation_space=env.observation_space, action_space=env.action_space)
        DeterministicMixin.__init__(self)
        self.net = network(self.num_observations, 1)

    def compute(self, inputs, role):
        return self.net(inputs["observations"]), {}


def network(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
    )


env = wrap_env(gym.make_vec(ID, num_envs=NUM_ENVS, **TASK))
models = {"policy": Policy(env), "value": Value(env)}
cfg = PPO_CFG(
    rollouts=ROLLOUT,
    learning_epochs=4,
    mini_batches=4,
    discount_factor=0.9,
    learning_rate=3e-3,
    value_loss_scale=0.5,
    value_clip=0,
    time_limit_bootstrap=True,
    rewards_shaper=lambda rewards, *_: rewards / 340 - 1,
    experiment={"write_interval": 0, "checkpoint_interval": 0},
)
agent = PPO(
    models=models,
    memory=RandomMemory(memory_size=ROLLOUT, num_envs=NUM_ENVS),
    cfg=cfg,
    observation_space=env.observation_space,
    action_space=env.action_space,
)
trainer = SequentialTrainer(
    env=env,
    agents=agent,
    cfg={"timesteps": arguments.steps // NUM_ENVS, "headless": True, "disable_progressbar": True},
)
trainer.train()


def act(observation):
    with torch.no_grad():
        logits = models["policy"].net(torch.as_tensor(observation))
    return int(logits.argmax())


report(act, ID, TASK, package="skrl", arguments=arguments)
