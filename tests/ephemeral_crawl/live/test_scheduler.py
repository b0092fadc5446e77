"""Leases, reports, politeness, clocks and threads."""

import math
import pickle
import threading
from datetime import UTC, datetime

import numpy as np
import pytest

from ephemeral_crawl.live import (
    Lesson,
    Scheduler,
    agenda,
    learning,
    price,
    reasons,
    snapshot,
    state,
)
from ephemeral_crawl.live.state import State
from tests.ephemeral_crawl.live.world import DAY, HOUR, START, Clock
from tests.refusals import refused


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def scheduler(clock):
    scheduler = Scheduler(":memory:", budget="1/h", burst=50, clock=clock)
    for i in range(5):
        scheduler.add(f"feed {i}")
    return scheduler


def dated(clock, *ages, worth=1.0):
    return [(clock() - age, worth) for age in ages]


def known(scheduler, clock, interval=HOUR):
    """Report a backlog of one item per interval for every source."""
    for lease in scheduler.lease(100):
        scheduler.report(lease.id, dated(clock, *(interval * k for k in range(1, 11))))


def test_every_source_is_leased_once_at_first(scheduler):
    leases = scheduler.lease(3) + scheduler.lease(3)
    assert len(leases) == len({lease.source for lease in leases}) == 5
    assert {lease.reason for lease in leases} == {"not fetched yet"}
    assert scheduler.lease() == []


def test_a_lease_expires_and_a_late_report_counts(scheduler, clock):
    old = scheduler.lease(5, timeout="2min")
    clock.now += 60
    assert scheduler.lease(5) == []
    clock.now += 119
    assert scheduler.lease(5) == []  # it may have been fetched just before
    clock.now += 2
    new = scheduler.lease(5)
    assert {lease.source for lease in new} == {lease.source for lease in old}
    source = old[0].source
    assert scheduler.report(old[0].id, dated(clock, 10, 400, 9000))
    assert scheduler.explain(source).fetched_at == clock()
    assert scheduler.explain(source).leased  # by the other worker, whose report counts, too
    assert scheduler.report(next(lease for lease in new if lease.source == source).id)


def test_past_fetches_tell_the_rate_and_cost_an_hour_at_most(scheduler, clock):
    for k in range(200):  # every two hours, an item in each second one
        at = clock() - (200 - k) * 2 * HOUR
        scheduler.report("feed 0", [(None, 1.0)] * (k % 2), at=at)
        scheduler.failed("feed 1", status=404, at=at)
    told = scheduler.explain("feed 0")
    assert 0.2 < told.rate < 0.3
    assert told.fetched_at == pytest.approx(clock() - 2 * HOUR)
    assert scheduler.explain("feed 1").cause == "missing"
    assert scheduler.status().balance >= -50  # the burst, which is that of an hour by default


def test_a_report_counts_once(scheduler, clock):
    (lease,) = scheduler.lease()
    items = dated(clock, 600, 1200, 4000)
    assert scheduler.report(lease.id, items)
    before = scheduler.explain(lease.source)
    assert not scheduler.report(lease.id, items)
    assert not scheduler.failed(lease.id)
    assert not scheduler.release(lease.id)
    assert scheduler.explain(lease.source) == before


def test_what_is_told_late_changes_nothing_that_came_since(scheduler, clock):
    scheduler.limit_host("h", "2h")
    scheduler.update("feed 0", host="h")
    scheduler.report("feed 0", [(None, 1.0)])
    scheduler.report("feed 0", at=clock() - HOUR)  # another fetch, an hour before
    scheduler.failed("feed 0", at=clock() - HOUR)
    told = scheduler.explain("feed 0")
    assert (told.fetched_at, told.failures) == (clock(), 0)
    assert [wait.until for wait in scheduler.overview().hosts] == [clock() + 2 * HOUR]
    scheduler.failed("feed 1")
    scheduler.report("feed 1", at=clock() - HOUR)
    assert scheduler.explain("feed 1").failures == 1
    scheduler.report("feed 2", at=clock() + HOUR)  # by a clock that is ahead
    assert scheduler.explain("feed 2").fetched_at == clock()


def test_a_lease_can_be_reported_for_a_month(scheduler, clock):
    lease, other = scheduler.lease(2, timeout="5min")
    clock.now += 29 * DAY
    scheduler.lease(1)
    assert scheduler.report(lease.id)
    clock.now += 2 * DAY
    scheduler.lease(1)
    assert not scheduler.report(other.id)


def test_leases_that_nobody_reports_are_forgotten_if_there_are_very_many(monkeypatch):
    monkeypatch.setattr(state, "_MOST_LATE", 10)
    clock = Clock()
    live = Scheduler(":memory:", budget="600000/h", clock=clock)
    live.add_many({"source": str(i), "min_interval": 0.0} for i in range(4))
    leases = []
    for _ in range(10):
        leases += live.lease(4, timeout="1min")
        clock.now += HOUR
    open_leases = live.lease(4, timeout="1min")
    counts = [live.report(lease.id) for lease in [*leases, *open_leases]]
    assert counts == [False] * 30 + [True] * 14


def test_items_count_as_published_since_the_last_fetch(scheduler, clock):
    scheduler.report("feed 0")
    clock.now += 3 * HOUR
    before = scheduler.status().counts.collected
    scheduler.report("feed 0", dated(clock, 90 * HOUR))  # of which half is left
    assert scheduler.status().counts.collected - before == pytest.approx(0.5)


def test_all_of_many_items_count():
    live = Scheduler(":memory:", budget="1/h", worth_at="fetch", clock=Clock())
    live.add("a")
    live.report("a", [(None, 2.0)] * 1200)
    counts = live.status().counts
    assert (counts.items, counts.collected) == (1200.0, 2400.0)


@pytest.mark.parametrize("fetched", [0, 1])
def test_removals_do_not_each_fit_the_fleet(clock, monkeypatch, fetched):
    scheduler = Scheduler(":memory:", budget="100/h", clock=clock)
    scheduler.add_many({"source": str(i)} for i in range(400))
    for lease in scheduler.lease(fetched) if fetched else ():
        scheduler.report(lease.id, [(None, 1.0)])
    fits, fit = [], State._fit
    monkeypatch.setattr(State, "_fit", lambda state: fits.append(len(state)) or fit(state))
    for i in range(300, 400):  # none that was fetched
        scheduler.remove(str(i))
    assert 1 <= len(fits) <= 3  # after an eighth of the sources


def test_many_outcomes_are_those_of_single_calls(clock, monkeypatch):
    monkeypatch.setattr(State, "_fit", lambda _: None)  # which happens between events

    def crawled(many):
        clock.now = 0.0
        scheduler = Scheduler(":memory:", budget="100/h", clock=clock)
        scheduler.add_many({"source": str(i), "host": f"h{i % 2}"} for i in range(8))
        counts = []
        for k in range(6):
            clock.now += 3 * HOUR
            outcomes = [
                {"lease": lease.id, "items": dated(clock, 60, 700)[: j % 3], "status": 200}
                if j % 4
                else {"lease": lease.id, "outcome": "released", "again_after": "1min"}
                for j, lease in enumerate(scheduler.lease(5))
            ]
            outcomes += [outcomes[-1], {"source": str(k), "again_after": "2h"}]
            pings = [{"source": str(i), "kind": "websub"} for i in (k, 0)]
            if many:
                counts += scheduler.record(outcomes)
                scheduler.signal_many(pings)
            else:
                counts += [scheduler.record([outcome])[0] for outcome in outcomes]
                for ping in pings:
                    scheduler.signal(**ping)
        return counts, [str(scheduler.explain(str(i))) for i in range(8)]

    assert crawled(True) == crawled(False)


