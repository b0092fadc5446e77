"""The environment in processes that have not imported the package."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

SPAWNED = """
import sys
import gymnasium as gym
import numpy as np

assert "crawl_env" not in sys.modules

ID = "crawl_env:EphemeralCrawl-v0"

def make():
    return gym.make(ID, budget=2, arrivals="poisson", observed=np.array([True] * 3 + [False]))

if __name__ == "__main__":
    vec = gym.vector.AsyncVectorEnv([make], context="spawn")
    one = make()
    same = np.array_equal(vec.reset(seed=3)[0][0], one.reset(seed=3)[0])
    action = np.linspace(-1, 1, 4, dtype=np.float32)
    for _ in range(3):
        found, expected = vec.step(action[None]), one.step(action)
        same &= np.array_equal(found[0][0], expected[0]) and found[1][0] == expected[1]
    print(same, vec.call("spec")[0].max_episode_steps)
    vec.close()
    # The worker was the first to step: what it compiled is read here, not compiled again.
    from crawl_env.simulation import top
    uses = [x.stats for x in vars(top).values() if hasattr(x, "stats")]
    for use in "cache_hits", "cache_misses":
        print(sum(getattr(stats, use).total() for stats in uses))
"""


def test_spawned_processes(tmp_path):
    """Nothing imports the package but the prefix of the id, also in the worker."""
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED)
    variables = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**variables, "NUMBA_CACHE_DIR": os.environ["NUMBA_CACHE_DIR"]},
        capture_output=True,
        text=True,
        check=False,
    )
    same, steps, hits, misses = done.stdout.split()
    assert (same, steps) == ("True", "500"), done.stderr
    assert (int(hits) > 0, misses) == (True, "0")
    assert "Overriding environment" not in done.stderr
