"""The recursion against a plain loop, over every layout of blocks; content is never lost."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_env.content import world as module
from crawl_env.content.arrivals import Arrivals, Cells, Deterministic, Poisson
from crawl_env.content.utility import Gamma
from crawl_env.content.world import NEVER, World
from crawl_env.fleet.sources import PARAMETERS, Sources
from tests.references import Z_LIMIT, PlainWorld, plainly, z_of_mean

BLOCKS = (1, 2, 3, 5, 7, 12, 2**15)
rates = st.one_of(st.just(0.0), st.floats(1e-3, 50))
NEAR = {"rtol": 1e-11, "atol": 1e-280}


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """A fleet for all rows or one for each, a layout, and a history of crawls."""
    n, rows = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    shared = draw(st.booleans())
    size = n if shared else rows * n

    def column(values: st.SearchStrategy[float]) -> np.ndarray:
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


def plain(fleet: Sources, rows: int, age: float) -> PlainWorld:
    n = len(fleet)
    flat = {p: np.broadcast_to(getattr(fleet, p), (rows, n)).ravel() for p in PARAMETERS}
    cells = [
        {
            "rate": float(flat["arrival_rate"][i]),
            "utility": float(flat["mean_utility"][i]),
            "decay": float(flat["decay_rate"][i]),
            "period": fleet.period,
        }
        for i in range(rows * n)
    ]
    return PlainWorld(cells, rows, age)


def assert_same(world: World, reference: PlainWorld) -> None:
    np.testing.assert_allclose(world.value.ravel(), reference.value, **NEAR)
    np.testing.assert_array_equal(world.age.ravel(), reference.age)
    np.testing.assert_allclose(world.items.ravel(), reference.items, **NEAR)


def in_blocks_of(size: int, *arguments: Any, **options: Any) -> World:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", size)
        return World(*arguments, **options)


# ------------------------------------------------------------------------- the recursion


@plainly
@given(case=worlds())
def test_the_world_is_the_recursion_cell_by_cell(case: dict[str, Any]) -> None:
    fleet, rows, age = case["fleet"], case["rows"], case["age"]
    world = in_blocks_of(case["block"], fleet, Deterministic(), rows, count=True)
    reference, rng = plain(fleet, rows, age), np.random.default_rng(0)
    world.start(np.full((rows, len(fleet)), age), rng)
    assert_same(world, reference)
    for picked in case["crawls"]:
        collected = world.crawl(np.array(picked, dtype=np.intp))
        np.testing.assert_allclose(collected, reference.epoch(picked), **NEAR)
        world.advance(rng)
        assert_same(world, reference)


LAYOUTS = {
    # rows, sources, one fleet a row, block
    "several rows in a block": (5, 3, False, 7),
    "rows fill blocks exactly": (4, 3, False, 6),
    "a row is a block": (3, 7, False, 7),
    "a row is larger than a block": (3, 17, False, 7),
    "a row is blocks exactly": (3, 14, False, 7),
    "one row, larger than a block": (1, 30, False, 7),
    "fleet a row, smaller than a block": (2, 3, True, 7),
    "fleet a row, across blocks": (5, 3, True, 7),
    "fleet a row, larger than a block": (3, 17, True, 7),
    "blocks of one cell": (3, 4, False, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("arrivals", [Deterministic(), Poisson()], ids=["mean", "poisson"])
def test_every_layout_of_blocks_is_the_same_world(layout: str, arrivals: Arrivals) -> None:
    """Bitwise, and under random arrivals for the belief; random content agrees in law."""
    rows, n, own, block = LAYOUTS[layout]
    rng = np.random.default_rng(5)
    fleet = Sources.random(n, seed=1)
    if own:
        fleet = Sources.stack([Sources.random(n, seed=b) for b in range(rows)])
    both = [
        in_blocks_of(size, fleet, arrivals, rows, count=True, believe=True)
        for size in (block, 2**15)
    ]
    reference = plain(fleet, rows, 1.0)
    for world in both:
        world.start(np.ones((rows, n)), np.random.default_rng(0))
    for _ in range(6):
        picked = np.flatnonzero(rng.random(rows * n) < 0.3)
        reference.epoch(picked)
        for world in both:
            world.crawl(picked)
            world.advance(rng)
            np.testing.assert_allclose(world.belief.ravel(), reference.value, rtol=1e-11)
            np.testing.assert_array_equal(world.age.ravel(), reference.age)
    assert np.array_equal(both[0].belief, both[1].belief)
    if arrivals.deterministic:
        assert np.array_equal(both[0].value, both[1].value)
        assert both[0].belief is both[0].value


@pytest.mark.parametrize("block", [7, 2**15])
@pytest.mark.parametrize("own", [False, True], ids=["one fleet", "a fleet a row"])
def test_random_content_has_its_mean_in_every_layout(block: int, own: bool) -> None:
    """Each cell of five rows of nine sources against its own u, at ℓ from .5 to 8."""
    rows, n, epochs = 5, 9, 3000
    fleet = Sources(np.linspace(0.5, 8, n), np.linspace(1, 3, n), np.linspace(0.2, 3, n))
    if own:
        fleet = Sources.stack([fleet.select(np.roll(np.arange(n), b)) for b in range(rows)])
    world, rng = in_blocks_of(block, fleet, Poisson(), rows), np.random.default_rng(6)
    world.start(np.zeros((rows, n)), rng)
    earned = np.empty((epochs, rows * n))
    for t in range(epochs):
        world.advance(rng)
        earned[t] = world.crawl(np.arange(rows * n))
    expected = np.broadcast_to(fleet.inflow, (rows, n)).ravel()
    for cell in range(rows * n):
        assert abs(z_of_mean(earned[:, cell], expected[cell])) < Z_LIMIT, cell


def test_table_1_with_one_crawl_reaches_the_published_average() -> None:
    """Sources 1 and 2 in turn: 260.38993 in the long run; 254.6576 over 61 epochs from empty."""
    for age, epochs, expected, rel in [(1.0, 400, 260.389930, 1e-8), (0.0, 61, 254.6576, 2e-7)]:
        world, rng = World(Sources.preset("table1"), Deterministic()), np.random.default_rng(0)
        world.start(np.full((1, 4), age), rng)
        earned = []
        for t in range(epochs):
            # From empty there is nothing in the first epoch; then the richest index first.
            pick = (t % 2) if age else (t + 1) % 2
            earned.append(float(world.crawl(np.array([pick]))[0]))
            world.advance(rng)
        mean = np.mean(earned[100:]) if age else np.mean(earned)
        assert mean == pytest.approx(expected, rel=rel)


@pytest.mark.parametrize("block", [7, 2**15])
def test_permuting_the_sources_permutes_everything(block: int) -> None:
    n, rows, rng = 17, 3, np.random.default_rng(7)
    fleet, order = Sources.random(n, seed=3), rng.permutation(n)
    one = in_blocks_of(block, fleet, Deterministic(), rows, count=True)
    two = in_blocks_of(block, fleet.select(order), Deterministic(), rows, count=True)
    ages = rng.integers(0, 6, (rows, n)).astype(float)
    one.start(ages, rng)
    two.start(ages[:, order], rng)
    for _ in range(12):
        mask = rng.random((rows, n)) < 0.3
        one.crawl(np.flatnonzero(mask))
        two.crawl(np.flatnonzero(mask[:, order]))
        one.advance(rng)
        two.advance(rng)
        for name in ("value", "age", "items"):
            assert np.array_equal(getattr(one, name)[:, order], getattr(two, name)), name


def test_rows_do_not_touch_each_other() -> None:
    world, rng = World(Sources.preset("table1"), Deterministic(), rows=3), np.random.default_rng(0)
    world.start(np.ones((3, 4)), rng)
    world.crawl(np.array([4, 5, 6, 7]))
    world.advance(rng)
    assert world.age.tolist() == [[2.0] * 4, [1.0] * 4, [2.0] * 4]
    np.testing.assert_allclose(world.value[1], world.sources.inflow)
    np.testing.assert_allclose(world.value[[0, 2]], [world.sources.content_at(2)] * 2)


# ------------------------------------------------------------------------- crawling


def test_crawl_returns_a_copy_of_what_was_there() -> None:
    world, rng = World(Sources.preset("table1"), Deterministic(), rows=2), np.random.default_rng(0)
    world.start(np.ones((2, 4)), rng)
    before = world.value.copy()
    everything = world.crawl(np.arange(8).reshape(2, 4))
    assert np.array_equal(everything, before)
    assert not np.shares_memory(everything, world.value)
    everything += 1
    world.advance(rng)
    np.testing.assert_allclose(world.value, before)


@pytest.mark.parametrize(
    "picked",
    [np.intp(2), np.array([2]), np.array([[2, 6]]), np.array([], dtype=np.intp)],
    ids=["a number", "one", "one a row", "none"],
)
def test_picks_of_any_shape_are_collected_and_emptied(picked: np.ndarray) -> None:
    world, rng = World(Sources.preset("table1"), Poisson(), 2, True, True), np.random.default_rng(0)
    world.start(np.full((2, 4), 3.0), rng)
    before, touched = world.value.ravel().copy(), np.ravel(picked)
    collected = world.crawl(picked)
    assert np.shape(collected) == np.shape(picked)
    assert np.array_equal(np.ravel(collected), before[touched])
    for array in (world.value, world.items, world.belief, world.age):
        assert np.all(array.ravel()[touched] == 0)
        assert np.all(np.delete(array.ravel(), touched) > 0)


# ------------------------------------------------------------------------- the books


class Recorded:
    """Arrivals that note every lot they add: utility and items by cell of the world's arrays."""

    deterministic = False

    def __init__(self, arrivals: Arrivals) -> None:
        self.arrivals, self.world = arrivals, None
        self.lots: list[tuple[np.ndarray, np.ndarray]] = []

    def stream(self, cells: Cells, count: bool) -> Any:
        inner = self.arrivals.stream(cells, count)

        def add(value: np.ndarray, items: np.ndarray, rng: np.random.Generator) -> None:
            here = (value.ctypes.data - self.world.value.ctypes.data) // value.itemsize
            worth, number = np.zeros(value.size), np.zeros(value.size)
            inner(worth, number, rng)
            value += worth
            items += number
            self.lots[-1][0][here : here + value.size] += worth
            self.lots[-1][1][here : here + value.size] += number

        return add

    def content(self, *arguments: Any) -> tuple[np.ndarray, np.ndarray]:
        return self.arrivals.content(*arguments)


