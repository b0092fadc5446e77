"""d3rlpy: offline, DiscreteCQL from recorded steps of EphemeralCrawlDiscrete-v0.

The data are 20 episodes of the Whittle policy, in which every fifth action is random, and 20
episodes of random actions, from random starting states. Offline, nothing but the data says what an
action is worth, and CQL lowers the values of those that the data do not show. Rewards are
standardised, γ is .9, α is 1 as by default, and a batch is 256 steps instead of 32.
"""

import d3rlpy
import gymnasium as gym
import numpy as np
from scoring import options, report

import crawl_env  # noqa: F401
from agents import Whittle

ENV_ID, TASK = "EphemeralCrawlDiscrete-v0", {"sources": "table1", "budget": 2}


def record(seed, episodes=20):
    rng = np.random.default_rng(seed)
    env = gym.make(ENV_ID, **TASK, start="random")
    subsets = env.get_wrapper_attr("subsets")
    whittle = Whittle(gym.make("EphemeralCrawlFlat-v0", **TASK))
    steps = []
    for episode in range(2 * episodes):
        random_actions = 0.2 if episode < episodes else 1.0
        observation, _ = env.reset(seed=seed * 1000 + episode)
        ended = False
        while not ended:
            priorities, _ = whittle.predict(observation)
            action = subsets.index(tuple(sorted(np.argsort(-priorities)[:2])))
            if rng.random() < random_actions:
                action = int(rng.integers(len(subsets)))
            following, reward, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
            steps.append((observation, action, reward, terminated, truncated))
            observation = following
    observations, actions, rewards, terminals, timeouts = map(np.array, zip(*steps, strict=True))
    return d3rlpy.dataset.MDPDataset(
        observations=observations,
        actions=actions,
        rewards=rewards,
        terminals=terminals,
        timeouts=timeouts,
    )


arguments = options(steps=3000)  # of the gradient
d3rlpy.seed(arguments.seed)
cql = d3rlpy.algos.DiscreteCQLConfig(
    gamma=0.9,
    learning_rate=1e-3,
    batch_size=256,
    alpha=1.0,
    target_update_interval=500,
    reward_scaler=d3rlpy.preprocessing.StandardRewardScaler(),
).create(device="cpu")
cql.fit(
    record(arguments.seed),
    n_steps=arguments.steps,
    n_steps_per_epoch=arguments.steps,
    logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    show_progress=False,
)


def act(observation):
    return int(cql.predict(observation[None])[0])


report(act, ENV_ID, TASK, package="d3rlpy", arguments=arguments)
