"""Named random streams, so that parts of a program with one seed draw independent numbers.

The content of an environment is drawn from `numpy.random.default_rng(seed)`; all other random
numbers come from separate streams, each determined by the seed and its name.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from crawl_env.errors import shown

# The numbers, not the names, determine what is drawn: do not change them.
STREAMS = {
    "policy": 1,  # random choices of a policy
    "multiplier": 2,  # simulation of the Lagrange multiplier under a token bucket
    "learner": 3,  # initial weights, exploration and batches of a learner
    "learner-policy": 4,  # random choices of a learnt policy
    "training-environments": 5,  # seeds of the environments in which a learner trains
    "planner": 6,  # the simulated future of a planner, see `CrawlEnv.set_state`
    "device": 7,  # content that is drawn on a torch device, see `TorchCrawlVectorEnv`
    "signals": 8,  # which items trigger pings and when, and false pings
    "engine": 9,  # how many items an indexing engine can index in each step
}


def seed_sequence(seed: int | None, stream: str) -> np.random.SeedSequence:
    """Return the seed sequence of a stream; with seed None it has fresh entropy.

    Raises:
        ValueError: the seed is not a whole number of at least 0.
    """
    return np.random.SeedSequence(check_seed(seed), spawn_key=(STREAMS[stream],))


def check_seed(seed: object, name: str = "seed") -> int | None:
    """Return a seed, of any size, as an integer of Python; None, which is fresh entropy, as it is.

    >>> check_seed(-1)
    Traceback (most recent call last):
    ...
    ValueError: seed is -1; it must be a whole number of at least 0
    """
    if seed is None:
        return None
    if not isinstance(seed, Integral) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"{name} is {shown(seed)}; it must be a whole number of at least 0")
    return int(seed)


def beside(rng: np.random.Generator, stream: str) -> np.random.Generator:
    """Return a new generator of a stream with the seed of another generator, which is unchanged.

    >>> beside(np.random.default_rng(7), "signals").random() == generator(7, "signals").random()
    True
    """
    source: Any = rng.bit_generator.seed_seq
    key = (*getattr(source, "spawn_key", ()), STREAMS[stream])
    entropy = getattr(source, "entropy", 0)  # of a generator that was made without a seed
    return np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=key))


def generator(seed: int | None, stream: str) -> np.random.Generator:
    """Return a new generator at the beginning of a stream.

    >>> generator(0, "policy").random() == generator(0, "learner").random()
    False
    """
    return np.random.default_rng(seed_sequence(seed, stream))
