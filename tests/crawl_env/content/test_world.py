"""The recursion against a plain loop, over every layout of blocks; content is never lost."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_env.content import process as module
from crawl_env.content.arrivals import ArrivalProcess, Arrivals, Deterministic
from crawl_env.content.process import Block, Published
from crawl_env.content.utility import ExponentialDecay, Gamma, LomaxDecay
from crawl_env.content.world import NEVER, World
from crawl_env.fleet.sources import Sources
from tests.crawl_env.env_plain import PlainCrawl, PlainSource
from tests.references import Z_LIMIT, plainly, z_of_mean

BLOCKS = (1, 2, 3, 5, 7, 12, 2**15)
rates = st.one_of(st.just(0.0), st.floats(1e-3, 50))
NEAR = {"rtol": 1e-11, "atol": 1e-280}


@st.composite
def worlds(draw):
    """A fleet for all rows or one for each, a layout, and a history of crawls."""
    n, rows = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    shared = draw(st.booleans())
    size = n if shared else rows * n

    def column(values):
        drawn = draw(st.lists(values, min_size=size, max_size=size))
        return np.array(drawn).reshape((n,) if shared else (rows, n))

    fleet = Sources(
        column(rates), column(st.floats(0, 10)), column(st.floats(0.01, 30)),
        period=draw(st.sampled_from([0.25, 1.0, 3.0])),
    )  # fmt: skip
    cells = st.lists(st.integers(0, rows * n - 1), max_size=rows * n, unique=True)
    return {
        "fleet": fleet,
        "rows": rows,
        "block": draw(st.sampled_from(BLOCKS)),
        "age": draw(st.sampled_from([0.0, 1.0, 4.0])),
        "crawls": draw(st.lists(cells, min_size=1, max_size=6)),
    }


def plain(fleet, rows, age):
    """Return a plain crawl of all cells as one fleet, row after row, with the period as unit."""
    t = fleet.period
    per_step = fleet.arrival_rate * t, fleet.mean_utility, fleet.decay_rate * t
    cells = zip(*(np.broadcast_to(x, (rows, len(fleet))).ravel() for x in per_step), strict=True)
    return PlainCrawl([PlainSource(*map(float, cell)) for cell in cells], "1", "step", age)


def assert_same(world, reference):
    np.testing.assert_allclose(world.value.ravel(), reference.value, **NEAR)
    np.testing.assert_array_equal(world.age.ravel(), reference.age)
    np.testing.assert_allclose(world.items.ravel(), reference.items, **NEAR)


def in_blocks_of(size, *arguments, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", size)
        patch.setattr("crawl_env.content.arrivals.TILE", size)
        return World(*arguments, **options)


# ------------------------------------------------------------------------- the recursion


@plainly
@given(case=worlds())
def test_the_world_is_the_recursion_cell_by_cell(case):
    fleet, rows, age = case["fleet"], case["rows"], case["age"]
    world = in_blocks_of(case["block"], fleet, Deterministic(), rows, count=True)
    reference, rng = plain(fleet, rows, age), np.random.default_rng(0)
    world.start(np.full((rows, len(fleet)), age), rng)
    assert_same(world, reference)
    for picked in case["crawls"]:
        collected = world.crawl(np.array(picked, dtype=np.intp))
        reference.step(set(picked))
        np.testing.assert_allclose(collected, [reference.harvest[i] for i in picked], **NEAR)
        world.advance(rng)
        assert_same(world, reference)


@plainly
@given(case=worlds(), picks=st.integers(1, 7), data=st.data())
def test_one_call_does_what_crawling_and_advancing_do(case, picks, data):
    """Bit for bit, and what is shown and collected is what the world held."""
    fleet, rows, age = case["fleet"], case["rows"], case["age"]
    n = len(fleet)
    k = min(picks, n)
    world, other = (in_blocks_of(case["block"], fleet, Deterministic(), rows) for _ in range(2))
    rng = np.random.default_rng(0)
    for each in (world, other):
        each.start(np.full((rows, n), age), rng)
    assert world.is_mean
    for _ in case["crawls"]:
        sources = data.draw(st.lists(st.permutations(range(n)), min_size=rows, max_size=rows))
        picked = np.array([row * n + i for row in range(rows) for i in sorted(sources[row][:k])])
        utility, reward = np.empty(rows * k), np.empty(rows)
        shown = np.empty(rows * n, dtype=np.float32)
        crawled, collected = np.zeros(rows * n, dtype=bool), np.zeros(rows * n)
        world.step(picked, utility, reward, shown, crawled, collected)
        expected = other.crawl(picked)
        other.advance(rng)
        np.testing.assert_array_equal(utility, expected)
        np.testing.assert_array_equal(np.flatnonzero(crawled), picked)
        np.testing.assert_array_equal(collected[picked], expected)
        assert collected.sum() == pytest.approx(expected.sum())
        np.testing.assert_allclose(reward, expected.reshape(rows, k).sum(axis=1), rtol=1e-12)
        np.testing.assert_array_equal(world.value, other.value)
        np.testing.assert_array_equal(world.age, other.age)
        np.testing.assert_array_equal(shown, other.value.ravel().astype(np.float32))


@pytest.mark.parametrize("own", [False, True], ids=["one fleet", "a fleet each"])
def test_blocks_make_no_difference_to_the_belief(own):
    num_envs, n, rng = 3, 17, np.random.default_rng(5)
    fleet, arrivals = Sources.random(n, seed=1), Arrivals(sampler="items")
    if own:
        fleet = Sources.stack([Sources.random(n, seed=b) for b in range(num_envs)])
    both = [
        in_blocks_of(size, fleet, arrivals, num_envs, count=True, track_belief=True)
        for size in (7, 2**15)
    ]
    reference = plain(fleet, num_envs, 1.0)
    for world in both:
        world.start(np.ones((num_envs, n)), np.random.default_rng(0))
    for _ in range(6):
        picked = np.flatnonzero(rng.random(num_envs * n) < 0.3)
        reference.step(set(picked))
        for world in both:
            world.crawl(picked)
            world.advance(rng)
            np.testing.assert_allclose(world.belief.ravel(), reference.value, rtol=1e-11)
            np.testing.assert_array_equal(world.age.ravel(), reference.age)
    assert np.array_equal(both[0].belief, both[1].belief)


# ------------------------------------------------------------------------- the books


class Recorded(ArrivalProcess):
    """Items whose every lot is noted: utility and number by cell of the world."""

    items = True

    def __init__(self):
        self.inner = Arrivals(utility=Gamma(0.8), sampler="items")
        self.lots = []

    def block(self, cells, state):
        return Noted(cells, self, self.inner.block(cells, state))

    def past(self, cells, steps):
        return self.inner.past(cells, steps)


class Noted(Block):
    def __init__(self, cells, whole, inner):
        super().__init__(cells)
        self.whole, self.inner = whole, inner

    def draw(self, rng):
        lot = np.zeros(self.cells.items.size), np.zeros(self.cells.items.size)
        for items in self.inner.draw(rng):
            self.cells.collect(items, *lot)
            yield items
        self.whole.lots.append(lot)  # blocks come in the order of the cells


@plainly
@given(case=worlds(), seed=st.integers(0, 2**32))
def test_collected_decayed_and_waiting_are_what_arrived(case, seed):
    """Books kept lot by lot: what a lot is worth now, and where it went."""
    fleet, rows = case["fleet"], case["rows"]
    cells, rng = rows * len(fleet), np.random.default_rng(seed)
    recorded = Recorded()
    world = in_blocks_of(case["block"], fleet, recorded, rows, count=True)
    world.start(np.full((rows, len(fleet)), case["age"]), rng)
    kept = np.broadcast_to(np.exp(-fleet.decay_rate * fleet.period), world.shape).ravel()
    waiting = [[(world.value.flat[i], world.items.flat[i])] for i in range(cells)]
    arrived = world.value.ravel().copy()
    collected, decayed = np.zeros(cells), np.zeros(cells)
    for picked in case["crawls"]:
        items = world.items.ravel().copy()
        found = world.crawl(np.array(picked, dtype=np.intp))
        for cell, value in zip(picked, found, strict=True):
            assert value == pytest.approx(sum(worth for worth, _ in waiting[cell]), rel=1e-11)
            assert items[cell] == sum(number for _, number in waiting[cell])
            collected[cell] += value
            waiting[cell] = []
        recorded.lots.clear()
        world.advance(rng)
        worths, numbers = (np.concatenate(lots) for lots in zip(*recorded.lots, strict=True))
        arrived += worths
        for cell in range(cells):
            decayed[cell] += sum(worth * (1 - kept[cell]) for worth, _ in waiting[cell])
            waiting[cell] = [(worth * kept[cell], number) for worth, number in waiting[cell]]
            waiting[cell].append((worths[cell], numbers[cell]))
    in_books = [sum(worth for worth, _ in lots) for lots in waiting]
    np.testing.assert_allclose(world.value.ravel(), in_books, **NEAR)
    np.testing.assert_array_equal(
        world.items.ravel(), [sum(number for _, number in lots) for lots in waiting]
    )
    np.testing.assert_allclose(
        collected + decayed + world.value.ravel(), arrived, rtol=1e-10, atol=1e-280
    )


def test_the_belief_is_the_mean_given_the_crawls():
    """4000 worlds under one history of crawls: the mean of the value is the belief."""
    fleet, rows = Sources([3.0, 0.2, 0.0], [1.0, 4.0, 1.0], [0.3, 0.1, 0.5]), 4000
    world, rng = World(fleet, Arrivals(), rows, track_belief=True), np.random.default_rng(8)
    world.start(np.broadcast_to([2.0, 5.0, 1.0], (rows, 3)), rng)
    expected = fleet.content_at([2.0, 5.0, 1.0])
    for crawled in ([0], [], [1, 2], [0, 1], []):
        np.testing.assert_allclose(world.belief, np.broadcast_to(expected, (rows, 3)), rtol=1e-13)
        for i in range(3):
            assert abs(z_of_mean(world.value[:, i], expected[i])) < Z_LIMIT
        rows_of = np.arange(rows)[:, None] * 3 + np.array(crawled, dtype=np.intp)
        world.crawl(rows_of)
        expected[crawled] = 0.0
        world.advance(rng)
        expected = np.exp(-fleet.decay_rate) * expected + fleet.inflow


def test_without_belief_the_value_is_shown():
    assert World(Sources(1.0, 1.0, 1.0), Arrivals()).items is None
    world = World(Sources(1.0, 1.0, 1.0), Arrivals(), track_belief=False)
    assert world.belief is world.value
    world = World(Sources(1.0, 1.0, 1.0), Deterministic(), track_belief=True)
    assert world.belief is world.value


# ------------------------------------------------------------------------- start


def test_a_value_given_replaces_content_and_belief():
    fleet, rng = Sources.preset("table1"), np.random.default_rng(0)
    world = World(fleet, Arrivals(), 2, track_belief=True)
    value, which = np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([False, True])
    world.start(np.ones((2, 4)), rng)
    world.start(np.full((1, 4), 3.0), rng, which, value)
    assert world.value[1].tolist() == world.belief[1].tolist() == value[0].tolist()
    assert world.age.tolist() == [[1.0] * 4, [3.0] * 4]
    world.advance(rng)
    assert value.tolist() == [[1.0, 2.0, 3.0, 4.0]]  # the caller's array is left alone


def test_other_sources_publish_from_the_next_epoch_on():
    first, second = Sources.preset("table1"), Sources.random(4, seed=1)
    world, rng = World(first, Deterministic(), 2), np.random.default_rng(0)
    world.start(np.ones((2, 4)), rng)
    world.set_sources(second)
    np.testing.assert_allclose(world.value, [first.inflow] * 2)
    world.advance(rng)
    expected = first.inflow * second.retention + second.inflow
    np.testing.assert_allclose(world.value, [expected] * 2, rtol=1e-13)
    assert world.sources is second


# ------------------------------------------------------------------------- limits


@pytest.mark.parametrize("observed", [False, True], ids=["belief", "mean"])
def test_a_source_never_crawled_shows_its_last_items_mean(observed):
    """Also where content grows so slowly that 10⁹ steps are far from its ceiling."""
    fleet = Sources([1e-11, 2.0], 1.0, [1e-12, 0.5], capacity=[5.0, np.inf])
    arrivals = Deterministic() if observed else Arrivals(sampler="items")
    world, rng = World(fleet, arrivals, track_belief=True), np.random.default_rng(0)
    world.start(np.full((1, 2), NEVER), rng)
    ceiling = fleet.content_at(np.inf)
    assert ceiling[0] > 2 * fleet.content_at(NEVER)[0]
    np.testing.assert_allclose(world.belief[0], ceiling, rtol=1e-12)
    world.advance(rng)
    np.testing.assert_allclose(world.belief[0], ceiling, rtol=1e-12)
    world.crawl(np.array([0]))
    world.advance(rng)
    np.testing.assert_allclose(world.belief[0, 0], fleet.content_at(1)[0], rtol=1e-12)


def test_single_items_are_asked_for_where_they_are_needed():
    fleet = Sources([1.0], 1.0, 0.1)
    capped = Sources([1.0], 1.0, 0.1, capacity=3)
    for sources, how, message in (
        (fleet, {"count": True}, "items are to be counted"),
        (fleet, {"store_items": True}, "sum over items"),
        (capped, {}, "finite capacity"),
    ):
        with pytest.raises(ValueError, match=rf"{message}: .* only the total .*'poisson-items'"):
            World(sources, Arrivals(), **how)
        World(sources, Arrivals(sampler="items"), **how)
    World(capped, Deterministic(), count=True)
    with pytest.raises(ValueError, match="has only their mean"):
        World(fleet, Deterministic(), store_items=True)
    with pytest.raises(ValueError, match=r"shape \(2,\); .* of 3 environments needs \(1,\)"):
        World(fleet, Deterministic(), 3).set_sources(Sources([1.0, 2.0], 1.0, 0.1))


def test_other_sources_of_stored_items_go_on_with_the_items_there():
    first, second = Sources([2.0, 3.0], 1.0, 0.2), Sources([0.0, 0.0], 1.0, 0.7)
    arrivals = Arrivals(rate="drift", utility="constant", sampler="items")
    world, rng = World(first, arrivals, 2, True, True, True), np.random.default_rng(0)
    world.start(np.full((2, 2), 3.0), rng)
    before, rate = world.value.copy(), world.rate / first.arrival_rate
    world.set_sources(Sources([5.0, 5.0], 1.0, 0.7))
    np.testing.assert_allclose(world.rate, rate * 5.0, rtol=1e-14)
    world.set_sources(second)
    world.advance(rng)
    np.testing.assert_allclose(world.value, before * np.exp(-0.7), rtol=1e-13)
    np.testing.assert_allclose(world.belief, first.content_at(3) * np.exp(-0.7) * np.ones((2, 1)))
    world.set_sources(first)
    assert not np.array_equal(world.rate / first.arrival_rate, rate)  # it has drifted on
    waiting = world.uncollected_items()
    assert np.array_equal(waiting[0], world.items)


class Scheduled(ArrivalProcess):
    """One item of utility ξ̄ in the middle of every step, at every source; none before."""

    items = True

    def __init__(self, decay):
        self.decay, self.exponential = decay, isinstance(decay, ExponentialDecay)

    def block(self, cells, state):
        return OneItemEach(cells, cells.items.size)

    def past(self, cells, steps):
        return OneItemEach(cells, 0)


class OneItemEach(Block):
    def __init__(self, cells, number):
        super().__init__(cells)
        self.number = number

    def draw(self, rng):
        cell = np.arange(self.number)
        utility = self.cells.mean_utility[cell]
        yield Published(cell, np.full(self.number, 0.5), utility, np.zeros_like(cell))


@pytest.mark.parametrize(
    ("decay", "capacity"),
    [
        (ExponentialDecay(), [1, 3, math.inf]),
        (ExponentialDecay(), math.inf),
        (LomaxDecay(), math.inf),
    ],
    ids=["capacities", "exponential", "power law"],
)
def test_stored_items_are_those_of_a_plain_list(decay, capacity):
    """Value, number and sums of the items in two environments, crawled now and then; an item of
    which nothing is left is not kept where all that is left is shown."""
    fleet = Sources(1.0, [1.0, 2.0, 0.5], [0.2, 0.5, 40.0], capacity=capacity)
    world, rng = World(fleet, Scheduled(decay), 2, store_items=True), np.random.default_rng(0)
    world.start(np.ones((2, 3)), rng)
    ages = [[] for _ in range(6)]  # of the items of each cell, newest last
    for step in range(24):
        picked = [cell for cell in range(6) if (step + 2 * cell) % (7 + cell) == 5]
        harvested = np.zeros((5, 6))
        for cell in range(6):
            m, utility = fleet.decay_per_step[cell % 3], fleet.mean_utility[cell % 3]
            left = [utility * float(decay.survival(np.array(m * a))) for a in ages[cell]]
            alive = [(a, w) for a, w in zip(ages[cell], left, strict=True) if w > 0]
            assert world.value.flat[cell] == pytest.approx(sum(left), rel=1e-12, abs=1e-280)
            waiting = world.uncollected_items()
            assert waiting[0].flat[cell] == len(alive)
            assert waiting[1].flat[cell] == sum(a for a, _ in alive)
            if cell in picked:
                terms = [(1.0, a, a * a, math.log(w), a * math.log(w)) for a, w in alive]
                harvested[:, cell] = np.sum(terms, axis=0) if terms else 0.0
                ages[cell] = []
            if np.all(np.isinf(fleet.capacity)):
                kept = world.get_state()["store"].cell
                assert np.count_nonzero(kept == cell) == len(alive)
        world.crawl(np.array(picked, dtype=np.intp))
        np.testing.assert_allclose(world.harvested.reshape(5, 6), harvested, rtol=1e-12)
        world.advance(rng)
        most = [int(min(k, 99)) for k in fleet.capacity]
        ages = [[*(a + 1 for a in ages[c]), 0.5][-most[c % 3] :] for c in range(6)]
