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


@pytest.mark.parametrize("budget", [1.5, 3.5])  # the hosts bind under the larger one
@pytest.mark.parametrize("equal", [True, False], ids=["equal costs", "mixed costs"])
def test_multipliers_minimise_the_dual_and_batches_are_their_rows(equal, budget):
    """No λ, no ν of the two hosts is better: at λ, the dual is a sum of functions of one ν each."""
    cost = [1.0, 1.0, 2.0, 2.0, 1.0] if equal else [1.0, 0.5, 2.0, 1.5, 1.0]
    one = Sources(
        [3.0, 3.0, 6.0, 5.0, 1.0],
        1.0,
        [0.4, 0.5, 0.3, 0.2, 0.6],
        cost,
        hosts=["a", "a", "b", "b", ""],
    )
    k = np.arange(1.0, 300.0)[:, None]
    content = one.content_at(k)
    nu = np.linspace(0, 8, 161)

    def dual(multiplier):
        net = ((content - multiplier * one.cost - nu[:, None, None]) / k).max(axis=1)
        gain = np.maximum(net, 0.0)
        hosts = [float((nu + gain[:, host].sum(axis=1)).min()) for host in ([0, 1], [2, 3])]
        return budget * multiplier + gain[0, 4] + sum(hosts)

    found = relaxation(one, budget)
    for factor in (0.7, 0.9, 0.98, 1.0, 1.02, 1.1, 1.3):
        assert found.bound <= dual(factor * found.multiplier) * (1 + 1e-12)
    assert found.bound == pytest.approx(dual(found.multiplier), rel=2e-3)
    other = one.replaced(mean_utility=[0.5, 2.0, 1.0, 3.0, 1.0])
    together = relaxation(Sources.stack([one, other]), budget)
    alone = [found, relaxation(other, budget)]
    np.testing.assert_allclose(together.bound, [r.bound for r in alone], rtol=1e-12)
    np.testing.assert_allclose(together.multiplier, [r.multiplier for r in alone], rtol=1e-9)


def test_one_host_of_dear_and_cheap_sources():
    """As λ rises the host crawls the cheap ones instead: the bound is the least over λ and ν."""
    rng = np.random.default_rng(3)
    rate, decay, cost = rng.uniform(0.5, 3, 6), rng.uniform(0.05, 0.5, 6), [0.1, 0.1, 1, 1, 3, 3]
    one = Sources(rate * [1, 1, 2, 2, 4, 4], 1.0, decay, cost, hosts=["a"] * 6)
    k = np.arange(1.0, 200.0)[:, None]
    content, nu = one.content_at(k), np.linspace(0, 20, 401)
    found = relaxation(one, 0.9)
    least = np.inf
    for factor in (0.5, 0.8, 0.95, 1.0, 1.05, 1.2, 1.5):
        price = factor * found.multiplier
        net = ((content - price * one.cost - nu[:, None, None]) / k).max(axis=1)
        least = min(least, 0.9 * price + (nu + np.maximum(net, 0.0).sum(axis=1)).min())
    assert found.bound <= least * (1 + 1e-12)
    assert found.bound == pytest.approx(least, rel=2e-3)
