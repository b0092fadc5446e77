"""Freshness with and without signals: integrals, derivatives, simulated cycles, stopping rules."""

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import poisson

from agents.theory.freshness import FreshnessArm, as_ephemeral, importance
from agents.theory.index import whittle_index
from crawl_env import Sources

Z_LIMIT = 4.5  # a right formula fails one such test in 150,000
# Δ, λ, ν, ι, and p, β, L, F, V/m.
REFERENCE = (
    (1.0, 0.5, 0.125, 1.5, 0.80, 3.2189, 0.9734, 0.7245, 0.2646),
    (1.0, 0.5, 2.0, 1.5, 0.20, 0.4463, 0.7649, 0.5536, 0.1923),
    (0.3, 0.8, 0.06, 6.0, 0.80, 26.824, 2.7823, 2.4574, 0.5163),
    (2.0, 0.5, 0.25, 3.0, 0.80, 1.6094, 1.1960, 0.4844, 0.4248),
)


def sums(theta, recall, precision):
    """Return L and F of a page with Δ = 1, term by term in the precision that is set."""
    a, gamma, b = 1 - recall, recall / precision, -mp.log(1 - precision)
    length, fresh, n = mp.mpf(0), mp.mpf(0), 0
    while (y := (theta - n * b) / a) > 0:
        longer = mp.gammainc(n + 1, 0, gamma * y, regularized=True) / gamma
        share = ((1 - precision) * gamma) ** n / (a + gamma) ** (n + 1)
        fresh += share * mp.gammainc(n + 1, 0, (a + gamma) * y, regularized=True)
        length += longer
        if longer < mp.mpf(10) ** -40:
            break
        n += 1
    return length, fresh


@pytest.mark.parametrize("row", REFERENCE)
def test_reference_values(row):
    change, recall, false, iota, *expected = row
    precision = recall * change / (recall * change + false)
    silent = (1 - recall) * change
    arm = FreshnessArm(change, recall, precision)
    length, fresh = arm.cycle(silent * iota)
    beta = -np.log1p(-precision) / silent
    found = np.array([precision, beta, length[0], fresh[0], arm.index(iota, 0)[0]])
    np.testing.assert_allclose(found, expected, rtol=2e-4)


@pytest.mark.parametrize("seed", range(6))
def test_cycles_are_integrals_over_time(seed):
    """L = ∫ P(no crawl before t) dt and F = ∫ E[P(fresh at t); no crawl before t] dt, in pieces
    between the times at which one ping less suffices."""
    rng = np.random.default_rng(seed)
    change, recall, precision = (
        rng.uniform(0.1, 3),
        rng.uniform(0.02, 0.95),
        rng.uniform(0.05, 0.97),
    )
    theta = rng.uniform(0.1, 4)
    silent, pinged, b = (1 - recall) * change, recall * change / precision, -np.log1p(-precision)
    length = fresh = 0.0
    ends = [theta - n * b for n in range(int(theta / b) + 1)]  # of w from silence, decreasing
    for n, (high, low) in enumerate(zip(ends, [*ends[1:], 0.0], strict=True)):
        start, end = max(low, 0.0) / silent, high / silent
        count = np.arange(n + 1)

        def stays(t, n=n):
            return float(poisson.cdf(n, pinged * t))

        def is_fresh(t, count=count):
            left = np.exp(-silent * t) * (1 - precision) ** count
            return float((poisson.pmf(count, pinged * t) * left).sum())

        length += quad(stays, start, end, epsabs=1e-13, epsrel=1e-12)[0]
        fresh += quad(is_fresh, start, end, epsabs=1e-13, epsrel=1e-12)[0]
    found = FreshnessArm(change, recall, precision).cycle(theta)
    np.testing.assert_allclose(np.ravel(found), [length, fresh], rtol=1e-9)


@pytest.mark.parametrize(("recall", "precision"), [(0.5, 0.8), (0.5, 0.2), (0.9, 0.95)])
def test_the_index_is_the_derivative_of_freshness_by_bandwidth(recall, precision):
    """V = d(F/L)/d(1/L), by differences of 40 digits, and ∫ e^−w L dw, by quadrature, to 1e-9."""
    arm = FreshnessArm(1.0, recall, precision, weight=3.0)
    for age in (0.3, 1.3, 4.1):
        theta = age * (1 - recall)
        found = float(arm.index(age)[0])
        with mp.workdps(40):
            r, p, h = mp.mpf(recall), mp.mpf(precision), mp.mpf(10) ** -12
            cycles = [sums(mp.mpf(theta) + k * h, r, p) for k in (-1, 1)]
            (few, many) = ((fresh / length, 1 / length) for length, fresh in cycles)
            slope = 3 * (many[0] - few[0]) / (many[1] - few[1])
        assert found == pytest.approx(float(slope), rel=1e-9)
        kinks = -np.log1p(-precision) * np.arange(1, 20)
        area = quad(
            lambda w: np.exp(-w) * arm.cycle(w).length[0], 0, theta,
            points=kinks[kinks < theta], epsabs=1e-14, epsrel=1e-12,
        )[0]  # fmt: skip
        assert found == pytest.approx(3.0 * area, rel=1e-9)


