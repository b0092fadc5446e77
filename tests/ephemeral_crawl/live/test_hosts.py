"""Hosts within domains: each accepts one fetch at a time, all the time that it is asked."""

import math

import numpy as np
import pytest

from ephemeral_crawl.live import Scheduler, agenda, hosts, price, snapshot
from ephemeral_crawl.live.columns import NO_HOST, PAUSED, new_hosts
from tests.ephemeral_crawl.live.world import HOUR, START, Clock

LIMITS = {"*.blogs.test": 60.0, "a.blogs.test": 200.0, "*.test": 20.0, "other.test": 90.0}
LATER = {"b.blogs.test": 100.0}
NAMES = ("a.blogs.test", "b.blogs.test", "c.blogs.test", "blogs.test", "other.test", "x.org", None)


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("a.b.org", "*.b.org"),
        ("z.a.b.org", "*.b.org"),
        ("b.org", "*.b.org"),
        ("*.b.org", "*.org"),
        ("c.org", "*.org"),
        ("ab.org.example", None),
        ("*.org", None),
        ("", None),
    ],
)
def test_a_host_is_in_the_smallest_domain(host, domain):
    rows = {"*.org": 3, "*.b.org": 5}
    assert hosts.domain_of(host, rows) == (NO_HOST if domain is None else rows[domain])


def test_hosts_share_what_their_domain_accepts():
    table = new_hosts(6)
    table["within"] = [2, 2, 4, NO_HOST, NO_HOST, NO_HOST]  # 0 and 1 in 2, which is in 4
    table["interval"] = [2.0, 0.0, 4.0, 10.0, 5.0, 1.0]
    fetches = np.array([1.0, 0.5, 0.0, 0.05, 0.3, 4.0])
    # Host 0 accepts half of its, then 2 a fourth of the .5 + .5, then 4 .2 of .25 + .3.
    expected = np.array([2.0 * 4.0 * 2.75, 4.0 * 2.75, 4.0 * 2.75, 1.0, 2.75, 4.0])
    assert hosts.stretch(table, fetches) == pytest.approx(expected)
    inner = fetches[[0, 1, 4]] / expected[[0, 1, 4]]
    assert inner.sum() == pytest.approx(1.0 / 5.0)  # all that 4 accepts


class World:
    """Workers that are slow, release, fail, or die, and hosts that see when they are fetched."""

    def __init__(self, scheduler, clock, of_host, seed=0):
        self.scheduler, self.clock, self.of_host = scheduler, clock, of_host
        self.rng, self.pending = np.random.default_rng(seed), []
        self.seen = {name: [] for name in LIMITS}

    def wait(self, seconds):
        """Report what is done until then."""
        self.clock.now += seconds
        for entry in [entry for entry in self.pending if entry[0] <= self.clock.now]:
            self.pending.remove(entry)
            _, lease, source, fetched, leased = entry
            for name in LIMITS:
                host = self.of_host(source) or ""
                if host == name or (name.startswith("*.") and f".{host}".endswith(name[1:])):
                    self.seen[name].append((fetched, leased))
            if self.rng.random() < 0.1:
                self.scheduler.failed(lease, retry_after=self.rng.uniform(60.0, 600.0))
            else:
                self.scheduler.report(lease, [(START + fetched + 1.0, 1.0)])

    def work(self, leases):
        for lease in leases:
            end = self.clock.now + self.rng.uniform(1.0, 15.0)
            match self.rng.choice(["fetch", "release", "die"], p=[0.9, 0.05, 0.05]):
                case "fetch":
                    at = self.rng.uniform(self.clock.now, end)
                    self.pending.append((end, lease.id, lease.source, at, self.clock.now))
                case "release":
                    self.scheduler.release(lease.id)

    def check(self, since):
        """Refuse fetches that come too early, of all that were leased after a time."""
        for name, interval in LIMITS.items():
            times, leased = np.array(sorted(self.seen[name])).T
            assert np.diff(times)[leased[1:] > since].min() >= interval, name


def _rows(state):
    return {name: row for row, name in enumerate(state.host_names)}


def opens(state, name):
    """Return from when on a host of this name and its domains accept a fetch, by their names."""
    found = -math.inf
    for other, row in _rows(state).items():
        interval, fetched, held, blocked, *_ = state.shared.hosts[row].item()
        if other == name:
            found = max(found, blocked)
        inside = other.startswith("*.") and f".{name}".endswith(other[1:])
        if interval and (other == name or inside):
            found = max(found, fetched + interval, held)
    return found


