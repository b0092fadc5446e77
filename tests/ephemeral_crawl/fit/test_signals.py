"""Recall, precision and delay of signals, fitted to logs of items and pings."""

from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np
import pytest

from agents.inference.assignment import Events, draw, log_likelihood
from crawl_env import ItemLog, PingLog, Sources
from crawl_env.numerics import FloatArray
from ephemeral_crawl.fit import signals
from ephemeral_crawl.fit.lives import throughout
from ephemeral_crawl.fit.signals import measure
from tests.refusals import refused

SPAN = 1000.0


def by_hand(items, pings, end, r, nu, d):
    """The density of the pings given the items, by announced items and true pings: the sum over
    all assignments of pings to items before them."""
    found = {}
    n, m = len(items), len(pings)
    for k in range(min(n, m) + 1):
        for of_items in combinations(range(n), k):
            for of_pings in permutations(range(m), k):
                ages = [pings[b] - items[a] for a, b in zip(of_items, of_pings, strict=True)]
                if any(age < 0 for age in ages):
                    continue
                density = nu ** (m - k) * np.exp(-nu * end)
                density *= np.prod([r / d * np.exp(-age / d) for age in ages])
                # The others do not ping, or do so after the end.
                rest = [t for a, t in enumerate(items) if a not in of_items]
                for late in range(len(rest) + 1):
                    for which in combinations(rest, late):
                        weight = density * (1 - r) ** (len(rest) - late)
                        weight *= np.prod([r * np.exp(-(end - t) / d) for t in which])
                        found[k + late, k] = found.get((k + late, k), 0.0) + weight
    return found


CASES = [
    ([1.0, 2.5, 2.5, 4.0], [0.5, 2.6, 2.7, 6.0], 0.6, 0.3, 0.7),
    ([1.0, 1.1, 1.2], [1.3, 1.4, 1.5, 1.6], 0.9, 0.05, 2.0),
    ([3.0], [], 0.5, 0.1, 1.0),
    ([], [2.0, 3.0], 0.5, 0.1, 1.0),
]


def test_the_likelihood_sums_over_all_assignments():
    for items, pings, r, nu, d in CASES:
        events = one_source(items, pings, 7.0)
        found = log_likelihood(events, np.array([r]), np.array([nu]), np.array([d]))
        exact = np.log(sum(by_hand(items, pings, 7.0, r, nu, d).values()))
        assert found[0] == pytest.approx(exact, rel=1e-12)


def test_assignments_are_drawn_with_their_probabilities():
    items, pings, r, nu, d = CASES[0]
    size, rng = 20_000, np.random.default_rng(3)
    many = one_source(items, pings, 7.0, size)
    one = np.ones(size)
    found = draw(many, r * one, nu * one, d * one, rng)
    exact = by_hand(items, pings, 7.0, r, nu, d)
    total = sum(exact.values())
    for (announced, true), weight in exact.items():
        share = np.mean((found.announced == announced) & (found.true == true))
        error = np.sqrt(weight / total * (1 - weight / total) / size)
        assert abs(share - weight / total) < 5 * error  # wrong once in 100,000 for each of ten
    # The time on its way, by importance sampling from the model itself: d if nothing were known.
    nothing = one_source([0.0], [], 50.0, size)
    waiting = draw(nothing, one * (1 - 1e-9), one * 1e-12, one * 9.0, rng).waiting
    assert set(waiting) == {50.0}  # it must ping and has not


def one_source(items, pings, end, copies=1):
    def repeated(x):
        return np.tile(np.array(x, dtype=float), copies)

    def source(x):
        return np.repeat(np.arange(copies), len(x))

    start, ends = np.zeros(copies), np.full(copies, end)
    return Events.of(start, ends, source(items), repeated(items), source(pings), repeated(pings))


class Simulated(NamedTuple):
    log: ItemLog
    pings: PingLog
    recall: FloatArray
    precision: FloatArray
    delay: FloatArray

    def fitted(self, skew=None):
        return measure(self.log, self.pings, throughout(self.log), skew)


def simulated(
    seed, n=60, items=30.0, recall=0.5, precision=0.8, delay=0.05, strength=6.0, early=0.0
):
    """Items and pings of n sources whose signals differ, item by item."""
    rng = np.random.default_rng(seed)
    r = rng.beta(recall * strength, (1 - recall) * strength, n)
    p = rng.beta(precision * strength, (1 - precision) * strength, n)
    d = delay * 4 / rng.gamma(5, size=n)
    size = rng.poisson(items * rng.gamma(2, 0.5, n)) + 1
    source = np.repeat(np.arange(n), size)
    published = rng.uniform(0, SPAN, source.size)
    pings = rng.random(source.size) < r[source]
    false = rng.poisson(r * size * (1 - p) / p)
    of = np.concatenate((source[pings], np.repeat(np.arange(n), false)))
    after = published[pings] + rng.exponential(d[source[pings]])
    time = np.concatenate((after, rng.uniform(0, SPAN, false.sum()))) - early
    inside = (time >= 0) & (time < SPAN)
    names = [f"s{i}" for i in range(n)]
    log = ItemLog(names, source, published, np.ones(source.size), 0.0, SPAN)
    return Simulated(log, PingLog(names, of[inside], time[inside], 0.0, SPAN), r, p, d)