def test_the_index_keeps_its_digits():
    """Down to w = 1e-8 and up to the end, with many pings, precision 1e-7 from 1, recall near 0 and
    1: to 1e-12 of a sum with 50 digits."""
    rng = np.random.default_rng(0)
    with mp.workdps(50):
        for _ in range(60):
            recall = float(rng.choice([1e-3, 0.1, 0.5, 0.9, 0.9999]))
            precision = float(rng.choice([0.05, 0.2, 0.8, 0.99, 1 - 1e-7]))
            pings, silent = int(rng.integers(0, 6)), float(10 ** rng.uniform(-8, 1.3))
            age = silent / (1 - recall)
            found = float(FreshnessArm(1.0, recall, precision).index(age, pings)[0])
            r, p = mp.mpf(recall), mp.mpf(precision)
            theta = mp.mpf(age) * (1 - r) - pings * mp.log(1 - p)
            length, fresh = sums(theta, r, p)
            exact = fresh - mp.e**-theta * length
            assert found == pytest.approx(float(exact), rel=1e-12)


def test_limits():
    """No signals, no silence, no false ping, no change; and continuity there."""
    age = np.array([1e-9, 0.2, 1.0, 7.0, 90.0])[:, None]
    plain = 2.0 * np.array([float(1 - (1 + x) * mp.e**-x) for x in map(mp.mpf, age.ravel() * 0.5)])
    none = FreshnessArm(0.5).index(age)[:, 0]
    np.testing.assert_allclose(none[1:], plain[1:], rtol=1e-13)
    assert none[0] == pytest.approx(0.25e-18, rel=1e-8)
    np.testing.assert_allclose(FreshnessArm(0.5, 1e-13, 0.5).index(age)[:, 0], none, rtol=1e-12)
    np.testing.assert_array_equal(FreshnessArm(0.5, 0.0, 0.5).index(age, 3)[:, 0], none)

    # All changes have pings: n of them leave the probability q^n, whenever they came.
    n, q, rate = np.arange(6), 0.2, 1 / 0.8
    steps = ((1 - q**n) / (1 - q) - n * q**n) / rate
    told = FreshnessArm(1.0, 1.0, 0.8)
    np.testing.assert_allclose(told.index(33.0, n[:, None])[:, 0], steps, rtol=1e-13)
    nearly = FreshnessArm(1.0, 1 - 1e-14, 0.8).index(33.0, n[:, None])[:, 0]
    np.testing.assert_allclose(nearly, steps, atol=1e-11)
    length, fresh = told.cycle(3 * -np.log(0.2))
    np.testing.assert_allclose([length[0], fresh[0]], [3 / rate, (1 - q**3) / (1 - q) / rate])

    # A ping that cannot be false: the copy is stale for certain, and a crawl worth m/Δ.
    sure = FreshnessArm(0.5, 0.6, 1.0, weight=3.0)
    np.testing.assert_array_equal(sure.index(age, 1), 6.0)
    np.testing.assert_allclose(
        sure.index(age), FreshnessArm(0.5, 0.6, 1 - 1e-13, weight=3.0).index(age), rtol=1e-11
    )
    assert FreshnessArm(1.0, 1.0, 1.0).index(5.0, [[0], [1]]).ravel().tolist() == [0.0, 1.0]
    # No change, and no copy at all.
    assert FreshnessArm([0.0, 0.5], 0.3, 0.7).index(np.inf, 2).tolist() == [0.0, 2.0]


def test_pages_of_a_batch_are_those_alone():
    rng = np.random.default_rng(1)
    change, recall = rng.uniform(0, 2, (3, 4)), rng.uniform(0, 1, 4)
    age, pings = rng.uniform(0, 5, (6, 3, 4)), rng.integers(0, 4, (6, 3, 4))
    batch = FreshnessArm(change, recall, 0.4, cost=2.0)
    found = batch.index(age, pings)
    for b in range(3):
        alone = FreshnessArm(change[b], recall, 0.4, cost=2.0)
        np.testing.assert_array_equal(alone.index(age[:, b], pings[:, b]), found[:, b])


