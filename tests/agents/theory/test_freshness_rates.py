"""Rates for freshness: the literature, other solvers, series, and simulated crawls."""

import numpy as np
import pytest
from scipy.optimize import minimize

from agents.theory.freshness_rates import (
    freshness_at,
    harmonic_rates,
    harmonic_staleness,
    periodic_rates,
    randomized_rates,
)
from crawl_env import Sources

Z_LIMIT = 4.5  # a right formula fails one such test in 150,000
FIVE = Sources([1.0, 2.0, 3.0, 4.0, 5.0], 1.0, 1.0, period=0.1)  # changes a day, 5 crawls a day


def test_published_rates():
    """Cho & Garcia-Molina's example: what changes fastest is not crawled."""
    found = periodic_rates(FIVE, 0.5, "equal")
    np.testing.assert_allclose(found, [1.15, 1.36, 1.35, 1.14, 0.0], atol=5e-3)
    # The square roots of Azar et al., with all five in the budget.
    root = np.sqrt(FIVE.arrival_rate)
    np.testing.assert_allclose(
        randomized_rates(FIVE, 0.5, "equal"), root * 20 / root.sum() - FIVE.arrival_rate, rtol=1e-12
    )


def gains(fleet, told):
    """Return the rates by each objective, and the objective as a function of crawls per step."""
    m, change = fleet.arrival_rate * fleet.mean_utility, fleet.arrival_rate
    budget = 0.3 * fleet.cost.sum()

    def mean(periodic):
        return lambda f: float(m @ freshness_at(change, f / fleet.period, periodic))

    def staleness(f):
        return -float(m @ harmonic_staleness(change, f / fleet.period, told))

    return {
        "periodic": (periodic_rates(fleet, budget), mean(True)),
        "randomized": (randomized_rates(fleet, budget), mean(False)),
        "harmonic": (harmonic_rates(fleet, budget, told=told), staleness),
    }


@pytest.mark.parametrize("seed", range(2))
def test_no_other_rates_are_better(seed):
    """Within the budget and the limits: not those of a general solver, from several starts, nor any
    of 3,000 drawn at random; and the solver comes as close as it can."""
    rng = np.random.default_rng(seed)
    n, period = 4, float(rng.uniform(0.3, 2))
    told = np.array([True, False, seed % 2 == 0, False])
    fleet = Sources(
        rng.uniform(0.2, 3, n), rng.lognormal(0, 1, n), 1.0, rng.uniform(0.5, 2, n), period
    )
    budget = 0.3 * fleet.cost.sum()
    for name, (rates, objective) in gains(fleet, told).items():
        crawls = rates * period
        most = np.ones(n)
        if name == "harmonic":
            most = np.where(told, np.minimum(fleet.arrival_rate * period, 1.0), 1.0)
        assert fleet.cost @ crawls == pytest.approx(budget, rel=1e-12)
        assert ((crawls >= 0) & (crawls <= most * (1 + 1e-12))).all()
        best = objective(crawls)
        scale = abs(best)
        share = rng.dirichlet(np.ones(n), 3000) * budget / fleet.cost
        allowed = share[(share <= most).all(axis=1)]
        assert max(map(objective, allowed)) <= best + 1e-9 * scale
        found = [
            minimize(
                lambda f, objective=objective: -objective(np.maximum(f, 1e-9)), start,
                bounds=[(1e-6, limit) for limit in most],
                constraints={"type": "ineq", "fun": lambda f: budget - fleet.cost @ f},
                options={"ftol": 1e-13, "maxiter": 400},
            )
            for start in allowed[:3]
        ]  # fmt: skip
        solved = max(-one.fun for one in found if fleet.cost @ one.x <= budget * (1 + 1e-9))
        assert solved <= best + 1e-7 * scale
        assert solved == pytest.approx(best, rel=1e-4)


