"""Tables whose changed rows are kept apart, against arrays that are copied."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.adaptive import rows as module
from agents.adaptive.rows import Rows


@pytest.mark.parametrize("shape", [(7,), (1, 20), (3, 11), (2, 2, 9)])
@settings(max_examples=25)
@given(data=st.data())
def test_a_table_is_an_array_whatever_is_kept_apart(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW", data.draw(st.sampled_from([0, 100])))
        patch.setattr(module, "_APART", data.draw(st.sampled_from([1, 3, 100])))
        table, plain = Rows(2), np.zeros((*shape, 2), dtype=np.float32)
        state = table.begin(shape)
        size = int(np.prod(shape))
        for step in range(data.draw(st.integers(1, 8))):
            drawn = data.draw(st.sets(st.integers(0, size - 1)))
            cells = np.array(sorted(drawn), dtype=np.intp)
            kept = [array.copy() for array in state]
            np.testing.assert_array_equal(table.at(state, cells), plain.reshape(-1, 2)[cells])
            new = table.at(state, cells) + np.float32(step + 1) + cells[:, None].astype(np.float32)
            after = table.replaced(state, cells, new)
            for array, copy in zip(state, kept, strict=True):
                np.testing.assert_array_equal(array, copy)
            assert [x.shape for x in after] == [x.shape for x in state]
            plain.reshape(-1, 2)[cells] = new
            state = after
            np.testing.assert_array_equal(table.whole(state), plain)
        everything = np.arange(size)
        np.testing.assert_array_equal(table.at(state, everything), plain.reshape(-1, 2))


def test_a_large_table_is_shared_until_many_rows_have_changed() -> None:
    table, n = Rows(3), 10_000
    states = [table.begin((1, n))]
    for step in range(80):
        cells = np.arange(step, n, 80)
        states.append(table.replaced(states[-1], cells, np.full((cells.size, 3), step, np.float32)))
    copies = sum(a[0] is not b[0] for a, b in pairwise(states))
    assert 1 <= copies <= 4
    assert table.whole(states[-1])[0, :, 0].tolist() == [float(i % 80) for i in range(n)]
