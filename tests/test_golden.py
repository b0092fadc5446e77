"""No number has changed: the arrays of `golden.npz`; see `golden.py` for the command."""

import numpy as np
import pytest

from tests import golden

RECORD = golden.recorded()
HOW = "Where this is meant: .venv/bin/python -m tests.golden --renew NAME"


@pytest.mark.parametrize("name", golden.ENTRIES)
def test_what_is_computed_is_what_was_recorded(name):
    found = golden.difference(name, golden.computed(name), RECORD[name])
    assert not found, f"{found}\n{HOW}"


def test_every_array_is_of_an_entry():
    assert RECORD.keys() == golden.ENTRIES.keys()


def test_a_difference_says_how_many_and_by_how_much():
    name, before = "table: cycles", np.array([1.0, 2.0, np.nan, np.inf])
    assert not golden.difference(name, before * (1 + 1e-9), before)
    told = golden.difference(name, np.array([1.0, 2.5, np.nan, np.inf]), before)
    assert told == (
        "table: cycles: 1 of 4 numbers differ, by up to 2.5e-01 of them: number 1 was 2 and is 2.5"
    )
    assert "3 numbers instead of 4" in golden.difference(name, before[:3], before)
    assert golden.difference(name, np.array([1.0, 2.0, 3.0, np.inf]), before)  # no NaN any more
    assert golden.difference("learner: ppo, default", before * 1.01, before)
    assert not golden.difference("learner: ppo, default", before * 1.0001, before)