def test_a_batch_with_a_wrong_outcome_changes_nothing(scheduler):
    leases = scheduler.lease(3)
    good = {"lease": leases[0].id}
    for bad, words in (
        ({"lease": 99}, "outcome 1: there was no lease 99"),
        ({"source": "nobody"}, "outcome 1: there is no source 'nobody'"),
        ({"source": 5}, "outcome 1: source is 5; a source is named by text"),
        ({"lease": leases[1].id, "outcome": "lost"}, "outcome 1: unknown outcome 'lost'"),
        ({"lease": leases[1].id, "source": "feed 1"}, "outcome 1: give either"),
        ({"source": "feed 1", "outcome": "released"}, "id of the lease"),
        ({"lease": leases[1].id, "retry_after": 5}, "outcome 1: unknown argument"),
        (7, "outcome 1: it is 7"),
    ):
        with refused(words):
            scheduler.record([good, bad])
    with refused("ping 1: there is no source 'nobody'"):
        scheduler.signal_many([{"source": "feed 1"}, {"source": "nobody"}])
    assert scheduler.status().counts.fetched == scheduler.status().counts.pings == 0
    twice = [good, good, {"source": leases[0].source, "outcome": "failed", "status": 500}]
    assert scheduler.record([*twice, twice[-1]]) == [True, False, True, True]
    assert scheduler.explain(leases[0].source).failures == 2


def test_unasked_reports_count_and_cost(scheduler, clock):
    balance = scheduler.status().balance
    assert scheduler.report("feed 3", dated(clock, 60, 700, 900, 2000), status=200)
    told = scheduler.explain("feed 3")
    assert told.fetched_at == clock()
    assert told.rate > 1
    assert scheduler.status().balance == balance - 1


@pytest.mark.parametrize("asked", ["2min", "1h"])
def test_what_an_unasked_failure_asks_for_outlasts_a_lease(scheduler, clock, asked):
    (lease,) = scheduler.lease(timeout="10min")
    scheduler.failed(lease.source, retry_after=asked)
    scheduler.release(lease.id)
    clock.now += 119.0
    assert lease.source not in {other.source for other in scheduler.lease(5)}
    clock.now += 10 * DAY
    (again,) = (other for other in scheduler.lease(5) if other.source == lease.source)
    scheduler.release(again.id)  # a later lease ends as others do
    assert [other.source for other in scheduler.lease(5)] == [lease.source]


def test_what_an_unasked_report_asks_for_outlasts_a_lease(scheduler, clock):
    scheduler.update("feed 0", max_interval="1h")
    leases = {lease.source: lease.id for lease in scheduler.lease(5)}
    scheduler.report("feed 0", again_after="5h")
    scheduler.release(leases["feed 0"])
    clock.now += 4.9 * HOUR
    assert "feed 0" not in {lease.source for lease in scheduler.lease(5)}
    clock.now += 0.2 * HOUR
    assert "feed 0" in {lease.source for lease in scheduler.lease(5)}


def test_what_a_late_failure_asks_for_outlasts_the_next_lease(scheduler, clock):
    (late,) = scheduler.lease(timeout="1min")
    clock.now += 200.0
    (lease,) = (lease for lease in scheduler.lease(5) if lease.source == late.source)
    scheduler.failed(late.id, retry_after="5h")
    scheduler.release(lease.id)
    clock.now += 4.9 * HOUR
    assert late.source not in {lease.source for lease in scheduler.lease(5)}


def test_a_release_gives_back_what_was_paid_though_the_cost_has_changed(clock):
    scheduler = Scheduler(":memory:", budget="10/h", clock=clock)
    scheduler.add_many({"source": name} for name in "ab")
    first, second = scheduler.lease(2)
    scheduler.update(first.source, cost=5)
    scheduler.release(first.id)
    assert scheduler.status().balance == 10.0 - 1.0
    told = scheduler.explain(first.source)
    assert (told.failures, told.leased, told.fetched_at) == (0, False, None)
    scheduler.update(second.source, cost=5)
    scheduler.report(second.id)
    assert scheduler.status().balance == 10.0 - 5.0


def test_hosts_are_limited_at_once(clock):
    scheduler = Scheduler(":memory:", budget="100/h", clock=clock)
    scheduler.add_many({"source": str(i), "host": "abc"[i % 3]} for i in range(9))
    scheduler.limit_hosts({"a": "10s", "b": 60})
    assert len(scheduler.lease(9)) == 1 + 1 + 3
    with refused("interval"):
        scheduler.limit_hosts({"a": "soon"})
    with refused("give a dictionary"):
        scheduler.limit_hosts("a")


@pytest.mark.parametrize("leased", [1, 3])
def test_a_host_that_is_limited_waits_for_all_leases_that_are_out(clock, leased):
    scheduler = Scheduler(":memory:", budget="100/h", clock=clock)
    scheduler.add_many({"source": str(i), "host": "a"} for i in range(5))
    leases = scheduler.lease(leased, timeout="30min")
    scheduler.limit_host("a", "10s")
    for lease in reversed(leases):
        clock.now += 20
        assert scheduler.lease() == []
        scheduler.report(lease.id)
    assert scheduler.lease() == []
    clock.now += 10
    (new,) = scheduler.lease(5, timeout="30min")
    # A lease that is not reported counts as fetched when it expires.
    scheduler.limit_host("a", "20s")
    clock.now += 30 * 60 + 19
    assert scheduler.lease() == []
    clock.now += 1
    assert len(scheduler.lease(5)) == 1
    assert scheduler.report(new.id)


def test_reports_of_removed_sources_are_ignored(scheduler, clock):
    lease = scheduler.lease()[0]
    scheduler.remove(lease.source)
    assert lease.source not in scheduler
    assert len(scheduler) == 4
    scheduler.add("another")  # in the same row
    assert not scheduler.report(lease.id, dated(clock, 60, 700))
    assert scheduler.explain("another").fetched_at is None


def test_the_name_before_is_kept_until_the_source_is_removed(tmp_path):
    path = tmp_path / "crawl.db"
    with Scheduler(path, budget="6/h") as live:
        live.add_many({"source": name} for name in "ab")
        live.rename("a", "c")
        live.rename("c", "d")
        live.rename("d", "d")
        live.report("d")
        told = live.explain("d")
        assert told.renamed_from == "c"
        assert "It moved here from c at" in str(told)
        assert live.explain("b").renamed_at is None
    with Scheduler(path) as live:
        assert (live.explain("d").renamed_at, live.explain("d").renamed_from) == (
            told.renamed_at,
            "c",
        )
        live.remove("d")
        live.add("e")  # in its place
        assert live.explain("e").renamed_from == ""


@pytest.mark.parametrize(("before", "counts"), [(30.0, True), (59.0, True), (61.0, False)])
def test_a_fetch_long_before_its_lease_is_of_now(scheduler, clock, before, counts):
    (lease,) = scheduler.lease(1)
    begin = clock()
    clock.now += 120.0
    scheduler.report(lease.id, at=begin - before)
    told = scheduler.explain(lease.source).fetched_at
    assert told == pytest.approx(begin - before if counts else clock(), rel=0.0, abs=1e-3)


def test_a_renamed_source_keeps_what_was_learnt(scheduler, clock):
    known(scheduler, clock)
    before = scheduler.explain("feed 0")
    scheduler.rename("feed 0", "https://moved.example")
    after = scheduler.explain("https://moved.example")
    assert (after.rate, after.due_at) == (before.rate, before.due_at)
    assert "feed 0" not in scheduler.sources()
    with refused("there is a source"):
        scheduler.rename("feed 1", "feed 2")


def test_the_last_page_of_names_says_that_it_is_the_last(scheduler):
    names = scheduler.sources()
    assert scheduler.find(limit=4) == (names[:4], 4)
    assert scheduler.find(start=4, limit=1) == (names[4:], 0)


def test_a_paused_source_is_not_leased(scheduler):
    scheduler.pause("feed 1")
    assert scheduler.explain("feed 1").due_at is None
    assert "feed 1" not in {lease.source for lease in scheduler.lease(9)}
    scheduler.resume("feed 1")
    assert [lease.source for lease in scheduler.lease(9)] == ["feed 1"]


