"""An independent package, of which several tests have results to compare with."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def bandits():
    """markovianbandit-pkg, which changes numpy's error state when imported."""
    before = np.geterr()
    try:
        package = pytest.importorskip("markovianbandit")
    finally:
        np.seterr(**before)
    return package
