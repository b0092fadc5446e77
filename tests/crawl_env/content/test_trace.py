"""Recorded arrivals: every number against a replay in lists and loops, with exact times."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_env import DecayCurves, ItemLog, Sources, Trace
from crawl_env.content.world import NEVER, World
from tests.references import plainly

PERIODS = ("1", "0.1", "0.3", "0.7", "2.5")


@dataclass
class Item:
    """One item of a log; the time, since the start of the log, is an exact decimal."""

    source: int
    time: Fraction
    utility: float
    curve: tuple[tuple[float, float], ...] = ()  # age, remaining


@dataclass
class Log:
    items: list[Item]
    span: Fraction
    start: Fraction
    n: int

    def written(self):
        """Return the same log for the code under test."""
        points = [point for item in self.items for point in item.curve]
        first = np.cumsum([0, *(len(item.curve) for item in self.items)])
        age, remaining = (np.array([p[i] for p in points]) for i in (0, 1))
        return ItemLog(
            [f"s{i}" for i in range(self.n)],
            [item.source for item in self.items],
            [float(self.start + item.time) for item in self.items],
            [item.utility for item in self.items],
            float(self.start),
            float(self.start + self.span),
            DecayCurves(first, age, remaining) if points else None,
        )


class Replay:
    """One row: lists of (age in epochs, item) that wait at each source."""

    def __init__(self, log, period, decay, capacity, offset):
        self.period = Fraction(period)
        self.length = max(1, math.ceil(log.span / self.period))
        self.log, self.decay, self.capacity, self.next = log, decay, capacity, offset
        self.waiting = [[] for _ in range(log.n)]
        self.count = [0.0] * log.n

    def of_epoch(self, epoch):
        """Return the items of [t, t+T), the oldest first, with their ages at t+T."""
        epoch %= self.length
        here = [item for item in self.log.items if item.time // self.period == epoch]
        here.sort(key=lambda item: item.time)
        return [(float(epoch + 1 - item.time / self.period), item) for item in here]

    def start(self, age, before):
        """Fill the sources with what the epochs before this one have published, if anything."""
        for back in range(self.length, 0, -1) if before else ():
            for age_then, item in self.of_epoch(self.next - back):
                old = age_then + back - 1
                if old <= age[item.source]:
                    self.waiting[item.source].append((old, item))
                    self.count[item.source] += age[item.source] < NEVER
        self.hold()

    def crawl(self, source):
        value = self.value(source)
        self.waiting[source], self.count[source] = [], 0.0
        return value

    def advance(self):
        self.waiting = [[(age + 1, item) for age, item in here] for here in self.waiting]
        for age, item in self.of_epoch(self.next):
            self.waiting[item.source].append((age, item))
            self.count[item.source] += 1
        self.next = (self.next + 1) % self.length
        self.hold()

    def hold(self):
        for i, most in enumerate(self.capacity):
            if most < math.inf:
                self.waiting[i] = self.waiting[i][-int(most) :]
                self.count[i] = min(self.count[i], most)

    def value(self, source):
        return math.fsum(item.utility * self.share(age, item) for age, item in self.waiting[source])

    def share(self, age, item):
        time = age * float(self.period)
        if not item.curve:
            return math.exp(-self.decay[item.source] * time)
        reached = max(i for i, (at, _) in enumerate(item.curve) if at <= time)
        at, left = item.curve[reached]
        if reached + 1 == len(item.curve):
            return left
        after, then = item.curve[reached + 1]
        return left + (time - at) / (after - at) * (then - left)


def curves():
    """Some curve, with a step and an end above or at zero, or none."""
    return st.sampled_from(
        [
            (),
            ((0.0, 1.0),),
            ((0.0, 1.0), (1.07, 0.0)),
            ((0.0, 1.0), (0.55, 0.8), (0.55, 0.3), (3.21, 0.1)),
            ((0.0, 1.0), (0.0, 0.5), (2.03, 0.0)),
        ]
    )


@st.composite
def logs(draw):
    n = draw(st.integers(1, 3))
    tenths = draw(st.integers(1, 40))
    item = st.builds(
        Item,
        st.integers(0, n - 1),
        st.integers(0, tenths - 1).map(lambda k: Fraction(k, 10)),
        st.sampled_from([0.0, 1.0, 2.5]),
        curves(),
    )
    items = draw(st.lists(item, max_size=12))
    start = draw(st.sampled_from([Fraction(0), Fraction(1003, 10), Fraction(-7, 10)]))
    return Log(items, Fraction(tenths, 10), start, n)


def ages(start, shape, rng):
    if start == "random":
        return rng.integers(1, 5, shape).astype(float)
    return np.full(shape, {"fresh": 1.0, "empty": 0.0, "full": NEVER, "between": 1.5}[start])


@plainly
@given(
    logs(),
    st.sampled_from(PERIODS),
    st.sampled_from(["fresh", "empty", "full", "random", "between"]),
    st.booleans(),
    st.sampled_from([None, (1, 2, math.inf), (3, math.inf, 1)]),
    st.integers(1, 3),
    st.integers(0, 9),
)
def test_a_log_is_played_back_as_lists_and_loops_do(
    log, period, start, random_start, capacity, rows, seed
):
    rng = np.random.default_rng(seed)
    decay = [0.4, 1.3, 0.05][: log.n]
    most = list(capacity or (math.inf,) * 3)[: log.n]
    names = [f"s{i}" for i in range(log.n)]
    fleet = Sources(1.0, 1.0, decay, period=float(period), names=names, capacity=most)
    world = World(fleet, Trace(log.written(), random_start), rows, count=True)
    age = ages(start, world.shape, rng)
    world.start(age, rng)
    plain = []
    for row, offset in enumerate(world.get_state()["feed"]):
        assert random_start or offset == 0
        plain.append(Replay(log, period, decay, most, int(offset)))
        plain[-1].start(age[row].tolist(), before=random_start)

    def check():
        value = [[row.value(i) for i in range(log.n)] for row in plain]
        np.testing.assert_allclose(world.value, value, rtol=1e-9, atol=1e-9)
        assert world.items.tolist() == [row.count for row in plain]

    check()
    for _ in range(12):
        picked = np.flatnonzero(rng.random(rows * log.n) < 0.3)
        expected = [plain[cell // log.n].crawl(cell % log.n) for cell in picked]
        np.testing.assert_allclose(world.crawl(picked), expected, rtol=1e-9, atol=1e-9)
        world.advance(rng)
        for row in plain:
            row.advance()
        check()


# ------------------------------------------------------------------------- epochs and their ends


def one_source(period=1.0, decay=0.5, **more):
    return Sources([1.0], [1.0], [decay], period=period, **more)


def log_of(times, utility=None, **more):
    worth = np.ones(len(times)) if utility is None else utility
    return ItemLog(["1"], [0] * len(times), times, worth, **more)


def values(trace, fleet, epochs):
    """Return what waits at a source never crawled after each epoch from an empty start."""
    world, rng = World(fleet, trace), np.random.default_rng(0)
    world.start(np.zeros(world.shape), rng)
    seen = []
    for _ in range(epochs):
        world.advance(rng)
        seen.append(float(world.value[0, 0]))
    return seen


@pytest.mark.parametrize("period", [0.1, 0.3, 1 / 24, 1 / 60])
def test_an_item_at_a_boundary_is_seen_one_whole_epoch_later(period):
    """Published at t, it belongs to [t, t+T) however k·T/T is rounded, and is then T old."""
    log = log_of([k * period for k in range(60)], 2.0 ** np.arange(60), start=0, end=60 * period)
    got = np.array(values(Trace(log, random_start=False), one_source(period), 60))
    kept = math.exp(-0.5 * period)
    came = got - kept * np.concatenate(([0.0], got[:-1]))
    np.testing.assert_allclose(came, kept * 2.0 ** np.arange(60), rtol=1e-12)


def test_just_before_a_boundary_is_before_it():
    log = log_of([2 - 1e-6], start=0, end=4)
    got = values(Trace(log, random_start=False), one_source(), 2)
    assert got == [0.0, pytest.approx(1 - 0.5e-6)]


def test_the_last_item_of_a_log_without_an_end_is_of_the_last_epoch():
    """Such a log ends just after it: no epoch is added for this one instant."""
    trace = Trace(log_of([0.0, 1.0, 2.0]), random_start=False)
    assert trace.steps(1.0) == 2
    kept = math.exp(-0.5)
    assert values(trace, one_source(), 2) == pytest.approx([kept, kept**2 + kept + 1])


def test_a_silent_source_holds_nothing_and_sources_are_found_by_name():
    log = ItemLog(["b", "unheard"], [0], [0.5], [3.0], start=0, end=1)
    fleet = Sources(1.0, 1.0, [0.5, 0.5, 0.5], names=["a", "b", "c"])
    world, rng = World(fleet, Trace(log)), np.random.default_rng(0)
    world.start(np.zeros((1, 3)), rng)
    world.advance(rng)
    assert world.value.tolist() == [[0.0, pytest.approx(3 * math.exp(-0.25)), 0.0]]


def test_the_trace_s_own_law_of_decay_is_followed():
    log = log_of([0.0], start=0, end=10)
    got = values(Trace(log, random_start=False, decay="lomax"), one_source(), 3)
    scale = (1 - 1e4**-0.5) ** -1  # of k = 2, cut off where 1e-4 is left: see LomaxDecay
    assert got == pytest.approx([(1 + 0.5 * k / scale) ** -2 for k in (1, 2, 3)], rel=1e-9)


def test_a_full_start_reaches_back_as_far_as_anything_is_worth():
    """Work is in proportion to what still waits, not to the log; the value is that of the log."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, 50_000, 50_000))
    fleet = one_source()
    feed = Trace(log_of(list(times), start=0, end=50_000)).bind(fleet, 3)
    rows = np.arange(3)
    feed.start(rows, rng)
    (found,) = feed.past(rows, np.full(3, np.inf)).draw(rng)
    assert found.cell.size < 3 * 150  # 37/μ = 74 epochs of one item each
    for row in rows:
        now = feed.get_state()[row]
        age = (now - times) % 50_000
        mine = found.only(found.cell == row)
        got = float((feed.survival(mine) * mine.utility).sum())
        assert got == pytest.approx(np.exp(-0.5 * age).sum(), rel=1e-9)


def test_a_full_start_keeps_what_a_curve_never_lets_go():
    log = log_of(
        [0.5, 500.5],
        start=0,
        end=1000,
        curves=DecayCurves([0, 2, 4], [0, 1, 0, 1], [1, 0.25, 1, 0]),
    )
    world = World(one_source(), Trace(log), 50)
    rng = np.random.default_rng(0)
    world.start(np.full((50, 1), NEVER), rng)
    assert (world.value >= 0.25).all()


def test_memory_does_not_grow_with_the_number_of_epochs():
    """A log in a wrong unit of time may have 10^12 of them."""
    log = log_of([0.0, 1e12 - 1], start=0, end=1e12)
    feed, envs = Trace(log).bind(one_source(), 1000), np.arange(1000)
    rng = np.random.default_rng(0)
    feed.start(envs, rng)
    (found,) = feed.past(envs, np.full(1000, np.inf)).draw(rng)
    assert found.cell.size == 0
    arrays = [x for x in vars(feed).values() if isinstance(x, np.ndarray)]
    assert max(x.size for x in arrays) == 1000


def test_a_trace_takes_a_log():
    with pytest.raises(ValueError, match=r"log is 'log.csv'; give a crawl_env.ItemLog"):
        Trace("log.csv")
