"""Laws of an item's utility: mean one, the second moment that is stated, nothing negative."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from crawl_env.content.arrivals import Arrivals
from crawl_env.content.utility import (
    UTILITIES,
    Constant,
    Distribution,
    Exponential,
    Gamma,
    Lognormal,
    make_distribution,
)
from tests.references import Z_LIMIT, z_of_mean, z_of_variance

N = 200_000
EACH_LAW = pytest.mark.parametrize(
    ("law", "distribution"),
    [
        pytest.param(Exponential(), stats.expon(), id="exponential"),
        pytest.param(Lognormal(), stats.lognorm(1.2, scale=math.exp(-0.72)), id="lognormal-1.2"),
        pytest.param(Lognormal(0.4), stats.lognorm(0.4, scale=math.exp(-0.08)), id="lognormal-0.4"),
        pytest.param(Gamma(), stats.gamma(2.0, scale=0.5), id="gamma-2"),
        pytest.param(Gamma(0.3), stats.gamma(0.3, scale=1 / 0.3), id="gamma-0.3"),
    ],
)


@EACH_LAW
def test_samples_follow_the_distribution_of_mean_one(
    law: Distribution, distribution: object
) -> None:
    sample = law.sample(np.random.default_rng(1), N)
    assert sample.shape == (N,)
    assert distribution.mean() == pytest.approx(1.0)
    assert stats.kstest(sample, distribution.cdf).pvalue > 1e-4
    assert abs(z_of_mean(sample, 1.0)) < Z_LIMIT


@EACH_LAW
def test_second_moment_is_that_of_the_distribution(law: Distribution, distribution: object) -> None:
    assert law.second_moment == pytest.approx(distribution.moment(2), rel=1e-9)


@pytest.mark.parametrize(
    "law", [Exponential(), Lognormal(0.4), Gamma(), Gamma(0.7)], ids=lambda law: repr(law)
)
def test_second_moment_is_that_of_the_samples(law: Distribution) -> None:
    sample = law.sample(np.random.default_rng(2), N)
    assert abs(z_of_mean(sample**2, law.second_moment)) < Z_LIMIT


@pytest.mark.parametrize("sigma", [0.4, 1.2])
def test_the_logarithm_of_a_lognormal_utility_is_normal(sigma: float) -> None:
    """Mean −σ²/2 and variance σ², which show a shift that heavy tails would hide."""
    log = np.log(Lognormal(sigma).sample(np.random.default_rng(3), N))
    assert abs(z_of_mean(log, -(sigma**2) / 2)) < Z_LIMIT
    assert abs(z_of_variance(log, -(sigma**2) / 2, sigma**2)) < Z_LIMIT


def test_constant_is_one() -> None:
    assert Constant().sample(np.random.default_rng(0), 3).tolist() == [1.0, 1.0, 1.0]
    assert Constant().second_moment == 1.0


@pytest.mark.parametrize("name", sorted(UTILITIES))
def test_same_seed_same_samples_and_none_of_none(name: str) -> None:
    law = make_distribution(name)
    first, second = (law.sample(np.random.default_rng(5), 10) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert law.sample(np.random.default_rng(5), 0).shape == (0,)


def test_names_and_objects_are_understood() -> None:
    assert {name: type(make_distribution(name)) for name in UTILITIES} == {
        "constant": Constant,
        "exponential": Exponential,
        "lognormal": Lognormal,
        "gamma": Gamma,
    }
    law = Lognormal(0.5)
    assert make_distribution(law) is law
    assert Arrivals(utility=law).utility is law


@pytest.mark.parametrize(
    ("name", "near"),
    [("expnential", "exponential"), ("log-normal", "lognormal"), ("Gamma", "gamma")],
)
def test_an_unknown_law_suggests_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ValueError, match=rf"unknown distribution.*{name}.*did you mean '{near}'"):
        make_distribution(name)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize(("law", "parameter"), [(Lognormal, "sigma"), (Gamma, "shape")])
def test_parameters_must_be_positive_and_finite(
    law: type[Distribution], parameter: str, bad: float
) -> None:
    with pytest.raises(ValueError, match=rf"{parameter} is {bad!r}.*positive"):
        law(bad)


def test_an_object_that_is_no_distribution_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the distribution is 3; give one of constant"):
        Arrivals(utility=3)  # type: ignore[arg-type]