def test_failures_back_off_with_jitter(scheduler, clock):
    """At least about five minutes, and the longer the longer a source fails, until it answers."""
    scheduler.report("feed 2", dated(clock, 10, 700, 900, 2000))
    waits, blocked = [], []
    state = scheduler._ledger.state
    for _ in range(12):
        clock.now = max(scheduler.next_due("feed 2") - START, clock.now)
        scheduler.failed("feed 2", status=500)
        waits.append(scheduler.next_due("feed 2") - clock())
        blocked.append(state.table["blocked"][state.row("feed 2")] - clock())
    assert all(225.0 <= pause <= 375.0 for pause in blocked)
    assert len({round(pause, 3) for pause in blocked}) == 12
    assert 225.0 <= waits[0] < 2 * HOUR < waits[-1]
    assert np.median(waits[6:]) > np.median(waits[:6])
    assert scheduler.explain("feed 2").failures == 12
    scheduler.report("feed 2")
    told = scheduler.explain("feed 2")
    assert (told.failures, told.dead, told.answering) == (0, 0.0, 1.0)


def test_a_lease_that_has_expired_counts_as_fetched_and_cannot_be_released(clock):
    live = Scheduler(":memory:", budget="60/h", burst=12, clock=clock)
    live.add_many({"source": str(i), "min_interval": 0} for i in range(5))
    given, begin = 0, clock.now
    while clock.now < begin + 400.0:
        for lease in live.lease(5, timeout=0.5):
            given += 1
            clock.now += 1.0
            assert not live.release(lease.id)
            assert live.status().counts.released == 0
        clock.now += 1.0
    assert given <= 12 + 400 / 60
    (last,) = live.record([{"lease": given, "items": []}])  # late, and yet it counts
    assert last


def test_the_reason_of_a_failure_is_kept_until_the_next_fetch(tmp_path, clock):
    store = tmp_path / "crawl.db"
    scheduler = Scheduler(store, budget="1/h", burst=50, clock=clock)
    scheduler.add_many({"source": name} for name in "abcd")
    a, b, c, d = scheduler.lease(4)
    secret = (
        "cannot connect to\n\x1b[31m https://me:hunter2@a.example/?api_key=x\u202e " + "y" * 999
    )
    assert (
        scheduler.record(
            [
                {"lease": a.id, "outcome": "failed", "reason": secret},
                {"lease": b.id, "outcome": "failed", "status": 503},
                {"lease": c.id, "outcome": "failed"},
                {"lease": d.id, "outcome": "released", "reason": "robots.txt"},
            ]
        )
        == [True] * 4
    )
    replayed = Scheduler(store, clock=clock)
    found = {name: replayed.explain(name) for name in "abcd"}
    replayed.close()  # which writes a snapshot
    stored = Scheduler(store, clock=clock)
    assert {name: stored.explain(name) for name in "abcd"} == found
    told = found["a"].failure
    assert told.startswith("cannot connect to [31m https://***@a.example/?api_key=*** yyy")
    assert len(told) == 200
    assert "\n" not in told
    assert [found[name].failure for name in "bcd"] == ["HTTP 503", "", "robots.txt"]
    assert (found["b"].failed_at, found["c"].failed_at) == (clock(), None)
    assert "its last fetch failed." in str(found["c"])
    assert "not been fetched yet; it was passed over at" in str(found["d"])
    failing = {failing.source: failing.failure for failing in scheduler.overview().failing}
    assert failing == {"a": told, "b": "HTTP 503", "c": ""}
    scheduler.failed("b")  # of which no reason is known
    assert scheduler.explain("b").failure == ""
    clock.now += 4e6
    (again,) = (lease for lease in scheduler.lease(4) if lease.source == "a")
    scheduler.release(again.id, reason="robots.txt")
    text = str(scheduler.explain("a"))
    assert "its last fetch failed; the last attempt was at 2023-12-31" in text
    assert "robots.txt" in text
    scheduler.report("b")
    assert "It was last fetched at 2023-12-31" in str(scheduler.explain("b"))
    scheduler.failed("b")
    assert "last fetched successfully at 2023-12-31" in str(scheduler.explain("b"))
    scheduler.report("b")
    scheduler.remove("a")
    scheduler.add("e")  # in the row of the removed one
    assert scheduler.explain("b").failure == scheduler.explain("e").failure == ""
    with refused("reason is 7; give a text"):
        scheduler.failed("c", reason=7)


def test_retry_after_holds_for_the_host(clock):
    scheduler = Scheduler(":memory:", budget="600/h", clock=clock)
    for i in range(4):
        scheduler.add(str(i), host="a" if i < 3 else "b")
    (lease,) = scheduler.lease(1)
    assert lease.source == "0"
    scheduler.failed(lease.id, retry_after="2h", status=429)
    assert {x.source for x in scheduler.lease(9)} == {"3"}
    clock.now += 2 * HOUR - 1
    assert "1" not in {x.source for x in scheduler.lease(9)}
    clock.now += 1
    assert {"0", "1", "2"} <= {x.source for x in scheduler.lease(9)}


def test_too_many_requests_concern_the_host(clock):
    scheduler = Scheduler(":memory:", budget="600/h", clock=clock)
    scheduler.add_many({"source": name, "host": "a"} for name in "xyz")
    for status, others in ((500, 2), (429, 0)):
        lease = scheduler.lease(1)[0]
        scheduler.failed(lease.id, status=status)
        leases = scheduler.lease(3)
        assert len(leases) == others
        for other in leases:
            scheduler.release(other.id)
    clock.now += 400.0
    assert len(scheduler.lease(3)) == 3


@pytest.mark.parametrize("limit", [0.0, 10.0])
@pytest.mark.parametrize("host", ["a.example", "*.a.example", "*.example"])
def test_retry_after_is_limited_to_a_day_and_ends_if_the_host_is_resumed(
    clock, caplog, limit, host
):
    """Such as 120000, which some servers mean in milliseconds."""
    scheduler = Scheduler(":memory:", budget="600/h", clock=clock)
    scheduler.add_many({"source": name, "host": "a.example"} for name in "xy")
    scheduler.limit_host("a.example", limit)
    (lease,) = scheduler.lease(1)
    scheduler.failed(lease.id, retry_after=120_000.0, status=429)
    told = scheduler.explain(lease.source)
    text = "asks to be left alone for 120000 s, which is limited to a day"
    assert told.failure == f"HTTP 429; its server {text}"
    assert f"the server of {lease.source!r} {text}" in caplog.text
    assert told.due_at == clock() + DAY
    assert "`ephemeral-crawl store --resume host:a.example`" in told.reason
    clock.now += HOUR
    assert (scheduler.lease(2), scheduler.status().due) == ([], 0)
    scheduler.resume(host="*.b.example")
    assert scheduler.lease(2) == []
    scheduler.resume(host=host)
    assert len(scheduler.lease(2)) == (1 if limit else 2)
    assert "asked to be left alone" not in scheduler.explain(lease.source).reason


def test_a_long_reason_does_not_hide_what_a_server_asked_for(clock):
    scheduler = Scheduler(":memory:", budget="600/h", clock=clock)
    scheduler.add("x")
    (lease,) = scheduler.lease(1)
    scheduler.failed(lease.id, retry_after=120_000.0, reason="a" * 500)
    told = scheduler.explain("x").failure
    assert len(told) == 200
    assert told.startswith("aaa")
    assert told.endswith(
        "a…; its server asks to be left alone for 120000 s, which is limited to a day"
    )


def test_cache_control_is_a_floor_and_max_interval_a_ceiling(scheduler, clock):
    scheduler.update("feed 0", max_interval="90min", min_interval="10min")
    known(scheduler, clock, interval=5 * DAY)
    assert scheduler.next_due("feed 0") <= clock() + 1.5 * HOUR
    assert "maximum interval" in scheduler.explain("feed 0").reason
    scheduler.report("feed 0", again_after="3h")
    assert scheduler.next_due("feed 0") == clock() + 3 * HOUR


