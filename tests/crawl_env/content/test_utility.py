"""Distributions of an item's utility: mean one, and the second moment that is stated."""

import math

import numpy as np
import pytest
from scipy import stats

from crawl_env.content.arrivals import Arrivals
from crawl_env.content.utility import (
    UTILITIES,
    EqualUtilities,
    Exponential,
    Gamma,
    Lognormal,
    make_distribution,
)
from tests.references import Z_LIMIT, z_of_mean, z_of_variance

N = 200_000
EACH = pytest.mark.parametrize(
    ("utility", "distribution"),
    [
        pytest.param(Exponential(), stats.expon(), id="exponential"),
        pytest.param(Lognormal(), stats.lognorm(1.2, scale=math.exp(-0.72)), id="lognormal-1.2"),
        pytest.param(Lognormal(0.4), stats.lognorm(0.4, scale=math.exp(-0.08)), id="lognormal-0.4"),
        pytest.param(Gamma(), stats.gamma(2.0, scale=0.5), id="gamma-2"),
        pytest.param(Gamma(0.3), stats.gamma(0.3, scale=1 / 0.3), id="gamma-0.3"),
    ],
)


@EACH
def test_samples_follow_the_distribution_of_mean_one(utility, distribution):
    sample = utility.sample(np.random.default_rng(1), N)
    assert sample.shape == (N,)
    assert distribution.mean() == pytest.approx(1.0)
    assert stats.kstest(sample, distribution.cdf).pvalue > 1e-4
    assert abs(z_of_mean(sample, 1.0)) < Z_LIMIT
    assert utility.second_moment == pytest.approx(distribution.moment(2), rel=1e-9)
    if utility.second_moment < 4:  # else a few samples carry the whole moment
        assert abs(z_of_mean(sample**2, utility.second_moment)) < Z_LIMIT
    if isinstance(utility, Lognormal):
        # The logarithm shows a shift that heavy tails would hide.
        log, variance = np.log(sample), utility.sigma**2
        assert abs(z_of_mean(log, -variance / 2)) < Z_LIMIT
        assert abs(z_of_variance(log, -variance / 2, variance)) < Z_LIMIT


def test_names_and_objects_are_understood():
    assert {name: type(make_distribution(name)) for name in UTILITIES} == {
        "constant": EqualUtilities,
        "exponential": Exponential,
        "lognormal": Lognormal,
        "gamma": Gamma,
    }
    for name in UTILITIES:
        utility = make_distribution(name)
        first, second = (utility.sample(np.random.default_rng(5), 10) for _ in range(2))
        assert first.tolist() == second.tolist()
        assert utility.sample(np.random.default_rng(5), 0).shape == (0,)
    assert EqualUtilities().sample(np.random.default_rng(0), 3).tolist() == [1.0, 1.0, 1.0]
    assert EqualUtilities().second_moment == 1.0
    own = Lognormal(0.5)
    assert make_distribution(own) is own
    assert Arrivals(utility=own).utility is own


@pytest.mark.parametrize(
    ("name", "near"),
    [("expnential", "exponential"), ("log-normal", "lognormal"), ("Gamma", "gamma")],
)
def test_an_unknown_name_suggests_the_nearest(name, near):
    with pytest.raises(ValueError, match=rf"unknown distribution.*{name}.*did you mean '{near}'"):
        make_distribution(name)


def test_what_is_no_distribution_is_refused():
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=rf"sigma is {bad!r}; it must be positive"):
            Lognormal(bad)
        with pytest.raises(ValueError, match=rf"shape is {bad!r}; it must be positive"):
            Gamma(bad)
    with pytest.raises(ValueError, match=r"the distribution is 3; give one of constant"):
        Arrivals(utility=3)


class Own:
    """A distribution of one's own: exponential, times a factor."""

    def __init__(self, factor=1.0, extra=0, second_moment=2.0):
        self._factor, self._extra, self.second_moment = factor, extra, second_moment

    def sample(self, rng, n):
        return self._factor * rng.standard_exponential(n + self._extra)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (
            Own(-1.0),
            r"draw 0: a draw of Own\.sample\(rng, .*\) is -.*; it must be zero or positive",
        ),
        (Own(np.nan), "is nan"),
        (Own(extra=1), r"has shape \(4097,\); it must have shape \(4096,\)"),
        (Own(second_moment=0.5), r"Own\.second_moment is 0\.5; it must be finite and at least 1"),
    ],
)
def test_a_faulty_distribution_of_ones_own_is_refused(own, message):
    with pytest.raises(ValueError, match=message):
        Arrivals(utility=own)


def test_draws_of_another_mean_are_warned_of():
    assert make_distribution(fine := Own()) is fine
    with pytest.warns(
        UserWarning, match=r"draws of Own\.sample have the mean 2\.0\d*; it must be 1"
    ):
        Arrivals(utility=Own(2.0))
