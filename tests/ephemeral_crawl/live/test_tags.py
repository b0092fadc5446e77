"""Budgets of tags, budgets by the hour, weights and pauses."""

import math
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize

from ephemeral_crawl.live import Lesson, Scheduler
from tests.refusals import refused

START = 1.7e9
HOUR = 3600.0


class Clock:
    def __init__(self, now=START):
        self.now = now

    def __call__(self):
        return self.now


def known(fleet, budget, **settings):
    """Return a scheduler that knows the rates and worths of a fleet: (rate, worth, cost, tag)."""
    clock = Clock()
    live = Scheduler(":memory:", budget=budget, explore=0.0, clock=clock, **settings)
    for i, (rate, worth, cost, tag) in enumerate(fleet):
        live.add(str(i), cost=cost, tag=tag, min_interval="1s")
        live.teach([Lesson.of_rate(str(i), rate, worth=worth, items=1e6)])
    return live, clock


def optimum(fleet, earns, cost, budget, bounds):
    """Return the largest worth per hour, by SLSQP over the fetches an hour of each source.

    Arguments:
        earns: (N,) worth an hour of what each publishes.
    """
    decay = math.log(2.0) / 3.0
    tags = np.array([source[3] or "" for source in fleet])

    def value(f):
        return (earns / decay * f * -np.expm1(-decay / f)).sum()

    limits = [{"type": "ineq", "fun": lambda f: budget - cost @ f}]
    for tag, (least, most) in bounds.items():
        its = cost * (tags == tag)
        limits.append({"type": "ineq", "fun": lambda f, its=its, b=least: its @ f - b})
        limits.append({"type": "ineq", "fun": lambda f, its=its, b=most: b - its @ f})
    start = np.full(len(fleet), budget / cost.sum())
    for tag, (least, most) in bounds.items():
        its = tags == tag
        start[its] *= np.clip(cost[its] @ start[its], least, most) / (cost[its] @ start[its])
    found = minimize(
        lambda f: -value(np.maximum(f, 1e-9)),
        start,
        bounds=[(1e-6, budget)] * len(fleet),
        constraints=limits,
        method="SLSQP",
        options={"maxiter": 500},
    )
    assert found.success, found.message
    return value(found.x), value


