"""Random streams."""

from functools import partial

import numpy as np
import pytest

from crawl_env import CrawlEnv, CrawlVectorEnv
from crawl_env.rng import STREAMS, generator, seed_sequence


def test_streams_differ_from_each_other_and_from_the_seed_alone():
    first = {generator(7, stream).integers(2**63) for stream in STREAMS}
    assert len(first | {np.random.default_rng(7).integers(2**63)}) == len(STREAMS) + 1


def test_a_stream_is_determined_by_seed_and_name_and_fresh_without_a_seed():
    assert generator(7, "policy").random() == generator(7, "policy").random()
    assert generator(None, "policy").random() != generator(None, "policy").random()
    # The numbers of recorded results: they must not change.
    assert seed_sequence(7, "policy").spawn_key == (1,)
    assert seed_sequence(0, "training-environments").spawn_key == (5,)


@pytest.mark.parametrize("seed", ["7", -1, 1.5, [1], True])
def test_what_is_no_seed_is_named(seed):
    uses = [CrawlEnv().reset, partial(generator, stream="policy")]
    if seed != [1]:  # of which a vector environment says more
        uses.append(CrawlVectorEnv(2).reset)
    for use in uses:
        with pytest.raises(
            ValueError, match=r"seed is .*; it must be a whole number of at least 0"
        ):
            use(seed=seed)


def test_seeds_have_any_size_and_may_be_numpys():
    for env in (CrawlEnv(arrivals="poisson"), CrawlVectorEnv(2, arrivals="poisson")):
        for seed in (2**40, 2**200):
            env.reset(seed=seed)
            assert env.np_random_seed == seed
        env.reset(seed=np.int64(3))
        assert env.np_random_seed == 3