def test_a_source_within_its_minimum_interval_does_not_count_as_due(clock):
    scheduler = Scheduler(":memory:", budget="3600/h", clock=clock)
    scheduler.add("a", min_interval="6h")
    assert scheduler.status().due == 1
    (lease,) = scheduler.lease()
    scheduler.report(lease.id, dated(clock, 60, 120, 180))
    for hours, number in ((5, 0), (1, 1)):
        clock.now += hours * HOUR
        assert scheduler.status().due == number
    assert len(scheduler.lease()) == 1


def test_politeness_is_never_violated(clock):
    """40 sources on four hosts, of which two are limited; workers that are slow or die."""
    rng = np.random.default_rng(0)
    scheduler = Scheduler(":memory:", budget="400/h", clock=clock)
    limits = {"a": 300.0, "b": 40.0}
    for host, interval in limits.items():
        scheduler.limit_host(host, interval)
    for i in range(40):
        scheduler.add(str(i), host="abcd"[i % 4], min_interval="2min")
    # Workers fetch at a random moment of their lease; the server sees these moments.
    seen = {host: [] for host in "abcd"}
    fetches = {}
    pending = []
    cost = 0
    for _ in range(1000):
        clock.now += rng.exponential(5.0)
        for entry in [entry for entry in pending if entry[0] <= clock.now]:
            pending.remove(entry)
            _, lease, source, fetched = entry
            seen["abcd"[int(source) % 4]].append(fetched)
            fetches.setdefault(source, []).append(fetched)
            if rng.random() < 0.9:
                scheduler.report(lease, [(START + fetched, 1.0)])
        for lease in scheduler.lease(5, timeout=60.0):
            cost += 1
            if rng.random() < 0.1:
                continue  # the worker dies
            end = clock.now + rng.uniform(1.0, 55.0)
            pending.append((end, lease.id, lease.source, rng.uniform(clock.now, end)))
    assert min(np.diff(np.sort(times)).min(initial=1e9) for times in fetches.values()) >= 120
    for host, interval in limits.items():
        assert len(seen[host]) > 10
        assert np.diff(np.sort(seen[host])).min() >= interval
    assert len(seen["c"]) > len(seen["a"])
    assert cost <= 400 / HOUR * clock.now + 400 + 1


def indices(scheduler):
    """Return the indices of all sources, by brute force; 0 of those that must not be fetched."""
    state, now = scheduler._ledger.state, scheduler._ledger.clock.now(scheduler._ledger.state).time
    rows = np.arange(state.rows, dtype=np.int32)
    index = price.indices(state.table, state.shared, rows, now)
    sources = state.sources[: state.rows]
    index[(sources.blocked > now) | (sources.fetched > now - sources.shortest)] = 0.0
    return index, state.accepted_at(now), state.balance_at(now)


def test_sources_are_given_in_the_order_of_a_brute_force(clock):
    """Whenever some are leased, nobody else has a higher index, or one that reaches the price."""
    rng = np.random.default_rng(0)
    scheduler = Scheduler(":memory:", budget="60/h", burst=30, clock=clock)
    scheduler.add_many({"source": str(i), "cost": 1 + i % 3} for i in range(200))
    for i in range(200):
        dates = np.cumsum(rng.exponential(HOUR * (1 + i % 40), 6))
        scheduler.report(str(i), dated(clock, *dates, worth=1 + i % 7))
    full = short = 0
    for k in range(300):
        clock.now += rng.exponential(HOUR) if k % 50 == 0 else rng.exponential(120.0)
        index, asked, balance = indices(scheduler)
        leases = scheduler.lease(3)
        rows = [int(lease.source) for lease in leases]
        assert [lease.index for lease in leases] == sorted(index[rows], reverse=True)
        rest = np.delete(index, rows).max()
        if leases:
            assert leases[-1].index >= max(rest, asked)
            full += len(leases) == 3
        if len(leases) < 3 and balance - sum(1 + i % 3 for i in rows) > 3:
            assert rest < asked
            short += 1
        scheduler.record([{"lease": x.id, "items": dated(clock, 5)} for x in leases])
    assert full > 30
    assert short > 30


def large_fleet(clock, monkeypatch, budget):
    monkeypatch.setattr(agenda, "EXACT", 0)
    monkeypatch.setattr(agenda, "LOOKED_AT", 64)
    monkeypatch.setattr(agenda, "_SLICES", (64, 64))
    rng, number = np.random.default_rng(0), 1500
    scheduler = Scheduler(":memory:", budget=budget, burst=400, explore=0, clock=clock)
    scheduler.add_many({"source": str(i)} for i in range(number))
    for i in range(number):
        dates = np.cumsum(rng.exponential(HOUR * rng.uniform(1, 40), 6))
        scheduler.report(str(i), dated(clock, *dates, worth=rng.uniform(1, 7)))
    return scheduler


@pytest.mark.parametrize(("limit", "restart"), [(1, True), (4, False)])
def test_large_fleets_are_given_nearly_in_order(clock, monkeypatch, limit, restart):
    """As in fleets above `EXACT`, where far more sources are due than are asked for."""
    scheduler = large_fleet(clock, monkeypatch, f"{300 * limit}/h")
    lost = []
    for k in range(240):
        clock.now += 4 * HOUR if k in (0, 120) else 12.0
        if restart and k == 120:
            ledger = scheduler._ledger
            ledger.state = snapshot.from_bytes(snapshot.to_bytes(ledger.state))
        every, _, _ = indices(scheduler)
        leases = scheduler.lease(limit)
        every[[int(lease.source) for lease in leases]] = 0.0
        if k % 120 > 50 or (restart and k >= 120):  # it has looked at all that have become due
            assert leases
            lost.append(1.0 - leases[-1].index / max(every.max(), leases[-1].index))
        scheduler.record([{"lease": x.id, "items": dated(clock, 5)} for x in leases])
    assert scheduler.status().counts.leases > 230 * limit
    assert np.mean(lost) < 0.1
    assert np.max(lost) < 0.25


def test_in_large_fleets_nobody_is_much_too_late(clock, monkeypatch):
    """While the price rises and falls, and all that reach it are leased."""
    monkeypatch.setattr(
        State, "accepted_at", lambda _, now: 0.2 * math.exp(0.5 * math.sin(now / DAY))
    )
    scheduler = large_fleet(clock, monkeypatch, "100000/h")
    late, early = [], []
    for k in range(130):
        clock.now += 600.0
        every, asked, _ = indices(scheduler)
        leases = scheduler.lease(200)
        every[[int(lease.source) for lease in leases]] = 0.0
        if len(leases) < 200:
            late.append(every.max() / asked)
        early += [lease.index / asked for lease in leases if "index" in lease.reason]
        scheduler.record([{"lease": x.id, "items": dated(clock, 5)[: k % 2]} for x in leases])
    assert len(late) > 40
    assert np.max(late[20:]) < 1.11
    assert np.mean(late[20:]) < 1.1
    assert min(early) >= 1.0


def test_in_large_fleets_who_is_past_the_maximum_interval_is_served_in_turn(clock, monkeypatch):
    """Where the budget pays for half of what the maximum intervals ask, all are fetched as often,
    whatever they are worth."""
    monkeypatch.setattr(agenda, "EXACT", 0)
    monkeypatch.setattr(agenda, "LOOKED_AT", 16)
    scheduler = Scheduler(":memory:", budget="150/h", burst=50, clock=clock)
    scheduler.add_many({"source": str(i), "max_interval": "1h"} for i in range(300))
    fetched = {str(i): [clock.now] for i in range(300)}
    scheduler.record([{"source": str(i), "items": dated(clock, i)} for i in range(300)])
    for _ in range(600):
        clock.now += 120.0
        leases = scheduler.lease(8)
        for lease in leases:
            fetched[lease.source].append(clock.now)
        new = {x.id: dated(clock, 5) if int(x.source) % 3 else [] for x in leases}
        scheduler.record([{"lease": lease, "items": items} for lease, items in new.items()])
    assert {len(times) for times in fetched.values()} <= {10, 11, 12}
    assert max(np.diff(times[1:]).max() for times in fetched.values()) < 2.5 * HOUR