@plainly
@given(case=worlds(), seed=st.integers(0, 2**32))
def test_collected_decayed_and_waiting_are_what_arrived(case: dict[str, Any], seed: int) -> None:
    """Books kept lot by lot: what a lot is worth now, and where it went."""
    fleet, rows = case["fleet"], case["rows"]
    cells, rng = rows * len(fleet), np.random.default_rng(seed)
    recorded = Recorded(Poisson(Gamma(0.8)))
    world = in_blocks_of(case["block"], fleet, recorded, rows, count=True)
    recorded.world = world
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
        recorded.lots.append((np.zeros(cells), np.zeros(cells)))
        world.advance(rng)
        worths, numbers = recorded.lots[-1]
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


@pytest.mark.parametrize("law", ["exponential", "lognormal"])
@pytest.mark.parametrize("count", [False, True], ids=["utility alone", "counting"])
@pytest.mark.parametrize("block", [7, 2**15])
def test_arrivals_never_depend_on_crawls(law: str, count: bool, block: int) -> None:
    """The same seed brings the same content to every policy: give back what a crawl took, aged,
    and the world is the one that was never crawled."""
    fleet, rows = Sources.random(9, seed=2), 4
    kept = np.exp(-fleet.decay_rate * fleet.period)
    choose = np.random.default_rng(1)
    worlds_ = [in_blocks_of(block, fleet, Poisson(law), rows, count) for _ in range(2)]
    rngs = [np.random.default_rng(33) for _ in worlds_]
    for world, rng in zip(worlds_, rngs, strict=True):
        world.start(np.ones((rows, 9)), rng)
    taken, items_taken = np.zeros((rows, 9)), np.zeros((rows, 9))
    for _ in range(25):
        picked = np.flatnonzero(choose.random(rows * 9) < 0.4)
        if count:
            items_taken.flat[picked] += worlds_[0].items.flat[picked]
        taken.flat[picked] += worlds_[0].crawl(picked)
        for world, rng in zip(worlds_, rngs, strict=True):
            world.advance(rng)
        taken *= kept
        np.testing.assert_allclose(worlds_[0].value + taken, worlds_[1].value, rtol=1e-10)
        if count:
            assert np.array_equal(worlds_[0].items + items_taken, worlds_[1].items)
    assert rngs[0].random() == rngs[1].random()  # and not one number more was drawn


