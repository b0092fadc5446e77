"""Copies that use older arrays again, against plain copies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.inference import rates as module
from agents.inference.rates import copy_to_change


@pytest.fixture(autouse=True)
def _few():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW", 0)
        yield


@pytest.mark.parametrize("width", [1, 3])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_what_is_still_referred_to_never_changes(width, data):
    n = 9
    kept = [np.zeros((2, n) if width == 1 else (2, n, width))]
    plain = [kept[0].copy()]
    for step in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.integers(0, len(kept) - 1))
        cells = np.array(sorted(data.draw(st.sets(st.integers(0, 2 * n - 1)))), dtype=np.intp)
        copy = copy_to_change(kept[at], cells, width)
        copy.reshape(-1, width)[cells] += step + 1.0
        plain.append(plain[at].copy())
        plain[-1].reshape(-1, width)[cells] += step + 1.0
        kept.append(copy[:] if data.draw(st.booleans()) else copy)  # a view refers to it, too
        del copy
        for i in sorted(data.draw(st.sets(st.integers(0, len(kept) - 1))), reverse=True):
            if len(kept) > 1:
                del kept[i], plain[i]
        for array, expected in zip(kept, plain, strict=True):
            np.testing.assert_array_equal(array, expected)


def test_an_array_is_used_again_once_nobody_refers_to_it():
    cells = np.array([2, 5])
    first = np.zeros(8)
    second = copy_to_change(first, cells)
    where = id(first)
    del first
    third = copy_to_change(second, cells)
    assert id(third) == where
    assert id(copy_to_change(third, cells)) != id(second)  # which is still needed here


def test_nothing_is_kept_after_the_last_array_is_dropped():
    before = len(module._older)
    array = copy_to_change(np.zeros(8), np.array([1]))
    assert len(module._older) == before + 1
    del array
    assert len(module._older) == before
