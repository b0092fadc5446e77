"""Do the intervals cover what they promise? By simulation, with stated error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agents.evaluation.statistics import UNKNOWN, Estimate, bootstrap, difference, mean, score

TRIALS = 1000
# The percentile interval of 20 runs covers 92–94 % of the time, not quite 95. Of 1000 trials the
# share has a standard error of .8 %: bounds this far off are missed once in 10,000.
LEAST, MOST = 0.90, 0.975


def covered(estimates: list[Estimate], truth: float) -> float:
    return float(np.mean([e.low <= truth <= e.high for e in estimates]))


@pytest.mark.parametrize("law", ["normal", "uniform", "gamma"])
def test_mean_covers(law: str) -> None:
    rng = np.random.default_rng(1)
    draw = {
        "normal": lambda: rng.normal(3.0, 2.0, 20),
        "uniform": lambda: rng.uniform(0.0, 1.0, 20),
        "gamma": lambda: rng.gamma(4.0, 1.0, 20),
    }[law]
    truth = {"normal": 3.0, "uniform": 0.5, "gamma": 4.0}[law]
    estimates = [mean(draw()) for _ in range(TRIALS)]
    assert LEAST < covered(estimates, truth) < MOST
    for e in estimates:
        assert e.low < e.mean < e.high


def test_difference_covers_and_pairing_narrows_it() -> None:
    rng = np.random.default_rng(2)
    paired, widths = [], []
    for _ in range(TRIALS // 2):
        shared = rng.normal(10.0, 3.0, 20)  # what the same arrivals do to both
        a, b = shared + rng.normal(0.5, 0.3, 20), shared + rng.normal(0.0, 0.3, 20)
        paired.append(difference(a, b))
        apart = difference(a, rng.permutation(b))
        widths.append((paired[-1].high - paired[-1].low) / (apart.high - apart.low))
    assert 0.885 < covered(paired, 0.5) < 0.98  # of 500 trials: one error in 2000
    # In theory √(.18/18.18) = .0995.
    assert np.mean(widths) == pytest.approx(0.1, rel=0.1)


def test_score_covers() -> None:
    rng = np.random.default_rng(3)
    estimates = []
    for _ in range(TRIALS // 2):
        shared = rng.normal(0.0, 3.0, 20)
        runs = [shared + rng.normal(level, 0.5, 20) for level in (88.0, 80.0, 90.0)]
        estimates.append(score(*runs))
    assert 0.885 < covered(estimates, 0.8) < 0.98


def test_score_is_0_for_random_and_1_for_the_reference() -> None:
    rng = np.random.default_rng(4)
    random, best = rng.normal(80, 1, 20), rng.normal(90, 1, 20)
    assert score(random, random, best) == pytest.approx((0.0, 0.0, 0.0))
    assert score(best, random, best) == pytest.approx((1.0, 1.0, 1.0))
    middle = score((random + best) / 2, random, best)
    assert middle == pytest.approx((0.5, 0.5, 0.5))
    worse = score(2 * random - best, random, best)
    assert worse.mean == pytest.approx(-1)


def test_score_is_unknown_where_nothing_can_be_told() -> None:
    rng = np.random.default_rng(5)
    random, agent = rng.normal(80, 5, 20), rng.normal(80, 5, 20)
    alike = random + rng.normal(0, 1, 20) - 0.1
    for reference in (alike, random, random - 3, random * (1 + 1e-12)):
        got = score(agent, random, reference)
        assert got is UNKNOWN
        assert str(got) == "n/a"
        assert np.isnan(got).all()
    assert str(score(agent, [1.0, 1.0], [1.0, 1.0])) == "n/a"


def test_score_seldom_invents_a_difference() -> None:
    """Reference and random alike: the lower limit is above zero in 2.5 %, by small samples up to
    5 % of trials; 500 trials exceed 7 % once in 50."""
    rng = np.random.default_rng(6)
    known = [score(*rng.normal(80, 5, (3, 20))) is not UNKNOWN for _ in range(TRIALS // 2)]
    assert 0.0 < np.mean(known) < 0.07


def test_what_is_not_random_has_no_width() -> None:
    for sample in ([337.774550] * 20, [0.0] * 5, [-2.0]):
        estimate = mean(sample)
        assert estimate.low == estimate.high == pytest.approx(sample[0])
        assert estimate.mean == pytest.approx(sample[0])
        assert "[" not in str(estimate)
    assert difference([3.0] * 4, [1.0] * 4) == (2.0, 2.0, 2.0)
    assert score([3.0] * 4, [1.0] * 4, [5.0] * 4) == (0.5, 0.5, 0.5)
    assert str(mean([337.774550] * 3)) == "337.77"
    assert str(Estimate(1.0, 0.5, 1.5)) == "1 [0.5, 1.5]"
    assert str(Estimate(0.0, 0.0, 0.0)) == "0"


def test_bootstrap_draws_runs_together_and_again_alike() -> None:
    rng = np.random.default_rng(7)
    a, b = rng.normal(size=(2, 30))

    def ratio(x: Any, y: Any) -> Any:
        return (x.mean(axis=-1) + 10) / (y.mean(axis=-1) + 10)

    first = bootstrap(ratio, a, b)
    assert first == bootstrap(ratio, a.tolist(), b)
    assert first != bootstrap(ratio, a, b, seed=1)
    assert first.mean == pytest.approx((a.mean() + 10) / (b.mean() + 10))
    # Drawn together, a sample and itself always give one.
    assert bootstrap(ratio, a, a) == (1.0, 1.0, 1.0)
    order = rng.permutation(30)
    again = bootstrap(ratio, a[order], b[order])
    assert again == pytest.approx(first, rel=5e-3)
    assert bootstrap(ratio, a, b, resamples=50).mean == first.mean


def test_interval_of_a_known_case() -> None:
    """Zeros and ones: resampled means are Binomial(n, p)/n, whose quantiles are known."""
    sample = np.array([0.0] * 60 + [1.0] * 40)
    estimate = mean(sample)
    assert estimate.mean == 0.4
    # 2.5 % and 97.5 % quantiles of Binomial(100, .4): 31 and 50.
    assert estimate.low == pytest.approx(0.31, abs=0.011)
    assert estimate.high == pytest.approx(0.50, abs=0.011)
