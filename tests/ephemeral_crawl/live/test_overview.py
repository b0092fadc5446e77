"""The fleet at a glance."""

import math

import numpy as np
import pytest

from ephemeral_crawl.live import Lesson, Scheduler, overview, price
from tests.ephemeral_crawl.live.world import DAY, HOUR, Clock


@pytest.fixture(scope="module")
def told():
    """A fleet of 40 known sources, its overview, and the explanations of its sources."""
    clock = Clock()
    live = Scheduler(":memory:", budget="60/h", burst=1000, explore=0.0, clock=clock)
    live.add_many({"source": f"s{i}", "host": "slow" if i % 8 == 0 else None} for i in range(42))
    for lease in live.lease(40):
        i = int(lease.source[1:])
        live.report(lease.id, [(clock() - k * HOUR / (1 + i % 5), 1 + i % 3) for k in range(1, 12)])
    clock.now += 2 * HOUR
    live.pause("s1")
    for _ in range(3):
        live.failed("s2", retry_after="1h")
    live.limit_host("slow", "1d")
    live.report("s0")
    told = live.overview(8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overview, "_ROWS", 5)
        assert live.overview(8) == told  # part by part, too
    return told, {name: live.explain(name) for name in live.sources()}, clock()


def test_due_sources_come_best_first_with_their_reasons(told):
    seen, explained, now = told
    assert len(seen.due) == 8
    assert "s40" not in {x.source for x in seen.due}  # new, and of a host in wait
    assert [x.index for x in seen.due] == sorted((x.index for x in seen.due), reverse=True)
    for x in seen.due:
        assert x == explained[x.source]
        assert x.due_at <= now
        assert not x.paused
    assert [x.due_at for x in seen.soon] == sorted(x.due_at for x in seen.soon)
    assert all(x.due_at > now for x in seen.soon)


def test_failing_sources_and_hosts_in_wait(told):
    seen, _, now = told
    assert [(x.source, x.failures) for x in seen.failing] == [("s2", 3)]
    assert seen.failing[0].due_at > now + 0.9 * HOUR
    assert [(x.host, x.sources, x.until - now) for x in seen.hosts] == [("slow", 6, DAY)]
    assert seen.hosts_waiting == 1


def test_a_failing_source_that_is_paused_is_not_tried_again():
    live = Scheduler(":memory:", budget="6/h", clock=Clock())
    live.add("a")
    live.failed("a", status=410)
    live.pause("a")
    (failing,) = live.overview().failing
    assert (failing.source, failing.due_at, failing.failure) == ("a", None, "HTTP 410")


def test_what_the_budget_buys_is_what_fetches_at_these_intervals_collect(told):
    seen, explained, _ = told
    here = seen.budgets.index(60.0)
    worth, cost, published = 0.0, 0.0, 0.0
    limited = []
    for name, x in explained.items():
        if x.paused:
            continue
        # Simulated: items of a Poisson process, each worth w 2^(-age/h), fetched every interval.
        hours, halves = x.interval / HOUR, x.half_life / HOUR
        age = (np.arange(4000) + 0.5) / 4000 * hours
        collected = x.rate * x.worth * np.exp2(-age / halves).mean()
        published += x.answering_soon * x.rate * x.worth
        if name in {f"s{i}" for i in range(0, 42, 8)}:
            limited.append((1 / hours, collected))
        else:
            worth, cost = worth + x.answering_soon * collected, cost + x.answering_soon / hours
    share = min(1.0, 1 / 24 / sum(fetches for fetches, _ in limited))
    worth += share * sum(collected for _, collected in limited)
    cost += share * sum(fetches for fetches, _ in limited)
    assert seen.published == pytest.approx(published, rel=1e-5)
    assert seen.collects[here] == pytest.approx(worth, rel=0.03)
    assert cost == pytest.approx(60.0, rel=0.25)  # the price in use depends on the bucket, too
    gains = np.diff(seen.collects) / np.diff(seen.budgets)
    assert (gains > 0).all()
    assert (np.diff(gains) < 0).all()  # each further fetch buys less
    assert seen.collects[-1] < seen.published


