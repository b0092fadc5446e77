"""Tests of `experiments.core_tasks`."""

import numpy as np
import pytest

from crawl_env.benchmark import CORE
from ephemeral_crawl.core.results import ROOT, read_csv
from experiments.core.data import Data
from experiments.core_tasks import Fit, best_subsets, left_out, matrix, mean_of_tiers


def test_the_error_is_that_of_leaving_each_agent_out():
    rng = np.random.default_rng(1)
    scores, target = rng.normal(size=(9, 5)), rng.normal(size=9)
    fit = best_subsets(scores, target, size=2)
    assert len(fit.subsets) == 10
    assert (np.diff(fit.error) >= 0).all()
    limits = []
    for chosen, error, plain in zip(fit.subsets, fit.error, fit.plain, strict=True):
        x = scores[:, chosen]
        off = []
        for agent in range(9):
            kept = np.arange(9) != agent
            weights = np.linalg.lstsq(x[kept], target[kept], rcond=None)[0]
            off.append(target[agent] - x[agent] @ weights)
        square = np.square(off)
        limits.append(np.sqrt(square.mean() + square.std(ddof=1) / 3))
        assert error == pytest.approx(np.sqrt(square.mean()))
        assert plain == pytest.approx(np.sqrt(np.mean((target - x.mean(axis=1)) ** 2)))
    assert fit.limit == pytest.approx(limits[0])


def test_of_sets_within_a_standard_error_the_plain_mean_decides():
    error, plain = np.array([0.1, 0.11, 0.3]), np.array([0.5, 0.2, 0.1])
    assert Fit(np.arange(3)[:, None], error, plain, limit=0.2).place == 1


def test_without_noise_an_agent_has_no_part_in_the_choice():
    scores = np.random.default_rng(2).normal(size=(9, 4))
    found = left_out(scores, scores[:, [0, 2]].mean(axis=1), size=2)
    assert found.same == 9
    assert max(found.error, found.plain) < 1e-9


def test_the_core_predicts_well_by_the_recorded_agents():
    data = Data(read_csv(ROOT / "results" / "core-tasks" / "records.csv"))
    names, scores = data.values("task"), matrix(data)
    tiers = [data.values("tier", task=name)[0] for name in names]
    fit = best_subsets(scores, mean_of_tiers(scores, tiers))
    core = (fit.subsets == sorted(names.index(name) for name in CORE)).all(axis=1)
    assert fit.error[core] < np.quantile(fit.error, 0.01)
    assert fit.plain[core] < np.quantile(fit.plain, 0.01)


def test_tiers_have_equal_weight():
    scores = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert mean_of_tiers(scores, ["a", "a", "b"]).tolist() == [0.5, 0.5]