def brute_force(scheduler, of_host, limit):
    """Return the sources to lease: the best of each host and domain that accepts a fetch."""
    state = scheduler._ledger.state
    now = scheduler._ledger.clock.now(state).time
    rows = np.arange(state.rows, dtype=np.int32)
    index = price.indices(state.table, state.shared, rows, now)
    sources = state.sources[: state.rows]
    tried = np.where(sources.failures > 0, sources.tried, sources.fetched)
    free = (sources.blocked <= now) & (tried + sources.shortest <= now)
    free &= (sources.marks & PAUSED) == 0
    interval = state.shared.hosts["interval"]
    limited = [name for name, row in _rows(state).items() if interval[row] > 0.0]
    chosen, busy = [], set()
    for i in np.argsort(-index, kind="stable").tolist():
        host = of_host(state.names[i])
        if not free[i] or index[i] < state.accepted_at(now) or len(chosen) == limit:
            continue
        taken = {n for n in limited if n == host or (n[0] == "*" and f".{host}".endswith(n[1:]))}
        if host is not None and (taken & busy or opens(state, host) > now):
            continue
        busy |= taken
        chosen.append(state.names[i])
    return chosen


def test_a_domain_that_is_limited_waits_after_the_last_fetch_of_its_hosts():
    clock = Clock()
    scheduler = Scheduler(":memory:", budget="2000/h", clock=clock)
    scheduler.add_many({"source": name, "host": f"{name}.x.test"} for name in "ab")
    (lease,) = scheduler.lease(1)
    scheduler.report(lease.id)
    clock.now += 10.0
    scheduler.limit_host("*.x.test", "1min")
    clock.now += 49.0
    assert scheduler.lease(2) == []
    clock.now += 1.0
    assert len(scheduler.lease(2)) == 1


def test_the_best_of_each_host_and_domain_is_leased():
    clock = Clock()
    scheduler = Scheduler(":memory:", budget="2000/h", explore=0, clock=clock)

    def of_host(source):
        return NAMES[int(source) % len(NAMES)]

    scheduler.add_many(
        {"source": str(i), "host": of_host(i), "min_interval": "20min" if i % 5 == 0 else 0}
        for i in range(140)
    )
    rng = np.random.default_rng(1)
    for i in range(140):
        dates = clock() - np.cumsum(rng.exponential(HOUR * (1 + i % 40), 6))
        scheduler.report(str(i), [(date, 1.0 + i % 7) for date in dates])
    world, given, since = World(scheduler, clock, of_host), 0, 0.0
    for k in range(200):
        several = len({of_host(source) for _, _, source, _, _ in world.pending}) > 1
        if 60 <= k < 120 and not since and several:  # while several leases are out
            scheduler.limit_hosts(LIMITS)
            since = clock.now
        if k == 130:  # another domain, and the same again
            scheduler.limit_hosts({"*.x.test": "1h", "*.test": 0})
            scheduler.limit_hosts({"*.test": "20s", **LATER})
        world.wait(rng.exponential(12.0))
        # Some are paused while they are leased, or wait after a failure.
        scheduler.update(str(rng.integers(140)), paused=bool(rng.random() < 0.3))
        scheduler.status()
        expected = brute_force(scheduler, of_host, 5)
        leases = scheduler.lease(5, timeout=20.0)
        assert [lease.source for lease in leases] == expected
        given += len(leases)
        world.work(leases)
    assert since > 0.0
    assert given > 150
    assert len(world.seen["*.test"]) > 30
    world.check(since)
    state = scheduler._ledger.state
    again = snapshot.from_bytes(snapshot.to_bytes(state))
    assert (again.shared.hosts == state.shared.hosts[: len(again.host_names)]).all()


def test_in_large_fleets_all_hosts_of_a_domain_have_their_turn(monkeypatch):
    """Some of its 150 hosts have limits of their own, and one has half of the sources."""
    monkeypatch.setattr(agenda, "EXACT", 0)
    monkeypatch.setattr(agenda, "LOOKED_AT", 16)
    clock = Clock()
    scheduler = Scheduler(":memory:", budget="100000/h", clock=clock)

    def of_host(source):
        return f"h{max(int(source) - 150, 0)}.blogs.test"

    scheduler.add_many({"source": str(i), "host": of_host(i)} for i in range(300))
    scheduler.record([{"source": str(i), "items": []} for i in range(300)])
    scheduler.limit_hosts({f"h{i}.blogs.test": "10min" for i in range(0, 150, 2)})
    scheduler.limit_host("*.blogs.test", "10s")
    fetched = {f"h{i}.blogs.test": 0 for i in range(150)}
    for _ in range(900):
        clock.now += 5.0
        for lease in scheduler.lease(8):
            fetched[of_host(lease.source)] += 1
            scheduler.report(lease.id, [(clock() - 1.0, 1.0)])
    assert 440 <= sum(fetched.values()) <= 451  # one every ten seconds
    assert min(fetched.values()) >= 1
    assert max(fetched.values()) <= 8  # one every ten minutes


