"""The balancer of many shards: one seed of `experiments live --only balancer`."""

import numpy as np
import pytest

from experiments.live import large


@pytest.mark.parametrize("shock", [large.BUDGETS, large.VALUES])
def test_prices_agree_within_an_hour_after_a_shock(shock, monkeypatch):
    monkeypatch.setattr(large, "HOURS", (0, 1))
    found = large.work({"columns": {"seed": 5, "shock": shock, "lost": 0.0}})
    assert found["hour 0"] > 0.5
    assert found["hour 1"] < 0.05
    assert found["most"] <= 1 + 1e-9


def test_the_demand_of_many_is_that_of_each_source():
    """Sources drawn one by one, whose index is found at their interval."""
    values = np.exp(large.SPREAD * np.random.default_rng(1).normal(size=4000))
    ages = np.geomspace(1e-3, 1e3, 4000)  # time constants
    index = 1 - np.exp(-ages) * (1 + ages)
    per_hour = np.log(2) / large.HALF_LIFE / ages
    each = [float(np.interp(0.5 / v, index, per_hour, right=0.0)) for v in values]
    assert large.demand(0.5) == pytest.approx(np.mean(each), rel=0.05)
