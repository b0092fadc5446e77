"""The index of large fleets with capacities: prepared once, and within the stated error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agents import whittle_index
from agents.theory import capacity_table
from agents.theory.capacity_table import IndexTable
from agents.theory.renewal import RenewalArm, renewal_arm
from crawl_env import Sources
from crawl_env.content.utility import Decay, LomaxDecay, StretchedDecay


def fleet(n: int, regime: str, failing: float) -> Sources:
    drawn, rng = Sources.random(n, 3, regime), np.random.default_rng(n)
    return Sources(
        drawn.arrival_rate,
        drawn.mean_utility,
        drawn.decay_rate,
        rng.choice([0.5, 1.0], n),
        crawl_delay=rng.choice([0.0, 3.0], n) if failing else 0.0,
        capacity=rng.choice([1.0, 3.0, 25.0, 50.0, 1000.0, np.inf], n),
        failure_rate=failing * rng.random(n),
    )


@pytest.mark.parametrize(
    ("regime", "failing", "nodes", "error"),
    [
        ("dense", 0.0, 64, 5e-3),
        ("sparse", 0.4, 64, 5e-3),
        ("dense", 0.4, 32, 5e-2),
        ("sparse", 0.0, 32, 5e-2),
    ],
)
def test_nodes_have_the_stated_error(
    monkeypatch: pytest.MonkeyPatch, regime: str, failing: float, nodes: int, error: float
) -> None:
    some = fleet(60, regime, failing)
    x = np.linspace(5e-3, 1.1, 300)[:, None] * some.content_at(np.inf)
    exact = renewal_arm(some).index(x)
    monkeypatch.setattr(capacity_table, "_MOST_CELLS", 0)
    monkeypatch.setattr(capacity_table, "_MOST_BYTES", 8 * nodes * 60)
    got = renewal_arm(some).index(x)
    np.testing.assert_allclose(got, exact, rtol=error)
    assert (np.diff(got, axis=0) >= -1e-6 * got[1:]).all()


def test_a_fleet_is_prepared_once_and_equal_sources_share_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[IndexTable] = []
    prepare = IndexTable.__init__
    monkeypatch.setattr(
        IndexTable, "__init__", lambda self, arm: made.append(self) or prepare(self, arm)
    )
    contents: list[int] = []
    mean = RenewalArm.mean_content

    def counted(self: Any, age: Any) -> Any:
        contents.append(np.size(age))
        return mean(self, age)

    monkeypatch.setattr(RenewalArm, "mean_content", counted)
    one = fleet(40, "dense", 0.0)
    many = one.select(np.tile(np.arange(40), 500))
    x = np.random.default_rng(0).random((3, len(many))) * many.ceiling
    first = whittle_index(x, many)
    computed = sum(contents)
    np.testing.assert_array_equal(whittle_index(x, many), first)
    # An equal fleet, as environments that draw it show it, is not prepared again either.
    np.testing.assert_array_equal(whittle_index(x, many.select(slice(None))), first)
    assert len(made) == 1
    assert sum(contents) == computed
    again = whittle_index(x[:, :40], one)
    np.testing.assert_allclose(first[:, :40], again, rtol=5e-3)


@pytest.mark.parametrize("decay", [StretchedDecay(0.5), LomaxDecay(2.0)], ids=repr)
def test_nodes_of_another_decay_function(monkeypatch: pytest.MonkeyPatch, decay: Decay) -> None:
    some = Sources.random(20, 1)
    x = np.linspace(5e-3, 1.1, 300)[:, None] * some.ceiling
    exact = RenewalArm(some, decay).index(x)
    monkeypatch.setattr(capacity_table, "_MOST_CELLS", 0)
    got = RenewalArm(some, decay).index(x)
    np.testing.assert_allclose(got, exact, rtol=5e-3)
    closed = whittle_index(x, some)
    assert np.abs(exact / closed - 1).max() > 0.1