def test_a_source_that_is_removed_meanwhile_is_left_out(monkeypatch):
    live = Scheduler(":memory:", budget="6/h", clock=Clock())
    live.add_many({"source": name} for name in "abcd")
    monkeypatch.setattr(overview, "_ROWS", 2)
    monkeypatch.setattr(overview.time, "sleep", lambda _: live.remove("a"))
    assert sorted(x.source for x in live.overview().due) == ["b", "c", "d"]


def test_an_empty_fleet_has_an_overview():
    seen = Scheduler(":memory:", budget="6/h").overview()
    assert (seen.due, seen.soon, seen.failing, seen.hosts, seen.published) == ([], [], [], [], 0.0)
    assert seen.collects == [0.0] * len(seen.budgets)
    assert math.isclose(seen.budgets[3], 6.0)


def test_what_maximum_intervals_cost_bounds_what_would_be_collected_without():
    clock, rates = Clock(), np.geomspace(0.003, 3.0, 40)
    told = {}
    for longest in (None, "24h"):
        live = Scheduler(":memory:", budget="8/h", burst=0.1, explore=0.0, clock=clock)
        live.add_many({"source": str(i), "max_interval": longest} for i in range(40))
        live.teach(Lesson.of_rate(str(i), rate, 1.0) for i, rate in enumerate(rates))
        told[longest] = live.overview(1), [live.explain(str(i)) for i in range(40)]
    free, limited = (seen.collects[seen.budgets.index(8.0)] for seen, _ in told.values())
    costs = sum(x.max_interval_costs for x in told["24h"][1])
    seen = told["24h"][0]
    assert seen.without_ceilings == pytest.approx(free, rel=1e-3)
    assert seen.ceilings_cost == pytest.approx(1.0 - limited / free, abs=1e-3)
    assert seen.ceilings == pytest.approx(40 / 24)
    assert (told[None][0].ceilings, told[None][0].ceilings_cost) == (0.0, 0.0)
    assert (free - limited) / free > 0.01
    assert free - limited < costs < 1.3 * (free - limited)  # at a price that the ceilings raise
    assert not any(x.max_interval_costs for x in told[None][1])
    rare, frequent = told["24h"][1][0], told["24h"][1][-1]
    assert not frequent.max_interval_costs
    assert "at least once in 24 h costs" in str(rare)
    assert "at least once" not in str(frequent)


def half_empty(store):
    """A fleet of which half of the sources never had an item."""
    live = Scheduler(store, budget="10/h", clock=Clock())
    live.add_many({"source": str(i)} for i in range(60))
    live.teach(Lesson.of_rate(str(i), max(0.02 * (i - 30), 0.0), 1.0, 5.0) for i in range(60))
    return live


def test_at_half_of_the_price_sources_without_items_are_inspected_more_often():
    live = half_empty(":memory:")
    state, told = live._ledger.state, live.explain("3")
    wanted = price.demand(state.table[:60], state.shared, state.rotation, state.time)
    surplus = price.mean_surplus(wanted, 0.5 * state.shared.market)
    best = math.sqrt(2.0 / (surplus * told.rate / HOUR))
    assert told.interval_at_half_price == pytest.approx(best, rel=1e-6)
    assert told.interval_at_half_price < 0.8 * told.interval
    for i in range(40, 60):
        live.pause(str(i))
    live.limit_host("none", 1.0)  # the price follows at once
    assert live.explain("3").interval_at_half_price != told.interval_at_half_price