@pytest.mark.parametrize("row", REFERENCE)
def test_simulated_cycles(row):
    """40,000 cycles from changes, their signals and false pings, within 4.5 standard errors."""
    change, recall, false, iota = row[:4]
    rng, cycles, most = np.random.default_rng(5), 40_000, 60
    true = recall * change
    precision, silent = true / (true + false), (1 - recall) * change
    with np.errstate(divide="ignore"):
        unseen = rng.exponential(1 / silent, cycles)
    pings = rng.exponential(1 / (true + false), (cycles, most)).cumsum(axis=1)
    told = rng.random((cycles, most)) < precision
    beta = np.log((true + false) / false) / silent
    # The crawl comes at the first of: ι − βn by silence after n pings, or the ping that suffices.
    n = np.arange(most + 1)
    before = np.concatenate([np.zeros((cycles, 1)), pings], axis=1)
    after = np.concatenate([pings, np.full((cycles, 1), np.inf)], axis=1)
    due = np.maximum(iota - beta * n, before)  # if n pings have come by then
    first = np.argmax(due <= after, axis=1)
    end = due[np.arange(cycles), first]
    changed = np.minimum(unseen, np.where(told, pings, np.inf).min(axis=1))
    fresh = np.minimum(end, changed)
    arm = FreshnessArm(change, recall, precision)
    for sample, exact in zip((end, fresh), arm.cycle(silent * iota), strict=True):
        assert abs(sample.mean() - exact[0]) < Z_LIMIT * sample.std() / np.sqrt(cycles)
    # P(fresh) given the number of pings by a time within the cycle.
    t = 0.4 * iota
    for k in range(3):
        among = (pings < t).sum(axis=1) == k
        share = float(np.exp(-silent * t) * (1 - precision) ** k)
        error = np.sqrt(share * (1 - share) / max(among.sum(), 1))
        assert abs((changed[among] > t).mean() - share) < Z_LIMIT * error


def stopping(change, recall, precision, charge, gain):
    """Return what a page earns from a crawl to the next if time costs `gain` and a crawl `charge`,
    when it is crawled at the best of all times, by dynamic programming with steps of .005."""
    step, steps, most = 0.005, 1200, 12
    silent, pinged = (1 - recall) * change, recall * change / precision
    n = np.arange(most)
    jump = poisson.pmf(n[:3], pinged * step)
    value = np.full(most, -charge)
    for k in range(steps - 1, -1, -1):
        is_fresh = np.exp(-silent * (k + 0.5) * step) * (1 - precision) ** n
        later = (
            sum(weight * value[np.minimum(n + j, most - 1)] for j, weight in enumerate(jump))
            / jump.sum()
        )
        value = np.maximum(-charge, step * (is_fresh - gain) + later)
    return float(value[0])


@pytest.mark.parametrize(("recall", "precision"), [(0.5, 0.8), (0.7, 0.3), (0.0, 1.0)])
def test_no_other_rule_is_better_than_a_threshold(recall, precision):
    """At λ = V(θ) the best rule of all, which may depend on time and pings in any way, earns
    e^−θ per unit of time, as the threshold θ does."""
    change = 1.3
    arm = FreshnessArm(change, recall, precision)
    for theta in (0.4, 1.2):
        charge = float(arm.index(theta / (change * (1 - recall)))[0])
        length, fresh = arm.cycle(theta)
        gain = np.exp(-theta)
        assert (fresh[0] - charge) / length[0] == pytest.approx(gain, rel=1e-12)
        assert stopping(change, recall, precision, charge, gain) == pytest.approx(0.0, abs=2e-3)
        assert stopping(change, recall, precision, charge, 0.97 * gain) > 5e-3


def test_freshness_is_ephemeral_content_of_another_fleet():
    """Without signals, crawled in short steps: the Whittle index there is the freshness index."""
    fleet = Sources([0.4, 2.0, 0.0], [3.0, 1.0, 1.0], 0.1, [1.0, 2.0, 1.0], period=1e-4)
    mirrored = as_ephemeral(fleet, "utility")
    age = np.array([0.5, 2.0, 6.0])
    steps = np.rint(age / fleet.period)[:, None]
    exact = FreshnessArm.of(fleet, "utility").index(age[:, None])
    found = whittle_index(mirrored.content_at(steps), mirrored)
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-12)


def test_importance():
    fleet = Sources([2.0, 3.0], [0.5, 4.0], 0.1)
    assert importance(fleet).tolist() == [1.0, 12.0]
    np.testing.assert_allclose(importance(fleet, "ceiling"), [10.0, 120.0])
    assert importance(fleet, "utility").tolist() == [0.5, 4.0]
    assert importance(fleet, "equal").tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="unknown weight 'much'"):
        importance(fleet, "much")
