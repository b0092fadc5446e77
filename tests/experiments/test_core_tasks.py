"""Tests of `experiments.core_tasks`."""

import numpy as np
import pytest

from experiments.core_tasks import best_subsets, mean_of_tiers


def test_the_error_is_that_of_leaving_each_agent_out():
    rng = np.random.default_rng(1)
    scores, target = rng.normal(size=(9, 5)), rng.normal(size=9)
    fit = best_subsets(scores, target, size=2)
    assert len(fit.chosen) == 10
    assert (np.diff(fit.error) >= 0).all()
    for chosen, error, plain in zip(fit.chosen, fit.error, fit.plain, strict=True):
        x = scores[:, chosen]
        off = []
        for left_out in range(9):
            kept = np.arange(9) != left_out
            weights = np.linalg.lstsq(x[kept], target[kept], rcond=None)[0]
            off.append(target[left_out] - x[left_out] @ weights)
        assert error == pytest.approx(np.sqrt(np.mean(np.square(off))))
        assert plain == pytest.approx(np.sqrt(np.mean((target - x.mean(axis=1)) ** 2)))


def test_tiers_have_equal_weight():
    scores = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert mean_of_tiers(scores, ["a", "a", "b"]).tolist() == [0.5, 0.5]