# ------------------------------------------------------------------------- belief


def test_the_belief_is_the_mean_given_the_crawls() -> None:
    """4000 worlds under one history of crawls: the mean of the value is the belief."""
    fleet, rows = Sources([3.0, 0.2, 0.0], [1.0, 4.0, 1.0], [0.3, 0.1, 0.5]), 4000
    world, rng = World(fleet, Poisson(), rows, believe=True), np.random.default_rng(8)
    world.start(np.broadcast_to([2.0, 5.0, 1.0], (rows, 3)), rng)
    believed = fleet.content_at([2.0, 5.0, 1.0])
    for crawled in ([0], [], [1, 2], [0, 1], []):
        np.testing.assert_allclose(world.belief, np.broadcast_to(believed, (rows, 3)), rtol=1e-13)
        for i in range(3):
            assert abs(z_of_mean(world.value[:, i], believed[i])) < Z_LIMIT
        rows_of = np.arange(rows)[:, None] * 3 + np.array(crawled, dtype=np.intp)
        world.crawl(rows_of)
        believed[crawled] = 0.0
        world.advance(rng)
        believed = np.exp(-fleet.decay_rate) * believed + fleet.inflow


def test_without_belief_the_value_is_shown() -> None:
    assert World(Sources(1.0, 1.0, 1.0), Poisson()).items is None
    world = World(Sources(1.0, 1.0, 1.0), Poisson(), believe=False)
    assert world.belief is world.value
    world = World(Sources(1.0, 1.0, 1.0), Deterministic(), believe=True)
    assert world.belief is world.value


