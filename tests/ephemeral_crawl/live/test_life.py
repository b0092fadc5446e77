"""Whether a source answers: Bayes' rule, the best time of the next attempt, and a fleet with dead
sources."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from ephemeral_crawl.live import Scheduler, columns, life, price, reasons
from ephemeral_crawl.live.explanation import PROBABLY
from ephemeral_crawl.live.fitting import unfitted
from tests.ephemeral_crawl.live.world import DAY, HOUR, START, Clock

places = st.integers(0, len(reasons.LEARNT) - 1)


def failing(down=0.0, cause=0, *, answered=True, answering=0.9):
    """A source whose last attempt, at time 0, failed."""
    sources = columns.record_view(columns.new_sources(1))
    sources.marks[:], sources.host[:], sources.cost[:] = columns.EXISTS, columns.NO_HOST, 1.0
    sources.longest[:], sources.failures[:] = math.inf, 1
    sources.fetched[:] = -down - HOUR if answered else columns.NEVER
    sources.down[:], sources.cause[:] = down, cause
    if answered:
        sources.items[:], sources.exposure[:] = 40.0, 40.0 * HOUR
    shared = unfitted(math.log(2.0) / (3.0 * HOUR))
    return sources, shared._replace(answering=answering, surplus=0.3 / HOUR, market=1.0)


@pytest.mark.parametrize("down", [0.0, 2.0 * HOUR, 3.0 * DAY])
def test_the_probability_to_be_back_is_that_of_simulated_failures(down):
    """Of failures drawn from the mixture, those that have lasted so far; 5 standard errors."""
    rng, number = np.random.default_rng(1), 400_000
    kind = rng.choice(len(life.RECOVERY), number, p=life._WEIGHT)
    lasts = rng.exponential(1.0 / life.RECOVERY[kind])
    rest = lasts[lasts > down] - down
    v = life.weights(*failing(down), 0)
    for since in (600.0, HOUR, DAY, 30.0 * DAY):
        share = (rest < since).mean()
        error = 5.0 * math.sqrt(share * (1.0 - share) / len(rest)) + 1e-6
        assert abs(life.back(v, since) - share) < error
        missed = np.maximum(since - rest, 0.0)
        error = 5.0 * missed.std() / math.sqrt(len(rest)) + 1e-6 * since
        assert abs(life.unnoticed(v, since) - missed.mean()) < error


@given(st.floats(0.0, 1e8), places, st.booleans(), st.floats(0.01, 0.99), st.floats(1.0, 1e7))
@settings(max_examples=200, deadline=None)
def test_the_longer_a_source_fails_the_less_it_is_expected(down, cause, answered, share, since):
    source, shared = failing(down, cause, answered=answered, answering=share)
    v = life.weights(source, shared, 0)
    assert sum(v) == pytest.approx(1.0)
    assert min(v) >= 0.0
    longer = life.weights(*failing(2.0 * down + HOUR, cause, answered=answered, answering=share), 0)
    assert 0.0 <= life.back(longer, since) <= life.back(v, since) + 1e-12 <= 1.0 + 1e-12
    # The expected time is the integral of the probability, and its inverse is its inverse.
    area, _ = integrate.quad(lambda s: life.back(v, s), 0.0, since, limit=200)
    assert life.unnoticed(v, since) == pytest.approx(area, rel=1e-5)
    assert life.unnoticed(v, life.unnoticed_for(v, since)) == pytest.approx(since, rel=2e-3)


def number(kind, status):
    return reasons.number_of(reasons.cause_of(kind, status))


def test_each_failure_has_one_of_the_causes_and_those_that_differ_have_advice_of_their_own():
    for kind in (None, *reasons.KINDS):
        for status in (None, *range(100, 1000)):
            assert reasons.cause_of(kind, status) in reasons.CAUSES
            assert 0 <= number(kind, status) < len(reasons.LEARNT)
    told = [("dns", None), ("timeout", None), ("tls", None), ("format", 200), ("connection", None)]
    told += [("http", 404), ("http", 403), ("http", 503), ("http", 429)]
    advice = {reasons.CAUSES[reasons.cause_of(*failure)].advice for failure in told}
    assert len(advice) == len(told)
    assert reasons.cause_of("http", 401) == reasons.cause_of("http", 403)


def test_causes_and_the_fleet_tell_how_likely_the_end_is():
    gone, busy = number("http", 410), number(None, 429)
    assert reasons.LEARNT[number(None, 503)] == "server"
    ends = [life.dead(*failing(0.0, cause), 0) for cause in (busy, 0, gone)]
    assert ends == sorted(ends)
    assert ends[0] < 0.02 < 0.6 < ends[2]
    few, many = (life.dead(*failing(0.0, answered=False, answering=x), 0) for x in (0.95, 0.3))
    assert 0.4 < few < many
    # Of a new source: whoever cuts an answer off is there.
    cut_off, unreadable = number("incomplete", None), number("content", None)
    new = [failing(0.0, k, answered=False, answering=0.5) for k in (cut_off, unreadable)]
    ends = [life.dead(*failed, 0) for failed in new]
    assert ends[0] < PROBABLY < ends[1]


def test_the_next_attempt_is_nearly_the_best_one():
    """Cost of attempts and of the surplus that is lost until a source is found to be back, against
    a dynamic programme over the times since the first failure."""
    surplus, cost = 0.3 / HOUR, 1.0
    grid = np.concatenate([[0.0], np.geomspace(300.0, 3e8, 400)])

    def attempt(at, later, rest):
        v = life.weights(*failing(at), 0)
        lost = np.array([life.unnoticed(v, s) for s in later - at])
        still = np.array([1.0 - life.back(v, s) for s in later - at])
        return cost + surplus * lost + still * rest

    best, ours = np.zeros(len(grid)), np.zeros(len(grid))
    for k in range(len(grid) - 2, -1, -1):
        best[k] = attempt(grid[k], grid[k + 1 :], best[k + 1 :]).min()
        v = life.weights(*failing(grid[k]), 0)
        following = grid[k] + life.unnoticed_for(v, cost / surplus)
        k_next = min(max(np.searchsorted(grid, following), k + 1), len(grid) - 1)
        ours[k] = attempt(grid[k], grid[k_next : k_next + 1], ours[k_next : k_next + 1])[0]
    ratio = ours[grid < 30 * DAY] / best[grid < 30 * DAY]
    assert (ratio >= 1.0 - 1e-9).all()
    assert ratio.max() < 1.15


@given(st.floats(0.0, 1e7), places, st.booleans(), st.floats(0.01, 20.0))
@settings(max_examples=200, deadline=None)
def test_a_source_that_failed_is_due_when_its_index_reaches_the_price(down, cause, answered, value):
    sources, shared = failing(down, cause, answered=answered)
    due = price.due_at(sources, shared, 0, value, 0.0)
    if due == math.inf:
        assert price.index_now(sources, shared, 0, 1e9) < value
    else:
        assert price.index_now(sources, shared, 0, due) >= value
        assert due <= 61.0 or price.index_now(sources, shared, 0, 0.999 * due) < value
    known = price.value_now(sources, shared, 0, 1e12)
    assert price.value_now(sources, shared, 0, HOUR) <= known


def crawled(dead, days, *, outage=(), budget=5):
    """Crawl twenty sources of one item an hour each, and dead ones; return the scheduler and the
    attempts, (time, source, whether it answered)."""
    clock, attempts = Clock(), []
    live = Scheduler(":memory:", budget=f"{budget}/h", clock=clock)
    names = [f"feed {i}" for i in range(20)] + [f"dead {i}" for i in range(dead)]
    live.add_many({"source": names[i]} for i in np.random.default_rng(3).permutation(len(names)))
    begin, last = clock.now, {}
    while clock.now < begin + days * DAY:
        for lease in live.lease(1):
            out = lease.source in outage and 1.0 * DAY <= clock.now - begin < 2.0 * DAY
            answers = lease.source.startswith("feed") and not out
            attempts.append((clock.now - begin, lease.source, answers))
            if not answers:
                live.failed(lease.id, kind="dns", reason="no such name")
                continue
            first = math.ceil(last.get(lease.source, clock.now - DAY) / HOUR)
            last[lease.source] = clock.now
            hours = range(first, math.ceil(clock.now / HOUR))
            live.report(lease.id, [(START + HOUR * hour, 1.0) for hour in hours])
        clock.now += HOUR / (2 * budget)
    return live, attempts


def test_dead_sources_take_little_of_the_budget_and_all_of_it_is_spent():
    live, attempts = crawled(20, 4)
    assert len(attempts) >= 0.98 * 4 * 24 * 5
    dead = [source for time, source, _ in attempts if source.startswith("dead")]
    assert 20 <= len(dead) <= 50
    assert {source for _, source, _ in attempts} == set(live.sources())  # each was tried
    fleet = live.overview(limit=30)
    told = live.explain(fleet.failing[0].source)
    assert told.probably_dead
    assert "probably dead" in str(told)
    assert "no such name" in str(told)
    assert fleet.published == pytest.approx(20.0, rel=0.1)
    assert fleet.guessed < 0.05 * fleet.published
    assert len(fleet.failing) == 20
    assert all(x.dead > 0.5 for x in fleet.failing)
    assert all(x.due_at is None or x.due_at > told.failed_at for x in fleet.failing)


def test_sources_that_come_back_are_found_soon():
    outage = [f"feed {i}" for i in range(5)]
    live, attempts = crawled(10, 4, outage=outage)
    for source in outage:
        back = [time for time, name, answers in attempts if name == source and time > 2 * DAY]
        assert back[0] < 3.0 * DAY
        assert not live.explain(source).failures
    tried = [source for time, source, answers in attempts if 1 <= time / DAY < 2 and not answers]
    assert len(tried) < 0.2 * 24 * 5 + 15


def fleet_that_answered(names):
    """A scheduler of sources each of which has answered, and a function that lets the
    next fetch of one of them fail."""
    clock = Clock()
    live = Scheduler(":memory:", budget="3600/h", clock=clock)
    live.add_many({"source": name} for name in names)
    for name in names:
        live.report(name)
        clock.now += 1.0

    def fail(name, **failure):
        clock.now += 600.0
        live.failed(name, **(failure or {"kind": "connection"}))

    return live, fail


def test_many_sources_that_fail_in_a_row_are_an_outage_of_ones_own_network():
    names = [f"feed {i}" for i in range(12)]
    live, fail = fleet_that_answered(names)
    for name in names[:4]:
        fail(name)
    assert {live.explain(name).cause for name in names[:4]} == {"connection"}
    for name in names[4:10]:
        fail(name, kind="dns")
    fail(names[10], status=410)  # an answer: it ends the outage, and it is not explained by it
    assert live.explain(names[9]).cause == "network"
    assert live.explain(names[10]).cause == "gone"
    fail(names[11], kind="timeout")
    assert live.explain(names[11]).cause == "timeout"


def test_an_outage_of_ones_own_network_does_not_tell_what_new_sources_are():
    live, fail = fleet_that_answered([f"feed {i}" for i in range(12)])
    live.add_many({"source": f"new {i}"} for i in range(40))
    before = live.explain("new 0").answering
    for i in range(40):
        fail(f"new {i}")
    live.add("later")
    assert live.explain("later").answering > 0.8 * before


def test_an_answer_ends_an_outage_of_ones_own_network():
    names = [f"feed {i}" for i in range(12)]
    live, fail = fleet_that_answered(names)
    for name in names[:6]:
        fail(name)
    live.report(names[11])
    for name in names[6:8]:
        fail(name)
    assert {live.explain(name).cause for name in names[6:8]} == {"connection"}


def test_one_source_that_fails_again_and_again_is_no_outage_of_ones_own_network():
    names = [f"feed {i}" for i in range(12)]
    live, fail = fleet_that_answered(names)
    for _ in range(20):
        for name in names[:2]:
            fail(name)
    fail(names[2])
    assert {live.explain(name).cause for name in names[:3]} == {"connection"}