def test_new_sources_come_before_those_past_their_maximum_intervals(clock):
    """Or nobody would fetch them where maximum intervals take more than the budget."""
    scheduler = Scheduler(":memory:", budget="4/h", burst=1, clock=clock)
    scheduler.add_many({"source": str(i), "max_interval": "1h"} for i in range(20))
    scheduler.teach(Lesson.of_rate(str(i), 0.1 * (i + 1), 1.0, 100.0) for i in range(20))
    order = []
    for _ in range(60):
        clock.now += 900.0
        for lease in scheduler.lease(1):
            order.append((lease.source, lease.reason))
            scheduler.report(lease.id, [(None, 1.0)])
    assert order[:20] == [(str(i), "not fetched yet") for i in reversed(range(20))]
    late = [(str(i), "its maximum interval has passed") for i in reversed(range(20))]
    assert order[20:40] == late


def test_a_log_teaches_how_much_the_worths_of_a_source_vary(clock):
    scheduler = Scheduler(":memory:", budget="4/h", clock=clock)
    rng, start, n = np.random.default_rng(2), clock() - 1000 * HOUR, 4000
    scheduler.add("a")
    worths, times = rng.lognormal(0.0, 0.5, n), start + 1000 * HOUR * rng.uniform(0, 1, n)
    items = list(zip(times.tolist(), worths.tolist(), strict=True))
    scheduler.teach([Lesson.of_items("a", items, start, clock())])
    told, variation = scheduler.explain("a"), scheduler._ledger.state.totals.variation
    assert scheduler._ledger.state.sources.worth_items[0] == 500.0  # it may change
    assert told.worth == pytest.approx(worths.mean(), rel=0.05)
    assert variation == pytest.approx((worths.std() / worths.mean()) ** 2, rel=0.1)


def test_only_items_of_the_time_of_a_log_teach_and_the_less_the_older_it_is(clock):
    start, end = clock() - 100 * HOUR, clock()
    inside = [(start + HOUR * (k + 0.5), 1.0) for k in range(100)]
    outside = [(start - HOUR, 50.0), (end + HOUR, 50.0)]
    lesson = Lesson.of_items("a", inside + outside, start, end)
    assert lesson == Lesson.of_items("a", inside, start, end)
    assert lesson.as_row(clock() - DAY)[3] == 0.0  # by a clock that is behind
    found = []
    for passed in (0.0, 30 * DAY):
        clock.now += passed
        scheduler = Scheduler(":memory:", budget="4/h", clock=clock)
        scheduler.add("a")
        scheduler.teach([lesson])
        found.append(scheduler._ledger.state.sources.exposure[0])
    memories = np.array(learning.MEMORIES)
    assert found[1] == pytest.approx(found[0] * np.exp(-30 * DAY / memories), rel=1e-4)


@pytest.mark.parametrize("small", [True, False])
def test_nobody_starves_on_a_host_that_cannot_serve_all(clock, monkeypatch, small):
    """Even if those that are fetched are worth more, and a rotation is shorter than a round."""
    if not small:
        monkeypatch.setattr(agenda, "EXACT", 0)
    scheduler = Scheduler(":memory:", budget="100000/h", clock=clock)
    scheduler.add_many({"source": str(i), "host": "h"} for i in range(100))
    scheduler.limit_host("h", "2s")
    fetched = dict.fromkeys(map(str, range(100)), 0)
    for _ in range(800):
        clock.now += 1.0
        for lease in scheduler.lease(4):
            fetched[lease.source] += 1
            scheduler.report(lease.id, [(clock() - 1.0, 1.0)] * (int(lease.source) % 3))
    assert sum(fetched.values()) >= 399  # one every two seconds
    assert min(fetched.values()) >= 1