# ------------------------------------------------------------------------- start


def test_start_sets_only_the_rows_named() -> None:
    fleet, rng = Sources.preset("table1"), np.random.default_rng(9)
    world = World(fleet, Poisson(), rows=3, count=True, believe=True)
    world.start(np.ones((3, 4)), rng)
    for _ in range(4):
        world.advance(rng)
    before = world.get_state()
    world.start(np.array([[1.0, 2.0, 0.0, NEVER]]), rng, np.array([False, True, False]))
    after = world.get_state()
    for name, array in before.items():
        assert np.array_equal(array[[0, 2]], after[name][[0, 2]]), name
    assert world.age[1].tolist() == [1.0, 2.0, 0.0, NEVER]
    expected = fleet.content_at([1.0, 2.0, 0.0, math.inf])
    np.testing.assert_allclose(world.belief[1], expected, rtol=1e-13)
    assert world.value[1, 2] == world.items[1, 2] == 0.0
    world.advance(rng)
    assert world.age[1].tolist() == [2.0, 3.0, 1.0, NEVER + 1]


def test_a_source_never_crawled_stands_at_its_ceiling_and_stays() -> None:
    fleet, rng = Sources.preset("table1"), np.random.default_rng(0)
    world = World(fleet, Deterministic())
    world.start(np.full((1, 4), NEVER), rng)
    np.testing.assert_allclose(world.value[0], fleet.ceiling, rtol=1e-14)
    world.advance(rng)
    np.testing.assert_allclose(world.value[0], fleet.ceiling, rtol=1e-14)
    assert np.all(world.age > NEVER)


def test_a_value_given_replaces_content_and_belief() -> None:
    fleet, rng = Sources.preset("table1"), np.random.default_rng(0)
    world = World(fleet, Poisson(), rows=2, believe=True)
    value, which = np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([False, True])
    world.start(np.ones((2, 4)), rng)
    world.start(np.full((1, 4), 3.0), rng, which, value)
    assert world.value[1].tolist() == world.belief[1].tolist() == value[0].tolist()
    assert world.age.tolist() == [[1.0] * 4, [3.0] * 4]
    world.advance(rng)
    assert value.tolist() == [[1.0, 2.0, 3.0, 4.0]]  # the caller's array is left alone


