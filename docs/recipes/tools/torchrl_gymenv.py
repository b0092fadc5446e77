"""TorchRL: GymEnv with its checks, frame skip and parallel workers, for each id.

`GymEnv` first calls `gym.make` with the argument `frameskip`, and omits it after Python's own
TypeError, which the environment raises with a suggestion added.
"""

import json
from importlib.metadata import version

from torchrl.envs import GymEnv
from torchrl.envs.utils import check_env_specs

IDS = ("EphemeralCrawl-v0", "EphemeralCrawlFlat-v0", "EphemeralCrawlDiscrete-v0")
TASK = {"budget": 2}

if __name__ == "__main__":
    for name in IDS:
        env = GymEnv(f"crawl_env:{name}", **TASK)
        check_env_specs(env)
        skipping = GymEnv(f"crawl_env:{name}", frame_skip=2, **TASK)
        assert skipping.rollout(500).shape == (250,)
        workers = GymEnv(f"crawl_env:{name}", num_workers=2, **TASK)
        assert workers.rollout(5).shape == (2, 5)
        workers.close()
    result = {
        "package": "torchrl",
        "version": version("torchrl"),
        "gymnasium": version("gymnasium"),
        "id": ", ".join(IDS),
        "result": "check_env_specs, frame_skip=2 and num_workers=2 for each id",
    }
    print(json.dumps(result))
