"""CleanRL: a loop like its ppo_continuous_action.py, on EphemeralCrawlFlat-v0.

CleanRL (S. Huang et al., JMLR 23 (274), 2022) is a collection of single files to be copied, not a
package; this one is written anew in its manner: `gym.make` in a `SyncVectorEnv`, one file, no
classes but the network. Of CleanRL's wrappers, `NormalizeObservation` is not needed, since
observations are scaled, and `NormalizeReward` is replaced by `TransformReward`: it divides by the
standard deviation of the discounted return, which under constant rewards falls towards 0, so that
rewards grow all the time. γ is .9 instead of .99, with which the value function would mostly be a
constant: contents last for 1.4 to 5 steps. 16 environments instead of 1 reduce the variance of the
gradient, and log σ starts at −1 instead of 0, as priorities beyond [−1, 1] are clipped. Where an
episode is cut off, the value of what would follow is added.
"""

import gymnasium as gym
import numpy as np
import torch
from scoring import options, report
from torch import nn
from torch.distributions import Normal

import crawl_env  # noqa: F401

ENV_ID, TASK = "EphemeralCrawlFlat-v0", {"sources": "table1", "budget": 2}
NUM_ENVS, NUM_STEPS, EPOCHS, MINIBATCHES = 16, 128, 4, 4
GAMMA, GAE_LAMBDA, CLIP, LEARNING_RATE = 0.9, 0.95, 0.2, 3e-3


def make_env():
    env = gym.make(ENV_ID, **TASK)
    env = gym.wrappers.RecordEpisodeStatistics(env)
    env = gym.wrappers.ClipAction(env)
    return gym.wrappers.TransformReward(env, lambda reward: reward / 300 - 1)


def layer(inputs, outputs, std=2**0.5):
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, std)
    nn.init.constant_(linear.bias, 0.0)
    return linear


class Agent(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.critic = nn.Sequential(
            layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, std=1.0)
        )
        self.mean = nn.Sequential(
            layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, outputs, std=0.01)
        )
        self.log_std = nn.Parameter(torch.full((outputs,), -1.0))

    def distribution(self, observation):
        return Normal(self.mean(observation), self.log_std.exp())


if __name__ == "__main__":
    arguments = options(steps=128_000)
    torch.manual_seed(arguments.seed)
    envs = gym.vector.SyncVectorEnv(
        [make_env] * NUM_ENVS, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
    inputs, outputs = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
    agent = Agent(inputs, outputs)
    optimizer = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)

    shape = (NUM_STEPS, NUM_ENVS)
    obs, actions = torch.zeros((*shape, inputs)), torch.zeros((*shape, outputs))
    logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(4))
    next_obs, next_done = torch.Tensor(envs.reset(seed=arguments.seed)[0]), torch.zeros(NUM_ENVS)
    updates = max(arguments.steps // (NUM_STEPS * NUM_ENVS), 1)

    for _ in range(updates):
        for step in range(NUM_STEPS):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                policy = agent.distribution(next_obs)
                actions[step] = policy.sample()
                logprobs[step] = policy.log_prob(actions[step]).sum(1)
                values[step] = agent.critic(next_obs).flatten()
            found, reward, terminated, truncated, info = envs.step(actions[step].numpy())
            rewards[step] = torch.Tensor(reward)
            for i in np.flatnonzero(truncated):  # the episode was cut off, the task goes on
                with torch.no_grad():
                    rewards[step, i] += GAMMA * agent.critic(torch.Tensor(info["final_obs"][i]))[0]
            next_obs, next_done = torch.Tensor(found), torch.Tensor(terminated | truncated)

        with torch.no_grad():  # generalized advantage estimation
            next_value, advantage = agent.critic(next_obs).flatten(), torch.zeros(NUM_ENVS)
            advantages = torch.zeros(shape)
            for t in reversed(range(NUM_STEPS)):
                goes_on = 1 - (dones[t + 1] if t + 1 < NUM_STEPS else next_done)
                delta = rewards[t] + GAMMA * next_value * goes_on - values[t]
                advantages[t] = advantage = delta + GAMMA * GAE_LAMBDA * goes_on * advantage
                next_value = values[t]
            returns = advantages + values

        b_obs, b_actions = obs.reshape(-1, inputs), actions.reshape(-1, outputs)
        b_logprobs, b_advantages, b_returns = (x.flatten() for x in (logprobs, advantages, returns))
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(b_obs)).chunk(MINIBATCHES):
                policy = agent.distribution(b_obs[batch])
                ratio = (policy.log_prob(b_actions[batch]).sum(1) - b_logprobs[batch]).exp()
                gain = b_advantages[batch]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
                policy_loss = -torch.min(gain * ratio, gain * clipped).mean()
                error = agent.critic(b_obs[batch]).flatten() - b_returns[batch]
                loss = policy_loss + 0.5 * 0.5 * (error**2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
    envs.close()

    def act(observation):
        with torch.no_grad():
            return agent.mean(torch.Tensor(observation)).clamp(-1, 1).numpy()

    report(act, ENV_ID, TASK, package="torch", arguments=arguments)
