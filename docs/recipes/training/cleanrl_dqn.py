"""CleanRL: a loop like its dqn.py, on EphemeralCrawlDiscrete-v0.

CleanRL (S. Huang et al., JMLR 23 (274), 2022) is a collection of single files to be copied, not a
package; this one is written anew in its manner. The rewards are centred and scaled to about ±1:
else all Q-values are large and differ little, and the errors of the network are larger than the
differences that matter. γ = .9 instead of .99 for the same reason. ε and the learning rate fall, so
that the last network is not one of many that take turns.
"""

import gymnasium as gym
import numpy as np
import torch
from scoring import options, report
from torch import nn

import crawl_env  # noqa: F401

ENV_ID, TASK = "EphemeralCrawlDiscrete-v0", {"sources": "table1", "budget": 2}
NUM_ENVS, BATCH, GAMMA, LEARNING_RATE = 8, 256, 0.9, 2e-3
LEARNING_STARTS, TRAIN_FREQUENCY, TARGET_FREQUENCY = 1000, 8, 1000  # in steps of the environment


def make_env():
    env = gym.wrappers.RecordEpisodeStatistics(gym.make(ENV_ID, **TASK))
    return gym.wrappers.TransformReward(env, lambda reward: reward / 300 - 1)


def q_network(inputs, actions):
    return nn.Sequential(
        nn.Linear(inputs, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, actions)
    )


if __name__ == "__main__":
    arguments = options(steps=80_000)
    rng = np.random.default_rng(arguments.seed)
    torch.manual_seed(arguments.seed)
    envs = gym.vector.SyncVectorEnv(
        [make_env] * NUM_ENVS, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
    inputs, number = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
    q, target = q_network(inputs, number), q_network(inputs, number)
    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=LEARNING_RATE)

    size = max(arguments.steps, BATCH)  # the buffer holds everything
    obs, next_obs = torch.zeros((size, inputs)), torch.zeros((size, inputs))
    actions, rewards = torch.zeros(size, dtype=torch.long), torch.zeros(size)
    found, _ = envs.reset(seed=arguments.seed)

    for step in range(0, arguments.steps - NUM_ENVS + 1, NUM_ENVS):
        left = 1 - step / arguments.steps
        epsilon = max(0.05, 1 - 2 * (1 - left))
        with torch.no_grad():
            greedy = q(torch.Tensor(found)).argmax(1).numpy()
        explore = rng.random(NUM_ENVS) < epsilon
        action = np.where(explore, rng.integers(number, size=NUM_ENVS), greedy)
        following, reward, _, truncated, info = envs.step(action)
        true_next = following.copy()  # where an episode was cut off, its last observation
        for i in np.flatnonzero(truncated):
            true_next[i] = info["final_obs"][i]
        new = slice(step, step + NUM_ENVS)
        obs[new], next_obs[new] = torch.Tensor(found), torch.Tensor(true_next)
        actions[new], rewards[new] = torch.as_tensor(action), torch.Tensor(reward)
        found, held = following, step + NUM_ENVS

        if held >= LEARNING_STARTS and step % TRAIN_FREQUENCY == 0:
            optimizer.param_groups[0]["lr"] = left * LEARNING_RATE
            for _ in range(TRAIN_FREQUENCY):
                batch = torch.as_tensor(rng.integers(held, size=BATCH))
                with torch.no_grad():  # episodes are cut off and never terminate
                    wanted = rewards[batch] + GAMMA * target(next_obs[batch]).max(1).values
                value = q(obs[batch]).gather(1, actions[batch, None]).squeeze(1)
                loss = nn.functional.mse_loss(value, wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        if step % TARGET_FREQUENCY == 0:
            target.load_state_dict(q.state_dict())
    envs.close()

    def act(observation):
        with torch.no_grad():
            return int(q(torch.Tensor(observation)).argmax())

    report(act, ENV_ID, TASK, package="torch", arguments=arguments)
