"""The index of large fleets with capacities: prepared once, and within the stated error."""

import mpmath
import numpy as np
import pytest

from agents import index_at_age, relaxed_bound, whittle_index
from agents.theory import capacity_table
from agents.theory.capacity_table import IndexTable
from agents.theory.renewal import RenewalArm, renewal_arm
from crawl_env import Sources
from crawl_env.content.utility import LomaxDecay, StretchedDecay


def fleet(n, regime, failing):
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
def test_nodes_have_the_stated_error(monkeypatch, regime, failing, nodes, error):
    some = fleet(60, regime, failing)
    x = np.linspace(5e-3, 1.1, 300)[:, None] * some.content_at(np.inf)
    exact = renewal_arm(some).index(x)
    monkeypatch.setattr(capacity_table, "_MOST_CELLS", 0)
    monkeypatch.setattr(capacity_table, "_MOST_BYTES", 8 * nodes * 60)
    got = renewal_arm(some).index(x)
    np.testing.assert_allclose(got, exact, rtol=error)
    assert (np.diff(got, axis=0) >= -1e-6 * got[1:]).all()


@pytest.mark.parametrize("failing", [0.0, 0.4])
def test_nodes_are_exact_at_their_ages(monkeypatch, failing):
    """Against the sum over items and retries: a table holds the first ages in single precision."""
    some = fleet(60, "sparse", failing)
    ages = np.arange(1.0, 16.0)[:, None]
    x, exact = some.content_at(ages), RenewalArm(some).index_at_age(ages)
    monkeypatch.setattr(capacity_table, "_MOST_CELLS", 0)
    # Where content grows by less than its last digit, the age cannot be told from it.
    told = np.diff(some.content_at(np.arange(17.0)[:, None]), axis=0) > 1e-4 * some.content_at(1.0)
    got = renewal_arm(some).index(x)
    assert told[:15].mean() > 0.5
    np.testing.assert_allclose(got[told[:15]], exact[told[:15]], rtol=1e-4)


def test_a_fleet_is_prepared_once_and_equal_sources_share_a_row(monkeypatch):
    made = []
    prepare = IndexTable.__init__
    monkeypatch.setattr(
        IndexTable, "__init__", lambda self, arm: made.append(self) or prepare(self, arm)
    )
    contents = []
    mean = RenewalArm.mean_content

    def counted(self, age):
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
def test_nodes_of_another_decay_function(monkeypatch, decay):
    some = Sources.random(20, 1)
    x = np.linspace(5e-3, 1.1, 300)[:, None] * some.ceiling
    exact = RenewalArm(some, decay).index(x)
    monkeypatch.setattr(capacity_table, "_MOST_CELLS", 0)
    got = RenewalArm(some, decay).index(x)
    np.testing.assert_allclose(got, exact, rtol=5e-3)
    closed = whittle_index(x, some)
    assert np.abs(exact / closed - 1).max() > 0.1


MIXED = [3.0, 5.0, np.inf]
LITTLE = (1e-1, 1e-3, 1e-6, 1e-9, 1e-12, 1e-14, 1e-15, 1e-17, 1e-30, 1e-100, 1e-300)


def in_many_digits(age, rate, most, m):
    """The index at an age of a source with ξ̄ = C = T = 1, from the sum over its last K items."""
    with mpmath.workdps(700):
        mu, both = mpmath.mpf(m), mpmath.mpf(rate) + mpmath.mpf(m)

        def content(t):
            if np.isinf(most):
                return rate / mu * -mpmath.expm1(-mu * t)
            total, missed, term = mpmath.mpf(0), mpmath.mpf(0), mpmath.exp(-both * t)
            for n in range(1, int(most) + 1):  # P(n, (Λ+μ)t) = 1 − Σ_{j<n} of the Poisson terms
                missed += term
                term *= both * t / n
                total += (rate / both) ** n * (1 - missed)
            return total

        return float(content(age) - age * (content(age + 1) - content(age)))


def mixed(m, capacity=MIXED):
    return Sources([1.0, 3.0, 0.5], [1.0, 2.0, 5.0], m, 1.0, capacity=capacity)


@pytest.mark.parametrize("m", LITTLE)
def test_little_decay_costs_no_digits_beside_uncapped_sources(m):
    some, ages = mixed(m), np.arange(1.0, 13.0)[:, None]
    exact = [
        [
            u * in_many_digits(int(k), *own, m)
            for u, *own in ((1, 1, 3), (2, 3, 5), (5, 0.5, np.inf))
        ]
        for k in ages[:, 0]
    ]
    np.testing.assert_allclose(index_at_age(ages, some), exact, rtol=1e-9)
    np.testing.assert_allclose(RenewalArm(some).index_at_age(ages), exact, rtol=1e-9)
    np.testing.assert_allclose(whittle_index(some.content_at(ages), some), exact, rtol=1e-9)


@pytest.mark.parametrize("m", LITTLE)
def test_an_uncapped_source_changes_nothing_for_the_others(monkeypatch, m):
    x = np.linspace(1e-2, 1.1, 200)[:, None] * np.array([3.0, 10.0, 1.0])
    alone = whittle_index(x, mixed(m, [3.0, 5.0, 7.0]))[:, :2]
    np.testing.assert_allclose(whittle_index(x, mixed(m))[:, :2], alone, rtol=1e-12)
    batch = Sources.stack([mixed(m), mixed(m, [np.inf, 5.0, 7.0]), mixed(m, [np.inf] * 3)])
    each = [whittle_index(x, batch.fleet(b)) for b in range(3)]
    together = whittle_index(x[:, None], batch)
    np.testing.assert_allclose(together, np.stack(each, axis=1), rtol=1e-12)
    monkeypatch.setattr(capacity_table, "_MOST_CELLS", 0)
    nodes = renewal_arm(mixed(m)).index(x)[:, :2]
    felt = alone > 1e-3 * alone[-1]
    np.testing.assert_allclose(nodes[felt], alone[felt], rtol=5e-3)


def test_the_relaxed_bound_has_no_dip_where_little_decays():
    bounds = [relaxed_bound(mixed(m), 1) for m in LITTLE]
    assert (np.diff(bounds) >= -1e-13 * bounds[-1]).all()
    assert bounds[LITTLE.index(1e-17)] == pytest.approx(bounds[-1], rel=1e-7)


def test_ages_that_are_no_whole_numbers_and_silent_sources():
    some = Sources([1.0, 0.0, 0.0, 2.0], 1.0, 0.1, capacity=[3.0, 3.0, np.inf, np.inf])
    index = index_at_age([[0.0], [1.0], [1.5], [2.0], [1e9], [np.inf]], some)
    assert (np.diff(index, axis=0) >= 0).all()
    assert (index[0] == 0).all()
    assert (index[:, 1:3] == 0).all()
    np.testing.assert_allclose(index[-2:], some.content_at([[np.inf]] * 2), rtol=1e-12)
