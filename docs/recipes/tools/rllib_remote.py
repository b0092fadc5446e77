"""RLlib, new API stack: an iteration of PPO with a remote env runner.

The runner is another process, which has not imported `crawl_env`: the prefix of the id does that.
"""

import json
from importlib.metadata import version

from ray.rllib.algorithms.ppo import PPOConfig

ID, TASK = "crawl_env:EphemeralCrawlDiscrete-v0", {"budget": 2}

algorithm = (
    PPOConfig()
    .environment(ID, env_config=TASK)
    .env_runners(num_env_runners=1)
    .training(train_batch_size_per_learner=1000, minibatch_size=250, num_epochs=1)
    .build_algo()
)
measured = algorithm.train()["env_runners"]
algorithm.stop()
result = {
    "package": "ray",
    "version": version("ray"),
    "gymnasium": version("gymnasium"),
    "id": ID,
    "steps": int(measured["num_env_steps_sampled"]),
    "result": f"one iteration, mean return {measured['episode_return_mean']:,.0f}",
}
print(json.dumps(result))
