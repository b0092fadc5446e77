"""One Ray on this machine for all tests of this folder."""

import gc
import warnings
from importlib.util import find_spec

import pytest

from ephemeral_crawl.cluster.connection import connect


@pytest.fixture(scope="session")
def local_ray():
    if not find_spec("ray"):  # not imported before `connect`, as in a program
        pytest.skip("needs the extra 'ray'")
    yield connect(cpus=2)
    shut_down()


def shut_down():
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Ray does not wait for what it ends
        ray.shutdown()
        gc.collect()
