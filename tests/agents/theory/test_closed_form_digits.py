"""The index by age, its inverse and its limit in continuous time, against 60 digits."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.theory.closed_form import (
    ClosedForm,
    age_index,
    age_reaching,
    ages_reaching,
    continuous_age_reaching,
    continuous_index,
    decayed,
    remainder_ratio,
    retried_age_index,
    retried_age_reaching,
    retries,
    theorem_1,
    time_constants,
)
from tests.references import plainly

ACCURACY = 2e-14
DECAYS = np.logspace(-12, 3, 61)


def exact_bracket(steps, fraction, decay):
    """Theorem 1 as printed, 1 − α^η − η(1−α)(1−y), which 60 digits can afford."""
    with mpmath.workdps(60):
        m = mpmath.mpf(decay)
        return 1 - mpmath.exp(-m * steps) + steps * mpmath.expm1(-m) * (1 - mpmath.mpf(fraction))


def relative_error(found, exact):
    with mpmath.workdps(60):
        return float(abs(mpmath.mpf(float(found)) / exact - 1))


def test_age_index_is_exact_and_never_falls():
    rng = np.random.default_rng(7)
    for m in DECAYS:
        curvature = float(remainder_ratio(m))
        spread = np.floor(10 ** rng.uniform(0, max(1.0, np.log10(45 / m)), 15))
        places = np.floor(np.array([0.499, 0.5, 0.501, 0.6931, 0.6932, 2.0, 30.0, 37.0]) / m)
        starts = np.maximum(np.concatenate([[1.0], spread, places]), 1.0)
        ages = np.unique(starts[:, None] + np.arange(8.0))
        found = np.array([age_index(age, m, curvature, 1.0) for age in ages.tolist()])
        if m >= 1e-11:
            assert np.all(np.diff(found) >= 0), m
        assert np.all(found >= np.maximum.accumulate(found) * (1 - ACCURACY / 4)), m
        for age, index in zip(ages[::4].tolist(), found[::4].tolist(), strict=True):
            with mpmath.workdps(60):
                fraction = -mpmath.expm1(-mpmath.mpf(m) * age)
            assert relative_error(index, exact_bracket(int(age), fraction, m)) < 5e-15, (age, m)
        assert age_index(0.0, m, curvature, 3.0) == 0.0
        assert age_index(np.inf, m, curvature, 3.0) == 3.0


def test_decayed_and_time_constants_are_exact():
    rng = np.random.default_rng(8)
    near_halvings = np.log(2) * np.arange(1, 6)[:, None] * (1 + 1e-15 * np.arange(-4, 5))
    times = np.concatenate([10 ** rng.uniform(-14, 2.8, 300), near_halvings.ravel()])
    for z in times.tolist():
        kept, bend = decayed(z)
        with mpmath.workdps(60):
            assert relative_error(kept, mpmath.exp(-mpmath.mpf(z))) < 1e-15
            assert relative_error(bend, 1 + mpmath.expm1(-mpmath.mpf(z)) / z) < 1e-15
    assert decayed(0.0) == (1.0, 0.0)
    level = np.concatenate([10 ** rng.uniform(-300, 0, 100), 1 - 10 ** rng.uniform(-15.9, 0, 200)])
    for y in [*level.tolist(), 1 - 2.0**-53]:
        with mpmath.workdps(60):
            assert relative_error(time_constants(y), -mpmath.log1p(-mpmath.mpf(y))) < 1e-15
    assert time_constants(0.0) == 0.0


@plainly
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 40), rows=st.integers(1, 3))
def test_loops_have_the_bits_of_single_sources(seed, n, rows):
    """Loops are vectorised in blocks of some width; what is left over is computed one by one."""
    rng = np.random.default_rng(seed)
    ceiling, cost, decay = (10 ** rng.uniform(-3, 2, n) for _ in range(3))
    age = np.floor(10 ** rng.uniform(0, 4, (rows, n)))
    value = 10 ** rng.uniform(-4, 1, (rows, n)) * ceiling
    arms, curvature = ClosedForm(ceiling, cost, decay), remainder_ratio(decay)
    at_age, at_value = arms.index_at_age(age), arms.index(value)
    for row, i in np.ndindex(rows, n):
        c, m, k = float(ceiling[i]), float(decay[i]), float(curvature[i])
        full = c / float(cost[i])
        assert at_age[row, i] == age_index(float(age[row, i]), m, k, full)
        assert at_value[row, i] == theorem_1(float(value[row, i]), c, float(cost[i]), m, k)


@plainly
@given(
    decay=st.floats(-11, 3).map(lambda e: 10.0**e),
    full=st.floats(-3, 3).map(lambda e: 10.0**e),
    place=st.floats(0, 1.1),
    time=st.floats(0, 40),
    bits=st.integers(-3, 3),
    failure_rate=st.sampled_from([0.0, 0.0, 0.3, 0.95]),
    delay=st.integers(1, 5),
)
def test_age_reaching_a_level_is_the_first(decay, full, place, time, bits, failure_rate, delay):
    curvature, failing = float(remainder_ratio(decay)), retries(failure_rate, delay, decay)

    def index(age):
        return retried_age_index(age, decay, curvature, full, failing)

    at_an_age = index(np.ceil(time / decay))
    for level in (place * full, at_an_age + bits * np.spacing(at_an_age)):
        age = retried_age_reaching(level, decay, curvature, full, failing)
        if failure_rate == 0.0:
            assert age == age_reaching(level, decay, curvature, full)
        if level > index(np.inf):
            assert age == np.inf
            continue
        assert age >= 1
        assert age == np.floor(age)
        assert index(age) >= level
        assert age == 1 or failure_rate > 0 or index(age - 1) < level


def test_ages_of_many_sources_are_those_of_each():
    """Also where the level is the index at some age, but for its last bits."""
    rng, n = np.random.default_rng(0), 20_000
    decay, full = 10 ** rng.uniform(-11, 3, n), 10 ** rng.uniform(-3, 3, n)
    curvature, ages = remainder_ratio(decay), np.ceil(rng.uniform(0, 40, n) / decay)
    at_an_age = ClosedForm(full, np.ones(n), decay).index_at_age(ages)
    near = at_an_age + rng.integers(-3, 4, n) * np.spacing(at_an_age)
    level = np.where(rng.random(n) < 0.5, near, full * rng.uniform(0, 1.1, n))
    found = level.copy()
    ages_reaching(found, decay, full, np.empty((3, n)))
    columns = zip(level.tolist(), decay.tolist(), curvature.tolist(), full.tolist(), strict=True)
    assert found.tolist() == [age_reaching(*one) for one in columns]


@plainly
@given(level=st.floats(-320, 0).map(lambda e: 10.0**e), full=st.floats(-3, 3).map(lambda e: 10**e))
def test_continuous_time(level, full):
    """The age at which a share of u*/C is reached, and the index of the belief then."""
    z = continuous_age_reaching(level * full, full)
    if level == 1.0:
        assert z == np.inf
        return
    with mpmath.workdps(400):
        y = -mpmath.expm1(-mpmath.mpf(z))
        share = y + (1 - y) * mpmath.log1p(-y)
        slope = z * (1 - y) * -mpmath.log1p(-y)  # of the share, for an error of 1 in z
        assert (
            abs(share - mpmath.mpf(level * full) / mpmath.mpf(full)) < 1e-14 * slope + 1e-15 * level
        )
    if level > 1e-300:
        assert continuous_index(float(y), full) == pytest.approx(level * full, rel=1e-10)
    assert continuous_index(1.0 + level, full) == (1.0 + level) * full