def test_many_sources_are_those_of_single_calls(clock):
    one, many = (Scheduler(":memory:", budget="60/h", clock=clock) for _ in range(2))
    for scheduler in (one, many):
        scheduler.add_many({"source": name, "host": "h2"} for name in "xyz")
        scheduler.remove("x")
        scheduler.remove("y")
    sources = [
        {"source": f"s{i}", "host": [None, "h1", "h2", "h3"][i % 4], "cost": 1 + i % 2}
        | [{}, {"max_interval": "2h"}, {"half_life": 60.0}, {"min_interval": 5}][i // 4 % 4]
        for i in range(100)
    ]
    for source in sources:
        one.add(**source)
    assert many.add_many(sources) == 100
    assert [one.settings(name) for name in one.sources()] == [
        many.settings(name) for name in many.sources()
    ]
    assert list(one._ledger.state.names) == list(many._ledger.state.names)
    assert one._ledger.state.rotation == many._ledger.state.rotation
    with pytest.raises(ValueError, match="source 1: cost is True"):
        many.add_many([{"source": "t", "cost": 1}, {"source": "u", "cost": True}])


def test_the_budget_is_spent_and_not_exceeded(clock):
    rng = np.random.default_rng(1)
    scheduler = Scheduler(":memory:", budget="30/h", burst=5, clock=clock)
    costs = {str(i): float(rng.integers(1, 4)) for i in range(30)}
    scheduler.add_many({"source": name, "cost": cost} for name, cost in costs.items())
    spent = [0.0]
    while clock.now < DAY / 2:
        clock.now += 60.0
        for lease in scheduler.lease(10):
            number = rng.poisson((1 + int(lease.source)) / 30 * 0.2)
            scheduler.report(lease.id, dated(clock, *rng.uniform(0, 600, number)))
            spent.append(spent[-1] + costs[lease.source])
    assert spent[-1] <= 30 * 12 + 5
    assert spent[-1] >= 0.97 * 30 * 12


def test_precision_is_told_by_dates_where_numbers_of_items_cannot_tell_it(scheduler, clock):
    """An item and a ping between two fetches on average, with much or little precision."""
    rng, found = np.random.default_rng(1), []
    for name, precision in (("good", 0.8), ("bad", 0.3)):
        scheduler.add(name)
        scheduler.report(name, [])
        for _ in range(150):
            begin = clock()
            ping = begin + rng.uniform(0.0, 4 * HOUR)
            times = [ping - 30.0] if rng.random() < precision and ping - 30.0 > begin else []
            times += (begin + rng.uniform(0.0, 4 * HOUR, rng.poisson(1.0 - precision))).tolist()
            clock.now += 4 * HOUR
            scheduler.signal(name, at=ping)
            scheduler.report(name, [(time, 1.0) for time in times])
        found.append(scheduler.explain(name).precision)
    assert found == pytest.approx([0.8, 0.3], abs=0.12)


def test_a_ping_makes_due_what_its_precision_deserves(scheduler, clock):
    known(scheduler, clock, interval=2 * DAY)
    clock.now += HOUR
    told = scheduler.explain("feed 0")
    assert told.due_at > clock() + HOUR
    assert told.due_after_ping < told.due_at
    scheduler.signal("feed 0", "websub")
    assert scheduler.next_due("feed 0") == pytest.approx(told.due_after_ping)
    good, bad = "feed 1", "feed 2"
    for _ in range(15):  # one source always has news after a ping, the other never
        clock.now += 5 * HOUR
        scheduler.signal(good, "websub")
        scheduler.signal(bad, "sitemap")
        clock.now += 60
        scheduler.report(good, dated(clock, 60))
        scheduler.report(bad)
    assert scheduler.explain(good).precision > 0.8
    assert scheduler.explain(bad).precision < 0.15
    assert scheduler.explain(bad).pinged_at == clock() - 60
    assert "(the last ping was of the kind sitemap, at 20" in str(scheduler.explain(bad))
    assert scheduler.explain(good).silent_rate < 0.1 * scheduler.explain(good).rate
    clock.now += HOUR
    scheduler.signal(good, "websub")
    scheduler.signal(bad, "sitemap")
    assert scheduler.explain(good).index > 2.0 * scheduler.explain(bad).index


def test_a_ping_before_the_last_fetch_announces_nothing(scheduler, clock):
    known(scheduler, clock)
    before = scheduler.next_due("feed 0")
    scheduler.signal("feed 0", at=clock() - 60)
    assert scheduler.next_due("feed 0") == before
    for _ in range(9):  # nor does it matter which of a ping and an earlier fetch is told first
        clock.now += HOUR
        scheduler.report("feed 1", at=clock() - HOUR)
        scheduler.signal("feed 1")
        scheduler.signal("feed 2")
        scheduler.report("feed 2", at=clock() - HOUR)
    for name, minutes in (("feed 3", (9, 0)), ("feed 4", (0, 9))):  # or which of two pings
        for passed in minutes:
            scheduler.signal(name, at=clock() - 60 * passed)
    shot = scheduler._ledger.state.table["shot"]
    assert shot[3] == pytest.approx(shot[4], rel=1e-6)
    one, other = (scheduler.explain(name) for name in ("feed 1", "feed 2"))
    assert (one.rate, one.precision) == pytest.approx((other.rate, other.precision), rel=1e-3)
    clock.now += HOUR
    for name, passed in (("feed 3", (0, 600, 30)), ("feed 4", (0, 600))):  # 30 s are the same
        scheduler.signal_many({"source": name, "at": clock() - seconds} for seconds in passed)
    shot = scheduler._ledger.state.table["shot"]
    assert shot[3] == pytest.approx(shot[4], rel=1e-6)
    scheduler.signal("feed 0")
    scheduler.report("feed 0", at=clock() - 60.0)  # which the ping came after
    assert scheduler._ledger.state.sources.pending[0] == 1.0
    assert scheduler.explain("feed 0").index > 0.02


def test_a_ping_of_the_future_counts_as_now(scheduler, clock):
    """As where the clock of a machine is ahead."""
    known(scheduler, clock)
    clock.now += HOUR
    scheduler.signal_many([{"source": "feed 0"}, {"source": "feed 1", "at": clock() + DAY}])
    assert len(set(scheduler._ledger.state.table["pinged"][:2])) == 1


def test_what_pings_announce_is_soon_not_expected_without_them(scheduler, clock):
    for pinged, hours, most in ((False, 100, 1.3), (True, 8, 0.6), (True, 12, 0.4)):
        for _ in range(hours):
            clock.now += HOUR
            if pinged:
                scheduler.signal("feed 0", at=clock() - 1790.0)
            scheduler.report("feed 0", dated(clock, 1800.0))
        assert scheduler.explain("feed 0").silent_rate < most
    assert scheduler.explain("feed 0").rate == pytest.approx(1.0, rel=0.3)


def test_a_source_that_falls_silent_is_visited_less_and_noticed_when_it_wakes(scheduler, clock):
    def every_hour(days, news):
        for _ in range(int(24 * days)):
            clock.now += HOUR
            scheduler.report("feed 0", dated(clock, 1800) if news else [])
        return scheduler.explain("feed 0").rate

    assert every_hour(20, True) == pytest.approx(1.0, abs=0.15)
    assert every_hour(4, False) < 0.2
    assert every_hour(3, True) > 0.7


def test_the_first_fetch_teaches_from_dated_items(scheduler, clock):
    ages = [HOUR * (k + 0.5) for k in range(20)]
    scheduler.report("feed 0", dated(clock, *ages))
    assert scheduler.explain("feed 0").rate == pytest.approx(1.0, rel=0.25)
    scheduler.report("feed 1", dated(clock, *ages[:12], *[DAY * 300 * k for k in range(1, 6)]))
    assert scheduler.explain("feed 1").rate == pytest.approx(1.0, rel=0.35)  # pinned entries
    scheduler.report("feed 2", dated(clock, *[30 * DAY + x for x in ages]))
    assert scheduler.explain("feed 2").rate < 0.1  # it has fallen silent
    scheduler.report("feed 3", [(None, 1.0)] * 20)
    untouched = scheduler.explain("feed 4").rate
    assert scheduler.explain("feed 3").rate == pytest.approx(untouched, rel=0.5)


def test_an_outage_does_not_look_like_silence(scheduler, clock):
    known(scheduler, clock, interval=HOUR)
    for _ in range(48):
        clock.now += HOUR
        scheduler.report("feed 0", dated(clock, 1800))
    clock.now += 10 * DAY  # the feed shows its last twenty items only
    scheduler.report("feed 0", dated(clock, *(HOUR * (k + 0.5) for k in range(20))))
    assert scheduler.explain("feed 0").rate == pytest.approx(1.0, rel=0.3)


def test_absurd_dates_and_numbers_do_no_lasting_harm(scheduler, clock):
    known(scheduler, clock)
    dates = [0.0, 4.09e9, clock() + 5, datetime(1970, 1, 1, tzinfo=UTC), None]
    clock.now += HOUR
    assert scheduler.report("feed 0", [(date, 1e12) for date in dates])
    assert scheduler.report("feed 1", [(clock() - k, 1.0) for k in range(100_000)])
    assert scheduler.report("feed 2", [(0.0, 0.0)] * 100_000)
    for i in range(5):
        told = scheduler.explain(f"feed {i}")
        assert all(math.isfinite(x) for x in (told.rate, told.worth, told.index, told.price))
        assert told.rate >= 0
    for _ in range(200):
        clock.now += HOUR
        for i in range(3):
            scheduler.report(f"feed {i}", dated(clock, 1800))
    for i in range(3):
        assert scheduler.explain(f"feed {i}").rate == pytest.approx(1.0, rel=0.6)


def test_a_clock_set_back_or_forth_stops_nothing(scheduler, clock):
    known(scheduler, clock)
    clock.now -= 3 * DAY
    due = scheduler.next_due("feed 0")
    assert clock() < due < clock() + DAY
    clock.now = due - START + 1
    assert scheduler.lease(1)
    clock.now += 400 * DAY
    assert scheduler.lease(1)
    clock.now -= 400 * DAY - HOUR
    assert scheduler.next_due() < clock() + DAY
    clock.now += DAY
    assert scheduler.lease(5)


def test_nothing_is_forgotten_when_a_clock_that_was_set_back_is_right_again(scheduler, clock):
    """As of a machine without a battery, which starts in 1970, and is stopped before it is told."""
    known(scheduler, clock)
    rate = scheduler.explain("feed 0").rate
    clock.now -= 50 * 365 * DAY
    scheduler.report("feed 0")
    clock.now += 50 * 365 * DAY + HOUR
    assert clock() - scheduler.explain("feed 0").fetched_at == pytest.approx(HOUR, abs=60.0)
    scheduler.report("feed 0")
    assert scheduler.explain("feed 0").rate > 0.5 * rate


def test_next_due_is_when_a_lease_is_given(scheduler, clock):
    known(scheduler, clock)
    for _ in range(20):
        due = scheduler.next_due()
        if due > clock() + 2:
            clock.now = due - START - 2
            assert not scheduler.lease()
        clock.now = due - START
        (lease,) = scheduler.lease()
        scheduler.report(lease.id, dated(clock, 30))


def test_next_due_is_when_the_budget_suffices(clock):
    """Of new sources, which wait for nothing else."""
    scheduler = Scheduler(":memory:", budget="40/h", clock=clock)
    scheduler.add_many({"source": f"feed {i}", "cost": 2.0} for i in range(60))
    while scheduler.lease(9):
        pass
    for _ in range(9):
        due = scheduler.next_due()
        clock.now = due - START - 2
        assert not scheduler.lease()
        clock.now = due - START
        assert scheduler.lease()


def test_next_due_is_before_a_dearer_source_comes_first(clock):
    """A cheap source is due after 130 s, and is paid for; a dear one, from 170 s on, after 900."""
    scheduler = Scheduler(":memory:", budget="40/h", clock=clock)
    for host, cost, wait in (("cheap", 1.0, 130.0), ("dear", 39.0, 170.0)):
        scheduler.add(f"of {host}", cost=cost, host=host)
        (lease,) = scheduler.lease()
        scheduler.failed(lease.id, retry_after=wait)
    scheduler.add("cheap", cost=1.0, host="cheap")
    scheduler.add("dear", cost=10.0, host="dear", max_interval="1min")
    assert scheduler.next_due() == clock() + 130.0
    clock.now += 171.0
    while not scheduler.lease():  # the dear one comes first, and is waited for
        assert clock() < scheduler.next_due() <= START + 900.0
        clock.now = scheduler.next_due() - START
    assert clock.now == 900.0


def test_explanations_are_sentences(scheduler, clock):
    known(scheduler, clock)
    scheduler.signal("feed 0", "websub")
    text = str(scheduler.explain("feed 0"))
    for part in ("items per hour", "halves in 3 h", "price of a budget unit", "pings announce"):
        assert part in text
    told = scheduler.explain("feed 1")
    assert told.interval_at_half_price < told.interval
    assert told.due_at == pytest.approx(scheduler.next_due("feed 1"))


def test_threads_share_a_scheduler(clock):
    scheduler = Scheduler(":memory:", budget="3600/h", burst=400, clock=clock)
    scheduler.add_many({"source": str(i), "max_interval": "1min"} for i in range(200))
    seen = []
    errors = []

    def work(number):
        try:
            for k in range(25):
                for lease in scheduler.lease(2):
                    seen.append(lease.source)
                    scheduler.report(lease.id, [(None, 1.0)] * (k % 3))
                scheduler.signal(str(number), "ping")
                scheduler.explain(str(k))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(seen) == len(set(seen)) == 200


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.add("a\x00b"), "control characters"),
        (lambda s: s.add("a\u202eb"), "control characters"),
        (lambda s: s.add("\udc80"), "control characters"),
        (lambda s: s.add(" a"), "whitespace"),
        (lambda s: s.add("a" * 3000), "1 to 2048"),
        (lambda s: s.add(""), "1 to 2048"),
        (lambda s: s.add(7), "give its name"),
        (lambda s: s.add("feed 0"), "there is a source"),
        (lambda s: s.add("x", cost=math.nan), "cost is nan"),
        (lambda s: s.add("x", cost=0), "cost is 0"),
        (lambda s: s.add("x", cost=1e-300), "cost is 1e-300"),  # nothing, in single precision
        (lambda s: s.add("x", half_life="3"), "without a unit; write 3s, 3min, 3h or 3d"),
        (lambda s: s.add("x", max_interval="1min", min_interval="1h"), "largest interval"),
        (lambda s: s.add("x", half_life="never"), "duration such as"),
        (lambda s: s.add_many([{"source": "x", "cots": 1}]), "did you mean 'cost'"),
        (lambda s: s.add_many([{"source": "x"}, {"source": "x"}]), "twice"),
        (lambda s: s.add_many(["x"]), "source 0"),
        (lambda s: s.lease(0), "limit is 0"),
        (lambda s: s.lease(timeout=-1), "timeout is -1"),
        (lambda s: s.export("feed 0"), "give a list of names"),
        (lambda s: s.report("unknown"), "no source 'unknown'"),
        (lambda s: s.report("\ud800"), r"no source '\ud800'"),  # as JSON may say
        (lambda s: s.report(99), "no lease 99"),
        (lambda s: s.report(True), "lease is True"),
        (lambda s: s.report("feed 0", 3), "list of pairs"),
        (lambda s: s.report("feed 0", [3]), "item 0 is 3"),
        (lambda s: s.report("feed 0", [(math.nan, 1)]), "published is nan"),
        (lambda s: s.report("feed 0", [(1e300, 1)]), "published is 1e+300"),
        (lambda s: s.report("feed 0", [(datetime(2026, 1, 1), 1)]), "time zone"),
        (lambda s: s.report("feed 0", [(None, -1)]), "worth is -1"),
        (lambda s: s.report("feed 0", [(None, math.inf)]), "worth is inf"),
        (lambda s: s.report("feed 0", [(None, "1")]), "worth is '1'"),
        (lambda s: s.report("feed 0", status=20), "status is 20"),
        (lambda s: s.failed("feed 0", retry_after="-5min"), "duration such as"),
        (lambda s: s.signal("feed 0", "a\nb"), "control characters"),
        (lambda s: s.signal("nobody"), "no source"),
        (lambda s: s.limit_host("h", math.inf), "interval is inf"),
        (lambda s: s.release("feed 0"), "id of the lease"),
        (lambda s: s.update("feed 0", paused=1), "true or false"),
    ],
)
def test_what_is_refused_changes_nothing(scheduler, call, words):
    before = [scheduler.explain(name) for name in scheduler.sources()], scheduler.status()
    with refused(words):
        call(scheduler)
    assert before == ([scheduler.explain(name) for name in scheduler.sources()], scheduler.status())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "give its budget"),
        ({"budget": 20}, "rate such as"),
        ({"budget": "0/h"}, "budget is '0/h'"),
        ({"budget": "20/0h"}, "rate such as"),
        ({"budget": "9" * 400 + "/h"}, "rate such as"),
        ({"budget": "1/h", "burst": 0}, "burst is 0"),
        ({"budget": "1/h", "half_life": "learn"}, "worth_at='fetch'"),
        ({"budget": "1/h", "worth_at": "sunrise"}, "publication"),
        ({"budget": "1/h", "clock": 5}, "clock is 5"),
        ({"budget": "1/h", "store": "mysql://x"}, "sqlite:///crawl.db"),
        ({"budget": "1/h", "store": "sqlite:///crawl.db?timeout=5"}, "leave out what follows"),
    ],
)
def test_settings_that_are_refused(arguments, words):
    with refused(words):
        Scheduler(arguments.pop("store", ":memory:"), **arguments)