def test_what_a_source_waits_for_is_named():
    clock = Clock()
    scheduler = Scheduler(":memory:", budget="100/h", clock=clock)
    scheduler.add_many({"source": name, "host": f"{name}.blogs.test"} for name in "ab")
    scheduler.limit_host("*.blogs.test", "10min")
    (lease,) = scheduler.lease(9)
    scheduler.report(lease.id)
    clock.now += 60.0
    (other,) = {"a", "b"} - {lease.source}
    assert scheduler.lease() == []
    assert scheduler.explain(other).reason == "when its host *.blogs.test accepts a fetch"
    assert scheduler.next_due() == scheduler.next_due(other) == clock() + 540.0
    (wait,) = scheduler.overview().hosts
    assert (wait.host, wait.sources, wait.until) == ("*.blogs.test", 2, clock() + 540.0)
    assert scheduler.overview().due == []
    scheduler.limit_host("*.blogs.test", 0)
    assert [lease.source for lease in scheduler.lease()] == [other]


def fleet(number, host, budget="1000000/h"):
    """Return a scheduler of new sources, and its clock."""
    clock = Clock()
    scheduler = Scheduler(":memory:", budget=budget, clock=clock)
    scheduler.add_many({"source": str(i), "host": host(i)} for i in range(number))
    return scheduler, clock


@pytest.mark.parametrize("end", ["dies", "fails"])
def test_in_large_fleets_floors_and_pauses_hold_for_sources_of_limited_hosts(monkeypatch, end):
    monkeypatch.setattr(agenda, "EXACT", 0)
    scheduler, clock = fleet(4, lambda i: "h.test")
    scheduler.limit_host("h.test", "1s")
    (lease,) = scheduler.lease(timeout="5min")
    if end == "fails":
        scheduler.update(lease.source, min_interval="10h")
        scheduler.failed(lease.id, retry_after="5min")
    else:
        scheduler.pause(lease.source)
    for _ in range(59):
        clock.now += 600.0
        leases = scheduler.lease(4)
        assert lease.source not in [each.source for each in leases]
        for each in leases:
            scheduler.report(each.id, [(clock() - 60.0, 1.0)])


def test_a_slot_is_given_up_when_the_limit_is_gone(monkeypatch):
    monkeypatch.setattr(agenda, "EXACT", 0)
    scheduler, clock = fleet(400, lambda i: f"{'ab'[i % 2]}.blogs.test")
    scheduler.limit_hosts({"*.blogs.test": "1h", "a.blogs.test": "2h"})
    (lease,) = scheduler.lease(400)
    scheduler.report(lease.id)
    clock.now += 1.0
    scheduler.limit_host("*.blogs.test", 0)
    assert len(scheduler.lease(400)) >= 199  # all of b


def test_in_small_fleets_long_queues_are_compared_as_a_whole():
    scheduler, clock = fleet(400, lambda i: "h.test")
    for i in range(400):
        scheduler.report(str(i), [(clock() - 60.0 * k, 1.0 + i) for k in range(3)])
    scheduler.limit_host("h.test", "1s")
    clock.now += HOUR
    scheduler.status()
    expected = brute_force(scheduler, lambda source: "h.test", 1)
    assert [lease.source for lease in scheduler.lease()] == expected


def test_a_domain_that_asks_to_be_left_alone_is_left_alone():
    scheduler, clock = fleet(1, lambda i: "*.blogs.test")
    (lease,) = scheduler.lease()
    scheduler.failed(lease.id, retry_after="1h")
    scheduler.add("a", host="a.blogs.test")
    assert scheduler.lease(2) == []
    clock.now += HOUR
    assert len(scheduler.lease(2)) == 2


def test_a_host_waits_for_all_leases_that_are_out_when_it_is_limited():
    """A report of another lease, which had expired before, is none of theirs."""
    scheduler, clock = fleet(3, lambda i: "h.test")
    (expired,) = scheduler.lease(1, timeout=10.0)
    clock.now += 11.0
    first, second = scheduler.lease(3, timeout=HOUR)
    scheduler.limit_host("h.test", "10s")
    scheduler.add("new", host="h.test")
    scheduler.report(expired.id)
    scheduler.report(first.id)
    clock.now += 100.0
    assert scheduler.lease(9) == []
    scheduler.report(second.id)
    clock.now += 10.0
    assert len(scheduler.lease(9)) == 1


def test_a_host_waits_for_the_lease_of_a_source_that_has_moved_to_it():
    scheduler, clock = fleet(2, lambda i: f"{'gh'[i]}.test")
    leases = {lease.source: lease.id for lease in scheduler.lease(2, timeout=HOUR)}
    scheduler.report(leases["1"])
    scheduler.limit_host("h.test", "10s")
    scheduler.update("0", host="h.test")
    clock.now += 100.0
    assert scheduler.lease(9) == []
    scheduler.report(leases["0"])
    clock.now += 10.0
    assert [lease.source for lease in scheduler.lease(9)] == ["1"]


def test_explaining_does_not_write_where_a_snapshot_is_read():
    scheduler, _ = fleet(1, lambda i: "h.test")
    scheduler.update("0", max_interval="1h")
    scheduler.report("0", [])
    scheduler._ledger.state.sources.flags.writeable = False
    assert scheduler.explain("0").due_after_ping is not None