def test_objectives_are_those_of_simulated_crawls():
    """Changes and crawls at random times: the fraction of time that is fresh, and the mean harmonic
    number of changes since the crawl; also when a change is crawled with probability π."""
    rng, events, change, crawl = np.random.default_rng(3), 100_000, 0.7, 1.1
    gaps = rng.exponential(1 / (change + crawl), events)
    is_crawl = rng.random(events) < crawl / (change + crawl)
    chance = 0.4
    for which, told in ((is_crawl, False), (rng.random(events) < chance, True)):
        last = np.maximum.accumulate(np.where(which, np.arange(events), 0))
        missed = np.arange(events) - last  # until the next event
        harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1.0, missed.max() + 1))])[missed]
        rate = chance * change if told else crawl
        exact = float(harmonic_staleness(change, rate, told))
        cells = harmonic.reshape(200, -1).mean(axis=1)  # each event waits as long on average
        assert abs(cells.mean() - exact) < Z_LIMIT * cells.std() / np.sqrt(cells.size)
        if not told:
            fresh = (np.where(missed == 0, gaps, 0.0)).reshape(200, -1).sum(axis=1)
            part = fresh / gaps.reshape(200, -1).sum(axis=1)
            exact = float(freshness_at(change, crawl, periodic=False))
            assert abs(part.mean() - exact) < Z_LIMIT * part.std() / np.sqrt(part.size)
    # The series of E H(n), n geometric, to rounding; and periodic crawls by their integral.
    n = np.arange(1.0, 2000)
    for q in (0.1, 0.5, 0.95):
        series = float((np.cumsum(1 / n) * q**n * (1 - q)).sum())
        assert float(harmonic_staleness(q, 1 - q)) == pytest.approx(series, rel=1e-9)
        assert float(harmonic_staleness(1.0, 1 - q, told=True)) == pytest.approx(series, rel=1e-9)
    t = (np.arange(100_000) + 0.5) / 100_000 / 1.3
    assert float(freshness_at(0.7, 1.3)) == pytest.approx(np.exp(-0.7 * t).mean(), rel=1e-9)


def test_limits_of_rates():
    """Sources without changes or worth, plenty of budget, delays, failures, batches, errors."""
    fleet = Sources([0.0, 1.0, 3.0, 2.0], [1.0, 0.0, 2.0, 1.0], 0.5, crawl_delay=[0, 0, 0, 3.0])
    told = np.array([True, True, True, False])
    for rates in (periodic_rates, randomized_rates, harmonic_rates):
        assert rates(fleet, 4.0).tolist() == [0.0, 0.0, 1.0, pytest.approx(1 / 3)]
        assert rates(fleet, 0.5)[:2].tolist() == [0.0, 0.0]
        assert rates(fleet, 0.5).sum() == pytest.approx(0.5, rel=1e-12)
        both = Sources.stack([fleet, Sources(1.0, [1.0, 2, 3, 4], 1.0, crawl_delay=[0, 0, 0, 3.0])])
        batch = rates(both, 0.7)
        for b in range(2):
            np.testing.assert_array_equal(batch[b], rates(both.fleet(b), 0.7))
        with pytest.raises(ValueError, match="budget"):
            rates(fleet, 0.0)
        with pytest.raises(ValueError, match="unknown weight 'votes'"):
            rates(fleet, 1.0, "votes")
    # One multiplier for both kinds: m/ρ where changes are told, else mΔ/(ρ(ρ + Δ)).
    known, random = harmonic_rates(fleet, 0.5, told=told)[2:]
    assert 6 / known == pytest.approx(4 / (random * (random + 2)), rel=1e-9)
    failing = Sources([1.0, 1.0], 1.0, 1.0, failure_rate=[0.0, 0.5])
    dear = Sources([1.0, 1.0], 1.0, 1.0, cost=[1.0, 2.0])
    for rates in (randomized_rates, harmonic_rates):
        np.testing.assert_allclose(rates(failing, 0.4), rates(dear, 0.4))