def test_a_scheduler_is_not_sent_to_another_process():
    with pytest.raises(TypeError, match="open its store there"):
        pickle.dumps(Scheduler(":memory:", budget="20/h"))


def test_what_was_done_is_counted_and_stored(tmp_path):
    clock = Clock()
    with Scheduler(tmp_path / "crawl.db", budget="9/h", half_life="1h", clock=clock) as live:
        live.add_many({"source": name} for name in ("a", "b", "c"))
        first, second, third = live.lease(3)
        live.report(first.id, dated(clock, 0.0, HOUR, 2 * HOUR, worth=4.0))
        live.failed(second.id)
        live.release(third.id)
        assert not live.release(third.id)  # counted once
        live.signal(first.source)
        clock.now += HOUR
        live.report(first.source, [(None, 1.0)])  # within the hour: ½/ln 2 are left
        counts = live.status().counts
    assert (counts.leases, counts.fetched, counts.failed, counts.released) == (3, 2, 1, 1)
    assert (counts.pings, counts.items) == (1, 4)
    assert counts.collected == pytest.approx(4 + 2 + 1 + 0.5 / math.log(2))
    with Scheduler(tmp_path / "crawl.db", clock=clock) as live:
        assert live.status().counts == counts


def test_budget_that_few_sources_cannot_spend_does_not_make_the_price_of_many(clock):
    scheduler = Scheduler(":memory:", budget="20/h", clock=clock)
    clock.now += 5.0  # without any source
    scheduler.add("first")
    scheduler.teach([Lesson.of_rate("first", 1.0, 1.0)])
    clock.now += DAY  # one source
    scheduler.add_many({"source": str(i)} for i in range(200))
    scheduler.teach(Lesson.of_rate(str(i), 0.1 + 0.01 * i, 1.0) for i in range(200))
    fetches = sum(HOUR / scheduler.explain(name).interval for name in scheduler.sources())
    assert fetches == pytest.approx(20.0, rel=0.03)


