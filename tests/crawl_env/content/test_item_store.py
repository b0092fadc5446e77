"""Items one by one: the same law as the recursion, and work in proportion to what waits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_env import Arrivals, Sources
from crawl_env.content import item_lists, items
from crawl_env.content.item_lists import ItemLists
from crawl_env.content.process import Published
from crawl_env.content.stock import sums_of
from crawl_env.content.utility import StretchedDecay
from crawl_env.content.world import World
from tests.references import plainly

DECAY = np.array([0.3, 1.2])
RATE, UTILITY, PERIOD = np.array([1.5, 6.0]), np.array([2.0, 0.5]), 0.5


def fleet(**more):
    return Sources(RATE, UTILITY, DECAY, period=PERIOD, **more)


def left(age, utility):
    """Return a fraction that falls to 0 at once for small items, so that these may displace others
    which are older and worth more."""
    return max(0.0, 1 - age / (3 if utility > 2 else 0.5))


class Survival:
    """All that a store asks of a feed."""

    def survival(self, items):
        return np.array([left(*item) for item in zip(items.age, items.utility, strict=True)])


def publish(store, items):
    """Let items (cell, age, utility) appear, in two batches."""
    batches = []
    for part in (items[::2], items[1::2]):
        cell, age, worth = np.array(part, dtype=float).reshape(-1, 3).T
        batches.append(Published(cell.astype(np.intp), age, worth, np.zeros(cell.size, np.intp)))
    store.add(batches)


one_item = st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(0, 5))


@plainly
@given(
    st.lists(st.lists(one_item, max_size=5), min_size=9, max_size=9),
    st.sampled_from([None, (1.0, 2.0, np.inf), (3.0, 1.0, 1.0)]),
    st.lists(st.sets(st.integers(0, 2)), min_size=8, max_size=8),
)
def test_the_store_is_three_lists(steps, capacity, crawls):
    """Also where worthless items take the place of others, and after going back."""
    store = ItemLists(Survival(), 3, None if capacity is None else np.array(capacity))
    plain = [[], [], []]

    def published(items):
        for cell, age, worth in sorted(items[::2] + items[1::2], key=lambda item: -item[1]):
            plain[cell].append((age, worth))
            most = capacity[cell] if isinstance(capacity, tuple) else np.inf
            plain[cell] = plain[cell][-int(min(most, 99)) :]

    publish(store, steps[0])
    published(steps[0])
    for here, crawled in zip(steps[1:], crawls, strict=True):
        state = store.get_state()
        store.advance()
        publish(store, here)
        store.set_state([column.tolist() for column in state])  # as it comes from a file
        cells = np.array(sorted(crawled), dtype=np.intp)
        sums = sums_of(*store.items(cells), 3)
        for i in range(3):
            mine = [(a, w * left(a, w)) for a, w in plain[i] if w * left(a, w) > 0 and i in crawled]
            expected = np.array([(1, a, a * a, np.log(w), a * np.log(w)) for a, w in mine])
            np.testing.assert_allclose(sums[:, i], expected.reshape(-1, 5).sum(0), atol=1e-9)
        store.empty(cells)
        plain = [[] if i in crawled else [(a + 1, w) for a, w in plain[i]] for i in range(3)]
        store.advance()
        publish(store, here)
        published(here)
        alive = [[(a, w) for a, w in plain[i] if left(a, w) > 0] for i in range(3)]
        expected = [sum(w * left(a, w) for a, w in alive[i]) for i in range(3)]
        np.testing.assert_allclose(store.value(), expected, atol=1e-12)
        number, ages = store.uncollected()
        assert number.tolist() == [len(alive[i]) for i in range(3)]
        np.testing.assert_allclose(ages, [sum(a for a, _ in alive[i]) for i in range(3)])


def test_what_is_worthless_is_forgotten():
    """So that a store which nobody crawls does not grow for ever."""
    world = World(fleet(), Arrivals(decay=StretchedDecay(1.0)), 1)
    rng = np.random.default_rng(0)
    world.start(np.zeros(world.shape), rng)
    sizes = []
    for _ in range(1500):
        world.advance(rng)
        sizes.append(world.get_state()["store"].cell.size)
    # Items live 9·ln 10/μ units of time: Λ·20.7/μ of them, 104 and 104.
    assert max(sizes) < 208 + 6 * np.sqrt(208)
    assert np.mean(sizes[500:]) == pytest.approx(207.2, rel=0.05)


def test_lists_age_as_if_one_were_added_in_every_step():
    """Bit for bit, also where sums are rounded."""
    rng = np.random.default_rng(0)
    age = np.concatenate([rng.random(200), 40 * rng.random(50), 2.0 ** -rng.integers(0, 60, 50)])
    store = ItemLists(Everlasting(), 1)
    nothing = np.zeros(age.size, dtype=np.intp)
    store.add([Published(nothing, age, np.ones(age.size), np.arange(age.size))])
    for step in range(300):
        store.advance()
        age = age + 1.0
        if step % 7 == 0:
            items, _ = store.items(np.zeros(1, dtype=np.intp))
            assert np.array_equal(items.number, np.arange(age.size))
            assert np.array_equal(items.age, age)


class Everlasting:
    """All that a store asks of a feed, for items that last 20 steps in the odd cells."""

    def survival(self, items):
        return np.where((items.cell % 2 == 1) & (items.age > 20), 0.0, 1.0)


def test_lists_make_room_for_what_has_utility_left_only():
    store, rng = ItemLists(Everlasting(), 4), np.random.default_rng(0)
    plain = [[] for _ in range(4)]  # ages
    for step in range(400):
        store.advance()
        cell, age = rng.integers(0, 4, 6), rng.random(6)
        store.add([Published(cell, age, age + 1, cell)])
        plain = [[a + 1 for a in ages] for ages in plain]
        for i, a in zip(cell.tolist(), age.tolist(), strict=True):
            plain[i].append(a)
        plain = [[a for a in ages if i % 2 == 0 or a <= 20] for i, ages in enumerate(plain)]
        if step % 30 == 29:
            store.empty(np.array([2]))
            plain[2] = []
        if step % 110 == 109:
            store.empty(np.array([0, 3]))
            plain[0], plain[3] = [], []
        items, _ = store.items(np.arange(4))
        for i, ages in enumerate(plain):
            np.testing.assert_allclose(items.age[items.cell == i], ages, rtol=1e-12)
    assert store._used < len(store._columns) < 1800  # of 2400 items that came


@pytest.mark.parametrize(("rate", "steps"), [(30.0, 0), (300.0, 1), (2500.0, 1)])
def test_more_items_than_memory_holds_are_refused(monkeypatch, rate, steps):
    """Those before an episode, those of a few steps, and those of one."""
    for module in (items, item_lists):
        monkeypatch.setattr(module, "MOST_STORED", 5000)
    world = World(Sources([rate, rate], 1.0, 0.01), Arrivals(decay="lomax"))
    rng = np.random.default_rng(0)

    def run():
        world.start(np.full(world.shape, 1.0 if steps else 200.0), rng)
        for _ in range(10 * steps):
            world.advance(rng)

    with pytest.raises(ValueError, match="items would be stored one by one, and 5,000 take"):
        run()
