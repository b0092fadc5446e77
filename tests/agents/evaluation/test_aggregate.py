"""Interquartile means, profiles and improvements: known values, coverage, and what is refused."""

import numpy as np
import pytest

from agents.evaluation.aggregate import (
    FEWEST_RUNS,
    area,
    improvement,
    interquartile_mean,
    iqm,
    profile,
    worst,
)


def test_the_interquartile_mean_is_scipys_trimmed_mean():
    from scipy.stats import trim_mean

    rng = np.random.default_rng(0)
    for runs in (1, 2, 3, 4, 5, 7, 20, 101):
        x = rng.standard_cauchy((3, runs))
        np.testing.assert_allclose(interquartile_mean(x), trim_mean(x, 0.25, axis=-1))


def test_a_quarter_of_failed_trainings_does_not_move_it():
    runs = np.r_[np.full(15, 0.98), np.full(5, -3.0)]
    assert iqm([runs]).mean == pytest.approx(0.98)
    assert runs.mean() < 0


@pytest.mark.parametrize(("runs", "tasks", "least"), [(5, 1, 0.89), (5, 10, 0.90), (20, 3, 0.91)])
def test_intervals_cover(runs, tasks, least):
    # Measured: .94, .95 and .96. Of 400 intervals the fraction covered has a standard error of
    # 1.1 %: below these bounds once in some 10,000. Percentiles alone cover .91, .92 and .95.
    rng = np.random.default_rng(1)
    level = np.linspace(0.5, 0.9, tasks) if tasks > 1 else np.array([0.7])
    covered = []
    for _ in range(400):
        found = iqm(list(rng.normal(level[:, None], 0.1, (tasks, runs))), resamples=1000)
        # By symmetry, the interquartile mean of the mixture is its mean.
        covered.append(found.low <= 0.7 <= found.high)
    assert least < np.mean(covered) < 0.995


def test_percentiles_are_expanded_and_few_runs_have_no_interval():
    runs = np.linspace(0.0, 1.0, FEWEST_RUNS)
    draws = np.random.default_rng(0).integers(0, runs.size, (5000, runs.size))
    plain = np.percentile(interquartile_mean(runs[draws]), [2.5, 97.5])
    found = iqm([runs])
    assert found.low < plain[0] < found.mean < plain[1] < found.high
    for few in (iqm([runs[1:]]), iqm([runs], 0)):
        assert np.isfinite(few.mean)
        assert np.isnan(few.low)
        assert np.isnan(few.high)


def test_resampling_stays_within_tasks():
    # Runs of a task are alike, the tasks are not: nothing is left to chance.
    found = iqm([np.full(8, 0.2), np.full(8, 0.8)])
    assert found.low == found.high == pytest.approx(0.5)


def test_every_task_weighs_the_same_in_a_profile():
    few, many = np.array([1.0]), np.zeros(9)
    assert profile([few, many], [0.5])[0] == pytest.approx(0.5)


def test_the_worst_tenth_is_seen_where_the_interquartile_mean_is_blind():
    runs = [np.r_[np.ones(19), -3.0], np.ones(20)]
    assert worst(runs) == pytest.approx((-3.0 + 3 * 1.0) / 4)
    assert worst([[0.5, 1.0]]) == 0.5
    assert iqm(runs).mean == 1.0


def test_areas_are_means_on_a_logarithmic_axis():
    rng = np.random.default_rng(5)
    for _ in range(20):
        steps = np.r_[0, np.sort(rng.integers(1, 10_000, 8))]
        scores = rng.random(9)
        grid = np.geomspace(200, 10_000, 200_001)
        held = scores[np.searchsorted(steps, grid, side="right") - 1]
        assert area(steps, scores, 10_000) == pytest.approx(held.mean(), abs=1e-4)
    with pytest.raises(ValueError, match="one score for each"):
        area([0, 1], [1.0], 10)


def test_every_task_weighs_the_same_whatever_its_number_of_runs():
    """As if runs were repeated until all tasks had equally many, but without repeating them, which
    of 17, 18, 19 and 20 runs would need gigabytes."""
    rng = np.random.default_rng(6)
    for counts in ((2, 3), (5, 6, 4), (1, 7), (3, 3, 2, 20)):
        runs = [rng.normal(size=count).round(1) for count in counts]
        most = np.lcm.reduce(counts)
        repeated = [np.repeat(task, most // task.size) for task in runs]
        assert iqm(runs, 0).mean == pytest.approx(iqm(repeated, 0).mean)
        assert worst(runs) == pytest.approx(worst(repeated))
    uneven = [rng.normal(0.7, 0.1, count) for count in (17, 18, 19, 20, 23)]
    found = iqm(uneven, 200)
    assert 0.6 < found.low < found.mean < found.high < 0.8


def test_scores_that_are_not_finite_are_refused():
    """Sorted, NaN is among the best runs, which an interquartile mean leaves out."""
    good = [[0.5, 0.6, 0.7, 0.8]]
    for bad in ([[0.1, 0.2, 0.3, np.nan]], [[0.1, np.inf, 0.2]]):
        for compute in (iqm, worst, lambda s: profile(s, [0.0]), lambda s: improvement(good, s)):
            with pytest.raises(ValueError, match=r"of task 0 has the score (nan|inf); it must be"):
                compute(bad)


def test_improvement_counts_pairs_and_ties():
    rng = np.random.default_rng(2)
    x, y = rng.normal(0.3, 1, 30), rng.normal(0, 1, 20)
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in x for b in y]
    assert improvement([x], [y]) == pytest.approx(np.mean(pairs))
    assert improvement([x], [y]) + improvement([y], [x]) == pytest.approx(1.0)
    assert improvement([x], [x]) == pytest.approx(0.5)


@pytest.mark.parametrize("bad", [[], [[]], [[0.5], []], [np.zeros((2, 2))]])
def test_tasks_without_runs_are_refused(bad):
    with pytest.raises(ValueError, match="at least one run"):
        iqm(bad)


def test_different_tasks_are_refused():
    with pytest.raises(ValueError, match="the same tasks for both"):
        improvement([[1.0]], [[1.0], [2.0]])


def test_tasks_with_more_runs_have_no_more_weight():
    few, many = [[0.0, 1.0], [4.0, 5.0]], [[0.0, 1.0] * 5, [4.0, 5.0]]
    assert iqm(many).mean == iqm(few).mean == 2.5
    assert worst(many, 0.5) == worst(few, 0.5) == 0.5