def test_the_price_fits_the_budget_however_many_are_added():
    live = Scheduler(":memory:", budget="20/h", clock=Clock())
    for first, last in ((0, 14), (14, 100), (100, 250)):
        for i in range(first, last):
            live.add(str(i))
        told = live.explain("3")
        assert last * told.answering * HOUR / told.interval == pytest.approx(20, rel=0.1)


def test_nobody_waits_for_ever_on_a_host_that_is_used_to_capacity():
    # Twenty of forty sources are always worth more than the host accepts, the others hardly ever.
    start = now = 1.7e9
    scheduler = Scheduler(":memory:", budget="60/h", clock=lambda: now)
    scheduler.add_many({"source": str(i), "host": "h"} for i in range(40))
    scheduler.limit_host("h", "10min")
    rotation = scheduler._ledger.state.rotation
    fetched, longest = dict.fromkeys(map(str, range(40)), now), 0.0
    while now < start + 4 * rotation:
        for lease in scheduler.lease():
            since, gap = now - fetched[lease.source], 600.0 if int(lease.source) < 20 else 1e7
            times = np.arange(now, fetched[lease.source], -gap)[1:]
            scheduler.report(lease.id, items=[(time, 1.0) for time in times.tolist()])
            fetched[lease.source] = now
            longest = max(longest, since if now > start + 2 * rotation else 0.0)
        now += 600.0
    assert longest < 1.6 * rotation
    assert now - min(fetched.values()) < 1.6 * rotation


def test_the_price_falls_while_budget_is_saved_and_rises_while_it_is_short(clock):
    """The price when the bucket is half full, besides what it is more when that is emptier."""
    live = Scheduler(":memory:", budget="2/h", burst=10, explore=0, clock=clock)
    live.add_many({"source": f"feed {i}"} for i in range(10))
    prices = [live.status().price]
    for leased in (0, 10):
        assert len(live.lease(10)) == 10 if leased else True
        clock.now += HOUR
        prices.append(live.status().price)
    assert prices[1] < prices[0]
    assert prices[2] > prices[1]


@pytest.mark.parametrize("spent", [2, 5, 9])
@pytest.mark.parametrize("parts", [(0.5, 0.7), (3.0, 0.2), (1.0, 20.0)])
def test_the_price_does_not_depend_on_events_in_between(clock, spent, parts):
    prices = []
    for events in (False, True):
        clock.now = 0.0
        live = Scheduler(":memory:", budget="2/h", burst=10, explore=0, clock=clock)
        live.add_many({"source": f"feed {i}"} for i in range(10))
        assert len(live.lease(spent)) == spent
        for part in parts:
            clock.now += part * HOUR
            if events:
                live.update("feed 0", cost=1.0)  # as before
        prices.append(live.status().price)
    assert prices[0] == pytest.approx(prices[1], rel=1e-4)


def test_leases_expire_in_the_time_of_the_clock(scheduler, clock):
    clock.now = DAY
    (lease,) = scheduler.lease(1, timeout="10min")
    clock.now -= 2 * HOUR  # it was set back
    scheduler.add("another")
    assert scheduler.expired_at(lease.id) is None
    scheduler.report("feed 4")
    (new,) = scheduler.lease(1, timeout="10min")
    assert new.expires == pytest.approx(clock() + 600.0)
    before = scheduler.next_due("feed 4")
    scheduler.signal("feed 4", at=clock() - 1.0)  # before the fetch
    assert scheduler.next_due("feed 4") == before
    clock.now += 120.0
    state = scheduler._ledger.state
    assert scheduler.signal("feed 4", at=clock() - 60.0) > 0.0
    assert state.sources.pinged[4] == pytest.approx(state.time - 60.0)
    clock.now += 120.0
    scheduler.signal("feed 4", at=clock() + 1e6)  # as now
    assert state.sources.pinged[4] == state.time
    clock.now += 660.0
    assert scheduler.expired_at(lease.id) == pytest.approx(clock() - 60.0)


def test_a_source_that_is_given_back_without_a_reason_keeps_that_of_its_failure(scheduler, clock):
    (lease,) = scheduler.lease(1)
    scheduler.failed(lease.id, reason="HTTP 503")
    clock.now += DAY
    again = {one.source: one for one in scheduler.lease(10)}[lease.source]
    scheduler.release(again.id)
    assert scheduler.explain(lease.source).failure == "HTTP 503"


def test_the_error_of_the_worth_falls_with_the_number_of_items(scheduler, clock):
    new, errors = scheduler.explain("feed 0"), []
    assert new.worth_error == new.worth == 1.0  # that of a single item: nothing is known
    for _ in range(2):
        for lease in scheduler.lease(5):
            items = [(clock() - 60.0 * k, 1.0 + k % 3) for k in range(1, 41)]
            scheduler.report(lease.id, items)
        known = scheduler.explain("feed 0")
        errors.append(known.worth_error / known.worth)
        clock.now += 2 * DAY
    assert 0.02 < errors[1] < errors[0] < 0.2


def test_what_fetches_cost_is_learnt_and_paid():
    """Fetches that find something cost 20 units, others one."""
    clock = Clock()
    scheduler = Scheduler(":memory:", budget="100/h", burst=1000, clock=clock)
    scheduler.add_many({"source": name} for name in ("a", "b"))
    for lease in scheduler.lease(2):
        scheduler.report(lease.id, dated(clock, 60, 4000, 9000), cost=20)
    assert scheduler.status().balance == pytest.approx(960)
    assert scheduler.settings("a")["cost"] == 20
    clock.now += HOUR
    scheduler.report("a", cost=1)
    scheduler.failed("b", cost=5)
    assert scheduler.status().balance == pytest.approx(994)
    state = scheduler._ledger.state
    assert state.table["hit"][:2].tolist() == [20, 20]
    assert state.table["vain"][:2].tolist() == [1, 5]
    assert state.cost == pytest.approx(20 - 0.2 * 19 + 20 - 0.2 * 15)
    scheduler.record([{"source": "a", "cost": 2}, {"source": "a", "cost": 2}])
    assert state.table["vain"][0] == pytest.approx(2 - 0.8**2)  # nearer by a fifth each time
    assert state.cost == pytest.approx(state.table["cost"][:2].sum())
    state.table["vain"][0] = 1
    dear = scheduler.explain("a").interval
    again = snapshot.from_bytes(snapshot.to_bytes(state))
    assert again.table["vain"][:2].tolist() == [1, 5]
    state.table["vain"][0] = 20  # now nothing is saved by looking at what has not changed
    assert scheduler.explain("a").interval > dear
    with refused("cost is -1"):
        scheduler.report("a", cost=-1)


def test_a_source_that_costs_more_than_the_budget_of_a_day_may_do_so(clock, caplog):
    scheduler = Scheduler(":memory:", budget="1/h", clock=clock)
    scheduler.add("a", cost=100.0)
    (lease,) = scheduler.lease()  # as the bucket is full, which holds 1
    scheduler.report(lease.id, cost=100.0)
    assert scheduler.settings("a")["cost"] == 100.0
    assert caplog.text == ""


def test_the_reasons_of_the_latest_failures_alone_are_kept(monkeypatch):
    monkeypatch.setattr(reasons, "_MOST", 3)
    scheduler = Scheduler(":memory:", budget="20/h")
    for name in "abcd":
        scheduler.add(name)
        scheduler.failed(name, reason="no")
    assert [scheduler.explain(name).failure for name in "abcd"] == ["", "no", "no", "no"]


def test_settings_of_a_source_are_accepted_again():
    scheduler = Scheduler(":memory:", budget="20/h")
    given = {"cost": 1e-6, "weight": 1e-6, "min_interval": 0.1, "half_life": 3333.3}
    scheduler.add("a", **given)
    assert given.items() <= scheduler.settings("a").items()
    scheduler.update("a", **scheduler.settings("a"))
