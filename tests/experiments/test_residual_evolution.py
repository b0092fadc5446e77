"""Tests of `experiments.residual_evolution`."""

import pytest

from crawl_env.benchmark import named
from experiments.core.data import Data
from experiments.residual_evolution import TRAININGS, over, worst


def _rows():
    """Return two trainings on three fleets, the second of which gains twice as much."""
    return Data(
        [
            {"task": "a", "training": seed, "reward": base * (1.1 + 0.1 * seed), "its": base}
            for seed in (0, 1)
            for base in (1.0, 2.0, 4.0)
        ]
    )


def test_a_gain_is_of_the_mean_of_all_trainings():
    gain = over("its", 1.0)(_rows(), {"task": "a"})
    assert gain.mean == pytest.approx(0.15)
    assert over("its")(_rows(), {"task": "a", "training": 1}).mean == pytest.approx(1.2)
    assert worst("its", 1.0)(_rows(), {"task": "a"}) == pytest.approx(0.1)


@pytest.mark.parametrize("name", TRAININGS)
def test_both_policies_of_a_task_are_in_its_record(name):
    training, task = TRAININGS[name], named(name)
    known = {reference.policy for reference in task.references.values()}
    assert {training.base, training.beside} <= known
