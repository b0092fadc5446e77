"""CleanRL's PPO for continuous actions, on a page: its stack of wrappers in Gymnasium 1.x, its
flow of data, small networks. It has to run as it is, and to say what it earned."""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn
from torch.distributions import Normal

from crawl_env import Sources
from tests.crawl_env.env_plain import ID

torch.set_num_threads(1)
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2


def fleets(rng):
    return Sources.random(4, rng)


def make_env(**arguments):
    """CleanRL's `make_env` of ppo_continuous_action.py."""

    def thunk():
        env = gym.make(ID, **arguments)
        env = gym.wrappers.FlattenObservation(env)
        env = gym.wrappers.RecordEpisodeStatistics(env)
        env = gym.wrappers.ClipAction(env)
        env = gym.wrappers.NormalizeObservation(env)
        space = gym.spaces.Box(-10.0, 10.0, env.observation_space.shape, np.float32)
        env = gym.wrappers.TransformObservation(env, lambda x: np.clip(x, -10, 10), space)
        env = gym.wrappers.NormalizeReward(env, gamma=GAMMA)
        return gym.wrappers.TransformReward(env, lambda r: np.clip(r, -10, 10))

    return thunk


def layer(inputs, outputs, std=2**0.5):
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, std)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    def __init__(self, inputs, actions):
        super().__init__()
        self.critic = nn.Sequential(layer(inputs, 32), nn.Tanh(), layer(32, 1, 1.0))
        self.mean = nn.Sequential(layer(inputs, 32), nn.Tanh(), layer(32, actions, 0.01))
        self.log_std = nn.Parameter(torch.zeros(1, actions))

    def forward(self, x, action=None):
        mean = self.mean(x)
        law = Normal(mean, self.log_std.exp().expand_as(mean))
        action = law.sample() if action is None else action
        value = self.critic(x).squeeze(-1)
        return action, law.log_prob(action).sum(1), law.entropy().sum(1), value


@dataclass
class Log:
    losses: list[float]
    returns: list[float]
    lengths: list[int]


def episodes_of(info, mode):
    """Return the returns and lengths of the episodes that ended in this step."""
    record = info.get("final_info", {}) if mode is AutoresetMode.SAME_STEP else info
    if "episode" not in record:
        return np.empty(0), np.empty(0, dtype=int)
    ended = record["_episode"]
    return record["episode"]["r"][ended], record["episode"]["l"][ended]


def train(envs, updates, steps=32, seed=1):
    """Proximal policy optimisation as in CleanRL: roll out, advantages, a few epochs of batches."""
    torch.manual_seed(seed)
    rows = envs.num_envs
    inputs = int(np.prod(envs.single_observation_space.shape))
    agent = Agent(inputs, int(np.prod(envs.single_action_space.shape)))
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)
    log = Log([], [], [])
    seen, _ = envs.reset(seed=seed)
    next_obs, next_done = torch.as_tensor(seen, dtype=torch.float32), torch.zeros(rows)
    for _ in range(updates):
        obs, actions = torch.zeros(steps, rows, inputs), torch.zeros(steps, rows, 4)
        logps, rewards, dones, values = (torch.zeros(steps, rows) for _ in range(4))
        for t in range(steps):
            obs[t], dones[t] = next_obs, next_done
            with torch.no_grad():
                actions[t], logps[t], _, values[t] = agent(next_obs)
            seen, reward, terminated, truncated, info = envs.step(actions[t].numpy())
            rewards[t] = torch.as_tensor(reward)
            next_obs = torch.as_tensor(seen, dtype=torch.float32)
            next_done = torch.as_tensor(terminated | truncated, dtype=torch.float32)
            returns, lengths = episodes_of(info, envs.autoreset_mode)
            log.returns += returns.tolist()
            log.lengths += lengths.tolist()
        with torch.no_grad():
            next_value = agent.critic(next_obs).squeeze(-1)
        advantages, last = torch.zeros_like(rewards), torch.zeros(rows)
        for t in reversed(range(steps)):
            alive = 1 - (next_done if t == steps - 1 else dones[t + 1])
            following = next_value if t == steps - 1 else values[t + 1]
            delta = rewards[t] + GAMMA * following * alive - values[t]
            advantages[t] = last = delta + GAMMA * LAMBDA * alive * last
        goals = (advantages + values).flatten()
        flat = obs.flatten(0, 1), actions.flatten(0, 1), logps.flatten(), advantages.flatten()
        for _ in range(2):
            for batch in torch.randperm(steps * rows).split(steps * rows // 4):
                x, action, old, gain = (part[batch] for part in flat)
                _, new, entropy, value = agent(x, action)
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                ratio = (new - old).exp()
                policy = torch.max(-gain * ratio, -gain * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
                loss = policy - 0.0 * entropy.mean()
                loss = loss + 0.25 * ((value - goals[batch]) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                log.losses.append(loss.item())
    return log


@pytest.mark.parametrize(
    ("mode", "arguments"),
    [
        (AutoresetMode.SAME_STEP, {"features": ("value", "age"), "budget": 2}),
        (
            AutoresetMode.NEXT_STEP,
            {
                "sources": fleets,
                "features": ("age", "crawled", "harvest", "items", "balance"),
                "arrivals": "poisson-lognormal-items",
                "budget_rule": "average",
            },
        ),
    ],
    ids=["table1", "drawn anew, nothing told"],
)
def test_cleanrl_ppo_runs(arguments, mode):
    envs = SyncVectorEnv([make_env(**arguments, horizon=10)] * 3, autoreset_mode=mode)
    log = train(envs, updates=3)
    assert np.isfinite(log.losses).all()
    assert len(log.losses) == 3 * 2 * 4
    # 96 steps: an episode takes 10, and one more to reset under NEXT_STEP.
    assert log.lengths == [10] * 3 * (9 if mode is AutoresetMode.SAME_STEP else 8)
    assert np.isfinite(log.returns).all()
    assert np.all(np.array(log.returns) > 0)
    envs.close()


def test_the_returns_logged_are_those_of_the_environment():
    """Normalised rewards train; what is logged is raw, and a constant action earns what it must."""
    envs = SyncVectorEnv([make_env(horizon=4)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    envs.reset(seed=0)
    action = np.tile(np.array([1, -1, -1, -1], np.float32), (2, 1))
    for _ in range(4):
        *_, info = envs.step(action)
    returns, lengths = episodes_of(info, AutoresetMode.SAME_STEP)
    assert returns == pytest.approx([4 * 179.790963] * 2, abs=1e-4)
    assert lengths.tolist() == [4, 4]
