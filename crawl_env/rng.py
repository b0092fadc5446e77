"""Random streams by name, so that no two parts of a program with one seed draw the same numbers.

The content of an environment comes from `numpy.random.default_rng(seed)`; everything else that is
random comes from a stream of its own, which the seed and the name determine.
"""

from __future__ import annotations

import numpy as np

# Numbers, not names, decide which numbers are drawn: do not change them.
STREAMS = {
    "policy": 1,  # random choices of a policy
    "multiplier": 2,  # simulation of the Lagrange multiplier under a token bucket
    "learner": 3,  # initial weights, exploration and batches of a learner
    "learner-policy": 4,  # random choices of a learnt policy
    "training-environments": 5,  # seeds of the environments in which a learner trains
}


def seed_sequence(seed: int | None, stream: str) -> np.random.SeedSequence:
    """Return the seed sequence of a stream; None draws fresh entropy."""
    return np.random.SeedSequence(seed, spawn_key=(STREAMS[stream],))


def generator(seed: int | None, stream: str) -> np.random.Generator:
    """Return a generator of a stream, at its beginning.

    >>> generator(0, "policy").random() == generator(0, "learner").random()
    False
    """
    return np.random.default_rng(seed_sequence(seed, stream))