@pytest.mark.parametrize("own", [False, True], ids=["one fleet", "a fleet a row"])
def test_start_uses_each_rows_own_fleet(own: bool) -> None:
    fleet = Sources.preset("table1")
    fleets = [fleet, Sources.random(4, seed=1), Sources.random(4, seed=2)] if own else [fleet] * 3
    given = Sources.stack(fleets) if own else fleet
    world, rng = World(given, Deterministic(), rows=3), np.random.default_rng(0)
    world.start(np.full((2, 4), 3.0), rng, np.array([False, True, True]))
    for b in (1, 2):
        np.testing.assert_allclose(world.value[b], fleets[b].content_at(3), rtol=1e-13)
    assert np.all(world.value[0] == 0)


def test_other_sources_publish_from_the_next_epoch_on() -> None:
    first, second = Sources.preset("table1"), Sources.random(4, seed=1)
    world, rng = World(first, Deterministic(), rows=2), np.random.default_rng(0)
    world.start(np.ones((2, 4)), rng)
    world.set_sources(second)
    np.testing.assert_allclose(world.value, [first.inflow] * 2)
    world.advance(rng)
    expected = first.inflow * second.retention + second.inflow
    np.testing.assert_allclose(world.value, [expected] * 2, rtol=1e-13)
    assert world.sources is second


# ------------------------------------------------------------------------- state


def run(world: World, rng: np.random.Generator, epochs: int) -> list[np.ndarray]:
    seen, choose = [], np.random.default_rng(44)
    for _ in range(epochs):
        picked = np.flatnonzero(choose.random(world.value.size) < 0.3)
        seen.append(world.crawl(picked))
        world.advance(rng)
        seen += [world.value.copy(), world.age, world.belief.copy()]
        seen += [] if world.items is None else [world.items.copy()]
    return seen


@pytest.mark.parametrize("count", [False, True], ids=["utility alone", "counting"])
@pytest.mark.parametrize("believe", [False, True], ids=["seen", "believed"])
@pytest.mark.parametrize("where", ["same world", "new world"])
def test_a_state_returned_to_continues_as_if_never_left(
    count: bool, believe: bool, where: str
) -> None:
    fleet = Sources.random(5, seed=2)
    world, rng = World(fleet, Poisson(), 3, count, believe), np.random.default_rng(10)
    world.start(np.array([[0.0, 1.0, 4.0, NEVER if not count else 2.0, 3.0]] * 3), rng)
    run(world, rng, 4)
    state, generator = world.get_state(), rng.bit_generator.state
    expected = run(world, rng, 6)
    if where == "new world":
        world = World(fleet, Poisson(), 3, count, believe)
    for _ in range(2):  # returning does not use the state up
        world.set_state(state)
        rng.bit_generator.state = generator
        again = run(world, rng, 6)
        assert len(again) == len(expected)
        for a, b in zip(again, expected, strict=True):
            assert np.array_equal(a, b)


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda world: pickle.loads(pickle.dumps(world))],
    ids=["deepcopy", "pickle"],
)
@pytest.mark.parametrize("believe", [False, True], ids=["seen", "believed"])
def test_a_copy_of_a_world_lives_on_as_the_world_does(copied: Any, believe: bool) -> None:
    world = World(Sources.random(5, seed=2), Poisson(), 3, True, believe)
    rng = np.random.default_rng(1)
    world.start(np.ones((3, 5)), rng)
    run(world, rng, 3)
    twin, generator = copied(world), copy.deepcopy(rng)
    before = world.get_state()
    expected = run(twin, generator, 4)
    for name, array in before.items():  # the copy went on alone
        if array is not None:
            assert np.array_equal(world.get_state()[name], array), name
    for one, two in zip(run(world, rng, 4), expected, strict=True):
        assert np.array_equal(one, two)


def test_a_state_is_a_copy_in_both_directions() -> None:
    world, rng = World(Sources.preset("table1"), Poisson(), 2, True, True), np.random.default_rng(0)
    world.start(np.ones((2, 4)), rng)
    state = world.get_state()
    before = {name: array.copy() for name, array in state.items()}
    world.crawl(np.arange(4))
    world.advance(rng)
    for name, array in before.items():
        assert np.array_equal(state[name], array), name
    world.set_state(state)
    for array in state.values():
        array += 5.0
    for name, array in before.items():
        assert np.array_equal(getattr(world, name), array), name
    for one, two in itertools.combinations(world.get_state().values(), 2):
        assert not np.shares_memory(one, two)