def test_nothing_is_inspected_if_exploring_ends_while_all_sources_are_paused(tmp_path):
    with half_empty(tmp_path / "crawl.db") as live:
        for name in live.sources():
            live.pause(name)
    with Scheduler(tmp_path / "crawl.db", explore=0.0, clock=Clock()) as live:
        state = live._ledger.state
        alone = state.shared._replace(surplus=0.0)  # by its index
        value, i = state.price_at(state.time), state.row("3")
        told = live.explain("3").interval
        assert told == pytest.approx(
            price.interval_at(state.table, alone, i, value, math.inf), rel=1e-3
        )


def test_what_another_budget_collects_is_what_can_be_paid_for():
    """Also if half of the sources have had no item, and are inspected as often as pays."""
    live = half_empty(":memory:")
    state = live._ledger.state
    sample, told = state.sample(), live.overview()
    wanted = price.demand(sample.sources, sample.shared, state.rotation, state.time)
    limits, guess = sample.shared.hosts, state.shared.market
    for factor, collects in zip(overview.BUDGETS, told.collects, strict=True):
        budget, rotation = factor * state.settings.budget, state.rotation / factor
        value = price.market_price(wanted, budget, rotation, limits, guess)
        shared = sample.shared._replace(surplus=price.mean_surplus(wanted, value))
        each = (price.interval_at(sample.sources, shared, i, value, rotation) for i in range(60))
        assert sum(1.0 / x for x in each) == pytest.approx(budget, rel=2e-3)
        worth, *_ = overview.worth_rate(sample.sources, shared, value, rotation, state.time)
        assert collects == pytest.approx(3600.0 * worth, rel=2e-3)


def test_what_is_collected_if_maximum_intervals_take_more_than_the_budget():
    """Played, after a day, for 10 days."""
    clock, rates = Clock(), np.geomspace(0.01, 1.0, 30)
    live = Scheduler(":memory:", budget="4/h", burst=30, explore=0.0, clock=clock)
    live.add_many({"source": str(i), "max_interval": ("2h", "9h")[i % 2]} for i in range(30))
    live.teach(Lesson.of_rate(str(i), rate, 1.0, 1e6) for i, rate in enumerate(rates))
    told = live.overview()
    assert told.ceilings == pytest.approx(15 / 2 + 15 / 9)
    decay, collected, last = math.log(2.0) / (3 * HOUR), 0.0, {}
    begin, end = clock.now + DAY, clock.now + 11 * DAY
    while clock.now < end:
        for lease in live.lease(30):
            i = int(lease.source)
            since = clock.now - last.get(i, clock.now)
            last[i] = clock.now
            if clock.now > begin:  # the expected worth of what came since
                collected += rates[i] / HOUR * -math.expm1(-decay * since) / decay
            live.report(lease.id)
        clock.now += HOUR / 4
    here = told.collects[told.budgets.index(4.0)]
    assert here == pytest.approx(collected / (10 * 24), rel=0.02)
    assert told.ceilings_cost > 0.05
    assert "costs " in told.about_ceilings
    assert "alone take 9.17 budget units an hour, more than the 4" in told.about_ceilings


def test_sources_that_share_a_host_are_fetched_more_rarely_and_collect_little_less():
    """Three sources every three minutes, rather than one every minute: of a worth that halves in
    three hours hardly anything is lost."""
    live = Scheduler(":memory:", budget="600/h", clock=Clock())
    live.add_many({"source": name, "host": f"{name}.d.test"} for name in "abc")
    live.teach(Lesson.of_rate(name, 1.0, 1.0, 1e6) for name in "abc")
    live.limit_host("*.d.test", "1min")
    told = live.overview()
    expected = -3.0 * math.expm1(-0.05 * math.log(2.0) / 3.0) / (0.05 * math.log(2.0) / 3.0)
    assert told.collects[told.budgets.index(600.0)] == pytest.approx(expected, rel=1e-3)


def test_without_sources_maximum_intervals_cost_nothing():
    overview = Scheduler(":memory:", budget="1/h").overview()
    assert overview.ceilings_cost == 0.0
    assert overview.about_ceilings == ""
