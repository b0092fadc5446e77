"""Items by what they are worth: against quadrature, simulation, and their derivative."""

import numpy as np
import pytest
from scipy import integrate, special

from agents.theory.engine.content import Excess, WaitingItems
from agents.theory.engine.joining import joining
from crawl_env import Sources
from crawl_env.content.utility import (
    EqualUtilities,
    Exponential,
    ExponentialDecay,
    Gamma,
    Lognormal,
    LomaxDecay,
    StretchedDecay,
)

SOURCES = Sources([2.0, 5.0, 1.0], [1.0, 0.5, 0.0], [0.3, 0.1, 0.2])
DECAYS = ExponentialDecay(), StretchedDecay(0.5), LomaxDecay(2.0)
UTILITIES = Exponential(), EqualUtilities(), Gamma(2.5), Gamma(0.4), Lognormal(1.2)


class Uniform:
    """Of one's own: ξ uniform on (0, 2 ξ̄)."""

    second_moment = 4 / 3

    def sample(self, rng, n):
        return rng.uniform(0, 2, n)


def ages(k):
    return np.full(len(SOURCES), float(k))


@pytest.mark.parametrize(
    ("decay", "utility"),
    [(DECAYS[0], law) for law in UTILITIES]
    + [(DECAYS[1], UTILITIES[3]), (DECAYS[2], UTILITIES[0])],
    ids=lambda law: f"{law}"[:9],
)
def test_against_numerical_integration(utility, decay):
    """Trapezoids of t, age = t⁴, which is smooth where interest falls like a root of the age."""
    items, excess = WaitingItems(SOURCES, utility, decay), Excess(utility)
    t = np.linspace(0, 1, 50_001)
    for k, level, i in ((1, 0.4, 0), (7, 0.05, 0), (7, 0.4, 1), (60, 0.7, 1)):
        rate, mean, mu = (float(x[i]) for x in (SOURCES.arrival_rate, SOURCES.mean_utility,
                                                SOURCES.decay_rate))  # fmt: skip
        end = min(k, decay.end / mu * (1 - 1e-12))
        left = decay.survival(mu * end * t**4)
        slope = rate * 4 * end * t**3
        number = integrate.trapezoid(slope * excess.probability(level / mean / left), t)
        value = integrate.trapezoid(slope * mean * left * excess.mean(level / mean / left), t)
        error = 1e-3 if isinstance(utility, EqualUtilities) else 1e-8  # it has a step
        assert items.number(ages(k), level)[i] == pytest.approx(number, rel=error, abs=error)
        assert items.utility(ages(k), level)[i] == pytest.approx(value, rel=error, abs=error)


@pytest.mark.parametrize("utility", [*UTILITIES, Uniform()], ids=lambda u: type(u).__name__)
def test_against_simulated_items(utility):
    """Each of the 12 comparisons fails by chance once in 10⁴ seeds."""
    rng, draws, k, level = np.random.default_rng(5), 100_000, 5, 0.3
    items = WaitingItems(SOURCES, utility)
    for i in range(2):
        age = rng.uniform(0, k, draws)
        worth = SOURCES.mean_utility[i] * np.exp(-SOURCES.decay_rate[i] * age)
        worth = worth * utility.sample(rng, draws)
        all_of_them = SOURCES.arrival_rate[i] * k
        for found, one in (
            (items.number(ages(k), level)[i], worth >= level),
            (items.utility(ages(k), level)[i], worth * (worth >= level)),
        ):
            error = 3.9 * one.std() / np.sqrt(draws) + 0.004 * isinstance(utility, Uniform)
            assert abs(found / all_of_them - one.mean()) <= error + 1e-12


def test_the_number_is_minus_the_derivative_and_no_price_is_no_engine():
    for utility in (Exponential(), Gamma(2.0), EqualUtilities()):
        items = WaitingItems(SOURCES, utility)

        def worth(price, items=items):
            return items.worth(ages(9), price, price)

        slope = (worth(0.4 + 1e-5) - worth(0.4 - 1e-5)) / 2e-5
        np.testing.assert_allclose(-slope, items.number(ages(9), 0.4), rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(worth(0.0), SOURCES.content_at(ages(9)), rtol=1e-14)
        assert items.number(ages(9), 0.4)[2] == worth(0.4)[2] == 0  # worthless items


def test_items_join_newest_first():
    """Against simulated crawls; each of the 6 fails by chance once in 10⁴ seeds."""
    rng, crawls, k, threshold = np.random.default_rng(2), 5000, 4, 0.2
    found = joining(SOURCES, 0, k, 12, threshold, Exponential())
    total, number = np.zeros((crawls, 12)), np.zeros(crawls)
    for c in range(crawls):
        age = np.sort(rng.uniform(0, k, rng.poisson(2.0 * k)))
        worth = rng.exponential(1.0, age.size) * np.exp(-0.3 * age)
        passed = worth[worth >= threshold]
        number[c], total[c, : min(12, passed.size)] = passed.size, passed[:12]
    for mean, draws in [(found.number[-1], number)] + [
        (found.utility[-1, j], total[:, j]) for j in (0, 1, 3, 6, 9)
    ]:
        assert abs(draws.mean() - mean) < 3.9 * draws.std() / np.sqrt(crawls)


@pytest.mark.parametrize(
    ("rate", "decay", "ages", "places"), [(2.0, 0.3, 9, 20), (250.0, 0.1, 3, 900)]
)
def test_what_joins_in_closed_form(rate, decay, ages, places):
    """Without a threshold the j-th newest item has a gamma-distributed age."""
    found = joining(Sources([rate], [1.3], [decay]), 0, ages, places, 0.0, Exponential())
    k, j = np.arange(1, ages + 1)[:, None], np.arange(1, places + 1)
    left = (rate / (rate + decay)) ** j * special.gammainc(j, (rate + decay) * k)
    np.testing.assert_allclose(found.utility, 1.3 * left, atol=1e-9)


def test_items_of_one_utility_pass_up_to_an_age():
    for threshold in (0.3, 0.5, 0.9):
        found = joining(Sources([2.0], [1.0], [0.3]), 0, 20, 40, threshold, EqualUtilities())
        number = 2.0 * np.minimum(np.arange(1.0, 21.0), -np.log(threshold) / 0.3)
        np.testing.assert_allclose(found.number, number, rtol=1e-12)
        np.testing.assert_allclose(found.total[-1], 2.0 / 0.3 * (1 - threshold), rtol=1e-12)


def test_what_fades_within_a_step():
    found = joining(Sources([2.0], [1.0], [500.0]), 0, 3, 5, 0.0, EqualUtilities())
    np.testing.assert_allclose(found.total, 2.0 / 500.0, rtol=1e-9)
