"""Host multipliers: the cost of finding them, and fleets whose costs differ on one host."""

import numpy as np
import pytest

from agents.theory.relaxation import relaxation
from agents.theory.renewal import ClosedFormArm
from crawl_env import Sources


def fleet(n, cost=1.0, hosts=0):
    drawn = Sources.random(n, seed=1)
    names = [f"host-{i % hosts}" for i in range(n)] if hosts else ()
    return Sources(drawn.arrival_rate, drawn.mean_utility, drawn.decay_rate, cost, hosts=names)


def intervals_searched(monkeypatch, sources, budget):
    """Return how many intervals of sources are searched for to relax the budget."""
    count = 0
    interval = ClosedFormArm.interval

    def counted(self, multiplier, shortest=None, longest=None):
        nonlocal count
        low = self.shortest if shortest is None else shortest
        high = self.longest if longest is None else longest
        count += np.count_nonzero(high - low > 1)
        return interval(self, multiplier, shortest, longest)

    with monkeypatch.context() as patch:
        patch.setattr(ClosedFormArm, "interval", counted)
        relaxation(sources, budget)
    return count


def test_shared_hosts_cost_little_more_than_none(monkeypatch):
    """Where sources of a host cost the same, the search for both multipliers is not a nested one.

    Without hosts, λ is interpolated, and one search finds both ends of it."""
    alone = intervals_searched(monkeypatch, fleet(300), 30)
    shared = intervals_searched(monkeypatch, fleet(300, hosts=60), 30)
    assert 0 < alone < shared < 10 * alone
    cost = np.random.default_rng(0).choice([0.5, 1.0, 2.0], 300)
    mixed = intervals_searched(monkeypatch, fleet(300, cost, hosts=60), 30)
    assert mixed < 30 * alone


@pytest.mark.parametrize("equal", [True, False], ids=["equal costs", "mixed costs"])
def test_multipliers_minimise_the_dual_and_batches_are_their_rows(equal):
    """No ν of the two hosts are better: at λ, the dual is a sum of functions of one ν each."""
    cost = [1.0, 1.0, 2.0, 2.0, 1.0] if equal else [1.0, 0.5, 2.0, 1.5, 1.0]
    one = Sources(
        [3.0, 2.0, 6.0, 1.0, 4.0],
        1.0,
        [0.4, 0.5, 0.3, 0.2, 0.6],
        cost,
        hosts=["a", "a", "b", "b", ""],
    )
    k = np.arange(1.0, 300.0)[:, None]
    content = one.content_at(k)
    found = relaxation(one, 1.5)
    nu = np.linspace(0, 8, 161)
    net = ((content - found.multiplier * one.cost - nu[:, None, None]) / k).max(axis=1)
    gain = np.maximum(net, 0.0)
    best = 1.5 * found.multiplier + gain[0, 4]
    best += sum(float((nu + gain[:, host].sum(axis=1)).min()) for host in ([0, 1], [2, 3]))
    assert found.bound <= best * (1 + 1e-12)
    assert found.bound == pytest.approx(best, rel=2e-3)
    other = one.replaced(mean_utility=[0.5, 2.0, 1.0, 3.0, 1.0])
    together = relaxation(Sources.stack([one, other]), 1.5)
    alone = [found, relaxation(other, 1.5)]
    np.testing.assert_allclose(together.bound, [r.bound for r in alone], rtol=1e-12)
    np.testing.assert_allclose(together.multiplier, [r.multiplier for r in alone], rtol=1e-9)
