"""Shards collect what one scheduler does: a short form of `experiments live --only shards`."""

import numpy as np

from experiments.live.shards import Shards
from experiments.live.simulated import simulate
from experiments.live.world import HOUR, fleet


def test_shards_collect_what_one_scheduler_does_from_the_first_day_on():
    """Here a shard of eight would be given next to nothing if it were for its first prices alone,
    and never find out what its sources are worth."""
    one, world = fleet(0, 67, days=0.4), fleet(0, 67, days=0.4)
    simulate(one, 40.0)
    shards = Shards(40.0, 8, balanced=True)
    simulate(world, 40.0, make=shards.start)
    assert world.collected > 0.95 * one.collected
    last = [apart for time, apart in shards.apart.items() if time > 8 * HOUR]
    assert np.mean(last) < 0.05
    assert shards.most < 40.0 * (1 + 1e-9)