def test_the_largest_likelihood_is_found_also_where_pings_are_moved_too_far():
    made = simulated(1, 10, 100.0, recall=0.9, precision=0.95, delay=0.02, strength=1e6, early=0.1)
    events = signals._events(made.log, made.pings, throughout(made.log), 1.0)
    found, _ = signals._pooled(events, 1 / 3600)
    one = np.ones(10)
    there = log_likelihood(events, 0.9 * one, 0.05 * events.pings / SPAN, 0.92 * one).sum()
    assert found > there - 3.0  # the prior takes 2.7


@pytest.mark.parametrize(
    "fleet",
    [{}, {"precision": 0.3}, {"items": 60.0, "recall": 0.8, "delay": 3.0}],
    ids=["usual", "mostly false", "delays of a tenth of a gap"],
)
def test_intervals_cover_and_estimates_are_unbiased(fleet):
    covered, error, scaled = np.zeros(3), np.zeros(3), np.zeros(3)
    runs, n = 2, 60
    for seed in range(runs):
        made = simulated(seed, n, **fleet)
        found = made.fitted(0.0)
        for k, (of, true) in enumerate(
            (
                (found.recall, made.recall),
                (found.precision, made.precision),
                (found.delay, made.delay),
            )
        ):
            covered[k] += np.count_nonzero((of.low <= true) & (true <= of.high))
            error[k] += (of.value - true).sum()
            scaled[k] += (((of.value - true) / of.error) ** 2).sum()
    # Of 120 sources 114 are covered on average; fewer than 0.88 once in 700; the seeds are fixed.
    assert np.all(covered / (runs * n) > 0.88)
    assert np.all(np.abs(error[:2]) / (runs * n) < 0.03)
    assert abs(error[2]) / (runs * n) < 0.1 * fleet.get("delay", 0.05)
    assert np.all(np.sqrt(scaled / (runs * n)) < 1.2)


def test_few_items_are_shrunk_towards_the_fleet():
    made = simulated(0, 80, items=6.0)
    found = made.fitted(0.0)
    pings = np.bincount(made.pings.source, minlength=80)
    items = np.bincount(made.log.source, minlength=80)
    own = np.minimum(pings * 0.8 / items, 1.0)  # about the best guess from the source alone
    assert np.mean((found.recall.value - made.recall) ** 2) < 0.7 * np.mean(
        (own - made.recall) ** 2
    )
    assert found.recall.mean == pytest.approx(0.5, abs=0.12)


def test_extreme_signals():
    rng = np.random.default_rng(0)
    names = [f"s{i}" for i in range(20)]
    source = np.repeat(np.arange(20), 50)
    log = ItemLog(names, source, rng.uniform(0, SPAN, 1000), np.ones(1000), 0.0, SPAN)

    def fitted(source, time):
        return measure(log, PingLog(names, source, time, 0.0, SPAN), throughout(log), 0.0)

    perfect = fitted(log.source, log.published)
    assert perfect.recall.value.min() > 0.99
    assert perfect.precision.value.min() > 0.99
    assert not perfect.delay.value.any()
    false = fitted(rng.integers(0, 20, 800), rng.uniform(0, SPAN, 800))
    assert false.recall.value.max() < 0.15
    assert false.precision.value.max() < 0.15
    half = log.source < 10
    some = fitted(log.source[half], np.minimum(log.published[half] + 0.1, SPAN - 1e-3))
    assert some.recall.value[:10].min() > 0.98
    assert some.recall.value[10:].max() < 0.02
    assert np.all(some.precision.low <= some.precision.value)
    fleet = some.of(Sources.random(2, seed=0, regime="sparse"), np.array([0, -1]))
    assert fleet.recall == pytest.approx([some.recall.value[0], 0.0])  # unknown: none
    with refused("there is no ping"):
        fitted(np.zeros(0), np.zeros(0))


def test_two_items_at_once_ping_twice():
    rng = np.random.default_rng(1)
    time = np.repeat(rng.uniform(0, SPAN, 400), 2)
    log = ItemLog(["a"], np.zeros(800), time, np.ones(800), 0.0, SPAN)
    pings = rng.random(800) < 0.6
    sent = np.minimum(log.published[pings] + rng.exponential(0.1, pings.sum()), SPAN - 1e-6)
    pings = PingLog(["a"], np.zeros(sent.size), sent, 0.0, SPAN)
    found = measure(log, pings, throughout(log), 0.0)
    assert abs(found.recall.value[0] - 0.6) < 4 * np.sqrt(0.24 / 800)
    assert found.delay.value[0] == pytest.approx(0.1, rel=0.25)


def test_pings_ahead_of_the_recorded_publication():
    assert simulated(0, 30).fitted().skew == 0.0  # found wrongly less than once in 1,000
    made = simulated(0, 30, early=0.3)  # hours: later than most delays
    found = made.fitted()
    assert 0.3 <= found.skew < 0.6
    assert np.mean(np.abs(found.recall.value - made.recall)) < 0.12
    assert not found.delay.value.any()
    assert found.delay.mean < 0.1  # from the publication on
    ignored = made.fitted(0.0)
    assert ignored.recall.mean < 0.5 * found.recall.mean or ignored.delay.mean > 1


def test_clocks_differ_only_where_the_likelihood_says_so_clearly(monkeypatch):
    def fitted(more, second):
        def pooled(skew, second, start=None):
            return (more if skew == pytest.approx(20 * second) else 0.0), np.array([skew])

        monkeypatch.setattr(signals, "_pooled", pooled)
        return signals._skew(lambda skew: skew, second)

    for second in (1 / 3600, 1 / 60):  # of a log in hours, or in minutes
        assert fitted(11.0, second) == (0.0, 0.0)
        assert fitted(13.0, second) == pytest.approx((20 * second, 20 * second))
