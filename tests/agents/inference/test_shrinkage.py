"""Shrinkage: what is known of simulated fleets comes back, with honest errors."""

import itertools

import mpmath
import numpy as np
import pytest
from scipy import stats

from agents.inference import shrinkage

LIMIT = 4.5  # standard errors a right share may lie off: one in 150,000


def share_is(found, expected, slack=0.0):
    """Whether the share of true values is that of independent trials, or off by `slack`."""
    error = np.sqrt(expected * (1 - expected) / found.size)
    return bool(abs(found.mean() - expected) <= LIMIT * error + slack)


# ------------------------------------------------------------------------------ rates


def fleet_of_counts(n=600, span=40.0):
    rng = np.random.default_rng(1)
    true = rng.gamma(1.5, 0.1 / 1.5, n)  # mean .1: four items a source
    return true, rng.poisson(true * span), span


def test_rates_come_back_with_their_prior_and_honest_errors():
    true, counts, span = fleet_of_counts()
    found = shrinkage.rates(counts, span)
    assert found.mean == pytest.approx(0.1, rel=0.12)
    assert found.spread == pytest.approx(0.1 / np.sqrt(1.5), rel=0.15)
    assert share_is(np.abs(found.value - true) < 1.96 * found.error, 0.95)
    assert share_is(np.abs(found.value - true) < found.error, stats.norm.cdf(1) * 2 - 1, 0.05)
    assert found.value.mean() == pytest.approx(counts.mean() / span, rel=1e-9)
    off, off_raw = (np.sqrt(np.mean((x - true) ** 2)) for x in (found.value, found.raw))
    assert off < 0.88 * off_raw  # √(span/(span + b)) = .853 with the prior known


@pytest.mark.parametrize("span", [10.0, np.array([10.0, 10.0, 4.0, 2.0])], ids=["one", "own"])
def test_rates_are_the_posterior_of_the_hierarchical_model(span):
    """Against sums over a grid of the mean and the shape, with scipy's negative binomial."""
    counts, spans = np.array([0, 2, 3, 9]), np.broadcast_to(span, 4)
    share = (np.arange(400) + 0.5) / 400
    a = (counts.mean() * share / (1 - share))[:, None]
    mean = np.exp(np.linspace(-12, 22, 800))  # items / time; a priori 1/mean
    weight = np.ones((a.size, mean.size))
    for n, t in zip(counts, spans, strict=True):
        weight *= stats.nbinom.pmf(n, a, a / (a + mean * t))
    weight /= weight.sum()
    both = list(zip(counts, spans, strict=True))
    first = [(weight * (n + a) / (t + a / mean)).sum() for n, t in both]
    second = [(weight * (n + a) * (n + a + 1) / (t + a / mean) ** 2).sum() for n, t in both]
    found = shrinkage.rates(counts, span)
    assert found.value == pytest.approx(first, rel=1e-3)
    assert found.error == pytest.approx(np.sqrt(np.array(second) - np.square(first)), rel=1e-3)


def test_the_error_is_never_less_than_that_of_the_fleets_mean():
    """Counts that vary no more than Poisson counts leave the rates as unknown as they are."""
    few = shrinkage.rates(np.array([3, 5]), 100.0)
    assert few.value == pytest.approx([0.04, 0.04], rel=0.15)
    assert np.all(few.error > np.sqrt(8) / 200)  # of all items together
    assert np.all(few.error < few.raw_error)
    equal = shrinkage.rates(np.full(100, 5), 10.0)
    assert equal.value == pytest.approx([0.5] * 100)
    assert np.all((equal.error > np.sqrt(500) / 1000) & (equal.error < np.sqrt(5) / 10))
    alone = shrinkage.rates(np.array([7]), 10.0)
    assert (alone.value[0], alone.error[0]) == pytest.approx((0.7, np.sqrt(7) / 10))
    silent = shrinkage.rates(np.array([0, 30]), 10.0)
    assert 0 < silent.value[0] < 0.2
    assert np.isfinite(silent.error).all()
    with pytest.raises(ValueError, match="no items"):
        shrinkage.rates(np.zeros(3, dtype=int), 10.0)