CASES = {
    "maximum": {"a": (0.0, 1.0)},
    "minimum": {"b": (3.0, 99.0)},
    "both": {"a": (0.0, 1.5), "b": (2.5, 4.0), "c": (0.2, 99.0)},
    "neither": {"a": (0.1, 50.0), "b": (0.1, 50.0)},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_prices_of_tags_are_optimal(case, seed):
    rng, bounds = np.random.default_rng(seed), CASES[case]
    fleet = [
        (float(rng.lognormal(0.0, 1.0)), float(rng.uniform(0.5, 2.0)), rng.choice([1.0, 2.0]), tag)
        for tag in ("a", "a", "a", "b", "b", "c", "c", None)
    ]
    live, _ = known(fleet, "6/h")
    for tag, (least, most) in bounds.items():
        live.limit_tag(tag, least=f"{least}/h" if least else None, most=f"{most}/h")
    told = [live.explain(str(i)) for i in range(len(fleet))]
    earns, cost = np.array([x.rate * x.worth for x in told]), np.array([x[2] for x in fleet])
    best, value = optimum(fleet, earns, cost, 6.0, bounds)
    f = np.array([HOUR / (x.interval or math.inf) for x in told])
    assert value(np.maximum(f, 1e-9)) == pytest.approx(best, rel=0.01)
    assert cost @ f == pytest.approx(6.0, rel=0.01)


def crawled(live, clock, rng, rates, days, each=lambda live: None):
    """Crawl sources that publish at these rates, per hour, and return the fetches of each."""
    last, fetches = dict.fromkeys(rates, clock.now), dict.fromkeys(rates, 0)
    end = clock.now + 24.0 * HOUR * days
    while clock.now < end:
        clock.now += 300.0
        each(live)
        for lease in live.lease(20):
            source, gap = lease.source, clock.now - last[lease.source]
            times = clock.now - rng.uniform(0.0, gap, rng.poisson(rates[source] * gap / HOUR))
            live.report(lease.id, [(at, 1.0) for at in times])
            last[source] = clock.now
            fetches[source] += 1
    return fetches


def spent(live):
    return {found.tag: found.spent for found in live.tags()}


def test_tags_spend_their_minimum_and_no_more_than_their_maximum():
    rng, clock = np.random.default_rng(1), Clock()
    live = Scheduler(":memory:", budget="12/h", clock=clock)
    rates = {f"{tag}{i}": rng.lognormal(0.0, 1.0) for tag in "abc" for i in range(8)}
    for name in rates:
        live.add(name, tag=name[0] if name[0] != "c" else None)
    rates |= {name: 0.1 * rates[name] for name in rates if name[0] == "b"}  # worth little
    live.limit_tag("a", most="2/h")
    live.limit_tag("b", least="25%")
    crawled(live, clock, rng, rates, 1)
    before, balance = spent(live), live.status().balance
    crawled(live, clock, rng, rates, 1)
    per_hour = {tag: (units - before[tag]) / 24.0 for tag, units in spent(live).items()}
    assert 1.8 <= per_hour["a"] <= 2.0 * (1.0 + 1.0 / 24.0)  # besides what was left before
    assert per_hour["b"] >= 2.85
    assert sum(per_hour.values()) == pytest.approx(12.0, abs=(12.0 + balance) / 24.0)
    assert [found.binds for found in live.tags()] == ["", "most", "least"]
    a, b, c = (live.explain(name) for name in ("a0", "b0", "c0"))
    assert b.price < c.price < a.price
    assert (a.binds, b.binds, c.binds) == ("most", "least", "")
    assert a.multiplier == pytest.approx(a.price - c.price)
    assert "The maximum of its tag a binds" in str(a)


def test_the_price_of_a_tag_is_a_hundredth_of_the_budgets_at_least():
    """However much its minimum, and however little its sources are worth."""
    live, _ = known([(1.0, 1.0, 1.0, None), (1.0, 1e-6, 1.0, "a")], "2/h")
    live.limit_tag("a", least="1.5/h")
    others, tag = live.tags()
    assert tag.price == pytest.approx(0.01 * others.price)


def test_a_tag_without_demand_leaves_its_budget_to_the_others():
    live, _ = known([(1.0, 1.0, 1.0, "a"), (1.0, 1.0, 1.0, "a"), (1.0, 1.0, 1.0, None)], "2/h")
    live.limit_tag("a", least="1.5/h")
    assert [found.spends for found in live.tags()] == pytest.approx([0.5, 1.5], rel=0.01)
    for name in "01":
        live.update(name, host="slow")
    live.limit_host("slow", "6h")
    assert [found.spends for found in live.tags()] == pytest.approx([11 / 6, 1 / 6], rel=0.01)
    live.update_many({"source": name, "paused": True} for name in "01")
    assert [found.spends for found in live.tags()] == pytest.approx([2.0, 0.0], rel=0.01)


def test_a_tag_whose_sources_fail_is_not_expected_to_spend_more_than_its_maximum():
    live = Scheduler(":memory:", budget="20/h")
    live.add_many({"source": str(k), "tag": "a" if k else None} for k in range(2))
    live.limit_tag("a", most="5/h")
    for lease in live.lease(2):
        live.failed(lease.id, kind="dns")
    others, tag = live.tags()
    assert tag.spends <= 5.0 + 1e-9
    assert others.spends <= 20.0 + 1e-9


def test_a_paused_tag_leaves_its_minimum_to_the_others():
    live, _ = known([(1.0, 1.0, 1.0, "a"), (1.0, 1.0, 1.0, None)], "2/h")
    live.limit_tag("a", least="1.5/h")
    assert [found.spends for found in live.tags()] == pytest.approx([0.5, 1.5], rel=0.01)
    live.pause(tag="a")
    assert [found.spends for found in live.tags()] == pytest.approx([2.0, 0.0], rel=0.01)


def test_budgets_of_a_tag_without_sources_do_not_bind():
    live, _ = known([(1.0, 1.0, 1.0, None), (3.0, 1.0, 1.0, "busy")], "2/h")
    live.limit_tag("empty", most="1/h")
    live.pause(tag="busy")
    assert {found.tag: found.binds for found in live.tags()} == {"": "", "busy": "", "empty": ""}


def test_no_source_of_a_tag_is_leased_beyond_its_maximum():
    clock = Clock()
    live = Scheduler(":memory:", budget="1000/h", clock=clock)
    live.add_many({"source": f"a{i}", "tag": "a"} for i in range(2000))
    live.add_many({"source": f"b{i}"} for i in range(50))
    live.limit_tag("a", most="10/h")
    first = [lease.source[0] for _ in range(20) for lease in live.lease(50)]
    assert (first.count("a"), first.count("b")) == (5, 50)  # of a bucket that is half full
    clock.now += HOUR / 10.0
    (lease,) = live.lease(50)
    assert lease.source[0] == "a"
    assert live.next_due("a1999") == pytest.approx(clock.now, abs=HOUR / 10.0)
    assert "when the maximum of its tag a leaves budget" in live.explain("a1999").reason
    live.release(lease.id)
    assert len(live.lease(50)) == 1
    clock.now += 24.0 * HOUR
    later = [lease.source[0] for _ in range(20) for lease in live.lease(50)]
    assert later.count("a") == 10  # what the maximum of an hour allows, however long nobody asked
    live.limit_tag("a")
    assert len(live.lease(50)) == 50


def test_a_cost_that_is_wrong_closes_a_tag_for_a_day_at_most(caplog):
    live, clock = known([(1.0, 1.0, 1.0, "a"), (1.0, 1.0, 1.0, None)], "100/h")
    live.limit_tag("a", most="2/h")
    (lease,) = (lease for lease in live.lease(2) if lease.source == "0")
    live.report(lease.id, [(None, 1.0)], cost=1e6)
    assert "0' is reported to cost 1e+06 budget units, more than the budget brings" in caplog.text
    assert live.settings("0")["cost"] == pytest.approx(2400.0)
    live.update("0", cost=1.0, max_interval="1h")
    for wait, number in ((23.0, 0), (1.6, 1)):
        clock.now += wait * HOUR
        assert sum(lease.source == "0" for lease in live.lease(2)) == number


def test_a_budget_follows_the_clock():
    clock = Clock(datetime(2026, 3, 28, 6, tzinfo=UTC).timestamp())
    live = Scheduler(":memory:", budget="08:00 40/h, 22:00 10/h", zone="Europe/Paris", clock=clock)
    rates = {f"{i}": 6.0 for i in range(30)}
    live.add_many({"source": name} for name in rates)
    rng, budgets = np.random.default_rng(0), {}

    def look(live):
        budgets[datetime.fromtimestamp(clock.now, UTC).strftime("%d %H:%M")] = live.status().budget

    crawled(live, clock, rng, rates, 2, look)
    changes = [at for before, at in pairwise(budgets) if budgets[at] != budgets[before]]
    # Clocks in Paris are set forward on the 29th at 1:00 UTC. Each is noticed at the next lease.
    assert changes == ["28 07:05", "28 21:05", "29 06:05", "29 20:05"]
    assert live.status().counts.leases == pytest.approx(28 * 40 + 19 * 10 + 10, rel=0.06)
    assert live.settings()["budget"] == "08:00 40/h, 22:00 10/h"
    live.configure(budget="5/h")
    assert live.settings()["budget"] == "5/h"
    with refused("zone is 'Mars'"):
        live.configure(budget="08:00 40/h", zone="Mars")


def test_a_zone_that_is_changed_counts_at_once_and_a_burst_stays():
    clock = Clock(datetime(2026, 3, 28, 9, tzinfo=UTC).timestamp())
    live = Scheduler(":memory:", budget="08:00 40/h, 22:00 10/h", burst=3.0, clock=clock)
    assert live.status().budget == 40.0
    live.configure(zone="America/Los_Angeles")  # where it is 2 o'clock
    assert live.status().budget == 10.0
    assert live.settings()["burst"] == 3.0


def test_bounds_of_tags_that_cannot_all_hold():
    live, _ = known([(1.0, 1.0, 1.0, "a"), (1.0, 1.0, 1.0, "b")], "10/h")
    live.limit_tag("a", least="50%", most="1/h")  # the maximum is the smaller one
    assert [tag.least for tag in live.tags()] == [None, 1.0, None]
    live.limit_tag("a", least="15/h")
    live.limit_tag("b", least="5/h")
    assert [tag.least for tag in live.tags()] == pytest.approx([None, 7.5, 2.5])


def test_a_clock_that_was_wrong_once_does_not_stop_the_hours():
    clock = Clock(datetime(2026, 3, 28, 6, tzinfo=UTC).timestamp())
    live = Scheduler(":memory:", budget="08:00 40/h, 22:00 10/h", clock=clock)
    assert live.status().budget == 10.0
    assert live.next_due() == clock.now + 7200.0  # when more may be spent
    clock.now += 400 * 86_400.0
    live.lease()
    clock.now -= 400 * 86_400.0 - 7200.0
    live.lease()
    assert live.status().budget == 40.0


def test_what_is_given_back_after_a_change_of_tag_leaves_the_store_readable(tmp_path):
    store, clock = f"sqlite:///{tmp_path}/a.db", Clock()
    with Scheduler(store, budget="600/h", clock=clock) as live:
        live.add_many({"source": name} for name in "abc")
        before = {lease.source: lease.id for lease in live.lease(2)}
        left = ({"a", "b", "c"} - before.keys()).pop()
        for name in "abc":
            live.update(name, tag="x")
        live.limit_tag("y", most="9/h")
        (lease,) = live.lease()
        assert lease.source == left
        live.update(left, tag="y", cost=3.0)
        assert {tag.tag: tag.spent for tag in live.tags()} == {"": 0.0, "x": 2.0, "y": 3.0}
        for number in (*before.values(), lease.id):
            live.release(number)
    with Scheduler(store, clock=clock) as live:
        assert {tag.tag: tag.spent for tag in live.tags()} == {"": 0.0, "x": 0.0, "y": 0.0}


def test_more_tags_than_there_can_be_change_nothing(monkeypatch):
    monkeypatch.setattr("ephemeral_crawl.live.tags.MOST_TAGS", 2)
    live = Scheduler(":memory:", budget="600/h", clock=Clock())
    live.add("a", tag="x")
    with refused("more than 2 tags"):
        live.add_many({"source": tag, "tag": tag} for tag in "xyz")
    live.pause(tag="y")
    for change in (
        lambda: live.pause(tag="z"),
        lambda: live.limit_tag("z"),
        lambda: live.update("a", tag="z"),
        lambda: live.update_many([{"source": "a", "tag": "z"}]),
    ):
        with refused("more than 2 tags"):
            change()
    assert (live.sources(), [tag.tag for tag in live.tags()]) == (["a"], ["", "x", "y"])
    live.lease()
    live.remove("a")  # so that nothing has the tag x any more
    live.add("b", tag="z")
    assert live.tags()[1].spent == 0.0  # what x has spent is not of z
    assert [(tag.tag, tag.sources) for tag in live.tags()] == [("", 0), ("z", 1), ("y", 0)]
    live.limit_tag("z", most="9/h")
    live.remove("b")
    with refused("those that have a budget or are paused count"):
        live.add("c", tag="x")


def test_weights_multiply_worths():
    heavy, _ = known([(1.0, 1.0, 1.0, None), (2.0, 1.0, 1.0, None)], "2/h")
    plain, _ = known([(1.0, 3.0, 1.0, None), (2.0, 1.0, 1.0, None)], "2/h")
    heavy.update("0", weight=3.0)
    plain.update("0", weight=1.0)
    one, other = heavy.explain("0"), plain.explain("0")
    assert (one.worth, one.weight) == (pytest.approx(1.0, rel=0.01), 3.0)
    for name in ("value", "index", "price", "interval"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=0.02)
    assert heavy.overview().published == pytest.approx(plain.overview().published, rel=0.02)
    with refused("weight is 0"):
        heavy.update("0", weight=0.0)


def test_hosts_and_tags_are_paused():
    live = Scheduler(":memory:", budget="600/h", clock=Clock())
    live.add("a", host="a.example.org", tag="x")
    live.add("b", host="b.example.org", tag="y")
    live.add("c", tag="x")
    live.pause("c")
    live.pause(host="*.example.org")
    live.pause(tag="y")
    live.add("d", host="d.example.org")
    live.add("e", tag="y")
    assert (live.lease(9), live.status().paused) == ([], 5)
    assert str(live.tags()[1]).startswith("x: 2 sources; price ")  # what it spends is not known
    reasons = {name: live.explain(name).reason for name in "abcde"}
    assert reasons["a"] == reasons["d"] == "since its host is paused"
    assert (reasons["c"], reasons["e"]) == ("since it is paused", "since its tag is paused")
    live.resume(host="*.example.org")
    assert sorted(lease.source for lease in live.lease(9)) == ["a", "d"]
    live.resume(tag="y")
    assert sorted(lease.source for lease in live.lease(9)) == ["b", "e"]
    live.update("b", tag="x")
    live.resume("c")
    assert [lease.source for lease in live.lease(9)] == ["c"]
    with refused("give one of a source, a host and a tag"):
        live.pause()
