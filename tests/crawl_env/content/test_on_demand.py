"""Content drawn when it is crawled: a function of the interval alone, of the dense world's law."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_env.content import on_demand
from crawl_env.content.draws import poisson, uniform
from crawl_env.content.on_demand import NEVER, OnDemandContent, philox
from crawl_env.content.utility import UTILITIES, Lognormal, StretchedDecay
from crawl_env.fleet.columns import FleetColumns
from tests.references import Z_LIMIT, plainly, z_of_mean, z_of_share, z_of_variance
from tests.refusals import refused

# Rates of blocks of many steps, of few, and of one; decay from slow to within a step. The totals of
# the last one are drawn at once where utility is exponential.
FLEET = FleetColumns(
    [0.002, 0.3, 3.0, 40.0, 12.0], [1.0, 2.0, 0.5, 0.1, 0.4], [0.01, 0.1, 0.5, 3.0, 0.6]
)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # known answers of Random123 1.14 (tests/kat_vectors)
        ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            0xFFFFFFFF_FFFFFFFF,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0_A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox(counter, key, words):
    found = philox(*map(np.uint64, counter), np.uint64(key))
    assert tuple(map(int, found)) == words


def stream_of(seed, source, place, purpose):
    place %= 2**64
    counter = (source, purpose << 16, place % 2**32, place >> 32)
    a, b, c, d = map(int, philox(*map(np.uint64, counter), np.uint64(seed)))
    return np.array([a << 32 | b, c << 32 | d], np.uint64)


def items_of(seed, source, start, end):
    """Every item of the steps (start, end] as (time, utility), slowly."""
    rate = float(FLEET.arrival_rate[source])
    steps = 1
    while 2 * steps * rate <= on_demand.PER_BLOCK and steps < 2**30:
        steps *= 2
    found = []
    for block in range(math.floor(start / steps), math.ceil(end / steps)):
        state = stream_of(seed, source, block, 0)
        for _ in range(int(poisson(state, rate * steps))):
            time = block * steps + steps * uniform(state)
            worth = on_demand._worth(state, 1, 0.0) * float(FLEET.mean_utility[source])
            if start < time <= end:
                found.append((time, worth))
    return found


@plainly
@given(
    source=st.integers(0, 3),
    start=st.integers(-300, 2000),
    length=st.integers(1, 300),
    seed=st.integers(0, 2**63 - 1),
)
def test_content_is_that_of_the_items(source, start, length, seed):
    end = start + length
    found = OnDemandContent(FLEET, seed=seed).crawl([source], [start], end)
    items = items_of(seed, source, start, end)
    decay = float(FLEET.decay_rate[source])
    assert found.items.tolist() == [len(items)]
    total = math.fsum(worth * math.exp(-decay * (end - time)) for time, worth in items)
    assert found.utility[0] == pytest.approx(total, rel=1e-9, abs=1e-15)


@plainly
@given(
    source=st.integers(0, 4),
    start=st.integers(-100, 1000),
    lengths=st.lists(st.integers(1, 100), min_size=2, max_size=6),
    law=st.sampled_from(sorted(UTILITIES)),
)
def test_adjacent_intervals_add_up(source, start, lengths, law):
    content = OnDemandContent(FLEET, law, seed=5)
    end = start + sum(lengths)
    whole = content.crawl([source], [start], end)
    count, value, decay = 0, 0.0, float(FLEET.decay_rate[source])
    for length in lengths:
        part = content.crawl([source], [start], start + length)
        count += int(part.items[0])
        value = value * math.exp(-decay * length) + float(part.utility[0])
        start += length
    assert whole.items.tolist() == [count]
    assert whole.utility[0] == pytest.approx(value, rel=1e-9, abs=1e-13)


def test_content_depends_on_seed_source_and_interval_only():
    columns = FleetColumns.random(1000, regime="sparse")
    one, other = OnDemandContent(columns, seed=1), OnDemandContent(columns, seed=1)
    rng = np.random.default_rng(0)
    since = rng.integers(0, 90, 1000)
    alone = one.crawl(np.arange(1000), since, 100)
    other.crawl(np.arange(500), np.zeros(500, int), 77)  # what was asked before does not matter
    order = rng.permutation(1000)
    mixed = other.crawl(order, since[order], 100)
    assert (mixed.items == alone.items[order]).all()
    assert (mixed.utility == alone.utility[order]).all()
    different = OnDemandContent(columns, seed=2).crawl(np.arange(1000), since, 100)
    assert (different.utility == alone.utility).mean() < 0.9 * (alone.items == 0).mean()
    twins = FleetColumns(np.full(1000, 5.0), 1.0, 0.1)
    alike = OnDemandContent(twins, seed=1).crawl(np.arange(1000), np.zeros(1000, int), 10)
    assert len(set(alike.utility.tolist())) == 1000


def test_silent_sources_and_those_never_crawled():
    content = OnDemandContent(FleetColumns([0.0, 2.0], 1.0, 0.5), seed=0)
    never = content.crawl([0, 1], [NEVER, NEVER], 50)
    assert never.items[0] == 0 == never.utility[0]
    long_ago = content.crawl([1], [-1000], 50)
    assert never.utility[1] == pytest.approx(long_ago.utility[0], rel=1e-12)


DRAWS = 20_000


@pytest.mark.parametrize(
    ("law", "source"),
    [
        *(("exponential", source) for source in range(5)),
        ("constant", 0),
        ("gamma", 1),
        ("lognormal", 2),
        (Lognormal(0.5), 3),
        ("gamma", 4),
    ],
    ids=str,
)
def test_mean_variance_and_count(law, source):
    """Each of these 53 figures is outside of its limits with probability 1e-5."""
    rate, mean, decay = (
        float(getattr(FLEET, name)[source])
        for name in ("arrival_rate", "mean_utility", "decay_rate")
    )
    age = [700, 13, 5, 2, 4][source]
    alike = FleetColumns(np.full(DRAWS, rate), mean, decay)
    content = OnDemandContent(alike, law, seed=source)
    found = content.crawl(np.arange(DRAWS), np.full(DRAWS, 37), 37 + age)
    assert abs(z_of_mean(found.items, rate * age)) < Z_LIMIT
    assert abs(z_of_variance(found.items, rate * age, rate * age)) < Z_LIMIT
    assert abs(z_of_share(found.items == 0, math.exp(-rate * age))) < Z_LIMIT or rate * age > 9
    kept = -math.expm1(-decay * age)
    square = mean**2 * content.utility.second_moment
    expected = rate * mean / decay * kept
    spread = rate * square * -math.expm1(-2 * decay * age) / (2 * decay)
    assert abs(z_of_mean(found.utility, expected)) < Z_LIMIT
    together = (found.items - rate * age) * (found.utility - expected)
    assert abs(z_of_mean(together, expected)) < Z_LIMIT
    if law != "lognormal":  # whose fourth moment is that of few draws
        assert abs(z_of_variance(found.utility, expected, spread)) < Z_LIMIT


def test_intervals_and_sources_are_independent():
    n = 20_000
    content = OnDemandContent(FleetColumns(np.full(n, 0.7), 1.0, 0.2), seed=9)
    every = np.arange(n)
    parts = np.array([content.crawl(every, np.full(n, t), t + 3).items for t in range(0, 24, 3)])
    for a, b in [*itertools.pairwise(parts), (parts[0][1:], parts[0][:-1])]:
        assert abs(np.corrcoef(a, b)[0, 1]) * math.sqrt(n) < Z_LIMIT


def test_failures():
    n = 20_000
    columns = FleetColumns(np.ones(n), 1.0, 0.5, failure_rate=np.repeat([0.1, 0.6], n // 2))
    content = OnDemandContent(columns, seed=4)
    every = np.arange(n)
    now, again, later = (content.fails(every, t) for t in (7, 7, 8))
    assert (now == again).all()
    assert abs(z_of_share(now[: n // 2], 0.1)) < Z_LIMIT
    assert abs(z_of_share(now[n // 2 :], 0.6)) < Z_LIMIT
    both = (now & later)[n // 2 :]
    assert abs(z_of_share(both, 0.36)) < Z_LIMIT
    assert (content.fails(every[::-1], 7) == now[::-1]).all()
    assert not OnDemandContent(FLEET).fails([0, 1], 7).any()


class Own:
    second_moment = 1.0

    def sample(self, rng, n):
        return np.ones(n)


def test_refusals():
    with refused("the distribution of utility is", "constant, exponential, lognormal and gamma"):
        OnDemandContent(FLEET, Own())
    with refused("unknown distribution of utility 'pareto'"):
        OnDemandContent(FLEET, "pareto")
    with refused("seed is -1"):
        OnDemandContent(FLEET, seed=-1)
    with refused("distribution"):
        OnDemandContent(FLEET, StretchedDecay())


@pytest.mark.parametrize(
    ("sources", "since", "now", "message"),
    [
        ([-1], [0], 5, "sources reach from -1 to -1; they are numbered from 0 to 4"),
        ([1, 5], [0, 0], 5, "sources reach from 1 to 5"),
        ([0.5], [0], 5, "sources has shape (1,) and dtype float64"),
        ([[0]], [[0]], 5, "sources has shape (1, 1)"),
        ([0, 1], [0], 5, "since has shape (1,)"),
        ([0], [0.5], 5, "since has shape (1,) and dtype float64"),
        ([0], [5], 5, "since reaches 5; it must be before the crawls, at 5"),
        ([0], [0], 5.5, "now is 5.5"),
        ([0], [0], 2**70, "now is 1180591620717411303424"),
    ],
)
def test_impossible_crawls(sources, since, now, message):
    with refused(message):
        OnDemandContent(FLEET).crawl(sources, since, now)