FLEETS = {  # of mean 1
    "equal": lambda rng, n: np.ones(n),
    "gamma": lambda rng, n: rng.gamma(2.0, 0.5, n),
    "lognormal": lambda rng, n: rng.lognormal(-0.5, 1.0, n),
}


@pytest.mark.parametrize("size", [2, 100])
def test_intervals_of_rates_cover_what_they_claim(size):
    """At least 300 sources each; standard error of a share near 95 %: 1.3 points or less."""
    rng = np.random.default_rng(size)
    for fleet, items in itertools.product(FLEETS, (5, 50)):  # items a source
        inside = []
        for _ in range(max(300 // size, 20)):
            true = items * FLEETS[fleet](rng, size)
            counts = rng.poisson(true)
            if counts.any():
                found = shrinkage.rates(counts, 1.0)
                inside += (np.abs(found.value - true) < 1.96 * found.error).tolist()
        share = np.mean(inside)
        assert share > 0.9, f"{items} items a source: {share:.1%}"
        assert share < 0.975 or fleet == "equal", f"{items} items a source: {share:.1%}"


def test_errors_of_equal_sources_shrink_with_the_fleet():
    """Where nothing differs, a large fleet tells more of a source than its own items do."""
    rng = np.random.default_rng(0)
    error = [np.mean(shrinkage.rates(rng.poisson(5.0, n), 1.0).error) for n in (1, 10, 100, 1000)]
    assert np.all(np.array(error[:-1]) > 1.3 * np.array(error[1:]))


@pytest.mark.parametrize(("size", "items", "cv"), [(1000, 1e5, 0.0015), (10_000, 1e4, 0.003)])
def test_errors_of_large_logs_cover_what_they_claim(size, items, cv):
    """Sources differ by less than their counts do; ln Γ of sums and of parts nearly cancel."""
    inside = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        true = items * rng.gamma(cv**-2, cv**2, size)
        found = shrinkage.rates(rng.poisson(true), 1.0)
        inside += (np.abs(found.value - true) < 1.96 * found.error).tolist()
    assert 0.9 < np.mean(inside) < 0.985


@pytest.mark.parametrize(("size", "items", "limit"), [(50, 3.0, 1e-11), (1000, 1e5, 1e-10)])
def test_the_likelihood_of_counts_is_exact(size, items, limit, monkeypatch):
    counts = np.random.default_rng(0).poisson(items, size)
    total = int(counts.sum())
    t = np.array([-18.0, -8.0, 0.0, 4.0, 8.0, 12.0, 16.0, 20.0])
    found = []

    def posterior(log_likelihood):
        found.append(log_likelihood(t))
        return t, np.full(t.size, 1 / t.size)

    monkeypatch.setattr(shrinkage, "_posterior", posterior)
    shrinkage.rates(counts, 1.0)
    exact = []
    with mpmath.workdps(40):
        for each in t:
            a = mpmath.mpf(total) / size * mpmath.exp(each)
            of_counts = sum(
                int(times) * (mpmath.loggamma(int(n) + a) - mpmath.loggamma(a))
                for n, times in zip(*np.unique(counts, return_counts=True), strict=True)
            )
            exact.append(of_counts + mpmath.loggamma(size * a) - mpmath.loggamma(total + size * a))
        off = [float(mpmath.mpf(float(x)) - y) for x, y in zip(found[0], exact, strict=True)]
    assert np.ptp(off) < limit  # equal but for a constant


@pytest.mark.parametrize("size", [4, 50, 600])
def test_equal_spans_give_the_closed_form(size):
    counts = np.random.default_rng(size).poisson(np.random.default_rng(0).gamma(1.5, 4, size))
    closed = shrinkage._over_one_span(counts, 10.0)
    grid = shrinkage._over_own_spans(counts, np.full(size, 10.0))
    for x, y in zip(closed, grid, strict=True):
        assert y == pytest.approx(x, rel=1e-2 if size < 10 else 1e-6)


def test_intervals_of_rates_over_own_spans_cover_what_they_claim():
    rng, inside = np.random.default_rng(5), []
    for _ in range(12):
        true = rng.gamma(1.5, 0.1 / 1.5, 200)
        spans = np.where(rng.random(200) < 0.1, rng.uniform(4, 40, 200), 40.0)
        found = shrinkage.rates(rng.poisson(true * spans), spans)
        inside += (np.abs(found.value - true) < 1.96 * found.error).tolist()
    assert 0.92 < np.mean(inside) < 0.975


# ------------------------------------------------------------------------------ utilities


def votes_of_a_fleet(sigma, seed=2):
    rng = np.random.default_rng(seed)
    true = rng.gamma(9.0, 100 / 9, 500)  # spread a third of the mean
    source = np.repeat(np.arange(500), rng.integers(5, 60, 500))
    utility = true[source] * rng.lognormal(-(sigma**2) / 2, sigma, source.size)
    return true, source, utility


@pytest.mark.parametrize(("sigma", "slack", "gain"), [(0.5, 0.01, 0.95), (1.2, 0.03, 0.75)])
def test_mean_utilities_come_back_with_honest_errors(sigma, slack, gain):
    true, source, utility = votes_of_a_fleet(sigma)
    found = shrinkage.utilities(source, utility, 500)
    assert found.mean == pytest.approx(100, rel=0.06)
    assert found.spread == pytest.approx(100 / 3, rel=0.2)
    assert share_is(np.abs(found.value - true) < 1.96 * found.error, 0.95, slack)
    off = (found.value - true) / found.error
    assert np.sqrt((off**2).mean()) == pytest.approx(1, abs=0.15)
    off, off_raw = (np.sqrt(np.mean((x - true) ** 2)) for x in (found.value, found.raw))
    assert off < gain * off_raw  # drawn to the fleet they are closer to the truth


def test_credibility_tends_to_the_textbooks_formula():
    """Bühlmann and Straub's weights, which many sources tell exactly."""
    _, source, utility = votes_of_a_fleet(0.5)
    counts = np.bincount(source)
    found = shrinkage.utilities(source, utility, 500)
    own = np.bincount(source, utility) / counts
    within = np.bincount(source, (utility - own[source]) ** 2).sum() / (counts - 1).sum()
    z = counts / (counts + within / found.spread**2)
    assert found.value == pytest.approx(z * own + (1 - z) * found.mean, rel=0.01)


@pytest.mark.parametrize("size", [2, 100])
def test_intervals_of_utilities_cover_what_they_claim(size):
    rng = np.random.default_rng(size)
    for spread in (0.0, 0.6):  # of the logarithm of a source's mean utility
        inside = []
        for _ in range(max(100 // size, 6)):
            true = rng.lognormal(-(spread**2) / 2, spread, size)
            source = np.repeat(np.arange(size), rng.integers(5, 20, size))
            utility = true[source] * rng.gamma(2.0, 0.5, source.size)
            found = shrinkage.utilities(source, utility, size)
            inside += (np.abs(found.value - true) < 1.96 * found.error).tolist()
        assert np.mean(inside) > 0.89
        assert np.mean(inside) < 0.985 or not spread


def test_utilities_at_the_edges():
    ones = shrinkage.utilities(np.array([0, 0, 1]), np.ones(3), 3)
    assert ones.value.tolist() == [1.0, 1.0, 1.0]  # the third source is silent
    assert ones.error.tolist() == [0.0, 0.0, 0.0]
    single = shrinkage.utilities(np.array([0, 1]), np.array([1.0, 3.0]), 2)
    assert single.value.tolist() == [2.0, 2.0]
    worthless = shrinkage.utilities(np.array([0, 1]), np.zeros(2), 2)
    assert worthless.value.tolist() == [0.0, 0.0]
    assert np.isfinite(np.concatenate((ones.error, single.error, worthless.error))).all()


def test_a_single_item_does_not_tell_its_error():
    found = shrinkage.utilities(np.array([0]), np.array([7.0]), 2)
    assert found.value.tolist() == [7.0, 7.0]
    assert np.isinf(found.error).all()
    assert np.isinf(found.raw_error).all()
    equal = shrinkage.utilities(np.array([0, 0]), np.array([7.0, 7.0]), 2)
    assert equal.error.tolist() == [0.0, np.inf]  # one source does not tell how much they differ
    with pytest.raises(ValueError, match="no items"):
        shrinkage.utilities(np.zeros(0, dtype=int), np.zeros(0), 2)


UTILITIES = {
    "few": ([0, 0, 1, 1], [1.0, 2.0, 3.0, 4.0]),
    "equal": ([0, 0, 0, 1, 1], [0.1, 0.1, 0.1, 0.1, 0.1]),
    "equal by source": ([0, 0, 0, 1, 1], [0.1, 0.1, 0.1, 0.3, 0.3]),
    "one each": ([0, 1], [1.0, 3.0]),
}


@pytest.mark.parametrize("unit", [1e-300, 1e-150, 1e300])
@pytest.mark.parametrize("which", UTILITIES)
def test_utilities_do_not_depend_on_their_unit(which, unit):
    source, utility = (np.array(x) for x in UTILITIES[which])
    found, expected = (shrinkage.utilities(source, utility * s, 3) for s in (unit, 1.0))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(x) / unit, y, rtol=1e-9)


# ------------------------------------------------------------------------------ normal estimates


def test_normal_estimates_are_drawn_to_their_mean():
    rng = np.random.default_rng(3)
    true = rng.normal(2.0, 0.3, 400)
    error = rng.uniform(0.1, 0.8, 400)
    own = true + error * rng.normal(size=400)
    error[:40] = np.inf
    found = shrinkage.shrunk(own, error)
    assert found.mean == pytest.approx(2.0, abs=0.08)
    assert found.spread == pytest.approx(0.3, rel=0.25)
    assert share_is(np.abs(found.value - true) < 1.96 * found.error, 0.95)
    known = np.isfinite(error)
    off, off_raw = (np.mean((x - true)[known] ** 2) for x in (found.value, own))
    assert off < 0.5 * off_raw
    same = shrinkage.shrunk(np.full(5, 1.5), np.full(5, 0.1))
    assert same.value == pytest.approx([1.5] * 5)
    assert np.all((same.error > 0.1 / np.sqrt(5)) & (same.error < 0.1))


@pytest.mark.parametrize("least", [0.0, 1e-8, 1e-4])
def test_one_source_that_is_known_well_does_not_set_the_scale(least):
    own = np.log([0.1, 0.5, 0.52, 0.48, 0.9])
    found = shrinkage.shrunk(own, np.array([least, 0.1, 0.1, 0.1, 0.1]))
    assert found.value == pytest.approx(own, abs=0.05)
    assert found.error[0] < 0.001
    assert np.all((found.error[1:] > 0.09) & (found.error[1:] < 0.11))
    assert found.spread == pytest.approx(own.std(ddof=1), rel=0.5)


@pytest.mark.parametrize("error", [1e-3, 1e-9, 1e-30, 0.0])
def test_the_spread_is_found_however_small_the_errors(error):
    own = np.array([0.0, 1.0, 2.0, 5.0, 0.0])
    found = shrinkage.shrunk(own, np.array([error, error, error, error, np.inf]))
    assert found.value == pytest.approx([0, 1, 2, 5, 2], abs=1e-3)
    assert np.all(found.error[:4] < 0.0011)
    assert 1.9 < found.error[4] < 6  # the standard deviation is 2.2, of four
    assert 1.9 < found.spread < 5


def test_infinite_errors_alone_are_refused():
    with pytest.raises(ValueError, match="all errors are infinite"):
        shrinkage.shrunk(np.zeros(2), np.full(2, np.inf))


@pytest.mark.parametrize("size", [2, 100])
def test_intervals_of_normal_estimates_cover_what_they_claim(size):
    rng = np.random.default_rng(size)
    for spread in (0.0, 1.0):
        inside = []
        for _ in range(max(100 // size, 6)):
            true, error = rng.normal(0, spread, size), rng.uniform(0.3, 1.2, size)
            found = shrinkage.shrunk(true + error * rng.normal(size=size), error)
            inside += (np.abs(found.value - true) < 1.96 * found.error).tolist()
        assert np.mean(inside) > 0.89
        assert np.mean(inside) < 0.985 or not spread
